//! The process that waits for a command in a private mount.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use holdfast_service::outcome::{Context, Failure, plain_words};

use super::inside::MESSAGE_MAX;
use super::message::{Begin, MountAnswer, WantedMount};
use super::signals::ENDING;
use super::{FAILED, SIGNAL, Signals};
use crate::ask::{SYNC, attribute};
use crate::control_socket::message;

/// How long a mount may take: a branch that is just being closed is waited for.
const MOUNTING: Duration = Duration::from_secs(200);
/// How long writing may take that the command has left to memory.
const SYNCING: Duration = Duration::from_secs(600);

/// A process that is to become the command. It waits for what is to be mounted, and ends if nothing is.
pub struct Prepared {
    /// `None` once it was handed on.
    child: Option<Child>,
    socket: UnixStream,
}

impl Prepared {
    /// Starts it. The descriptors that this process has been given are the command's: those that are closed when a
    /// program is started are not. So it is started before anything else is.
    ///
    /// # Errors
    /// No process can be started.
    pub fn start(command: &[OsString]) -> Result<Prepared, Failure> {
        let (socket, theirs) = UnixStream::pair().context("a socket")?;
        let child = Command::new("/proc/self/exe")
            .arg0("holdfast")
            .args(["private", "--"])
            .args(command)
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .spawn()
            .context("the command could not be started")?;
        Ok(Prepared { child: Some(child), socket })
    }

    /// Has it mount.
    ///
    /// # Errors
    /// It is not mounted, and the command never begins.
    pub fn mount(self, wanted: &WantedMount) -> Result<Ready, Failure> {
        let input = std::io::stdin();
        let failed = |why: String| Failure::new(FAILED, why);
        message::send(&self.socket, wanted, &[input.as_fd()], MOUNTING)
            .map_err(|error| failed(plain_words(&error)))?;
        let said = message::receive_handed(&self.socket, MESSAGE_MAX, MOUNTING);
        match said {
            Ok((MountAnswer::Mounted, descriptors)) => {
                let root = descriptors.into_iter().next().map(File::from);
                let root = root.ok_or_else(|| failed("the mount did not come through".into()))?;
                Ok(Ready { prepared: self, root })
            }
            Ok((MountAnswer::Failed { code, why }, _)) => Err(Failure::new(code, why)),
            Err(error) => Err(failed(format!(
                "the process that was to mount has ended ({})",
                plain_words(&error)
            ))),
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = self.socket.shutdown(std::net::Shutdown::Both);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that has its private mount, and has not begun. If it is dropped, it never does, and the mount goes.
pub struct Ready {
    prepared: Prepared,
    root: File,
}

impl Ready {
    /// Has it become the command.
    ///
    /// # Errors
    /// It has ended: the command never begins.
    pub fn begin(mut self) -> Result<Running, Failure> {
        let socket = self.prepared.socket.try_clone().context("a socket")?;
        message::send(&socket, &Begin, &[], MOUNTING).map_err(|error| {
            let why = plain_words(&error);
            Failure::new(
                FAILED,
                format!("the process that was to become the command has ended ({why})"),
            )
        })?;
        let child = self.prepared.child.take().expect("it is taken once");
        Ok(Running { child, socket, root: self.root })
    }
}

/// A command that runs in a private mount.
pub struct Running {
    child: Child,
    socket: UnixStream,
    root: File,
}

/// How a command has ended.
#[derive(Debug)]
pub enum Ended {
    /// With this exit code, or 128 and the signal that has ended it.
    Code(u8),
    /// It could not be run.
    NotRun(Failure),
}

impl Running {
    /// Waits until the command has ended. Processes that it has left behind may go on.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(&mut self, signals: &Signals) -> Result<Ended, Failure> {
        signals.pass_on_to(&self.child).context("the command cannot be waited for")?;
        let status = self.child.wait().context("the command cannot be waited for")?;
        // A command that has begun has closed the socket without a word.
        Ok(match message::receive(&self.socket, MESSAGE_MAX, ENDING) {
            Ok(MountAnswer::Failed { code, why }) => Ended::NotRun(Failure::new(code, why)),
            _ => Ended::Code(code(status)),
        })
    }

    /// Makes everything durable that was done in the mount, pages of memory maps included.
    ///
    /// # Errors
    /// Something could not be written, or the daemon has ended or does not answer.
    pub fn sync(&self) -> std::io::Result<()> {
        // By the name under which the process that asks the daemon finds it.
        let root = format!("/proc/{}/fd/{}", std::process::id(), self.root.as_raw_fd());
        attribute(&PathBuf::from(root), SYNC, SYNCING).map(drop)
    }
}

fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    match (status.code(), signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(FAILED),
        (None, Some(signal)) => SIGNAL.saturating_add(signal),
        (None, None) => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_as_by_a_shell() {
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
        // With a core.
        assert_eq!(code(ExitStatus::from_raw(11 | 0x80)), 139);
    }
}
