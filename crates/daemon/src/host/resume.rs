//! Mounts that a daemon has left which died, and with which this one goes on.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast::Volume;
use holdfast_fuse::{DuplicateRequests, FuseOptions, Session};

use super::{Host, asks, close, mount_options};
use crate::bounds::bound;
use crate::callers::is_trusted;
use crate::mount_options::{DaemonOptions, as_shown};
use crate::mounts;
use crate::supervisor::message::Kept;
use crate::supervisor_link::Left;
use crate::table::{MountSlot, Mounting, New};

/// What a mount that is left goes on with.
pub(crate) struct Held {
    // Before its place, which is free when it is closed.
    volume: Volume,
    place: MountSlot,
    options: DaemonOptions,
    duplicate_requests: Arc<DuplicateRequests>,
}

impl Host {
    /// Takes the place of a mount that is left, and opens its branch or snapshot if that is not `opened`: from then on nothing deletes
    /// it or gives it another head as if it were not mounted. `duplicate_requests`: which of its requests were.
    ///
    /// # Errors
    /// It cannot go on.
    pub(crate) fn hold(
        &self,
        left: &Left,
        duplicate_requests: io::Result<DuplicateRequests>,
        opened: Option<Volume>,
    ) -> io::Result<Held> {
        let kept = &left.kept;
        let words = shown(&left.dir(), kept.device.as_deref());
        let list = words.map_or(kept.options.clone(), |words| as_shown(&kept.options, &words));
        let options = DaemonOptions::parse([list.as_str()], true);
        let mut options = options.map_err(io::Error::other)?;
        options.text.clone_from(&kept.options);
        options.read_only = kept.read_only;
        options.allow_other =
            Some(!options.nodefault_permissions && options.allow_other == Some(true));
        if !is_trusted(kept.user) {
            bound(&mut options, &self.options, self.dirty_bytes).map_err(io::Error::other)?;
        }
        let branch = kept.is_branch.then_some(kept.tree);
        let asks = asks(kept.user, !kept.read_only);
        let place = self.table.place(branch, None, asks, Duration::ZERO);
        let place = place.map_err(|why| io::Error::other(format!("{why:?}")))?;
        let deaths = self.table.supervisor().map_or(1, |it| it.deaths());
        let volume = match opened {
            Some(volume) => volume,
            None => {
                let all = self.kept.read();
                let all = all.as_ref().ok_or(io::ErrorKind::NotConnected)?;
                all.open(kept.tree, &options.volume().resumed(deaths))?
            }
        };
        let duplicate_requests = Arc::new(duplicate_requests?);
        Ok(Held { volume, place, options, duplicate_requests })
    }

    /// Goes on with a mount of a daemon that has died. Those that its directory may lie in must have gone on.
    ///
    /// # Errors
    /// It cannot go on, or was not held; then it ends.
    pub(crate) fn resume(self: &Arc<Self>, left: Left, held: io::Result<Held>) -> io::Result<()> {
        let dir = left.dir();
        let (kept, mounted) = left.into_parts();
        // The place goes last.
        let Held { mut place, volume, options, duplicate_requests } = held?;
        let engine = volume.engine()?;
        engine.set_atime(options.atime.unwrap_or(holdfast::Atime::Relative), !options.nodiratime);
        let fuse_options = FuseOptions {
            duplicate_requests: Some(duplicate_requests),
            ..mount_options(self, &options, &engine, kept.user)
        };
        let session = Session::resume(engine, mounted, &fuse_options, kept.agreed())?;
        let keeping = self.table.supervisor().map(|it| it.keeps(kept.number));
        let Kept { device, options, read_only, user, .. } = kept;
        let mounting = Mounting { dir, device, options, read_only, user };
        if let Err(back) = place.fill(New { session, volume, mounting, keeping, is_resumed: true })
        {
            let New { mut session, volume, .. } = *back;
            session.tear_away();
            let _ = session.finish();
            close(volume);
        }
        Ok(())
    }
}

/// The words that the kernel shows of a mount, if it is to be seen from here.
fn shown(dir: &Path, device: Option<&str>) -> Option<Vec<String>> {
    let mounts = mounts::list().ok()?;
    let is_it = |it: &&mounts::Mount| it.dir == dir && Some(it.device.as_str()) == device;
    mounts::words(mounts.iter().rfind(is_it)?).ok()
}
