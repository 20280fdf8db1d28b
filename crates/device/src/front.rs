//! The front of a device, for a volume that ends before the device does.

use std::sync::Arc;

use crate::range::inside;
use crate::{Device, DeviceError, forward};

/// So many bytes of a device, from its beginning on.
#[derive(Debug)]
pub struct Front {
    under: Arc<dyn Device>,
    bytes: u64,
}

impl Front {
    /// The first `bytes` of `under`.
    ///
    /// # Errors
    /// It has fewer.
    pub fn of(under: Arc<dyn Device>, bytes: u64) -> Result<Front, DeviceError> {
        inside("part", 0, bytes, under.len())?;
        Ok(Front { under, bytes })
    }
}

impl Device for Front {
    forward!(under: flush, room, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        inside("read", at, into.len() as u64, self.bytes)?;
        self.under.read(at, into)
    }

    fn data_from(&self, at: u64) -> u64 {
        self.under.data_from(at).min(self.bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        inside("write", at, bytes.len() as u64, self.bytes)?;
        self.under.write(at, bytes)
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        inside("discard", at, len, self.bytes)?;
        self.under.discard(at, len)
    }

    fn discards(&self) -> crate::Discards {
        self.under.discards()
    }

    fn take_room(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        inside("take room", at, len, self.bytes)?;
        self.under.take_room(at, len)
    }

    fn len(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn nothing_behind_its_end_is_reached() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 10));
        assert!(Front::of(Arc::clone(&whole), (64 << 10) + 1).is_err());
        let front = Front::of(Arc::clone(&whole), 32 << 10).expect("it is long enough");
        assert_eq!(front.len(), 32 << 10);
        front.write(28 << 10, &[7; 4096]).expect("it is inside");
        let mut bytes = [0; 4096];
        whole.read(28 << 10, &mut bytes).expect("it is inside");
        assert_eq!(bytes, [7; 4096]);
        assert!(
            front.write(32 << 10, &bytes).is_err() && front.read(32 << 10, &mut bytes).is_err()
        );
        assert!(front.discard(28 << 10, 8 << 10).is_err() && front.grow(64 << 10).is_err());
    }
}
