//! When a script's volume makes checkpoints of its own accord, beside those that it needs.
//!
//! Scripts do not know checkpoints: nothing that a caller sees depends on them.
//! But a power cut does, so the torture puts them where they hurt: behind any
//! operation, or all the time in another thread, beside the commits of the script.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use holdfast_posix::FileSystem;

/// When checkpoints are made that nothing asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// Never.
    Never,
    /// Behind every so-many-th operation, the looking ones included. Not 0.
    After(u64),
    /// All the time, by another thread.
    Beside,
}

/// The thread of [`Checkpoints::Beside`]; ends when this is dropped.
#[derive(Debug)]
pub(super) struct Beside {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    pub(super) fn start(filesystem: &Arc<FileSystem>) -> Beside {
        let ended = Arc::new(AtomicBool::new(false));
        let (filesystem, seen) = (Arc::clone(filesystem), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            // A failure stops the volume, and the script hears of it.
            while !seen.load(Ordering::Acquire) && filesystem.checkpoint().is_ok() {
                std::thread::yield_now();
            }
        });
        Beside { ended, thread: Some(thread) }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a checkpoint does not panic");
        }
    }
}
