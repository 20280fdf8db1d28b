//! The standard input of a command that may run more than once.

use std::os::fd::AsFd;

use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::termios::isatty;

use crate::outcome::{Context, Failure};

/// A standard input that each run of a command finds as the first one did.
#[derive(Debug)]
pub(crate) struct Input {
    /// Where a file is read from. A terminal has no place.
    from: Option<u64>,
}

impl Input {
    /// Takes the standard input of this process.
    ///
    /// # Errors
    /// It is a pipe or the like: what one run has read the next one would miss, and take what it gets for all.
    pub(crate) fn to_be_read_again() -> Result<Input, Failure> {
        Input::of(std::io::stdin())
    }

    fn of(input: impl AsFd) -> Result<Input, Failure> {
        let found = fstat(&input).map_err(std::io::Error::from).context("the standard input")?;
        let kind = FileType::from_raw_mode(found.st_mode);
        // Pipes have no place, and what is no file at all (an eventfd) only seems to have one.
        let is_file = matches!(
            kind,
            FileType::RegularFile | FileType::BlockDevice | FileType::CharacterDevice
        );
        let from = seek(&input, SeekFrom::Current(0)).ok();
        match is_file {
            true if isatty(&input) => Ok(Input { from: None }),
            true if from.is_some() => Ok(Input { from }),
            _ => Err(Failure::plain(
                "--retry may run the command again, and the standard input can be read only once: give a file, a \
                 terminal or /dev/null",
            )),
        }
    }

    /// Before another run: it is read from the same place.
    ///
    /// # Errors
    /// It has no places any more.
    pub(crate) fn again(&self) -> Result<(), Failure> {
        let Some(from) = self.from else { return Ok(()) };
        let sought = seek(std::io::stdin(), SeekFrom::Start(from)).map(drop);
        sought.map_err(std::io::Error::from).context("the standard input")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn what_can_be_read_once_only_is_refused() {
        assert_eq!(Input::of(File::open("/dev/null").unwrap()).unwrap().from, Some(0));
        let mut file = tempfile::tempfile().unwrap();
        file.seek(std::io::SeekFrom::Start(5)).unwrap();
        assert_eq!(Input::of(&file).unwrap().from, Some(5));
        let (pipe, _other) = std::io::pipe().unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let event = rustix::event::eventfd(7, rustix::event::EventfdFlags::empty()).unwrap();
        for refused in [pipe.as_fd(), socket.as_fd(), event.as_fd()] {
            assert!(Input::of(refused).unwrap_err().sentence.contains("only once"));
        }
        // Looking has moved nothing.
        let mut rest = String::new();
        assert_eq!(file.read_to_string(&mut rest).unwrap(), 0);
    }
}
