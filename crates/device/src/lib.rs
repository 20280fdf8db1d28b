//! Floor 1: where bytes stay, and what each call promises about them.
//!
//! A [`Device`] is a flat array of bytes with a volatile write cache: a write
//! that returned may still be lost, whole or torn at sector boundaries (and what was written in part is lost
//! with its whole physical sector), and in
//! any order with other writes, until a [`Device::flush`] that began after it
//! returned. Order is carried by values: code that needs a flush to have
//! happened takes the [`Flushed`] that only a device can make (R3).
//!
//! Knows nothing of what the bytes mean.

pub mod error;
pub mod buffer;
pub mod file;
pub mod host;
mod forward;
pub mod front;
pub mod heap;
pub mod memory;
pub mod page;
mod range;
mod regions;
pub mod sim;
pub mod sticky;
mod tally;

pub use buffer::AlignedBuf;
pub use error::DeviceError;
pub use file::lock::{holding_process, wait_until_free};
pub use file::{FileDevice, HostFile, OpenMode, open_bytes};
pub use front::Front;
pub use memory::MemoryDevice;
pub use page::Page;
pub use sim::SimDevice;
pub use sticky::Sticky;

use std::fmt;
use std::time::Duration;

use holdfast_base::mutants::{self, Mutant};

/// Proof that a flush has returned: everything whose write returned before that flush began is durable.
#[derive(Debug)]
#[must_use = "a flush whose proof is dropped orders nothing"]
pub struct Flushed(());

impl Flushed {
    /// For the devices of this crate, after their flush has returned.
    pub(crate) fn new() -> Flushed {
        Flushed(())
    }
}

/// [`Device::flush`], but for the mutant that leaves this one out: the only proof of a flush that did not happen.
pub fn flush_unless(device: &dyn Device, mutant: Mutant) -> Result<Flushed, DeviceError> {
    if mutants::is(mutant) {
        return Ok(Flushed::new());
    }
    device.flush()
}

/// What a device has been asked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Read calls.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
}

/// Which others may write to a device while it is open for writing here. In the order of how much is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// No other: what holds the bytes is locked, and belongs to this machine, or to this process.
    #[default]
    Alone,
    /// No program of this machine, because it is locked here; other machines may have it attached too.
    Host,
    /// Any program that has it under another name: not all of what is behind it could be locked.
    Unknown,
}

/// Where the space of discarded bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discards {
    /// They keep it: the device takes no discards.
    Refused,
    /// The device. It takes a later write there as any other.
    OfDevice {
        /// Bytes, a power of two: only multiples of it are given back, at multiples of it.
        unit: u64,
    },
    /// A host, which may give it to others: it has to be asked again before a write there ([`Device::take_room`]).
    OfHost {
        /// As above.
        unit: u64,
    },
}

impl Discards {
    /// The unit, if the device takes discards.
    pub fn unit(self) -> Option<u64> {
        match self {
            Discards::Refused => None,
            Discards::OfDevice { unit } | Discards::OfHost { unit } => Some(unit),
        }
    }
}

/// A place that keeps bytes. All calls may be made from many threads at once; concurrent writes to the same sectors
/// leave either content in each sector.
///
/// What a host or another machine means for a device has no default body: a device in front of another that forgot to
/// pass it on would silently take a promise back. See [`forward!`] and [`private!`].
pub trait Device: Send + Sync + fmt::Debug {
    /// Fills `into` from byte `at`. Sees every write that returned before.
    /// Reading beyond the end is an error.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// The first byte from `at` on that may be something else than zero, or the end of the device if none may: a host
    /// knows the holes of an image without reading them. `at` where nothing is known. A hint for a search through a whole device: a
    /// write that comes later makes it untrue.
    fn data_from(&self, at: u64) -> u64 {
        at
    }

    /// Writes `bytes` at byte `at`. `at` and the length are multiples of the sector size.
    /// When it returns, reads see the bytes; they are durable only after a flush.
    /// After an error any part of the range may hold old or new bytes.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Makes every write that returned before this call durable.
    /// After an error nothing is known of any write since the last flush that succeeded, and
    /// trying again proves nothing.
    fn flush(&self) -> Result<Flushed, DeviceError>;

    /// As [`Device::flush`], for a caller without haste: a device that can share flushes lets it wait up to `patience`
    /// for one that another caller begins from now on, and makes one of its own only after that.
    fn join_flush(&self, patience: Duration) -> Result<Flushed, DeviceError> {
        let _ = patience;
        self.flush()
    }

    /// Says that the content of `len` bytes at `at` is not needed any more. From then on, and after a power cut, they
    /// may read as anything until they are written again: as before, as zeros, or as neither. Bytes beside them stay.
    ///
    /// # Errors
    /// [`DeviceError::is_unsupported`]: the device takes none, and need not be asked again. After any other, too, the
    /// bytes may read as anything.
    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError>;

    /// Where the space of what was discarded is, as far as is known: a device may say no only when it is asked.
    fn discards(&self) -> Discards;

    /// Bytes that a host can still give to an image of which it has not given all yet. `None`: it has given all, as for
    /// a block device, or it cannot give ahead of need, so that nothing can be promised.
    fn room(&self) -> Option<u64>;

    /// Bytes that the host has given to an image so far, about; 0 where [`Device::room`] is `None`.
    fn given(&self) -> u64;

    /// Takes space from the host for `len` bytes at `at`, so that no later write there is refused for lack of it. Keeps
    /// the bytes, is not durable, and costs little where the host has given it already. After an error
    /// ([`DeviceError::is_no_space`]) the host may have given a part.
    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError>;

    /// Has the device at least `bytes` bytes from now on, where what is below can: an image file becomes longer, without
    /// taking space of the host, and the size of a block device is asked anew. Nothing ever becomes shorter. The length is
    /// durable with the next flush. Fails where the device ends before, or the host refuses; it has its old length then.
    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        range::inside("growth", 0, bytes, self.len())
    }

    /// Bytes that the host can give to the part by which an image would become longer; `None` where no host gives anything ahead of need.
    fn room_to_grow(&self) -> Option<u64> {
        None
    }

    /// Bytes of the device. They become more by [`Device::grow`] only.
    fn len(&self) -> u64;

    /// Whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a logical sector: the unit of calls, and one in which writes tear. 512 or 4,096.
    fn sector_size(&self) -> u32;

    /// Bytes of a physical sector, a power of two and not below [`Device::sector_size`]: a disk reads the rest of it when
    /// a part is written, and a power cut in that may take all of it, what was durable included.
    fn physical_sector_size(&self) -> u32;

    /// Which others may write to it.
    fn reach(&self) -> Reach;

    /// Has the next read of `len` bytes at `at` ask what holds them, not a cache of this machine, which may have kept
    /// what was there before another machine wrote. Bytes that were written here and not flushed may stay in the cache.
    fn drop_cache(&self, at: u64, len: u64);

    /// What it has been asked so far.
    fn stats(&self) -> DeviceStats;
}
