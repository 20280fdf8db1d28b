//! A device with an arm, or at the end of a wire: each call that does not go on where the last one ended takes its
//! access time, and all bytes take theirs. Only a simulated clock advances; no thread waits.
//!
//! It does one thing at a time, so calls side by side take the sum.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::SimulatedClock;
use parking_lot::Mutex;

use crate::{Device, DeviceError, Flushed, forward};

/// See the head of this file.
#[derive(Debug)]
pub struct TimedDevice {
    under: Arc<dyn Device>,
    clock: SimulatedClock,
    place: Duration,
    bytes_per_second: u64,
    /// Where the last call ended.
    position: Mutex<u64>,
}

impl TimedDevice {
    /// `under`, where it takes `place` to get to a place, and to flush.
    pub fn new(
        under: Arc<dyn Device>,
        clock: SimulatedClock,
        place: Duration,
        bytes_per_second: u64,
    ) -> TimedDevice {
        TimedDevice { under, clock, place, bytes_per_second, position: Mutex::new(u64::MAX) }
    }

    fn pass(&self, at: u64, len: usize) {
        let nanos = len as u64 * 1_000_000_000 / self.bytes_per_second.max(1);
        self.clock.advance(Duration::from_nanos(nanos));
        let mut position = self.position.lock();
        if *position != at {
            self.clock.advance(self.place);
        }
        *position = at + len as u64;
    }
}

impl Device for TimedDevice {
    forward!(under: discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.pass(at, into.len());
        self.under.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.pass(at, bytes.len());
        self.under.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.clock.advance(self.place);
        self.under.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn ways_and_bytes_take_their_time() {
        let clock = SimulatedClock::new();
        let memory = Arc::new(MemoryDevice::new(1 << 20));
        let device = TimedDevice::new(memory, clock, Duration::from_millis(10), 4096);
        let took = |work: &dyn Fn()| {
            let before = clock.nanos();
            work();
            (clock.nanos() - before) / 1_000_000
        };
        assert_eq!(took(&|| device.write(8192, &[1; 4096]).unwrap()), 1010);
        assert_eq!(took(&|| device.write(12288, &[1; 4096]).unwrap()), 1000, "it goes on");
        assert_eq!(took(&|| device.read(0, &mut [0; 4096]).unwrap()), 1010);
        assert_eq!(took(&|| drop(device.flush().unwrap())), 10);
    }
}
