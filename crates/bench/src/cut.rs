//! A device whose power can be cut while an engine still uses it.
//!
//! After [`CutDevice::cut`] nothing that is written arrives any more: whatever
//! the engine's threads were doing, the device below keeps what it had. Reads
//! go on, so that nobody is held up on the way out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_device::{Device, DeviceError, Flushed, forward};

/// Passes everything on until it is cut.
#[derive(Debug)]
pub(crate) struct CutDevice {
    below: Arc<dyn Device>,
    is_cut: AtomicBool,
}

impl CutDevice {
    pub(crate) fn new(below: Arc<dyn Device>) -> Arc<CutDevice> {
        Arc::new(CutDevice { below, is_cut: AtomicBool::new(false) })
    }

    /// From now on nothing arrives.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn check(&self, call: &'static str, at: u64, len: u64) -> Result<(), DeviceError> {
        match self.is_cut.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                let source = io::Error::other("the power is cut");
                Err(DeviceError::Io { call, at, len, source })
            }
        }
    }
}

impl Device for CutDevice {
    forward!(below: read, room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check("write", at, bytes.len() as u64)?;
        self.below.write(at, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.check("flush", 0, 0)?;
        self.below.flush()
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.check("reservation", at, len)?;
        self.below.take_room(at, len)
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.check("discard", at, len)?;
        self.below.discard(at, len)
    }
}
