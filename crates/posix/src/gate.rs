//! Who may change a branch: many calls at a time, or one that takes a snapshot of it, rolls it back or deletes it.
//!
//! What is planned holds only as long as the branch keeps its parent: a block that was the branch's own belongs to a
//! snapshot from then on, and must neither become young by a join (S1) nor be written in place (S2). So whatever plans a
//! change of a branch passes the gate first and stays inside until its transaction is applied, and a snapshot closes the
//! gate. It is the first of all locks: what waits for it holds none.
//!
//! Threads of the volume and the ends of handles come in although others wait for the gate to close: a call that is
//! inside may wait for them.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

/// Inside: the branch keeps its parent.
pub(crate) type Inside<'a> = RwLockReadGuard<'a, ()>;
/// None is inside.
pub(crate) type Closed<'a> = RwLockWriteGuard<'a, ()>;

impl Gate {
    /// A call enters. It is not inside already.
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.0.read()
    }

    /// A thread of the volume enters: in front of those that wait to close the gate.
    pub(crate) fn enter_first(&self) -> Inside<'_> {
        self.0.read_recursive()
    }

    /// Enters unless the gate is closed. The caller may be inside already.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_>> {
        self.0.try_read_recursive()
    }

    /// Waits until all have left, and lets none in.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.0.write()
    }
}
