//! Which requests were carried out, in memory that outlives the process which serves them.
//!
//! A process that dies leaves requests which the kernel has no answer to, and sends again to the next process. Some of them
//! were carried out: a directory that is made twice would be an error that no program understands. So each change that may
//! be made only once notes the number of its request and its own (LSN) before the log can take it. What is durable
//! after a death is a prefix of the changes (P3): the next process knows where that ends, and so which requests are done.
//!
//! ```text
//! 0: which area counts, and copies in it     4 KiB: area 0     1 GiB: area 1
//! area: copies (request, how often copied), then slots of requests under way (request, LSN)
//! ```
//!
//! A slot is one write of 16 bytes, which a kill does not tear. The next process copies what counts to the other area before
//! it says that this one counts: it may die at any moment, too.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use holdfast_base::{Lsn, applied};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// Where the areas begin.
const AREAS: [u64; 2] = [4096, 1 << 30];
const SLOT: u64 = 16;
/// Slots of requests under way: more than there are threads of a mount. Their memory is taken before it is needed.
const UNDER_WAY: u64 = 256;
/// How many processes get the copy of a note. The kernel sends a request to the next one, which answers it; and once more if that dies
/// before. So many do not die in a row before they are given up.
const COPIED_TIMES: u64 = 64;
/// No honest process has more copies.
const COPIES_MAX: u64 = COPIED_TIMES * UNDER_WAY;

/// What was carried out of the requests of one connection.
#[derive(Debug)]
pub struct DuplicateRequests {
    slots: Arc<Slots>,
    /// Requests that an earlier process has carried out, and how often that was copied.
    before: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Slots {
    file: File,
    /// Where slots of this process begin, and those of them that no request has.
    first: u64,
    free: Mutex<Vec<u64>>,
    /// One is free again.
    given_back: Condvar,
}

impl DuplicateRequests {
    /// Nothing yet.
    ///
    /// # Errors
    /// The system gives no memory for it.
    pub fn new() -> io::Result<DuplicateRequests> {
        let file = File::from(memfd_create("holdfast-requests", MemfdFlags::CLOEXEC)?);
        file.write_all_at(&0_u64.to_le_bytes(), 0)?;
        DuplicateRequests::over(file, AREAS[0], HashMap::new())
    }

    /// What is left of a process that has died, of whose changes all up to `recovered` are there.
    ///
    /// # Errors
    /// `InvalidData`: it makes no sense. Others: it cannot be read, or the system gives no memory.
    pub fn take_over(file: OwnedFd, recovered: Lsn) -> io::Result<DuplicateRequests> {
        let file = File::from(file);
        let mut head = [0; 8];
        file.read_exact_at(&mut head, 0)?;
        let head = u64::from_le_bytes(head);
        let (copies, which) = (head >> 1, head & 1);
        if copies > COPIES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let [area, other] = if which == 0 { AREAS } else { [AREAS[1], AREAS[0]] };
        let mut before = HashMap::new();
        for number in 0..copies + UNDER_WAY {
            let mut slot = [0; SLOT as usize];
            file.read_exact_at(&mut slot, area + number * SLOT)?;
            let (unique, what) = slot.split_at(8);
            let [unique, what] =
                [unique, what].map(|it| u64::from_le_bytes(it.try_into().unwrap_or_default()));
            let times = if number < copies { what } else { 0 };
            let is_there = number < copies || what <= recovered.0;
            if unique != 0 && is_there && times < COPIED_TIMES {
                before.insert(unique, times + 1);
            }
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, hole, other, AREAS[1] - AREAS[0])?;
        let copies = before.iter().flat_map(|(unique, times)| [unique, times]);
        let bytes: Vec<u8> = copies.flat_map(|number| number.to_le_bytes()).collect();
        file.write_all_at(&bytes, other)?;
        let copies = before.len() as u64;
        let first = other + copies * SLOT;
        let taken = DuplicateRequests::over(file, first, before)?;
        taken.slots.file.write_all_at(&(copies << 1 | (1 - which)).to_le_bytes(), 0)?;
        Ok(taken)
    }

    /// Slots that no request has had yet are zeros, and have their memory.
    fn over(file: File, first: u64, before: HashMap<u64, u64>) -> io::Result<DuplicateRequests> {
        fallocate(&file, FallocateFlags::empty(), first, UNDER_WAY * SLOT)?;
        let free = Mutex::new((0..UNDER_WAY).rev().collect());
        let slots = Slots { file, first, free, given_back: Condvar::new() };
        Ok(DuplicateRequests { slots: Arc::new(slots), before })
    }

    /// Whether an earlier process has carried the request of this number out.
    pub(crate) fn was(&self, unique: u64) -> bool {
        self.before.contains_key(&unique)
    }

    /// Does `body`, and notes the change that is [asked for](applied::asked_for) meanwhile as what carries request `unique` out. What is
    /// returned is to be kept until the request is answered. Where that many requests are under way as there are slots, it waits for one of them: done
    /// without a note, it would be done once more behind a death.
    pub(crate) fn noting<T>(&self, unique: u64, body: impl FnOnce() -> T) -> (T, Noted) {
        let slot = self.slots.take();
        let noted = Noted { slots: Arc::clone(&self.slots), slot };
        let slots = Arc::clone(&self.slots);
        let note = move |lsn: Lsn| {
            let mut bytes = [0; SLOT as usize];
            bytes[..8].copy_from_slice(&unique.to_le_bytes());
            bytes[8..].copy_from_slice(&lsn.0.to_le_bytes());
            // Its memory is there.
            if let Err(error) = slots.file.write_all_at(&bytes, slots.first + slot * SLOT) {
                tracing::error!("request {unique} is not noted as carried out: {error}");
            }
        };
        (applied::watch(note, body), noted)
    }
}

impl Slots {
    fn take(&self) -> u64 {
        let mut free = self.free.lock();
        loop {
            match free.pop() {
                Some(slot) => return slot,
                None => self.given_back.wait(&mut free),
            }
        }
    }
}

impl AsFd for DuplicateRequests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slots.file.as_fd()
    }
}

/// A request that may have been carried out, and is not answered yet.
#[derive(Debug)]
pub(crate) struct Noted {
    slots: Arc<Slots>,
    slot: u64,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.slots.free.lock().push(self.slot);
        self.slots.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(of: &DuplicateRequests, recovered: u64) -> DuplicateRequests {
        DuplicateRequests::take_over(of.as_fd().try_clone_to_owned().unwrap(), Lsn(recovered))
            .unwrap()
    }

    fn carry_out(of: &DuplicateRequests, unique: u64, lsns: &[u64]) -> Noted {
        of.noting(unique, || {
            applied::asked_for(|| lsns.iter().for_each(|lsn| applied::note(Lsn(*lsn))))
        })
        .1
    }

    #[test]
    fn what_is_there_was_carried_out_and_what_is_lost_was_not() {
        let first = DuplicateRequests::new().unwrap();
        // One counts.
        let under_way = [
            carry_out(&first, 10, &[1]),
            carry_out(&first, 12, &[5, 9]),
            carry_out(&first, 14, &[6]),
            carry_out(&first, 16, &[]),
        ];
        let second = next(&first, 5);
        assert_eq!([10, 12, 14, 16].map(|unique| second.was(unique)), [true, true, false, false]);
        // The numbers of lost changes are given out again.
        drop(carry_out(&second, 18, &[6]));
        let third = next(&second, 7);
        assert_eq!([10, 12, 14, 18].map(|unique| third.was(unique)), [true, true, false, true]);
        drop(under_way);
    }

    #[test]
    fn a_slot_is_used_again_when_its_request_is_answered() {
        let first = DuplicateRequests::new().unwrap();
        for unique in 1..10_000 {
            drop(carry_out(&first, unique, &[unique]));
        }
        let kept: Vec<_> =
            (1..=UNDER_WAY).map(|unique| carry_out(&first, 10_000 + unique, &[1])).collect();
        let second = next(&first, 10_000);
        assert_eq!(second.before.len() as u64, UNDER_WAY);
        assert!(second.was(10_001) && second.was(10_000 + UNDER_WAY));
        drop(kept);
    }

    /// It is not done without a note.
    #[test]
    fn a_request_more_than_there_are_slots_waits_for_one() {
        let first = DuplicateRequests::new().unwrap();
        let mut kept: Vec<_> =
            (1..=UNDER_WAY).map(|unique| carry_out(&first, unique, &[1])).collect();
        let answered = std::thread::scope(|scope| {
            let more = scope.spawn(|| carry_out(&first, 9000, &[2]));
            std::thread::yield_now();
            assert!(!more.is_finished(), "it was done without a slot");
            kept.pop();
            more.join().unwrap()
        });
        assert!(next(&first, 2).was(9000));
        drop((kept, answered));
    }

    /// The area that counts is as it was until the other one is complete.
    #[test]
    fn a_process_that_dies_while_it_takes_over_changes_nothing() {
        let first = DuplicateRequests::new().unwrap();
        drop(carry_out(&first, 10, &[1]));
        let file = first.as_fd().try_clone_to_owned().map(File::from).unwrap();
        file.write_all_at(&[0xff; 64], AREAS[1]).unwrap();
        let mut now = next(&first, 1);
        for _ in 0..5 {
            assert_eq!((now.was(10), now.before.len()), (true, 1));
            now = next(&now, 1);
        }
    }

    /// Copies are more than slots, and in front of a note lies the slot of a request that changed nothing.
    #[test]
    fn a_note_behind_many_copies_and_an_empty_slot_is_found() {
        let mut now = DuplicateRequests::new().unwrap();
        for death in 1..=5 {
            let kept: Vec<_> =
                (1..=60).map(|it| carry_out(&now, 1000 * death + 2 * it, &[1])).collect();
            let next = next(&now, 1);
            drop((kept, std::mem::replace(&mut now, next)));
        }
        assert_eq!(now.before.len(), 300);
        let under_way = [carry_out(&now, 90_000, &[]), carry_out(&now, 90_002, &[7])];
        assert!(next(&now, 7).was(90_002));
        drop(under_way);
    }

    #[test]
    fn a_note_is_given_up_at_last() {
        let mut now = DuplicateRequests::new().unwrap();
        drop(carry_out(&now, 10, &[1]));
        for times in 1..=COPIED_TIMES {
            now = next(&now, 1);
            assert_eq!((now.was(10), now.before.len()), (true, 1), "{times}");
        }
        assert!(!next(&now, 1).was(10));
    }

    #[test]
    fn nonsense_is_refused() {
        let first = DuplicateRequests::new().unwrap();
        let file = first.as_fd().try_clone_to_owned().map(File::from).unwrap();
        file.write_all_at(&u64::MAX.to_le_bytes(), 0).unwrap();
        let refused = DuplicateRequests::take_over(file.into(), Lsn(1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
