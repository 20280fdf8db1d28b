//! A device that lets no commit come to its end while it is held.
//!
//! What the thread of a volume's commits writes waits; all other calls go straight to the device below. So what
//! changes meanwhile stays pending for the log, however much it is. M4 was published with that situation, and
//! commits in the background never let it come.

use std::fmt;
use std::sync::Arc;

use holdfast_device::{Device, DeviceError, forward};
use parking_lot::{Condvar, Mutex};

/// The thread that makes commits in the background.
const COMMITS: &str = "commit";

/// A device below, and whether it holds commits back.
pub(crate) struct HeldDevice {
    below: Arc<dyn Device>,
    is_held: Mutex<bool>,
    released: Condvar,
}

impl HeldDevice {
    /// Calls go to `below`; nothing is held back yet.
    pub(crate) fn new(below: Arc<dyn Device>) -> HeldDevice {
        HeldDevice { below, is_held: Mutex::new(false), released: Condvar::new() }
    }

    /// Holds commits back until what it returns is dropped, which must be before the volume is closed.
    pub(crate) fn hold(&self) -> Held<'_> {
        *self.is_held.lock() = true;
        Held(self)
    }
}

/// See [`HeldDevice::hold`].
#[must_use = "commits are held back as long as it lives"]
pub(crate) struct Held<'a>(&'a HeldDevice);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.is_held.lock() = false;
        self.0.released.notify_all();
    }
}

impl Device for HeldDevice {
    forward!(below: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if std::thread::current().name() == Some(COMMITS) {
            let mut is_held = self.is_held.lock();
            while *is_held {
                self.released.wait(&mut is_held);
            }
        }
        self.below.write(at, bytes)
    }
}

impl fmt::Debug for HeldDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldDevice").field("below", &self.below).finish_non_exhaustive()
    }
}
