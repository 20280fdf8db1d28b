//! The list of calls that a run made, from which every power cut can be visited.

use super::event::Event;
use super::pending::Cut;
use crate::memory::MemoryDevice;

/// A run: what the device held at first, and every call since.
#[derive(Debug)]
pub struct Recording {
    /// The bytes at the start, all durable.
    pub base: MemoryDevice,
    /// The calls.
    pub events: Vec<Event>,
}

impl Recording {
    /// A power cut before the first event, to be moved on with [`Cut::advance`].
    pub fn start(&self) -> Cut {
        Cut::new(&self.base)
    }

    /// A power cut when the first `index` events have happened.
    ///
    /// # Panics
    /// With an `index` above the number of events.
    pub fn cut_at(&self, index: usize) -> Cut {
        let mut cut = self.start();
        for event in &self.events[..index] {
            cut.advance(event);
        }
        cut
    }

    /// One line for each event, numbered from 0.
    pub fn trace(&self) -> String {
        let lines = self.events.iter().enumerate();
        lines.map(|(index, event)| format!("{index} {event:?}\n")).collect()
    }
}
