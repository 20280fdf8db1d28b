//! Where a reader's thread runs: beside a lone client, at a station, or anywhere.

use std::cell::Cell;
use std::sync::Arc;

use super::stations::{Station, Stations};
use super::together::Together;

/// The place of the calling thread.
pub(super) struct Place {
    together: Arc<Together>,
    stations: Arc<Stations>,
    /// The processor that it is kept on.
    at: Cell<Option<u16>>,
    station: Cell<Option<Station>>,
}

impl Place {
    /// Anywhere, whatever was before: a thread starts where the one that started it has to stay.
    pub(super) fn anywhere(together: &Arc<Together>, stations: &Arc<Stations>) -> Place {
        let place = Place {
            together: Arc::clone(together),
            stations: Arc::clone(stations),
            at: Cell::default(),
            station: Cell::default(),
        };
        place.leave();
        place
    }

    /// Stays on a processor from now on, or anywhere.
    pub(super) fn stay(&self, at: Option<u16>) {
        self.step_down();
        self.keep(at);
    }

    /// Stays at a station from now on, if one is free.
    pub(super) fn take_station(&self) {
        if self.station.get().is_none()
            && let Some((station, at)) = self.stations.take(self.at.get())
        {
            self.station.set(Some(station));
            self.keep(Some(at));
        }
    }

    /// Others may have the station. The thread stays there: mostly it comes back soon.
    pub(super) fn step_down(&self) {
        if let Some(station) = self.station.take() {
            self.stations.give_back(station);
        }
    }

    /// Anywhere, whatever was known.
    pub(super) fn leave(&self) {
        self.step_down();
        if let Err(error) = self.together.stay(None) {
            tracing::debug!("a thread cannot leave the processor it is on: {error}");
        }
        self.at.set(None);
    }

    pub(super) fn has_station(&self) -> bool {
        self.station.get().is_some()
    }

    /// Whether the thread is kept on this processor.
    pub(super) fn is_at(&self, processor: u16) -> bool {
        self.at.get() == Some(processor)
    }

    /// Whether the thread is not kept anywhere.
    pub(super) fn is_any(&self) -> bool {
        self.at.get().is_none()
    }

    fn keep(&self, at: Option<u16>) {
        if self.at.replace(at) == at {
            return;
        }
        if let Err(error) = self.together.stay(at) {
            tracing::debug!("a thread cannot be kept on processor {at:?}: {error}");
            self.at.set(None);
        }
    }
}
