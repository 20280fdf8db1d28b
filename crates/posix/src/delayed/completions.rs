//! Where ordered extents wait for the worker that puts them into the tree, as it was done before M5.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_sync::mpsc::{Sender, SyncSender};
use parking_lot::Mutex;

use super::ordered::{OrderedExtent, Target};
use crate::Result;
use crate::inode::Inode;

/// Ordered extents whose writes have returned.
pub(crate) struct Job {
    pub(crate) inode: Arc<Inode>,
    pub(crate) extents: VecDeque<OrderedExtent>,
    pub(crate) target: Target,
    pub(crate) last: bool,
    pub(crate) done: SyncSender<Result<()>>,
}

/// Where ordered extents queue for the worker; empty unless there is one.
#[derive(Default)]
pub(crate) struct Completions(Mutex<Option<Sender<Job>>>);

impl Completions {
    /// The queue, if there is a worker.
    pub(crate) fn queue(&self) -> Option<Sender<Job>> {
        self.0.lock().clone()
    }

    /// From now on all callers queue; with `None` none does.
    pub(crate) fn set(&self, queue: Option<Sender<Job>>) {
        *self.0.lock() = queue;
    }
}

holdfast_base::opaque!(Completions);
