//! Memory that direct I/O accepts: whole pages at page-aligned addresses.
//!
//! [`AlignedBuf`] is a zeroed, fixed-length slice of bytes whose address is a multiple of 4 KiB. [`BufferPool`] keeps a
//! few of them, so that a device that must copy into aligned memory does not ask the allocator each time.
//!
//! Always true: a pool keeps at most as many idle buffers as its limit says; a taker never waits, it gets a new buffer
//! when the pool is empty. Knows nothing of devices.

use std::fmt;
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

/// Alignment of every buffer, and the step in which their capacity grows.
pub const ALIGNMENT: usize = 4096;

/// The unit of allocation: its type makes the allocator align it.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

/// Bytes at an address that is a multiple of [`ALIGNMENT`].
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf { pages: vec![Page([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)], len }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut pages = Vec::with_capacity(bytes.len().div_ceil(ALIGNMENT));
        // One pass: nothing is zeroed that is written next.
        let (whole, rest) = bytes.as_chunks::<ALIGNMENT>();
        pages.extend(whole.iter().map(|page| Page(*page)));
        if !rest.is_empty() {
            let mut last = Page([0; ALIGNMENT]);
            last.0[..rest.len()].copy_from_slice(rest);
            pages.push(last);
        }
        AlignedBuf { pages, len: bytes.len() }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `Page` is `repr(C)` around a byte array as long as its alignment, so the pages
        // of the vector are `pages.len() * ALIGNMENT` initialised bytes in a row without padding,
        // and `len` is never larger than that. The borrow of `self` keeps them in place.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<u8>(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; any byte value is valid in a `Page`, and the exclusive borrow of `self` means that no
        // other reference reaches the bytes meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast::<u8>(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// A few buffers of one size, for reuse.
#[derive(Debug)]
pub struct BufferPool {
    idle: Mutex<Vec<AlignedBuf>>,
    size: usize,
    keep: usize,
}

impl BufferPool {
    /// A pool of buffers of `size` bytes that keeps at most `keep` idle ones. Allocates nothing yet.
    pub fn new(size: usize, keep: usize) -> BufferPool {
        BufferPool { idle: Mutex::new(Vec::new()), size, keep }
    }

    /// Bytes of each buffer.
    pub fn buffer_size(&self) -> usize {
        self.size
    }

    /// Gives the memory of idle buffers back.
    pub fn give_back(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// A buffer with any content, given back when dropped.
    pub fn take(&self) -> PooledBuf<'_> {
        let idle = self.idle.lock().pop();
        PooledBuf { pool: self, buf: Some(idle.unwrap_or_else(|| AlignedBuf::zeroed(self.size))) }
    }
}

/// A buffer on loan from a [`BufferPool`].
#[derive(Debug)]
pub struct PooledBuf<'a> {
    pool: &'a BufferPool,
    /// `None` only while it is being dropped.
    buf: Option<AlignedBuf>,
}

impl Deref for PooledBuf<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.as_ref().expect("given back only by drop")
    }
}

impl DerefMut for PooledBuf<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_mut().expect("given back only by drop")
    }
}

impl Drop for PooledBuf<'_> {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock();
        if idle.len() < self.pool.keep {
            idle.extend(self.buf.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_exactly_as_long_as_asked() {
        for len in [0, 1, 512, 4096, 4097, 100_000] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(0xa5);
            assert!(buf.iter().all(|&byte| byte == 0xa5));
        }
        let bytes: Vec<u8> = (0..3 * ALIGNMENT).map(|at| (at / 7) as u8).collect();
        for len in [0, 3, ALIGNMENT, ALIGNMENT + 1, 3 * ALIGNMENT] {
            assert_eq!(*AlignedBuf::copy_of(&bytes[..len]), bytes[..len]);
        }
    }

    #[test]
    fn a_pool_gives_the_same_memory_again_and_keeps_no_more_than_told() {
        let pool = BufferPool::new(8192, 1);
        let (one, two) = (pool.take(), pool.take());
        let first = one.as_ptr() as usize;
        drop(one);
        drop(two);
        assert_eq!(pool.idle.lock().len(), 1);
        assert_eq!(pool.take().as_ptr() as usize, first);
    }
}
