//! Open files by number.
//!
//! The kernel names an open file by a number that we choose when it is
//! opened. The table is split into shards, so that threads rarely meet, and
//! numbers are used again. A number that was never given out is EBADF, never
//! a panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::interface::{Answer, Errno};

const SHARDS: usize = 16;

#[derive(Debug)]
struct Shard<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

/// The open files of one mount.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    shards: [Mutex<Shard<Arc<T>>>; SHARDS],
    next: AtomicUsize,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard { slots: Vec::new(), free: Vec::new() })
            }),
            next: AtomicUsize::new(0),
        }
    }

    /// Keeps an open file and gives it a number.
    pub(crate) fn insert(&self, file: Arc<T>) -> u64 {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[index].lock();
        let slot = match shard.free.pop() {
            Some(slot) => {
                shard.slots[slot] = Some(file);
                slot
            }
            None => {
                shard.slots.push(Some(file));
                shard.slots.len() - 1
            }
        };
        (slot * SHARDS + index) as u64
    }

    /// The open file of this number.
    pub(crate) fn get(&self, fh: u64) -> Answer<Arc<T>> {
        let (index, slot) = place(fh);
        let shard = self.shards[index].lock();
        shard.slots.get(slot).and_then(Option::clone).ok_or(Errno(libc::EBADF))
    }

    /// Gives the number back. The caller drops the file outside of our locks.
    pub(crate) fn remove(&self, fh: u64) -> Option<Arc<T>> {
        let (index, slot) = place(fh);
        let mut shard = self.shards[index].lock();
        let file = shard.slots.get_mut(slot)?.take()?;
        shard.free.push(slot);
        Some(file)
    }

    /// Whether no file is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| {
            let shard = shard.lock();
            shard.free.len() == shard.slots.len()
        })
    }

    /// Takes all that is left.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.free.clear();
            all.extend(shard.slots.drain(..).flatten());
        }
        all
    }
}

fn place(fh: u64) -> (usize, usize) {
    let fh = usize::try_from(fh).unwrap_or(usize::MAX);
    (fh % SHARDS, fh / SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_files_and_are_used_again() {
        let handles = Handles::new();
        let numbers: Vec<u64> = (0..100).map(|n| handles.insert(Arc::new(n))).collect();
        for (n, fh) in numbers.iter().enumerate() {
            assert_eq!(*handles.get(*fh).unwrap(), n);
        }
        assert_eq!(handles.remove(numbers[40]).as_deref(), Some(&40));
        assert_eq!(handles.get(numbers[40]), Err(Errno(libc::EBADF)));
        assert_eq!(handles.remove(numbers[40]), None);
        let reused: Vec<u64> = (0..SHARDS).map(|_| handles.insert(Arc::new(7))).collect();
        assert!(reused.contains(&numbers[40]));
        assert!(!handles.is_empty());
        assert_eq!(handles.drain().len(), 99 + SHARDS);
        assert!(handles.is_empty());
        assert_eq!(handles.get(numbers[0]), Err(Errno(libc::EBADF)));
    }

    #[test]
    fn numbers_never_given_out_are_refused() {
        let handles = Handles::<u8>::new();
        for fh in [0, 1, 12345, u64::MAX] {
            assert_eq!(handles.get(fh), Err(Errno(libc::EBADF)));
            assert_eq!(handles.remove(fh), None);
        }
    }
}
