//! Where bytes of work come from and go to.

use std::io::{self, Read, Write};
use std::time::Duration;

use holdfast_stream::Progress;

/// The ends of the pipes of a command, in this process or in another one. What waits here holds no lock.
pub trait Ends {
    /// Writes some bytes to standard output.
    ///
    /// # Errors
    /// `BrokenPipe`: the reader is gone. `ConnectionAborted`: the work is to end.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// All that was written is on its way.
    fn flush(&self) -> io::Result<()>;
    /// Writes to standard output what is told with the end, also where the work is to end by then.
    fn last(&self, bytes: &[u8]);
    /// Reads some bytes of the input of this number; they are read one after the other. 0: it is over.
    ///
    /// # Errors
    /// `UnexpectedEof`: the sender is gone. `ConnectionAborted`: the work is to end.
    fn read(&self, input: usize, into: &mut [u8]) -> io::Result<usize>;
    /// Says a sentence to the person.
    fn note(&self, sentence: &str);
    /// How far it has come.
    fn progress(&self, at: Progress);
    /// Fails if the work is not wanted any more. For work that may be silent for long.
    fn check(&self) -> io::Result<()>;
    /// Waits so long, and fails at once when the work is not wanted any more.
    fn wait(&self, time: Duration) -> io::Result<()>;
    /// How many bytes of what is known of a tree may be kept in memory: of changes that are told in order, say.
    fn most_bytes(&self) -> usize;
}

/// Standard output.
pub struct Out<'a>(pub &'a dyn Ends);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An input, by its number.
pub struct In<'a>(pub &'a dyn Ends, pub usize);

impl Read for In<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(self.1, into)
    }
}
