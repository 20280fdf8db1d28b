//! Which calls may change a branch: many at a time, or one that takes a snapshot of it, rolls it back or deletes it.
//!
//! What is planned holds only as long as the branch keeps its parent: a block that was the branch's own belongs to a
//! snapshot from then on, and must neither become young by a join (S1) nor be written in place (S2). So whatever plans a
//! change of a branch passes the gate first and stays inside until its transaction is applied, and a snapshot closes the
//! gate. It is the first of all locks: what waits for it holds none.
//!
//! Threads of the volume and the ends of handles come in although others wait for the gate to close: a call that is
//! inside may wait for them.

use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateCounts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateCounts {
    inside: usize,
    /// Those that wait to close it, or have.
    closing: usize,
    is_closed: bool,
}

/// Inside: the branch keeps its parent.
pub(crate) struct Inside<'a>(&'a Gate);
/// None is inside.
pub(crate) struct Closed<'a>(&'a Gate);

impl Gate {
    /// A call enters. It is not inside already.
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.enter_unless(|state| state.closing > 0)
    }

    /// A thread of the volume enters: in front of those that wait to close the gate.
    pub(crate) fn enter_first(&self) -> Inside<'_> {
        self.enter_unless(|state| state.is_closed)
    }

    fn enter_unless(&self, must_wait: impl Fn(&GateCounts) -> bool) -> Inside<'_> {
        let mut state = self.state.lock();
        if must_wait(&state) {
            wait::will_wait();
            self.changed.wait_while(&mut state, |state| must_wait(state));
        }
        state.inside += 1;
        Inside(self)
    }

    /// Enters unless the gate is closed. The caller may be inside already.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.inside += 1;
        Some(Inside(self))
    }

    /// Whether a caller waits to close it.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.lock().closing > 0
    }

    /// Waits until all have left, and lets none in.
    pub(crate) fn close(&self) -> Closed<'_> {
        let mut state = self.state.lock();
        state.closing += 1;
        self.changed.wait_while(&mut state, |state| state.inside > 0 || state.is_closed);
        state.is_closed = true;
        Closed(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.inside -= 1;
        if state.inside == 0 && state.closing > 0 {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closing -= 1;
        state.is_closed = false;
        self.0.changed.notify_all();
    }
}
