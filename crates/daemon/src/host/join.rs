//! A mount that joins: the caller mounts, and hands the connection over.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast::Volume;
use holdfast_fuse::{FuseOptions, Handed, Mounted, Session};
use holdfast_service::outcome::printable;

use super::{
    CLOSING, Host, No, PATIENCE, asks, close, duplicate_requests, keep, mount_options, words,
};
use crate::callers::is_trusted;
use crate::control_socket::message::{self, DaemonAnswer, Join, QUESTION_MAX, Question};
use crate::mount_list;
use crate::mount_options::DaemonOptions;
use crate::table::{Mounting, New, Taken};

/// How long it gets to mount: the helper may have to wait for the directory.
const MOUNTING: Duration = Duration::from_secs(60);
/// A stranger keeps the branch from others meanwhile.
const MOUNTING_OF_STRANGERS: Duration = Duration::from_secs(20);
/// The numbers of /dev/fuse.
const FUSE: (u32, u32) = (10, 229);

impl Host {
    /// Serves a mount that a caller is about to make, and returns when it does.
    pub(super) fn join(
        self: &Arc<Self>,
        stream: &UnixStream,
        user: u32,
        join: &Join,
        descriptors: Vec<OwnedFd>,
    ) -> Result<DaemonAnswer, No> {
        if !self.table.is_serving(CLOSING) {
            return Err(No::Ending);
        }
        let mut options = self.options_of(join)?;
        self.expect_modest(join, &mut options, user)?;
        let may_write = descriptors.first().and_then(|proof| self.id.proven_by(proof));
        drop(descriptors);
        self.expect_allowed(&options, may_write)?;
        let dir = PathBuf::from(OsString::from_vec(join.dir.0.clone()));
        let (number, branch, engine_options) = {
            let engine_options = options.volume();
            let (branch, snapshot) = self.open_volume(|kept| kept.find(&engine_options))?;
            (snapshot.unwrap_or(branch), snapshot.is_none().then_some(branch), engine_options)
        };
        let asks = asks(user, may_write == Some(true));
        let place = self.table.place(branch, stream.try_clone().ok(), asks, CLOSING);
        let mut place = place.map_err(|taken| match taken {
            Taken::Ending => No::Ending,
            Taken::Busy => No::Refused("the branch is still being closed; try again".into()),
            // Where others have mounted is no matter of a stranger.
            Taken::At(_, of) if !mount_list::may_hear(user, of) => No::Refused(
                "another user has mounted this branch already; mount a snapshot of it: any number of users may have that".into(),
            ),
            Taken::At(at, _) => {
                let beside = match at == dir {
                    true => String::new(),
                    false => format!("; to see it at {} as well: mount --bind", dir.display()),
                };
                No::Refused(format!(
                    "this branch is mounted at {} already (or was unmounted lazily, and programs have files open there){beside}",
                    at.display()
                ))
            }
        })?;
        let volume = self.open_volume(|kept| kept.open(number, &engine_options))?;
        let session = self.serve(stream, user, &mut options, &volume);
        let (session, device, fuse_options) = match session {
            Ok(session) => session,
            Err(no) => {
                close(volume);
                return Err(no);
            }
        };
        if join.linger {
            self.linger();
        }
        let (read_only, options) = (options.read_only, options.text);
        let mounting = Mounting { dir, device, options, read_only, user };
        let keeping = keep(self, &session, &fuse_options, (number, branch.is_some()), &mounting);
        if let Err(back) = place.fill(New { session, volume, mounting, keeping, is_resumed: false })
        {
            let New { mut session, volume, .. } = *back;
            session.tear_away();
            let _ = session.finish();
            close(volume);
            return Err(No::Ending);
        }
        tracing::info!(
            "{} is mounted at {} as well",
            self.path.display(),
            printable(&join.dir.text())
        );
        Ok(DaemonAnswer::Done)
    }

    /// Lets the caller mount, and serves that.
    fn serve(
        self: &Arc<Self>,
        stream: &UnixStream,
        user: u32,
        options: &mut DaemonOptions,
        volume: &Volume,
    ) -> Result<(Session, Option<String>, FuseOptions), No> {
        let engine = volume.engine().map_err(|error| words(&error))?;
        engine.set_atime(options.atime.unwrap_or(holdfast::Atime::Relative), !options.nodiratime);
        message::send(stream, &DaemonAnswer::Mount, &[], PATIENCE)
            .map_err(|error| words(&error))?;
        let patience = if is_trusted(user) { MOUNTING } else { MOUNTING_OF_STRANGERS };
        let (question, descriptors) = message::receive_handed(stream, QUESTION_MAX, patience)
            .map_err(|_| "nothing was mounted in time")?;
        let Question::Mounted { dir, device } = question else {
            return Err("nothing was mounted".into());
        };
        let mut descriptors = descriptors.into_iter();
        let fuse = descriptors.next().filter(is_fuse);
        let fuse = fuse.ok_or("this is no mount")?;
        let handed = Handed { dir: OsString::from_vec(dir.0).into(), device: device.clone() };
        let mounted = Mounted::adopt(&handed, descriptors.next(), user);
        // What a stranger says of a mount that is not to be seen may be true of another one.
        let device = device.filter(|it| is_trusted(user) || mounted.device() == Some(it));
        let fuse_options = FuseOptions {
            duplicate_requests: duplicate_requests(self).map_err(|error| words(&error))?,
            ..mount_options(self, options, &engine, user)
        };
        let session = Session::start(engine, (fuse, mounted), &fuse_options);
        Ok((session.map_err(|error| words(&error))?, device, fuse_options))
    }
}

/// Whether it is an opened /dev/fuse: nothing else asks as the kernel does.
fn is_fuse(descriptor: &OwnedFd) -> bool {
    let Ok(file) = descriptor.try_clone().map(File::from) else { return false };
    let numbers = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
    file.metadata().is_ok_and(|it| it.file_type().is_char_device() && numbers(it.rdev()) == FUSE)
}
