//! `fsync_wait=completion`: ordered extents on their way into the tree, by a worker (M5).
//!
//! As published before, a worker completes the ordered extents of all files, in the order in which their writes
//! returned, and an fsync waits until the worker has completed those of its file. The other position of the switch
//! needs no worker: the fsync has extents and checksums at hand, and makes them visible in the tree and pending for the
//! log in one step. So nothing that the log promises is ever missing in the tree (R5), and a commit waits for no fsync.
//!
//! Owned by the mounted volume; ends when dropped.

use holdfast_sync::mpsc::{Receiver, channel, sync_channel};
use holdfast_sync::thread::JoinHandle;
use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::switch::FsyncWait;

use crate::core::Core;
use crate::data::insert::insert_extents;
use crate::delayed::completions::Job;
use crate::delayed::ordered::{OrderedExtent, Target};
use crate::file_data::MapGuard;
use crate::inode::Inode;
use crate::{FsError, Result, threads};

/// What the thread is for.
const WORK: &str = "completions";

/// Puts a round of extents into the tree. Returns when they are there.
pub(crate) fn complete(
    core: &Core,
    inode: &Arc<Inode>,
    map: &MapGuard<'_>,
    extents: VecDeque<OrderedExtent>,
    target: Target,
    last: bool,
) -> Result<()> {
    let queue = core.data.completions.queue();
    let Some(queue) = queue else {
        return insert_extents(core, inode, map, extents, target, last);
    };
    let (done, wait) = sync_channel(1);
    let lost = || FsError::Io("the completion thread has ended".into());
    queue.send(Job { inode: inode.clone(), extents, target, last, done }).map_err(|_| lost())?;
    wait.recv().map_err(|_| lost())?
}

/// The worker.
#[derive(Debug)]
pub(crate) struct Completer {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Completer {
    /// Starts the worker if the volume is mounted so; from now on all callers queue.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Option<Completer>> {
        if core.options.fsync_wait == FsyncWait::Writeback {
            return Ok(None);
        }
        let core = core.clone();
        let (queue, jobs) = channel();
        let body = {
            let core = core.clone();
            move || run(&core, &jobs)
        };
        let thread = threads::start(core.store.store(), "holdfast-complete", WORK, body)?;
        core.data.completions.set(Some(queue));
        Ok(Some(Completer { core, thread: Some(thread) }))
    }

    /// Ends the worker, after all callers that queue.
    pub(crate) fn end(completer: Option<Completer>) {
        drop(completer);
    }
}

fn run(core: &Core, jobs: &Receiver<Job>) {
    for Job { inode, extents, target, last, done } in jobs {
        // The thread that queued the job holds the map, and waits.
        let map = inode.data.map_of_waiter();
        // The result is dropped if that thread has gone.
        let _ = done.send(insert_extents(core, &inode, &map, extents, target, last));
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.core.data.completions.set(None);
        threads::join(self.thread.take(), WORK);
    }
}
