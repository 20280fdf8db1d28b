//! What goes through the control socket of a daemon: JSON behind its length, and descriptors beside it.
//!
//! Both sides distrust each other. A message has a bound and a time, and what is in it is made printable before it is shown.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_control::Name;
use holdfast_service::work::Job;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::stop_reason::Stopped;

/// What both sides must speak.
pub(crate) const PROTOCOL: u32 = 1;
/// Bytes of a question.
pub(crate) const QUESTION_MAX: usize = 64 << 10;
/// Bytes of an answer: a list of ten thousand mounts has less.
pub(crate) const ANSWER_MAX: usize = 32 << 20;
/// Descriptors of a message: what more comes is closed by the kernel.
const DESCRIPTORS: usize = 3;

/// What is asked of a daemon.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// To serve one more mount. With a descriptor of the volume's file, open as the mount needs it: with that a mount may join.
    Join(Join),
    /// To work for the caller. With a descriptor of the volume's file: open for reading, or for writing if something changes.
    Work(Box<Job>),
    /// It is mounted. With the connection to the kernel, and what ends it if the caller may.
    Mounted {
        /// Where.
        dir: Name,
        /// `major:minor`, if the caller knows it.
        device: Option<String>,
    },
    /// What is served.
    List,
    /// To say when this mount is closed, and everything of it written.
    Closed {
        /// Where it was mounted.
        dir: Name,
        /// `major:minor`.
        device: String,
    },
    /// To end when nothing is mounted any more.
    End,
    /// To die, and have the supervisor start another process in its place.
    Restart,
}

/// A mount that is to be served.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Join {
    /// Where it is mounted.
    pub(crate) dir: Name,
    /// The lists of `-o`.
    pub(crate) options: Vec<String>,
    /// The branch; `None`: that of the options, or the first of the volume.
    pub(crate) branch: Option<String>,
    /// A snapshot of it.
    pub(crate) snapshot: Option<String>,
    /// The daemon goes on when nothing is mounted any more.
    pub(crate) linger: bool,
}

/// What a daemon answers.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DaemonAnswer {
    /// Comes first, before anything was asked.
    Hello {
        /// See [`PROTOCOL`].
        protocol: u32,
    },
    /// The mount is prepared: mount it.
    Mount,
    /// The work begins: from now on frames follow, see [`frames`](super::frames).
    Begins,
    /// It is done.
    Done,
    /// What is served.
    Served(Served),
    /// The mount is closed; whether the daemon goes on, and what of the mount could not be written.
    Closed {
        /// For other mounts.
        goes_on: bool,
        /// Why not everything could be written.
        #[serde(default)]
        failed: Option<String>,
    },
    /// It dies, and another one goes on.
    Restarts,
    /// The daemon is about to end: the volume is free soon.
    Ending,
    /// It is not done, and why.
    Refused {
        /// A sentence.
        why: String,
    },
}

/// A volume that is served.
#[derive(Debug, Deserialize, Serialize)]
pub struct Served {
    /// The path of its file or device.
    pub volume: Name,
    /// Its id.
    pub uuid: String,
    /// Its label, or nothing.
    pub label: String,
    /// Nothing of it can be written.
    pub read_only: bool,
    /// The daemon goes on when nothing is mounted.
    pub linger: bool,
    /// Why nothing is written any more (P7). A daemon of another version does not say it.
    #[serde(default)]
    pub stopped: Option<Stopped>,
    /// Why the program that was started first serves it, and not the one that is installed.
    #[serde(default)]
    pub falls_back: Option<String>,
    /// What is mounted of it, as far as the caller may hear of that.
    pub mounts: Vec<ServedMount>,
}

/// A mount that is served.
#[derive(Debug, Deserialize, Serialize)]
pub struct ServedMount {
    /// Where it is mounted.
    pub dir: Name,
    /// The branch, or that of the snapshot.
    pub branch: Name,
    /// The snapshot that is mounted; `None`: the branch itself.
    pub snapshot: Option<Name>,
    /// The options, as they came.
    pub options: String,
    /// Nothing can be written.
    pub read_only: bool,
    /// The user of the mount.
    pub user: u32,
}

/// Whether a daemon takes it: longer ones look to it like nonsense.
pub(crate) fn fits(question: &Question) -> bool {
    serde_json::to_vec(question).is_ok_and(|text| text.len() <= QUESTION_MAX)
}

/// Sends a message with descriptors.
///
/// # Errors
/// The peer is gone, or has not read it in time.
pub(crate) fn send(
    to: &UnixStream,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let bytes = [&length.to_le_bytes()[..], &text].concat();
    let until = Deadline::after(patience);
    let mut sent = 0;
    while sent < bytes.len() {
        to.set_write_timeout(Some(time_left(&until)?))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if sent == 0 && !descriptors.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let rest = [IoSlice::new(&bytes[sent..])];
        match sendmsg(to, &rest, &mut beside, SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The next message, of a peer that hands over no descriptors. If it does all the same, they never become ours: the kernel lets them
/// go, and asks no server of theirs for that, as a `close` of ours would.
///
/// # Errors
/// The peer is gone (`UnexpectedEof`), has not sent all of it in time (`TimedOut`), or sends nonsense.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &UnixStream,
    mut most: usize,
    patience: Duration,
) -> io::Result<T> {
    receive_of(from, &mut most, patience)
}

/// As [`receive`], of a peer that may say so many bytes in all. What comes is taken off; all of it by what is longer.
///
/// # Errors
/// Those of [`receive`].
pub(crate) fn receive_of<T: DeserializeOwned>(
    from: &UnixStream,
    left: &mut usize,
    patience: Duration,
) -> io::Result<T> {
    let until = Deadline::after(patience);
    let words =
        |bytes: &mut [u8]| recv(from.as_fd(), bytes, RecvFlags::empty()).map(|(some, _)| some);
    framed(left, |bytes| fill(from, bytes, &until, words))
}

/// As [`receive`], with the descriptors beside it. A process that takes those of a stranger may hang for ever as soon as they are closed: only a
/// door does.
///
/// # Errors
/// Those of [`receive`].
pub(crate) fn receive_handed<T: DeserializeOwned>(
    from: &UnixStream,
    mut most: usize,
    patience: Duration,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let until = Deadline::after(patience);
    let mut descriptors = Vec::new();
    let message = framed(&mut most, |bytes| {
        fill(from, bytes, &until, |bytes| receive_both(from, bytes, &mut descriptors))
    })?;
    Ok((message, descriptors))
}

/// A message out of bytes that `fill` brings.
fn framed<T: DeserializeOwned>(
    left: &mut usize,
    mut fill: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<T> {
    let mut length = [0; 4];
    fill(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    let Some(rest) = left.checked_sub(length) else {
        *left = 0;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    };
    *left = rest;
    let mut text = vec![0; length];
    fill(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Fills `bytes` with what `receive` brings.
fn fill(
    from: &UnixStream,
    bytes: &mut [u8],
    until: &Deadline,
    mut receive: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        from.set_read_timeout(Some(time_left(until)?))?;
        match receive(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(some) => filled += some,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Some bytes, and the descriptors beside them.
fn receive_both(
    from: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(bytes)];
    let received = recvmsg(from.as_fd(), &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC);
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    // More than belong to any message are closed.
    descriptors.truncate(DESCRIPTORS);
    received.map(|received| received.bytes)
}

fn time_left(until: &Deadline) -> io::Result<Duration> {
    let left = until.left();
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        // Less than a microsecond would mean for ever.
        false => Ok(left.max(Duration::from_millis(1))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn a_message_comes_with_its_descriptors_and_no_others() {
        let (one, other) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let question = Question::Closed { dir: Name(b"/a\xff".into()), device: "0:53".into() };
        send(&one, &question, &[null.as_fd(), null.as_fd()], SOON).unwrap();
        send(&one, &Question::List, &[], SOON).unwrap();
        let (question, descriptors) = receive_handed(&other, QUESTION_MAX, SOON).unwrap();
        assert!(matches!(question, Question::Closed { dir, .. } if dir.0 == b"/a\xff"));
        assert_eq!(descriptors.len(), 2);
        let (question, descriptors) = receive_handed(&other, QUESTION_MAX, SOON).unwrap();
        assert!(matches!(question, Question::List) && descriptors.is_empty());
    }

    /// A door holds no more of them than a message has, in however many pieces it comes.
    #[test]
    fn descriptors_beyond_those_of_a_message_are_closed() {
        let (one, other) = UnixStream::pair().unwrap();
        let (pipe, end) = io::pipe().unwrap();
        for byte in b"\x08\0\0\0\"123456\"".chunks(1) {
            let ends = [end.as_fd(); DESCRIPTORS];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(beside.push(SendAncillaryMessage::ScmRights(&ends)));
            sendmsg(&one, &[IoSlice::new(byte)], &mut beside, SendFlags::NOSIGNAL).unwrap();
        }
        drop(end);
        let (text, held) = receive_handed::<String>(&other, QUESTION_MAX, SOON).unwrap();
        assert_eq!((text.as_str(), held.len()), ("123456", DESCRIPTORS));
        drop(held);
        assert_eq!(io::copy(&mut &pipe, &mut io::sink()).unwrap(), 0, "all have gone");
    }

    #[test]
    fn descriptors_that_nobody_asked_for_are_never_received() {
        let (one, other) = UnixStream::pair().unwrap();
        let (pipe, end) = io::pipe().unwrap();
        send(&one, &Question::List, &[end.as_fd()], SOON).unwrap();
        drop(end);
        assert!(matches!(receive(&other, QUESTION_MAX, SOON), Ok(Question::List)));
        // The last copy has gone.
        assert_eq!(io::copy(&mut &pipe, &mut io::sink()).unwrap(), 0);
    }

    #[test]
    fn all_that_a_peer_says_is_taken_off_what_it_may_say() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut left = 20;
        for (text, then) in [("12345678", Some(10)), ("1234567", Some(1)), ("1", None), ("", None)]
        {
            send(&one, &text, &[], SOON).unwrap();
            let heard = receive_of::<String>(&other, &mut left, SOON);
            assert_eq!((heard.is_ok(), left), (then.is_some(), then.unwrap_or(0)), "{text}");
        }
    }

    #[test]
    fn nonsense_silence_and_too_much_are_errors() {
        let kind = |bytes: &[u8], is_over: bool| {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(bytes).unwrap();
            if is_over {
                drop(one);
                return receive::<Question>(&other, QUESTION_MAX, SOON).unwrap_err().kind();
            }
            let kind = receive::<Question>(&other, QUESTION_MAX, SOON).unwrap_err().kind();
            drop(one);
            kind
        };
        assert_eq!(kind(b"", false), io::ErrorKind::TimedOut);
        assert_eq!(kind(b"\x05\0\0\0\"en", false), io::ErrorKind::TimedOut);
        assert_eq!(kind(b"\x05\0\0\0\"en", true), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(b"\xff\xff\xff\xff", false), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"\x05\0\0\0\"end\x01", false), io::ErrorKind::InvalidData);
        // It ends, though more comes all the time.
        let (one, other) = UnixStream::pair().unwrap();
        assert!(send(&one, &"x".repeat(4 << 20), &[], SOON).is_err(), "nobody reads");
        assert!(receive::<Question>(&other, QUESTION_MAX, SOON).is_err());
    }
}
