//! A sparse image on a host that has little room: blocks are taken from the host when they are first written, or
//! ahead of that, and it may refuse.

use std::collections::HashSet;
use std::io;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::memory::MemoryDevice;
use crate::{Device, DeviceError, Discards, forward};

/// Bytes that the host gives at a time.
const BLOCK: u64 = 4096;

#[derive(Debug)]
struct Host {
    /// Blocks of the image that the host has given.
    given: HashSet<u64>,
    /// Bytes that it still has.
    left: u64,
    /// It gives nothing ahead of need, and says so of nothing: room is found out by writing.
    is_silent: bool,
    refused: u64,
}

/// An image in memory, and what the host has left for it. What is refused is not written at all.
#[derive(Debug)]
pub struct HostedDevice {
    image: MemoryDevice,
    host: Mutex<Host>,
}

impl HostedDevice {
    /// A copy of `image`, of which the host has given the blocks that were ever written, with `left` more bytes.
    pub fn new(image: &MemoryDevice, left: u64) -> HostedDevice {
        let image = image.snapshot();
        let mut block = [0; BLOCK as usize];
        let mut given = HashSet::new();
        for at in (0..image.len()).step_by(BLOCK as usize) {
            image.get(at, &mut block);
            if block.iter().any(|byte| *byte != 0) {
                given.insert(at / BLOCK);
            }
        }
        let host = Host { given, left, is_silent: false, refused: 0 };
        HostedDevice { image, host: Mutex::new(host) }
    }

    /// A host that gives nothing ahead of need, as some do.
    pub fn silent(self) -> HostedDevice {
        self.host.lock().is_silent = true;
        self
    }

    /// Something else has taken all that the host had.
    pub fn exhaust(&self) {
        self.host.lock().left = 0;
    }

    /// The host has so many more bytes.
    pub fn give(&self, bytes: u64) {
        self.host.lock().left += bytes;
    }

    /// Writes that were refused for lack of room. What was asked for ahead of need does not count.
    pub fn refused(&self) -> u64 {
        self.host.lock().refused
    }

    /// What the image holds now.
    pub fn image(&self) -> MemoryDevice {
        self.image.snapshot()
    }

    fn take(&self, call: &'static str, at: u64, len: u64) -> Result<(), DeviceError> {
        let mut host = self.host.lock();
        let blocks = at / BLOCK..(at + len).div_ceil(BLOCK);
        let missing: Vec<u64> = blocks.filter(|block| !host.given.contains(block)).collect();
        let bytes = missing.len() as u64 * BLOCK;
        if bytes > host.left {
            host.refused += u64::from(call == "write");
            let source = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
            return Err(DeviceError::Io { call, at, len, source });
        }
        host.left -= bytes;
        host.given.extend(missing);
        Ok(())
    }
}

impl Device for HostedDevice {
    forward!(image: read, flush, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.take("write", at, bytes.len() as u64)?;
        self.image.write(at, bytes)
    }

    /// Whole blocks go back to the host.
    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.image.discard(at, len)?;
        let mut host = self.host.lock();
        for block in at.div_ceil(BLOCK)..(at + len) / BLOCK {
            host.left += if host.given.remove(&block) { BLOCK } else { 0 };
        }
        Ok(())
    }

    fn discards(&self) -> Discards {
        match self.host.lock().is_silent {
            true => Discards::OfDevice { unit: BLOCK },
            false => Discards::OfHost { unit: BLOCK },
        }
    }

    fn room(&self) -> Option<u64> {
        let host = self.host.lock();
        (!host.is_silent).then_some(host.left)
    }

    fn given(&self) -> u64 {
        self.host.lock().given.len() as u64 * BLOCK
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        let is_silent = self.host.lock().is_silent;
        match is_silent {
            true => Ok(()),
            false => self.take("reservation", at, len),
        }
    }
}
