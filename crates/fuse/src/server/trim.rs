//! fstrim(8): free space goes back, as `holdfast trim` has it.

use holdfast_base::units::BLOCK_BYTES;

use super::Server;
use crate::interface::{Answer, Errno, Request};

/// Bytes of `struct fstrim_range`: start, length, and the shortest range.
const RANGE_BYTES: usize = 24;

impl Server {
    /// Answers FITRIM: the same range with the bytes that were given back as its length. Of a range those 128 MiB
    /// of the volume are meant that begin in it. EINTR, between two block groups, when `unique`, the
    /// kernel's number of the request, is interrupted or the mount ends; what was given back by then stays so.
    pub(crate) fn trim(&self, request: &Request, unique: u64, range: &[u8]) -> Answer<Vec<u8>> {
        if !self.is_owner(request) {
            return Err(Errno(libc::EPERM));
        }
        let interruptible = self.interrupts.begin(unique);
        let numbers = range.first_chunk::<RANGE_BYTES>().ok_or(Errno(libc::EINVAL))?.as_chunks().0;
        let [start, length, least] = [0, 1, 2].map(|at| u64::from_ne_bytes(numbers[at]));
        let fs = self.fs()?;
        let blocks = fs.superblock().geometry.volume_blocks;
        if start >= blocks.saturating_mul(BLOCK_BYTES) {
            return Err(Errno(libc::EINVAL));
        }
        let part = start..start.saturating_add(length);
        let trimmed = fs.trim_part(part, least, |_| interruptible.is_wanted())?;
        if trimmed.groups < trimmed.groups_all {
            return Err(Errno(libc::EINTR));
        }
        Ok([0, trimmed.bytes, least].map(u64::to_ne_bytes).concat())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};

    use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
    use holdfast_posix::{FileSystem, MkfsOptions};

    use super::*;
    use crate::server::fresh;

    const GROUP_BYTES: u64 = 128 << 20;
    const ROOT: Request = Request { uid: 0, gid: 0, pid: 0 };

    /// Says that it is asked for a discard, and waits to be told to do it.
    #[derive(Debug)]
    struct Asking {
        inner: MemoryDevice,
        asked: Sender<u64>,
        told: Mutex<Receiver<()>>,
    }

    impl Device for Asking {
        forward!(inner: read, write, flush, room, take_room, len, sector_size, reach, stats);

        fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
            // None wait for either in the end.
            let _ = self.asked.send(at);
            let _ = self.told.lock().unwrap().recv();
            self.inner.discard(at, len)
        }

        fn discards(&self) -> holdfast_device::Discards {
            self.inner.discards()
        }
    }

    fn interrupted_by(interrupt: impl FnOnce(&Server) + Send) {
        let (asked, is_asked) = channel();
        let (tell, told) = channel();
        let inner = MemoryDevice::new(4 * GROUP_BYTES);
        let device: Arc<dyn Device> = Arc::new(Asking { inner, asked, told: Mutex::new(told) });
        let options = MkfsOptions { node_size: 4096, ..MkfsOptions::default() };
        FileSystem::mkfs(&device, &options).unwrap();
        let server = fresh::server(&fresh::mount(&device));
        let range = [0, u64::MAX, 0].map(u64::to_ne_bytes).concat();
        std::thread::scope(|scope| {
            let trim = scope.spawn(|| server.trim(&ROOT, 18, &range));
            // The last group is being given back, which comes first.
            assert!(is_asked.recv().unwrap() >= 3 * GROUP_BYTES);
            let interrupt = scope.spawn(|| interrupt(&server));
            // Closing waits for the request, so it must be known before.
            while server.interrupts.begin(1).is_wanted() && !interrupt.is_finished() {
                std::thread::yield_now();
            }
            drop(tell);
            assert_eq!(trim.join().unwrap().unwrap_err(), Errno(libc::EINTR));
            interrupt.join().unwrap();
        });
        assert!(is_asked.try_iter().all(|at| at >= 3 * GROUP_BYTES), "it went on to another group");
    }

    /// Parts that together are the whole volume give back what the whole does.
    #[test]
    fn a_part_is_what_begins_in_it() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4 * GROUP_BYTES));
        let options = MkfsOptions { node_size: 4096, ..MkfsOptions::default() };
        FileSystem::mkfs(&device, &options).unwrap();
        let server = fresh::server(&fresh::mount(&device));
        let trim = |start: u64, length: u64| {
            let range = [start, length, 0].map(u64::to_ne_bytes).concat();
            let said = server.trim(&ROOT, 18, &range)?;
            Ok(u64::from_ne_bytes(said[8..16].try_into().unwrap()))
        };
        let whole = trim(0, u64::MAX).unwrap();
        let parts = [0, 10 << 20, GROUP_BYTES + 1, 3 * GROUP_BYTES, u64::MAX];
        let given: Vec<u64> =
            parts.windows(2).map(|part| trim(part[0], part[1] - part[0]).unwrap()).collect();
        assert_eq!(given.iter().sum::<u64>(), whole);
        assert!(given.iter().all(|bytes| *bytes > 0), "{given:?}");
        assert_eq!(trim(1, 4096), Ok(0));
        assert_eq!(trim(4 * GROUP_BYTES, 4096), Err(Errno(libc::EINVAL)));
        server.close();
    }

    #[test]
    fn a_signal_and_the_end_of_the_mount_interrupt_a_trim() {
        interrupted_by(|server| server.interrupts.interrupt(18));
        interrupted_by(Server::close);
    }
}
