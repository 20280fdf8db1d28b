//! A device that takes its time: so long for each 4 KiB of a write, so long for a flush.
//!
//! It has channels side by side. A write takes the channel that is free first,
//! keeps it for as long as its bytes take, and returns at the end of that; a
//! flush takes none. So a small write waits for strangers only when all
//! channels are taken, and what a caller sees beyond that is waiting of the
//! engine's own. Reads and discards cost nothing. Bytes go to the device below.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_device::{Device, DeviceError, Flushed, forward};
use parking_lot::Mutex;

/// What is written in one go by a channel.
const BLOCK: u64 = 4096;

/// How long calls take.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// For each 4 KiB that a write touches.
    pub block: Duration,
    /// For a flush.
    pub flush: Duration,
    /// Writes that go on side by side; at least one.
    pub channels: usize,
}

/// A device below, and the time that it takes.
pub struct DelayDevice {
    below: Arc<dyn Device>,
    delays: Delays,
    started: Stopwatch,
    /// When each channel is free, counted from the start.
    free: Mutex<Vec<Duration>>,
}

impl DelayDevice {
    /// Calls to `below` that take as long as `delays` say.
    pub fn new(below: Arc<dyn Device>, delays: Delays) -> DelayDevice {
        let free = Mutex::new(vec![Duration::ZERO; delays.channels.max(1)]);
        DelayDevice { below, delays, started: Stopwatch::start(), free }
    }

    /// Takes a channel for `time` and gives the moment at which that is over.
    fn take(&self, time: Duration) -> Duration {
        let mut free = self.free.lock();
        let now = self.started.elapsed();
        let first = free.iter_mut().min().expect("there is a channel");
        *first = now.max(*first) + time;
        *first
    }

    fn wait_until(&self, moment: Duration) {
        std::thread::sleep(moment.saturating_sub(self.started.elapsed()));
    }
}

impl Device for DelayDevice {
    forward!(below: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let blocks = (at + bytes.len() as u64).div_ceil(BLOCK) - at / BLOCK;
        let end = self.take(self.delays.block * blocks as u32);
        self.below.write(at, bytes)?;
        self.wait_until(end);
        Ok(())
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        let end = self.started.elapsed() + self.delays.flush;
        let flushed = self.below.flush()?;
        self.wait_until(end);
        Ok(flushed)
    }
}

impl fmt::Debug for DelayDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayDevice")
            .field("below", &self.below)
            .field("delays", &self.delays)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_device::MemoryDevice;

    fn device(channels: usize) -> DelayDevice {
        let delays =
            Delays { block: Duration::from_secs(1), flush: Duration::from_micros(10), channels };
        DelayDevice::new(Arc::new(MemoryDevice::new(1 << 20)), delays)
    }

    /// What is promised for two calls that come at once, in whole seconds.
    fn ends(device: &DelayDevice) -> [u64; 2] {
        [2, 1].map(|blocks| device.take(device.delays.block * blocks).as_secs())
    }

    #[test]
    fn writes_go_side_by_side_while_channels_are_free() {
        assert_eq!(ends(&device(1)), [2, 3]);
        assert_eq!(ends(&device(2)), [2, 1]);
    }

    #[test]
    fn bytes_and_counts_are_those_of_the_device_below() {
        let device = DelayDevice::new(
            Arc::new(MemoryDevice::new(1 << 20)),
            Delays { block: Duration::ZERO, flush: Duration::ZERO, channels: 0 },
        );
        device.write(4096, &[7; 512]).unwrap();
        let _ = device.flush().unwrap();
        let mut bytes = [0; 512];
        device.read(4096, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 512]);
        assert_eq!((device.stats().writes, device.stats().flushes, device.len()), (1, 1, 1 << 20));
    }
}
