//! A device in memory that watches what is done to it.
//!
//! It counts the bytes that were read, and panics above a limit: a reader that reads
//! GiBs from an image of some MiB does not end (P10). A read-only one
//! panics on a write. And it may be much longer than its content: then zeros
//! follow, so that a superblock can claim a volume of a PiB and be believed.
//!
//! Always true: its memory grows only with what is written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_device::{Device, DeviceError, Discards, MemoryDevice, forward};
use parking_lot::Mutex;

/// Most bytes read from one device. An honest check and mount of a golden volume stay below a tenth.
const READ_MAX: u64 = 4 << 30;
/// Most bytes written to what lies behind the content: nothing that is tried writes as much.
const WRITTEN_MAX: usize = 1 << 30;
const PAGE: u64 = 4096;

/// Most bytes that were read of one device of this process.
static READ_MOST: AtomicU64 = AtomicU64::new(0);

/// Most bytes that were read of one device since this was asked last.
pub fn most_read() -> u64 {
    READ_MOST.swap(0, Ordering::Relaxed)
}

impl Drop for Watched {
    fn drop(&mut self) {
        READ_MOST.fetch_max(self.read_bytes(), Ordering::Relaxed);
    }
}

/// Watches a [`MemoryDevice`].
#[derive(Debug)]
pub struct Watched {
    inner: MemoryDevice,
    len: u64,
    writable: bool,
    read: AtomicU64,
    /// Pages behind the content.
    behind: Mutex<HashMap<u64, Box<[u8]>>>,
}

impl Watched {
    /// Watches `content`, followed by zeros up to `len` bytes if that is more.
    pub fn new(content: MemoryDevice, len: u64, writable: bool) -> Watched {
        let len = len.max(content.len());
        let (read, behind) = (AtomicU64::new(0), Mutex::default());
        Watched { inner: content, len, writable, read, behind }
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn inside(&self, call: &'static str, at: u64, len: u64) -> Result<(), DeviceError> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(DeviceError::BeyondEnd { call, at, len, end: self.len }),
        }
    }

    /// Page and range in it of each piece of `len` bytes at `at`, which lie behind the content.
    fn pages(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (page, offset) = ((at + done as u64) / PAGE, ((at + done as u64) % PAGE) as usize);
            let count = usize::min(len - done, PAGE as usize - offset);
            done += count;
            (count > 0).then_some((page, offset, done - count..done))
        })
    }
}

impl Device for Watched {
    forward!(inner: flush, room, take_room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let read = self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        assert!(read < READ_MAX, "P10: {read} bytes were read of a small image");
        self.inside("read", at, into.len() as u64)?;
        let content = self.inner.len().saturating_sub(at).min(into.len() as u64) as usize;
        let (head, tail) = into.split_at_mut(content);
        if !head.is_empty() {
            self.inner.read(at, head)?;
        }
        if !tail.is_empty() {
            let behind = self.behind.lock();
            for (page, offset, range) in Watched::pages(at + content as u64, tail.len()) {
                let part = &mut tail[range];
                match behind.get(&page) {
                    Some(bytes) => part.copy_from_slice(&bytes[offset..offset + part.len()]),
                    None => part.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        assert!(
            self.writable,
            "P10: {} bytes are written at {at} of what is only read",
            bytes.len()
        );
        self.inside("write", at, bytes.len() as u64)?;
        let content = self.inner.len().saturating_sub(at).min(bytes.len() as u64) as usize;
        let (head, tail) = bytes.split_at(content);
        if !head.is_empty() {
            self.inner.write(at, head)?;
        }
        let mut behind = self.behind.lock();
        for (page, offset, range) in Watched::pages(at + content as u64, tail.len()) {
            let part = &tail[range];
            let bytes = behind.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            bytes[offset..offset + part.len()].copy_from_slice(part);
        }
        assert!(behind.len() * PAGE as usize <= WRITTEN_MAX, "P10: too much is written");
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        assert!(self.writable, "P10: {len} bytes are discarded at {at} of what is only read");
        self.inside("discard", at, len)?;
        match at.checked_add(len) {
            Some(end) if end <= self.inner.len() => self.inner.discard(at, len),
            _ => Ok(()),
        }
    }

    fn discards(&self) -> Discards {
        self.inner.discards()
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_the_content_is_kept_too() {
        let device = Watched::new(MemoryDevice::new(8192), 1 << 50, true);
        let bytes: Vec<u8> = (0..8192u32).map(|n| (n / 32) as u8).collect();
        for at in [0, 4096, 7680, (1 << 50) - 8192, 123 << 30] {
            device.write(at, &bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            device.read(at, &mut back).unwrap();
            assert!(back == bytes, "at {at}");
        }
        assert!(device.read((1 << 50) - 1, &mut [0; 2]).is_err());
    }

    #[test]
    #[should_panic(expected = "only read")]
    fn the_alarm_rings_on_a_write() {
        let device = Watched::new(MemoryDevice::new(8192), 0, false);
        let _ = device.write(0, &[0; 512]);
    }
}
