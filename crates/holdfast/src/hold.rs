//! Holding a volume that is not opened: for a repair, which must not use the engine.

use std::io;
use std::sync::Arc;

use holdfast_device::Device;

use crate::error::volume_error;

/// A volume to which no other program writes, on this machine or another one, while this is there.
#[derive(Debug)]
pub struct Hold(holdfast_posix::Hold);

impl Hold {
    /// Takes the volume of id `uuid` on a device that was opened for writing. Where other machines may reach it and one has not left it in order,
    /// that one is asked, for 5 s.
    ///
    /// # Errors
    /// If another program has the volume, or the device refuses.
    pub fn take(device: Arc<dyn Device>, uuid: [u8; 16]) -> io::Result<Hold> {
        holdfast_posix::Hold::take(device, uuid, &Default::default())
            .map(Hold)
            .map_err(|error| volume_error(error.into()))
    }

    /// The device: its calls fail once another program has the volume.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.0.device()
    }

    /// The volume was written to, and is left in order.
    pub fn leave(self) {
        self.0.leave();
    }
}
