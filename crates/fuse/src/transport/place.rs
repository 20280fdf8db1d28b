//! Where a reader's thread runs: beside a lone client, at a station, or anywhere.

use std::cell::Cell;
use std::sync::Arc;

use super::stations::{Station, Stations};
use super::together::Together;

/// Where the calling thread is.
pub(super) struct Place {
    together: Arc<Together>,
    stations: Arc<Stations>,
    now: Cell<Now>,
    /// The station to take next, if it is free.
    next: Cell<Option<u16>>,
}

/// Where the thread is. The numbers are those of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Anywhere,
    /// A lone client is there, too.
    Beside(u16),
    At(Station, u16),
    /// It has nothing to do there any more, but may have soon.
    Still(u16),
}

impl Place {
    /// Anywhere, whatever was before: a thread inherits the affinity of the thread that started it.
    pub(super) fn anywhere(together: &Arc<Together>, stations: &Arc<Stations>) -> Place {
        let place = Place {
            together: Arc::clone(together),
            stations: Arc::clone(stations),
            now: Cell::new(Now::Anywhere),
            next: Cell::default(),
        };
        place.keep(None);
        place
    }

    /// Goes to the processor of a lone client.
    pub(super) fn go_beside(&self, processor: u16) {
        if self.now.get() != Now::Beside(processor) && self.move_to(processor) {
            self.now.set(Now::Beside(processor));
        }
    }

    /// Goes to a station, or anywhere if there is none free.
    pub(super) fn go_to_station(&self) {
        if self.has_station() {
            return;
        }
        let Some((station, processor)) = self.stations.take(self.next.get()) else {
            return self.go_anywhere();
        };
        if self.move_to(processor) {
            self.next.set(Some(processor));
            self.now.set(Now::At(station, processor));
        } else {
            self.stations.give_back(station);
            self.next.set(None);
        }
    }

    /// Gives up the present one. If that processor cannot be used, the thread is anywhere.
    fn move_to(&self, processor: u16) -> bool {
        self.step_down();
        let is_there = self.processor() == Some(processor) || self.keep(Some(processor));
        if !is_there {
            self.go_anywhere();
        }
        is_there
    }

    pub(super) fn go_anywhere(&self) {
        self.step_down();
        if self.is_kept() {
            self.keep(None);
            self.now.set(Now::Anywhere);
        }
    }

    /// Others may have the station. The thread stays on its processor, also while it waits for a device: mostly it
    /// comes back soon.
    pub(super) fn step_down(&self) {
        if let Now::At(station, processor) = self.now.get() {
            self.stations.give_back(station);
            self.now.set(Now::Still(processor));
        }
    }

    /// The reason to stay on a processor is gone.
    pub(super) fn let_go(&self) {
        self.step_down();
        self.now.set(self.processor().map_or(Now::Anywhere, Now::Still));
    }

    /// A client sleeps on this processor. Says whether the thread is there, too; if not, it may go there next.
    pub(super) fn meets(&self, processor: u16) -> bool {
        self.next.set(Some(processor));
        self.processor() == Some(processor)
    }

    pub(super) fn is_beside_client(&self) -> bool {
        matches!(self.now.get(), Now::Beside(_))
    }

    pub(super) fn has_station(&self) -> bool {
        matches!(self.now.get(), Now::At(..))
    }

    /// Whether the thread is kept on one processor.
    pub(super) fn is_kept(&self) -> bool {
        self.processor().is_some()
    }

    /// Where the thread is kept.
    pub(super) fn processor(&self) -> Option<u16> {
        match self.now.get() {
            Now::Anywhere => None,
            Now::Beside(at) | Now::At(_, at) | Now::Still(at) => Some(at),
        }
    }

    fn keep(&self, at: Option<u16>) -> bool {
        let kept = self.together.stay(at);
        if let Err(error) = &kept {
            tracing::debug!("a thread cannot be kept on processor {at:?} (none: on any): {error}");
        }
        kept.is_ok()
    }
}
