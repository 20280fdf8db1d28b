//! The thread that writes data before memory is full of it.
//!
//! Woken when half of the limit is reached, so that writers rarely have to write something back themselves. Woken
//! earlier by a growing file with much delayed data: then it writes only that file. Owned by the mounted volume; ends
//! when dropped, without writing what is left.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;

use super::writeback::{ROUND_BLOCKS, write_back_front};
use crate::core::Core;
use crate::inode::Inode;
use crate::last_message::LastMessage;
use crate::{Result, threads};

/// What the thread is for.
const WORK: &str = "writeback";

/// The thread.
#[derive(Debug)]
pub(crate) struct Background {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(core: Arc<Core>) -> Result<Background> {
        let body = {
            let core = core.clone();
            move || run(&core)
        };
        let thread = threads::start(core.store.store(), "holdfast-writeback", WORK, body)?;
        Ok(Background { core, thread: Some(thread) })
    }
}

fn run(core: &Core) {
    let mut failure = LastMessage::default();
    while let Some(wanted) = core.data.pressure.wait() {
        if core.store.stop_reason().is_some() {
            continue;
        }
        let _inside = core.gate.enter_first();
        let written = match wanted.all {
            true => write_much(core),
            false => write_streams(core, wanted.streams.into_values().collect()),
        };
        // An fsync of the file reports it to its program; no caller waits here.
        failure.once("what waits could not be written in the background", written);
    }
}

/// Writes the files with much delayed data, and if that is not enough the others.
fn write_much(core: &Core) -> Result<()> {
    let waiting = core.data.waiting().into_iter();
    let (streams, others): (Vec<_>, Vec<_>) = waiting.partition(|inode| inode.data.is_much());
    let written = write_streams(core, streams);
    match core.data.totals.is_half_full() {
        true => written.and(core.write_back_files(others)),
        false => written,
    }
}

/// Writes those files that still have much delayed data, front by front: a writer or an fsync that wants one meanwhile waits for a front.
fn write_streams(core: &Core, streams: Vec<Arc<Inode>>) -> Result<()> {
    core.write_each(streams, |inode| {
        // No more than what it has now: it may grow as fast as it is written.
        let fronts = match inode.data.is_much() {
            true => inode.data.pages().div_ceil(ROUND_BLOCKS),
            false => 0,
        };
        (0..fronts).try_for_each(|_| write_back_front(core, inode))
    })
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.data.pressure.end();
        threads::join(self.thread.take(), WORK);
    }
}
