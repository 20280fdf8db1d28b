//! Standard input and output as one side of a copy, and pipes and devices that are named as a source: they have no length, and are read
//! to their end.

use std::ffi::OsStr;
use std::io::{self, Read, Write};

use holdfast::FileType;
use holdfast_service::work::files::message::{Attributes, DATA_MAX};

use super::copy::Copier;
use super::endpoint::{At, Copied, Endpoint, Failed};
use crate::cmd::within::umask;
use crate::host_tree::HostEntry;
use crate::outcome::Failure;

/// What stands for both of them.
const NAME: &str = "-";

/// Whether a word of the command line means standard input or output. A file of that name is `./-`.
pub(super) fn is_meant(word: &OsStr) -> bool {
    word == NAME
}

/// Why standard input cannot be copied into a directory.
pub(super) fn no_name(directory: &Endpoint) -> Failure {
    Failure::plain(format!(
        "{directory} is a directory, and standard input has no name; name a file in it"
    ))
}

impl Copier {
    /// Makes a file of all that comes through standard input.
    pub(super) fn take_in(&mut self, to: &Endpoint) {
        let input = Endpoint::Host(HostEntry::named("standard input".as_ref()));
        let done = self.take(io::stdin().lock(), &input, to, true);
        self.tell(done.map(drop));
    }

    /// Writes a file to standard output.
    ///
    /// # Errors
    /// It has no reader, or it cannot be written: then no other file can.
    pub(super) fn put_out(&mut self, from: &Endpoint) -> Result<(), Failure> {
        match self.output(from) {
            Ok(written) => crate::outcome::printed(written),
            Err(failed) => {
                self.tell(Err(failed));
                Ok(())
            }
        }
    }

    /// Makes a file of all that comes; `from` is what errors call it. Through a link that is there, if `follow`.
    pub(super) fn take(
        &mut self,
        input: impl Read,
        from: &Endpoint,
        to: &Endpoint,
        follow: bool,
    ) -> Result<Copied, Failed> {
        let mut copy = to.begin(follow).at(to)?;
        let at = self.pass(input, from, |data, at| copy.write_all_at(data, at))?.at(to)?;
        // As for a file that a shell makes.
        let mode = Some(0o666 & !umask());
        let attributes = Attributes { mode, owner: Some(self.user()), ..Attributes::default() };
        copy.end(at, attributes, self.is_synchronous()).at(to)
    }

    /// The inner result is that of standard output.
    fn output(&mut self, from: &Endpoint) -> Result<io::Result<()>, Failed> {
        let mut stdout = io::stdout().lock();
        let seen = from.look(true).at(from)?;
        let file_type = seen.found.file_type().at(from)?;
        if file_type == FileType::Directory {
            return Err(io::Error::from(io::ErrorKind::IsADirectory)).at(from);
        }
        if file_type != FileType::Regular {
            let input = from.stream(&seen).at(from)?;
            let written = self.pass(input, from, |data, _| stdout.write_all(data))?;
            return Ok(written.and_then(|_| stdout.flush()));
        }
        let (source, seen) = from.open(&seen, true).at(from)?;
        let mut at = 0;
        let mut buffer = Vec::new();
        let end = source.end(seen.found.len);
        while at < end {
            source.read_at(&mut buffer, at, end - at).at(from)?;
            if buffer.is_empty() {
                break;
            }
            if let Err(error) = stdout.write_all(&buffer) {
                return Ok(Err(error));
            }
            at += buffer.len() as u64;
            self.copied(buffer.len() as u64);
        }
        Ok(stdout.flush())
    }

    /// All that comes goes to `put`, with its place; its length. The inner result is that of `put`.
    fn pass(
        &mut self,
        mut input: impl Read,
        from: &Endpoint,
        mut put: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> Result<io::Result<u64>, Failed> {
        let (mut at, mut buffer) = (0, vec![0; DATA_MAX]);
        loop {
            let len = match input.read(&mut buffer) {
                Ok(0) => return Ok(Ok(at)),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).at(from),
            };
            if let Err(error) = put(&buffer[..len], at) {
                return Ok(Err(error));
            }
            at += len as u64;
            self.copied(len as u64);
        }
    }
}
