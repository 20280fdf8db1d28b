//! Holding the guard of a volume that no store is opened on: for a program that repairs it without the engine.

use std::sync::Arc;

use holdfast_base::stop::Stop;
use holdfast_device::{Device, Sticky};
use uuid::Uuid;

use super::{Guarded, Guarding, Keeper};
use crate::Result;

/// A device to which no program on another machine writes the same volume while this is there. One that others cannot reach is held by
/// its lock alone.
#[derive(Debug)]
pub struct Hold {
    device: Arc<dyn Device>,
    keeper: Option<Keeper>,
}

impl Hold {
    /// Takes the volume `uuid`, or is refused by the program that has it, which may take as long as [`Guarding::wait`].
    pub fn take(device: Arc<dyn Device>, uuid: [u8; 16], how: &Guarding) -> Result<Hold> {
        let Some(guarded) = Guarded::over(&device, false, how) else {
            return Ok(Hold { device, keeper: None });
        };
        let stop: Arc<Stop> = Arc::default();
        let device: Arc<dyn Device> = Arc::new(Sticky::new(guarded.clone(), stop.clone()));
        let uuid = Uuid::from_bytes(uuid);
        let keeper = Keeper::start(guarded, (&device, &stop), uuid, how, true)?;
        Ok(Hold { device, keeper: Some(keeper) })
    }

    /// The device, all of whose calls fail once another program has taken the volume.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The volume was written to and is left in order. Without this, what stood in the guard comes back.
    pub fn leave(mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.leave(&*self.device);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            keeper.not_opened();
        }
    }
}
