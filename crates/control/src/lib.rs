//! What a program asks a daemon about branches and snapshots, and how the library does it. Commands ask the same through the control socket, and
//! so where that does not lead to the daemon.
//!
//! ```text
//! Ask ── JSON ──▶ ioctl(2) on a directory of the mount ──▶ the kernel ──▶ daemon
//! Reply ◀── JSON ─────────────────────────────────────────────────────────┘
//! ```
//! An older program ignores the fields that a newer one has more: each field is one whose absence does no harm. What a command must not be
//! carried out without is a form that the older program refuses ([`Which::Number`]). The numbers of deletions came before that rule: a daemon
//! older than they are deletes by name alone.
//!
//! Never what carries it out.

mod message;
mod name;
mod parts;
mod which;

use std::io;
use std::os::fd::AsFd;

use holdfast_base::prng;
use holdfast_wire::ask::{CHANGE_XATTR, CONTROL, PERMIT, PIECE, attribute};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

pub use message::{Ask, Branch, CopyOf, Failed, HeldBy, Origin, Reply, Snapshot};
pub use name::{Name, NotText};
pub use parts::{Listed, Nonsense, in_parts};
pub use which::Which;

/// Bytes of the longest answer.
pub const REPLY_MAX: usize = PIECE;
/// Bytes of the longest command.
const COMMAND_MAX: usize = PIECE - CONTROL.len() - PERMIT - 1;

/// The answer of the mount that `dir`, an open directory, is in to a command. One that `changes` something is announced by an attribute: the
/// kernel lets that through only where the mount may be written, and lets through any ioctl. Waits as long as the daemon takes, and cannot be
/// interrupted.
///
/// # Errors
/// `E2BIG` for a command that is too long; `EROFS` where the mount is read-only; `EACCES` for all but root and the user of the mount;
/// `ENOTTY` and `EOPNOTSUPP` where no daemon takes commands. The command may be carried out all the same.
fn command(dir: impl AsFd, command: &[u8], changes: bool) -> io::Result<Vec<u8>> {
    if command.len() > COMMAND_MAX {
        return Err(Errno::TOOBIG.into());
    }
    let mut text = CONTROL.to_vec();
    if changes {
        let permit = format!("{:016x}{:016x}", prng::entropy(), prng::entropy());
        let name = std::str::from_utf8(CHANGE_XATTR).map_err(|_| Errno::INVAL)?;
        rustix::fs::fsetxattr(&dir, name, permit.as_bytes(), XattrFlags::empty())?;
        text.extend_from_slice(permit.as_bytes());
        text.push(b' ');
    }
    text.extend_from_slice(command);
    attribute(dir, &text)
}

/// Has the daemon of the mount that `dir` is in carry out what is asked.
///
/// # Errors
/// The daemon's, or that there is none; `InvalidData` for an answer that makes no sense.
pub fn ask(dir: impl AsFd, ask: &Ask) -> io::Result<Reply> {
    let question = serde_json::to_vec(ask)?;
    let answer = command(dir, &question, !ask.only_looks())?;
    serde_json::from_slice(&answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_sent_and_what_takes_no_commands_says_so() {
        let dir = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let number = |error: io::Error| Errno::from_io_error(&error);
        let long = command(&dir, &vec![b'x'; COMMAND_MAX + 1], false).unwrap_err();
        assert_eq!(number(long), Some(Errno::TOOBIG));
        let other = ask(&dir, &Ask::Branches { after: 0 }).unwrap_err();
        assert_eq!(number(other), Some(Errno::NOTTY));
    }

    /// A daemon may be of another program than its caller.
    #[test]
    fn programs_of_different_ages_understand_each_other() {
        let old = br#"{"delete_branch":{"name":"x"}}"#;
        assert!(matches!(serde_json::from_slice(old), Ok(Ask::DeleteBranch { number: None, .. })));
        let new = br#"{"delete_branch":{"name":"x","number":7,"later":[1]}}"#;
        let read = serde_json::from_slice(new);
        assert!(matches!(read, Ok(Ask::DeleteBranch { number: Some(7), .. })));
        // What is meant by its number alone is not ignored by one that knows names alone.
        let ask = Ask::DeleteBranch { name: 7.into(), number: None };
        assert_eq!(
            serde_json::to_string(&ask).unwrap(),
            r#"{"delete_branch":{"name":7,"number":null}}"#
        );
        let by_name = Ask::RenameSnapshot {
            branch: None,
            name: Name(b"x".into()).into(),
            new_name: Name(b"y".into()),
        };
        let json = r#"{"rename_snapshot":{"branch":null,"name":"x","new_name":"y"}}"#;
        assert_eq!(serde_json::to_string(&by_name).unwrap(), json);
        let refused = serde_json::from_slice(br#"{"refused":{"why":"no"}}"#);
        assert!(matches!(refused, Ok(Reply::Refused { errno: None, .. })));
    }
}
