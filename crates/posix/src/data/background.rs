//! The thread that writes data before memory is full of it.
//!
//! Woken when half of the limit is reached, so that writers rarely have to write something back themselves. Woken
//! earlier by a growing file with much delayed data: then it writes only that file. Owned by the mounted volume; ends
//! when dropped, without writing what is left.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;

use super::writeback::write_back;
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
            true => core.write_back(),
            false => write_streams(core, wanted.streams.values()),
        };
        // An fsync of the file reports it to its program; no caller waits here.
        failure.once("what waits could not be written in the background", written);
    }
}

/// Writes those files that still have much delayed data. The first error is returned; it keeps no other file from being
/// written.
fn write_streams<'a>(core: &Core, streams: impl Iterator<Item = &'a Arc<Inode>>) -> Result<()> {
    let mut first = Ok(());
    for inode in streams.filter(|inode| inode.data.is_much()) {
        first = first.and(write_back(core, inode));
    }
    first
}

impl Drop for Background {
    fn drop(&mut self) {
        self.core.data.pressure.end();
        threads::join(self.thread.take(), WORK);
    }
}
