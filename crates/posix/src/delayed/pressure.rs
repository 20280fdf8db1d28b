//! What the background waits for: more is delayed than should be, in all files or in one.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::InodeNo;
use parking_lot::{Condvar, Mutex};

use crate::inode::Inode;

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    wanted: Wanted,
    end: bool,
}

/// What the background is asked to write.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// As much as is too much.
    pub(crate) all: bool,
    /// These files, by number.
    pub(crate) streams: BTreeMap<InodeNo, Arc<Inode>>,
}

/// Set when more is delayed than should be, in all files or in one.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    asked: Mutex<Asked>,
    pressed: Condvar,
}

impl Pressure {
    /// Wakes the background to write as much as is too much.
    pub(crate) fn wake(&self) {
        self.asked.lock().wanted.all = true;
        self.pressed.notify_all();
    }

    /// Wakes the background to write one file.
    pub(crate) fn wake_for(&self, inode: &Arc<Inode>) {
        self.asked.lock().wanted.streams.entry(inode.no).or_insert_with(|| inode.clone());
        self.pressed.notify_all();
    }

    /// Ends the background.
    pub(crate) fn end(&self) {
        self.asked.lock().end = true;
        self.pressed.notify_all();
    }

    /// Waits for a request and returns it; `None` if the background is to end.
    pub(crate) fn wait(&self) -> Option<Wanted> {
        let mut asked = self.asked.lock();
        loop {
            if asked.end {
                return None;
            }
            if asked.wanted.all || !asked.wanted.streams.is_empty() {
                return Some(std::mem::take(&mut asked.wanted));
            }
            self.pressed.wait(&mut asked);
        }
    }
}
