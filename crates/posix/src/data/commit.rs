//! Everything goes to the device.

use crate::Result;
use crate::core::Core;

impl Core {
    /// Writes all dirty data, then makes history durable up to now (P11).
    pub(crate) fn commit(&self) -> Result<()> {
        self.store.persist(self.store.latest())?;
        Ok(())
    }
}
