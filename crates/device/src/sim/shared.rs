//! A name of a device that others have as well, on a machine that keeps what it has read or written in a cache, as a page
//! cache does. Two names of one device are two machines: each sees its own cache first.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Device, DeviceError, Reach, forward};

/// Bytes that are cached together.
const PAGE: u64 = 4096;

/// See the head of this file.
#[derive(Debug)]
pub struct SharedDevice {
    under: Arc<dyn Device>,
    reach: Reach,
    /// Pages by their number; `None`: calls go past the cache.
    cache: Option<Mutex<BTreeMap<u64, Box<[u8]>>>>,
}

impl SharedDevice {
    /// `under`, which others may reach as `reach` says. Each read asks `under`.
    pub fn new(under: Arc<dyn Device>, reach: Reach) -> SharedDevice {
        SharedDevice { under, reach, cache: None }
    }

    /// The same through a cache, which keeps what it has until [`Device::drop_cache`].
    pub fn cached(under: Arc<dyn Device>, reach: Reach) -> SharedDevice {
        SharedDevice { under, reach, cache: Some(Mutex::default()) }
    }
}

/// Pages that `len` bytes at `at` touch.
fn pages(at: u64, len: u64) -> std::ops::Range<u64> {
    at / PAGE..at.saturating_add(len).div_ceil(PAGE)
}

impl Device for SharedDevice {
    forward!(under: flush, discard, room, take_room, len, sector_size, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let Some(cache) = &self.cache else {
            return self.under.read(at, into);
        };
        let mut cache = cache.lock();
        for page in pages(at, into.len() as u64) {
            let start = page * PAGE;
            let cached = match cache.entry(page) {
                Entry::Occupied(cached) => cached.into_mut(),
                Entry::Vacant(missing) => {
                    let mut bytes = vec![0; (self.len() - start).min(PAGE) as usize];
                    self.under.read(start, &mut bytes)?;
                    missing.insert(bytes.into())
                }
            };
            let (from, to) = (at.max(start), (at + into.len() as u64).min(start + PAGE));
            into[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&cached[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.under.write(at, bytes)?;
        for page in pages(at, bytes.len() as u64) {
            let start = page * PAGE;
            let (from, to) = (at.max(start), (at + bytes.len() as u64).min(start + PAGE));
            if let Some(cache) = &self.cache
                && let Some(cached) = cache.lock().get_mut(&page)
            {
                cached[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(())
    }

    fn reach(&self) -> Reach {
        self.reach
    }

    fn drop_cache(&self, at: u64, len: u64) {
        if let Some(cache) = &self.cache {
            let mut cache = cache.lock();
            pages(at, len).for_each(|page| drop(cache.remove(&page)));
        }
        self.under.drop_cache(at, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_cache_shows_what_stood_there_until_it_is_dropped() {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
        let cached = SharedDevice::cached(memory.clone(), Reach::Host);
        let seen = |device: &SharedDevice| {
            let mut bytes = [9; 1024];
            device.read(PAGE - 512, &mut bytes).unwrap();
            (bytes[0], bytes[1023])
        };
        assert_eq!(seen(&cached), (0, 0));
        memory.write(PAGE - 512, &[1; 1024]).unwrap();
        assert_eq!(seen(&cached), (0, 0), "it has not asked again");
        assert_eq!(seen(&SharedDevice::new(memory.clone(), Reach::Host)), (1, 1));
        cached.drop_cache(PAGE, 1);
        assert_eq!(seen(&cached), (0, 1));
        cached.write(PAGE - 512, &[2; 512]).unwrap();
        assert_eq!(seen(&cached), (2, 1), "it sees what it writes itself");
    }
}
