//! When a script's volume makes commits and checkpoints besides those that it needs.
//!
//! Scripts do not know them: nothing that a caller sees depends on them. But a
//! power cut does, so the simulator puts them at the worst moments: behind any
//! operation, or all the time in another thread, beside the fsyncs of the script.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use holdfast_posix::{FileSystem, FsError};

/// What is done all the time.
pub(super) type Work = fn(&FileSystem) -> Result<(), FsError>;

/// When checkpoints and commits are made that nothing asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoints {
    /// Never.
    Never,
    /// Behind every n-th operation, those that only read included. Not 0.
    After(u64),
    /// All the time, by another thread.
    Beside,
    /// As `After`, with commits.
    CommitsAfter(u64),
    /// As `Beside`, with commits.
    CommitsBeside,
    /// As `After`, with what is written when a volume rests.
    RestsAfter(u64),
    /// As `Beside`, with that.
    RestsBeside,
}

impl Checkpoints {
    /// What another thread does all the time.
    pub(super) fn beside(self) -> Option<Work> {
        match self {
            Checkpoints::Beside => Some(FileSystem::checkpoint),
            Checkpoints::CommitsBeside => Some(FileSystem::commit),
            Checkpoints::RestsBeside => Some(FileSystem::rest),
            _ => None,
        }
    }

    /// Whether operations go on beside another thread.
    pub fn is_beside(self) -> bool {
        self.beside().is_some()
    }
}

/// The thread of [`Checkpoints::Beside`] and its like; ends when this is dropped.
#[derive(Debug)]
pub(super) struct Beside {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    pub(super) fn start(filesystem: &Arc<FileSystem>, work: Work) -> Beside {
        let ended = Arc::new(AtomicBool::new(false));
        let (filesystem, seen) = (Arc::clone(filesystem), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            // A failure stops the volume, and the script hears of it.
            while !seen.load(Ordering::Acquire) && work(&filesystem).is_ok() {
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
            thread.join().expect("it does not panic");
        }
    }
}
