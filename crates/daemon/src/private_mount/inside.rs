//! The process that mounts where no other sees it, and becomes the command.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_control::Name;
use holdfast_service::outcome::{Context, Failure, Outcome, plain_words};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::message::{Begin, MountAnswer, WantedMount};
use super::namespaces::{Isolation, enter_as_root, enter_as_user, let_go_of};
use super::{FAILED, NOT_FOUND, NOT_RUN};
use crate::client::join;
use crate::control_socket::message;
use crate::mount_options::{DaemonOptions, split};
use crate::mounts::with_help;

/// How long to wait for what is to be mounted, and to begin. The caller may itself wait for a daemon, many times ten minutes
/// long; if that one ends, the socket does.
const PATIENCE: Duration = Duration::from_secs(86_400);
/// How long the other side may take to read an answer.
const SOON: Duration = Duration::from_secs(60);
/// Bytes of a message.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

/// Waits on the standard input for what is to be mounted, mounts it, and becomes `command`. Returns only if it cannot: the
/// other side knows why then.
pub fn become_command(command: &[OsString]) -> Outcome {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("the standard input")?;
    let socket = UnixStream::from(socket);
    // The caller is gone, or has nothing to be mounted: it is not told.
    let Ok((wanted, descriptors)) =
        message::receive_handed::<WantedMount>(&socket, MESSAGE_MAX, PATIENCE)
    else {
        return Ok(FAILED);
    };
    let failure = match mount(&wanted) {
        Ok(root) => {
            let input = descriptors.first().map(rustix::stdio::dup2_stdin);
            match input {
                Some(Ok(())) => run(&socket, root, command),
                _ => Failure::new(FAILED, "the standard input did not come through"),
            }
        }
        Err(failure) => failure,
    };
    let code = failure.code;
    let said = MountAnswer::Failed { code, why: with_help(failure).sentence };
    let _ = message::send(&socket, &said, &[], SOON);
    Ok(code)
}

fn path(name: &Name) -> PathBuf {
    OsStr::from_bytes(&name.0).into()
}

/// Mounts, goes to the working directory, and opens the root of the mount.
fn mount(wanted: &WantedMount) -> Result<File, Failure> {
    // None would hear how it ends, and what it does would be thrown away.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(std::io::Error::from)
        .context("the signal that ends this process with its parent")?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(wanted.parent) {
        return Err(Failure::new(FAILED, "the process that waits for the command has ended"));
    }
    let way = enter_as_root()?;
    let mut list = wanted.options.clone();
    if way == Isolation::AsUser {
        // Only processes of the same user namespace could come in by that, and so not the waiter.
        let others = split(&wanted.options).filter(|option| *option != "allow_other");
        list = ["noallow_other"].into_iter().chain(others).collect::<Vec<_>>().join(",");
        expect_device()?;
    }
    let mut options =
        DaemonOptions::parse([list.as_str()], false).map_err(|why| Failure::new(FAILED, why))?;
    options.branch = Some(wanted.branch.utf8()?.to_owned());
    let (volume, dir) = (path(&wanted.volume), path(&wanted.dir));
    // The daemon is found before, as other users' files cannot be told apart in a user namespace.
    let enter = || match way {
        Isolation::Entered => {
            if wanted.covers {
                let_go_of(&dir);
            }
            Ok(())
        }
        Isolation::AsUser => enter_as_user(),
    };
    if !join(&volume, &dir, &options, &[list.clone()], false, enter)? {
        let why = format!("{}: no process serves it any more", volume.display());
        return Err(Failure::new(FAILED, why));
    }
    if let Some(at) = &wanted.working_dir {
        let at = path(at);
        std::env::set_current_dir(&at).context(at.display())?;
    }
    File::open(&dir).context(dir.display())
}

/// Where no helper of root can be asked any more, /dev/fuse has to be open to this user.
fn expect_device() -> Result<(), Failure> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match opened {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Failure::new(
            FAILED,
            "/dev/fuse: permission denied; a private mount of an ordinary user needs it open to all (mode 0666)",
        )),
        other => other.map(drop).context("/dev/fuse"),
    }
}

/// Becomes the command, if it can.
fn run(socket: &UnixStream, root: File, command: &[OsString]) -> Failure {
    if let Err(error) = message::send(socket, &MountAnswer::Mounted, &[root.as_fd()], SOON) {
        return Failure::new(FAILED, plain_words(&error));
    }
    // The command does not get it: it would keep the mount in use.
    drop(root);
    if let Err(error) = message::receive::<Begin>(socket, MESSAGE_MAX, PATIENCE) {
        return Failure::new(FAILED, plain_words(&error));
    }
    let Some((program, arguments)) = command.split_first() else {
        return Failure::new(FAILED, "there is no command");
    };
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
    Failure::new(code, format!("{}: {}", Path::new(program).display(), plain_words(&error)))
}
