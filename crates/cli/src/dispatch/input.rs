//! What a command reads.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use crate::outcome::{Context, Failure};

/// Bytes that are read to see whether something comes.
const FIRST: usize = 4096;

/// One input of a command.
pub(crate) enum Input {
    /// Perhaps a pipe, which may have nothing for long.
    File(File),
    /// The same, of which something was read already.
    Begun(Vec<u8>, File),
    /// What is made of files, and never waits for long.
    Made(Box<dyn Read>),
}

impl Input {
    /// Standard input.
    ///
    /// # Errors
    /// There is none, or there are too many open files.
    pub(crate) fn standard() -> Result<Input, Failure> {
        let input = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        Ok(Input::File(input.into()))
    }

    /// Waits until the first bytes are there.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn begun(self) -> io::Result<Input> {
        let Input::File(mut file) = self else { return Ok(self) };
        let mut first = vec![0; FIRST];
        loop {
            match file.read(&mut first) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    first.truncate(read?);
                    return Ok(Input::Begun(first, file));
                }
            }
        }
    }

    /// Whether nothing has come before its end.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Input::Begun(first, _) if first.is_empty())
    }

    /// What to wait for before it is read.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Input::File(file) => Some(file.as_fd()),
            Input::Begun(first, file) => first.is_empty().then(|| file.as_fd()),
            Input::Made(_) => None,
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(into),
            Input::Begun(first, file) if first.is_empty() => file.read(into),
            Input::Begun(first, _) => {
                let some = first.len().min(into.len());
                into[..some].copy_from_slice(&first[..some]);
                first.drain(..some);
                Ok(some)
            }
            Input::Made(made) => made.read(into),
        }
    }
}
