//! Moves bytes between slices and the host, whole or not at all.
//!
//! Two ways: straight, for slices that the descriptor takes as they are, and
//! bounced, through an aligned buffer, for the rest. Both go on after short
//! transfers and interruptions. Ranges were checked by the caller.

use std::io;
use std::os::unix::fs::FileExt;

use super::FileDevice;

impl FileDevice {
    /// Whether direct I/O takes `bytes` at `at`: address, offset and length all whole sectors.
    pub(super) fn fits_direct(&self, at: u64, bytes: &[u8]) -> bool {
        let sector = self.sector_size as usize;
        at.is_multiple_of(sector as u64)
            && bytes.len().is_multiple_of(sector)
            && (bytes.as_ptr() as usize).is_multiple_of(sector)
    }

    /// Fills `into`.
    pub(super) fn read_all(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], at + done as u64) {
                Ok(count) => done = self.advance(done, count, into.len())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    pub(super) fn write_all(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write_at(&bytes[done..], at + done as u64) {
                Ok(count) => done = self.advance(done, count, bytes.len())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where to go on after `count` more bytes. Direct I/O goes on at a sector only, so the
    /// beginning of a sector that was moved is moved again.
    fn advance(&self, done: usize, count: usize, len: usize) -> io::Result<usize> {
        let reached = done + count;
        if reached >= len {
            return Ok(len);
        }
        let reached = match self.direct {
            true => reached - reached % self.sector_size as usize,
            false => reached,
        };
        if reached <= done {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file ends early; something has cut it",
            ));
        }
        Ok(reached)
    }

    /// Reads whole sectors around the range into a buffer and copies the part that was asked for.
    pub(super) fn read_bounced(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let sector = u64::from(self.sector_size);
        let mut buffer = self.pool.take();
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let skip = (from % sector) as usize;
            let wanted = usize::min(into.len() - done, buffer.len() - skip);
            let window = (skip + wanted).next_multiple_of(sector as usize);
            self.read_all(from - skip as u64, &mut buffer[..window])?;
            into[done..done + wanted].copy_from_slice(&buffer[skip..skip + wanted]);
            done += wanted;
        }
        Ok(())
    }

    /// Copies whole sectors into a buffer and writes that.
    pub(super) fn write_bounced(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut buffer = self.pool.take();
        let mut at = at;
        for part in bytes.chunks(buffer.len()) {
            buffer[..part.len()].copy_from_slice(part);
            self.write_all(at, &buffer[..part.len()])?;
            at += part.len() as u64;
        }
        Ok(())
    }
}
