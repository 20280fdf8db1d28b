//! fstrim(8): free space goes back, as `holdfast trim` has it.

use holdfast_base::units::BLOCK_BYTES;

use super::Server;
use crate::interface::{Answer, Errno, Request};

/// Bytes of `struct fstrim_range`: start, length, and the shortest range.
const RANGE_BYTES: usize = 24;

impl Server {
    /// Answers FITRIM: the same range with the bytes that were given back as its length. Only a range that is the whole
    /// volume is taken: where something lies in it is nobody's business.
    pub(crate) fn trim(&self, request: &Request, range: &[u8]) -> Answer<Vec<u8>> {
        if !self.is_owner(request) {
            return Err(Errno(libc::EPERM));
        }
        let numbers = range.first_chunk::<RANGE_BYTES>().ok_or(Errno(libc::EINVAL))?.as_chunks().0;
        let [start, length, least] = [0, 1, 2].map(|at| u64::from_ne_bytes(numbers[at]));
        let fs = self.fs()?;
        let blocks = fs.superblock().geometry.volume_blocks;
        if start != 0 || length < blocks.saturating_mul(BLOCK_BYTES) {
            return Err(Errno(libc::EINVAL));
        }
        let trimmed = fs.trim(least, |_| true)?;
        Ok([0, trimmed.bytes, least].map(u64::to_ne_bytes).concat())
    }
}
