//! The latch that turns a volume read-only after a failed write or flush.
//!
//! Once stopped, a volume stays stopped until it is opened again: a flush that
//! failed is never retried as if nothing had happened (P7).

use std::sync::OnceLock;

use crate::clock::Timestamp;

/// Shared by everything that writes to one volume. Any of it may stop the volume; nothing starts it again.
#[derive(Debug, Default)]
pub struct Stop(OnceLock<(Timestamp, String)>);

impl Stop {
    /// Stops the volume. The first reason is kept; says whether it is this one.
    pub fn stop(&self, reason: impl Into<String>) -> bool {
        self.0.set((Timestamp::now(), reason.into())).is_ok()
    }

    /// Why the volume was stopped, if it was.
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(|(_, reason)| reason.as_str())
    }

    /// When the volume was stopped, if it was.
    pub fn since(&self) -> Option<Timestamp> {
        self.0.get().map(|(since, _)| *since)
    }

    /// Whether the volume was stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.get().is_some()
    }
}
