//! Reaching a daemon's socket, and knowing the process at the other end.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects within `patience`.
///
/// # Errors
/// No daemon listens; or it takes no more callers (`TimedOut`).
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let until = Deadline::after(patience);
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect_to(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            // As many wait as may.
            Err(Errno::AGAIN) if until.is_over() => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::AGAIN) => std::thread::sleep(PAUSE.min(until.left())),
            Err(error) => return Err(error.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The maker of the other end of a socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0 if it cannot be seen from here: it is in another pid namespace.
    pub(crate) pid: i32,
    /// The user.
    pub(crate) user: u32,
}

/// The maker of the other end.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let found = getsockopt(stream, PeerCredentials)?;
    Ok(Peer { pid: found.pid(), user: found.uid() })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_listener_that_accepts_nobody_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(listener.as_fd(), 0).unwrap();
        let soon = Duration::from_millis(50);
        let one = connect(&path, soon).unwrap();
        let me = rustix::process::geteuid().as_raw();
        let process = i32::try_from(std::process::id()).unwrap();
        assert_eq!(peer(&one).unwrap(), Peer { pid: process, user: me });
        let refused = connect(&path, soon).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        // It does again.
        drop(listener.accept().unwrap());
        assert!(connect(&path, soon).is_ok());
        drop(listener);
        assert_eq!(connect(&path, soon).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
