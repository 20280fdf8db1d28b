//! The process that stands between a daemon and a caller of another user.
//!
//! A caller hands over descriptors. One may lie on a FUSE server of the caller that answers nothing: then a process that looks at it, or only
//! closes it, waits for ever, and not even SIGKILL ends that. So the daemon does not receive what strangers hand over. A process
//! of its own does, the *door*, which hands on only what asks no server: the volume's own file, an anonymous pipe, what ends a
//! connection, and in place of a connection to the kernel a clone of it, whose flags the caller cannot change. If the door is held up,
//! the caller has one way less to ask; the daemon has lost nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_device::HostFile;
use holdfast_fuse::{connect, connection, unconnected};
use holdfast_service::outcome::{Context, Outcome};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Uid};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FsWord, fstatfs};
use rustix::io::Errno;
use serde_json::Value;

use crate::control_socket::message::{self, ANSWER_MAX, QUESTION_MAX};
use crate::drop_privileges;

/// How long either gets to send the rest of what it has begun, and to take what the other says.
const PATIENCE: Duration = Duration::from_secs(5);
/// The filesystem of anonymous pipes.
const PIPEFS_MAGIC: FsWord = 0x5049_5045;

/// Starts a door for the caller at the other end of `stream`; what comes through it comes out of the answer.
///
/// # Errors
/// The system gives no process.
pub(super) fn open(stream: UnixStream, volume: &HostFile) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let kind = if volume.is_block_device { "block" } else { "file" };
    let child = Command::new("/proc/self/exe")
        .arg0("holdfast")
        .args(["door", kind, &volume.device.to_string(), &volume.inode.to_string()])
        .current_dir("/")
        .stdin(OwnedFd::from(stream))
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::null())
        .spawn()?;
    Ok((child, ours))
}

/// The life of a door, in a session of its own and without any right: the caller is the standard input, the daemon the standard output.
pub fn run(volume: &HostFile) -> Outcome {
    let stream = |of: BorrowedFd<'_>| of.try_clone_to_owned().map(UnixStream::from);
    let caller = stream(io::stdin().as_fd()).context("the caller")?;
    let daemon = stream(io::stdout().as_fd()).context("the daemon")?;
    let peer =
        getsockopt(&caller, PeerCredentials).map_err(io::Error::from).context("the caller")?;
    // The caller's user may not open that everywhere.
    let mut known = Known { volume: *volume, spare: unconnected().ok() };
    drop_privileges::of_door(Uid::from_raw(peer.uid()), Gid::from_raw(peer.gid()))
        .context("rights")?;
    // The end of either ends it, and the other one sees that.
    while pass(&caller, &daemon, &mut known).is_ok() {}
    Ok(0)
}

/// What a door knows and has.
struct Known {
    volume: HostFile,
    /// For the clone of a connection.
    spare: Option<OwnedFd>,
}

/// Hands on the next message, of the caller or of the daemon.
fn pass(caller: &UnixStream, daemon: &UnixStream, known: &mut Known) -> io::Result<()> {
    let mut both = [PollFd::new(daemon, PollFlags::IN), PollFd::new(caller, PollFlags::IN)];
    match poll(&mut both, None) {
        Err(Errno::INTR) => return Ok(()),
        ready => drop(ready?),
    }
    if !both[0].revents().is_empty() {
        let message: Value = message::receive(daemon, ANSWER_MAX, PATIENCE)?;
        return message::send(caller, &message, &[], PATIENCE);
    }
    let handed = message::receive_handed::<Value>(caller, QUESTION_MAX, PATIENCE)?;
    let (message, descriptors) = handed;
    let passed: Vec<OwnedFd> =
        descriptors.into_iter().filter_map(|it| passable(it, known)).collect();
    let passed: Vec<BorrowedFd<'_>> = passed.iter().map(AsFd::as_fd).collect();
    message::send(daemon, &message, &passed, PATIENCE)
}

/// What the daemon gets for a descriptor of a caller, if it gets anything. May wait for ever.
fn passable(descriptor: OwnedFd, known: &mut Known) -> Option<OwnedFd> {
    if let Some(clone) = known.spare.take_if(|spare| connect(spare, &descriptor).is_ok()) {
        return Some(clone);
    }
    let is_volume = || HostFile::of(&descriptor).is_ok_and(|it| it == known.volume);
    let is_pipe = || fstatfs(&descriptor).is_ok_and(|it| it.f_type == PIPEFS_MAGIC);
    let passes = is_volume() || is_pipe() || connection::ends_one(&descriptor);
    passes.then_some(descriptor)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn only_what_asks_no_server_passes() {
        let dir = tempfile::tempdir().unwrap();
        let [own, other] =
            ["own", "other"].map(|name| File::create(dir.path().join(name)).unwrap());
        let volume = HostFile::of(&own).unwrap();
        let (pipe, _end) = io::pipe().unwrap();
        let (socket, _) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let directory = File::open(dir.path()).unwrap();
        let mut known = Known { volume, spare: unconnected().ok() };
        let mut passes = |it: OwnedFd| passable(it, &mut known).is_some();
        assert!(passes(own.into()) && passes(pipe.into()));
        for none in [other.into(), socket.into(), null.into(), directory.into()] {
            assert!(!passes(none));
        }
    }

    #[test]
    fn a_door_hands_on_until_one_of_them_goes() {
        let dir = tempfile::tempdir().unwrap();
        let [own, other] =
            ["own", "other"].map(|name| File::create(dir.path().join(name)).unwrap());
        let volume = HostFile::of(&own).unwrap();
        let soon = Duration::from_secs(20);
        let (daemon, inner) = UnixStream::pair().unwrap();
        let (caller, outer) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let door = scope.spawn(|| {
                let mut passed = 0;
                let mut known = Known { volume, spare: None };
                while pass(&outer, &inner, &mut known).is_ok() {
                    passed += 1;
                }
                passed
            });
            message::send(&daemon, &"hello", &[], soon).unwrap();
            let (heard, _) = message::receive_handed::<String>(&caller, 99, soon).unwrap();
            assert_eq!(heard, "hello");
            message::send(&caller, &"question", &[other.as_fd(), own.as_fd()], soon).unwrap();
            let (asked, descriptors) =
                message::receive_handed::<String>(&daemon, 99, soon).unwrap();
            assert_eq!((asked.as_str(), descriptors.len()), ("question", 1));
            assert_eq!(HostFile::of(&descriptors[0]).unwrap(), volume);
            message::send(&daemon, &"answer", &[], soon).unwrap();
            let (heard, _) = message::receive_handed::<String>(&caller, 99, soon).unwrap();
            assert_eq!(heard, "answer");
            // The caller says no more, and the daemon has nothing to add.
            drop(daemon);
            assert_eq!(door.join().unwrap(), 3);
        });
    }
}
