//! A device whose flushes are shared, and that does not trust one again once one has failed (P7).
//!
//! A host reports data that it could not keep once, to one caller: others whose flush ran at the same time, or comes
//! later, get success. So a flush is believed only when all flushes that overlapped it have returned and none failed;
//! after the first failure every flush fails.
//!
//! Flushes are numbered as they begin. A caller without haste waits for a flush that begins after its call. That one
//! covers what the caller wrote, and the device does one flush less beside those that other callers wait for.
//!
//! Once the volume has stopped ([`Stop`]) only reads reach the device: this is the last check before the disk, so no
//! superblock, commit, batch or node that is on its way to it can come behind the stop.
//!
//! Knows nothing of what is written.

use holdfast_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::stop::Stop;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;

use crate::{Device, DeviceError, Flushed, forward};

/// See the head of this file. Everything but flushes goes straight to the device, if the volume has not stopped. Code
/// that relies on the calling thread is told before a call waits ([`wait`]).
#[derive(Debug)]
pub struct Sticky {
    under: Arc<dyn Device>,
    stop: Arc<Stop>,
    /// Held shared by each flush under way.
    flushing: RwLock<()>,
    failed: AtomicBool,
    /// Flushes that have begun.
    begun: AtomicU64,
    /// The number of the latest that is believed.
    believed: Mutex<u64>,
    returned: Condvar,
}

impl Sticky {
    /// `under`, with flushes as described above, for a volume that `stop` stops.
    pub fn new(under: Arc<dyn Device>, stop: Arc<Stop>) -> Sticky {
        Sticky {
            under,
            stop,
            flushing: RwLock::new(()),
            failed: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            believed: Mutex::new(0),
            returned: Condvar::new(),
        }
    }

    fn may_read(&self) -> Result<(), DeviceError> {
        wait::will_wait();
        Ok(())
    }

    fn may_write(&self) -> Result<(), DeviceError> {
        wait::will_wait();
        self.check_running()
    }

    fn check_running(&self) -> Result<(), DeviceError> {
        self.stop.reason().map_or(Ok(()), |reason| Err(DeviceError::Stopped(reason.to_owned())))
    }

    fn check(&self) -> Result<(), DeviceError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(Errno::IO.raw_os_error());
        Err(DeviceError::Io { call: "flush", at: 0, len: 0, source })
    }
}

/// A flush under way. The outcome of one that panicked is unknown: it has failed.
struct Unknown<'a>(&'a AtomicBool);

impl Drop for Unknown<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Device for Sticky {
    forward!(under: room, sector_size, reach, stats);
    forward!(under if may_read: read);
    forward!(under if may_write: write, take_room, discard, len);

    fn flush(&self) -> Result<Flushed, DeviceError> {
        wait::will_wait();
        let (number, flushed) = {
            let _flushing = self.flushing.read();
            self.check_running()?;
            self.check()?;
            let unknown = Unknown(&self.failed);
            let number = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
            // This flush covers the writes of every caller that does not see this number (see `join_flush`).
            fence(Ordering::SeqCst);
            let flushed =
                self.under.flush().inspect_err(|_| self.failed.store(true, Ordering::Release))?;
            std::mem::forget(unknown);
            (number, flushed)
        };
        // After the end of those that began before this one: their outcome counts for it as well.
        drop(self.flushing.write());
        self.check()?;
        let mut believed = self.believed.lock();
        *believed = number.max(*believed);
        drop(believed);
        self.returned.notify_all();
        Ok(flushed)
    }

    fn join_flush(&self, patience: Duration) -> Result<Flushed, DeviceError> {
        // The caller's writes come before this, and this before the number is read: a flush whose number is
        // larger begins after both.
        fence(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::Acquire);
        let until = Deadline::after(patience);
        let mut believed = self.believed.lock();
        while *believed <= begun {
            if until.is_over() {
                drop(believed);
                return self.flush();
            }
            wait::will_wait();
            self.returned.wait_for(&mut believed, until.left());
        }
        // A flush that began after this call has ended and worked.
        Ok(Flushed::new())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;
    use crate::MemoryDevice;

    /// The first flush ends after the second one, and fails.
    #[derive(Debug)]
    struct Overlapping {
        memory: MemoryDevice,
        begun: AtomicU64,
        ended: AtomicU64,
    }

    impl Device for Overlapping {
        forward!(memory: read, write, discard, room, take_room, len, sector_size, reach, stats);

        fn flush(&self) -> Result<Flushed, DeviceError> {
            if self.begun.fetch_add(1, Ordering::AcqRel) > 0 {
                self.ended.fetch_add(1, Ordering::AcqRel);
                return self.memory.flush();
            }
            while self.ended.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            let source = io::Error::from_raw_os_error(Errno::IO.raw_os_error());
            Err(DeviceError::Io { call: "flush", at: 0, len: 0, source })
        }
    }

    #[test]
    fn a_flush_beside_one_that_fails_fails_too_and_so_do_all_later_ones() {
        let memory = MemoryDevice::new(1 << 16);
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        let under = Arc::new(Overlapping { memory, begun, ended });
        let device = Sticky::new(Arc::clone(&under) as Arc<dyn Device>, Arc::default());
        thread::scope(|scope| {
            let first = scope.spawn(|| device.flush());
            while under.begun.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            device.flush().expect_err("the one beside it lost data");
            first.join().expect("it does not panic").expect_err("it lost data");
        });
        device.flush().expect_err("nothing is known any more");
        assert_eq!(under.begun.load(Ordering::Acquire), 2, "the device was not asked again");
    }

    /// A flush that began before the call says nothing of the caller's writes: the next one does.
    #[test]
    fn a_caller_that_may_wait_shares_a_flush_that_begins_later() {
        let device = Sticky::new(Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
        device.flush().map(drop).expect("the device works");
        thread::scope(|scope| {
            let joined = scope.spawn(|| device.join_flush(Duration::from_secs(600)));
            // However late the call comes, a flush comes after it.
            while !joined.is_finished() {
                device.flush().map(drop).expect("the device works");
                thread::yield_now();
            }
            joined.join().expect("it does not panic").map(drop).expect("a flush was shared");
        });
        let before = device.stats().flushes;
        device.join_flush(Duration::ZERO).map(drop).expect("the device works");
        assert_eq!(device.stats().flushes, before + 1, "nobody else came: one of its own");
    }

    #[test]
    fn flushes_that_work_are_believed() {
        let device = Sticky::new(Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
        device.flush().and_then(|_| device.flush()).map(drop).expect("the device works");
        assert_eq!(device.stats().flushes, 2);
    }

    #[test]
    fn behind_the_stop_of_the_volume_only_reads_reach_the_device() {
        let stop = Arc::new(Stop::default());
        let device = Sticky::new(Arc::new(MemoryDevice::new(1 << 16)), Arc::clone(&stop));
        device.write(0, &[1; 4096]).expect("it has not stopped");
        stop.stop("for the test");
        let is_stopped =
            |done| matches!(done, Err(DeviceError::Stopped(why)) if why == "for the test");
        assert!(is_stopped(device.write(0, &[2; 4096])));
        assert!(is_stopped(device.flush().map(drop)));
        assert!(is_stopped(device.join_flush(Duration::ZERO).map(drop)));
        assert!(is_stopped(device.discard(0, 4096)));
        let mut read = [0; 4096];
        device.read(0, &mut read).expect("reads go on");
        assert_eq!((read, device.stats().flushes), ([1; 4096], 0));
    }

    /// A device whose flush panics.
    #[derive(Debug)]
    struct Panicking {
        memory: MemoryDevice,
    }

    impl Device for Panicking {
        forward!(memory: read, write, discard, room, take_room, len, sector_size, reach, stats);

        fn flush(&self) -> Result<Flushed, DeviceError> {
            panic!("as the test wants")
        }
    }

    #[test]
    fn a_flush_that_panicked_has_failed() {
        let under = Arc::new(Panicking { memory: MemoryDevice::new(1 << 16) });
        let device = Sticky::new(under, Arc::default());
        let flush = std::panic::AssertUnwindSafe(|| device.flush().map(drop));
        assert!(std::panic::catch_unwind(flush).is_err());
        device.flush().expect_err("nothing is known any more");
    }
}
