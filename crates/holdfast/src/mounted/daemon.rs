//! How the daemon of a mount is asked, and what of its answers is believed: it may be a stranger's.

use std::io;

use holdfast_base::show::printable;
use holdfast_control::{Ask, Name, Reply};
use holdfast_format::item::lineage::judge_name;
use rustix::fs::Mode;
use rustix::io::Errno;

use super::{Mount, READ_DIRECTORY, errno};
use crate::error::refusal;

/// Letters of a sentence of a daemon that are passed on.
const WHY: usize = 4096;
/// The largest number of an error that Linux knows.
const ERRNO_MAX: i32 = 4095;

impl Mount {
    /// Has the daemon carry out what is asked. Waits as long as that takes.
    pub(super) fn ask(&self, ask: &Ask) -> io::Result<Reply> {
        if !ask.only_looks() && self.changes_nothing {
            return Err(errno(libc::EROFS));
        }
        let top = self.top.as_ref().unwrap_or(&self.root);
        let root = rustix::fs::openat(top, ".", READ_DIRECTORY, Mode::empty())
            .map_err(|error| self.not_opened(error))?;
        if ask.wants_pages() {
            rustix::fs::syncfs(&root)?;
        }
        match holdfast_control::ask(root, ask).map_err(|error| self.not_obeyed(error))? {
            Reply::Refused { why, errno } => Err(refused(&why, errno)),
            reply => Ok(reply),
        }
    }

    /// The sentence where the directory by which it is asked may not be read: that is the volume's matter, and not the daemon's.
    fn not_opened(&self, error: Errno) -> io::Error {
        match error {
            Errno::ACCESS | Errno::PERM => refusal(
                error.raw_os_error(),
                format!(
                    "the root directory of the volume at {} may not be read by this user, and its daemon is asked through that",
                    self.dir.display()
                ),
            ),
            error => error.into(),
        }
    }

    /// The sentence for a daemon that takes no commands of this user, or none at all.
    fn not_obeyed(&self, error: io::Error) -> io::Error {
        let dir = self.dir.display();
        match Errno::from_io_error(&error) {
            Some(number @ (Errno::ACCESS | Errno::PERM)) => refusal(
                number.raw_os_error(),
                format!(
                    "only root and the user who has mounted {dir} may ask for branches and snapshots there"
                ),
            ),
            Some(Errno::NOTTY | Errno::OPNOTSUPP) => refusal(
                libc::EOPNOTSUPP,
                format!(
                    "{dir} is served by a program without branches; unmount it and mount it again"
                ),
            ),
            _ => error,
        }
    }
}

/// A refusal of the daemon. EINTR would have a caller ask again and again, and 0 is no error.
pub(super) fn refused(why: &str, number: Option<i32>) -> io::Error {
    let number = number.filter(|number| (1..=ERRNO_MAX).contains(number) && *number != libc::EINTR);
    let why: String = printable(why).chars().take(WHY).collect();
    refusal(number.unwrap_or(libc::EIO), why)
}

/// An answer to another question.
pub(crate) fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer of the daemon makes no sense")
}

/// The name of a branch or snapshot, if it can be one.
pub(super) fn judged(name: &Name) -> io::Result<()> {
    judge_name(name.bytes()).map_err(|_| nonsense())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_whatever_a_daemon_says() {
        for number in [None, Some(0), Some(-1), Some(libc::EINTR), Some(4096), Some(i32::MAX)] {
            let error = refused("no", number);
            assert_eq!(crate::error::errno(&error), libc::EIO, "{number:?}");
            assert_eq!(error.to_string(), "no");
        }
        for number in [1, libc::ENOENT, ERRNO_MAX] {
            assert_eq!(crate::error::errno(&refused("no", Some(number))), number);
        }
        assert_eq!(refused("no", Some(libc::ENOENT)).kind(), io::ErrorKind::NotFound);
        let said = refused(&format!("\x1b[2J{}", "\x07".repeat(100_000)), Some(5)).to_string();
        assert!(said.starts_with("\\u{1b}[2J") && said.chars().count() == WHY, "{}", said.len());
    }

    #[test]
    fn what_is_no_name_is_not_taken_for_one() {
        assert!(judged(&Name(b"before-upgrade".into())).is_ok());
        for bad in [&b""[..], b"../x", b"a/b", b"..", b"a\0b", &[b'x'; 256]] {
            assert_eq!(judged(&Name(bad.into())).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
