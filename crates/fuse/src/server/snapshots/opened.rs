//! The snapshots that a mount knows by number, and those of them that are open.
//!
//! A snapshot keeps its number as long as the kernel has references to inodes of it, which are counted; and mostly for ever, as it is
//! made of the snapshot's own. It is open only while requests come: a walk
//! through thousands of snapshots has few of them open at a time. What is closed is opened again by the next request;
//! nothing is lost with it, unless a program has a file of it open, and then it stays.
//!
//! What is deleted cannot be opened again. So before that it is opened, if the kernel has references to it, and stays open until it has none:
//! a program may have a file of it open, stand in it, or have mounted it elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_base::InodeNo;
use parking_lot::Mutex;

use crate::interface::{Answer, Errno};
use crate::server::Server;
use crate::snapdir::number::{self, Far, SLOTS, Slot};

/// Snapshots that stay open though no file of them is.
const MOST: usize = 32;
/// Snapshots that stay known though the kernel has no reference to them, about.
const KNOWN: usize = 4096;

/// A snapshot that the kernel may know.
#[derive(Debug)]
struct Known {
    slot: Slot,
    /// Its number in the volume.
    snapshot: u64,
    /// When it was last wanted, as a count of requests.
    wanted: AtomicU64,
    /// What the kernel has of it. Grows under the table's lock, or where it is not 0 anyway.
    references: AtomicU64,
    /// It is deleted, or was to be.
    is_doomed: AtomicBool,
    /// What answers for it while it is open. Held while it is opened or closed, and never while another of these is waited for.
    server: Mutex<Option<Arc<Server>>>,
}

impl Known {
    /// What answers for it, if it is not needed.
    fn take_idle(&self) -> Option<Server> {
        // If it is held, it is wanted.
        let mut server = self.server.try_lock()?;
        // A request has a reference that it got under this lock.
        let is_idle = |it: &Arc<Server>| {
            let is_kept = self.is_doomed.load(Ordering::Acquire)
                && self.references.load(Ordering::Relaxed) > 0;
            Arc::strong_count(it) == 1 && !it.has_open_files() && !is_kept
        };
        match server.as_ref().is_some_and(is_idle) {
            true => server.take().and_then(Arc::into_inner),
            false => None,
        }
    }
}

#[derive(Debug)]
struct Table {
    by_snapshot: HashMap<u64, Slot>,
    by_slot: HashMap<Slot, Arc<Known>>,
    far: Far,
    /// At this number of snapshots the unneeded ones are given up.
    sweep_at: usize,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            by_snapshot: HashMap::new(),
            by_slot: HashMap::new(),
            far: Far::default(),
            sweep_at: KNOWN,
        }
    }
}

impl Table {
    /// The number of a snapshot, which gets one if it has none.
    fn slot(&mut self, snapshot: u64) -> Answer<Slot> {
        if let Some(slot) = self.by_snapshot.get(&snapshot) {
            return Ok(*slot);
        }
        if self.by_slot.len() >= self.sweep_at {
            self.sweep();
        }
        if self.by_slot.len() >= SLOTS as usize - 1 {
            return Err(Errno(libc::ENFILE));
        }
        let first = (snapshot % u64::from(SLOTS)) as u32;
        let from_first = (0..SLOTS).map(|step| Slot((first + step) % SLOTS));
        let mut free = from_first.filter(|slot| slot.0 != 0 && !self.by_slot.contains_key(slot));
        let slot = free.next().ok_or(Errno(libc::ENFILE))?;
        let known = Known {
            slot,
            snapshot,
            wanted: AtomicU64::new(0),
            references: AtomicU64::new(0),
            is_doomed: AtomicBool::new(false),
            server: Mutex::new(None),
        };
        self.by_snapshot.insert(snapshot, slot);
        self.by_slot.insert(slot, Arc::new(known));
        Ok(slot)
    }

    /// Gives up the numbers that the kernel does not know, of snapshots that are closed.
    fn sweep(&mut self) {
        self.by_slot.retain(|_, known| {
            let is_closed = || known.server.try_lock().is_some_and(|server| server.is_none());
            known.references.load(Ordering::Relaxed) > 0 || !is_closed()
        });
        let by_slot = &self.by_slot;
        self.by_snapshot.retain(|_, slot| by_slot.contains_key(slot));
        self.far.retain(|slot| by_slot.contains_key(&slot));
        // Where most of them are known, not at each new one.
        self.sweep_at = (self.by_slot.len() * 2).clamp(KNOWN, SLOTS as usize - 1);
    }
}

/// What a mount knows and has open.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    table: Mutex<Table>,
    requests: AtomicU64,
    /// Those that are open, in no order.
    open: Mutex<Vec<Arc<Known>>>,
}

impl Opened {
    /// The number of a snapshot in this mount. One and the same for every mount, unless another has taken it.
    pub(crate) fn slot(&self, snapshot: u64) -> Answer<Slot> {
        self.table.lock().slot(snapshot)
    }

    /// The number of an inode of a snapshot, for programs.
    pub(crate) fn shown(&self, slot: Slot, inode: InodeNo) -> Answer<InodeNo> {
        match number::shown(slot, inode) {
            Some(number) => Ok(number),
            None => self.table.lock().far.shown(slot, inode),
        }
    }

    /// As [`Opened::slot`], and the kernel gets a reference.
    pub(super) fn refer(&self, snapshot: u64) -> Answer<Slot> {
        let mut table = self.table.lock();
        let slot = table.slot(snapshot)?;
        if let Some(known) = table.by_slot.get(&slot) {
            known.references.fetch_add(1, Ordering::Relaxed);
        }
        Ok(slot)
    }

    /// The kernel, which has asked about it by a reference, gets more.
    pub(super) fn refer_again(&self, slot: Slot, count: u64) {
        if let Some(known) = self.table.lock().by_slot.get(&slot) {
            known.references.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The kernel gives references back. Returns whether a snapshot is closed by that which was kept for them.
    pub(super) fn forget(&self, slot: Slot, count: u64) -> bool {
        let Some(known) = self.table.lock().by_slot.get(&slot).cloned() else { return false };
        let less = |references: u64| Some(references.saturating_sub(count));
        let before = known.references.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if before.unwrap_or(0) > count || !known.is_doomed.load(Ordering::Acquire) {
            return false;
        }
        let Some(server) = known.server.lock().take() else { return false };
        self.open.lock().retain(|of| !Arc::ptr_eq(of, &known));
        server.close();
        true
    }

    /// A snapshot is about to be deleted: if the kernel has references to it, it is open from now on until there is none; else it is closed.
    pub(super) fn keep(
        &self,
        snapshot: u64,
        open: impl FnOnce(u64) -> Answer<Server>,
    ) -> Answer<()> {
        let slot = self.slot(snapshot)?;
        let Some(known) = self.table.lock().by_slot.get(&slot).cloned() else { return Ok(()) };
        known.is_doomed.store(true, Ordering::Release);
        if known.references.load(Ordering::Relaxed) > 0 {
            drop(self.server(slot, open)?);
            // If the last one was given back before it was open, nothing was found to be closed then.
            if known.references.load(Ordering::Relaxed) > 0 {
                return Ok(());
            }
        }
        // A request for the first one meanwhile opens it itself.
        if let Some(server) = known.take_idle() {
            self.open.lock().retain(|of| !Arc::ptr_eq(of, &known));
            server.close();
        }
        Ok(())
    }

    /// What answers for a snapshot; if it is not open, `open` opens the one of that number in the volume.
    pub(crate) fn server(
        &self,
        slot: Slot,
        open: impl FnOnce(u64) -> Answer<Server>,
    ) -> Answer<Arc<Server>> {
        let known = self.table.lock().by_slot.get(&slot).cloned().ok_or(Errno(libc::ESTALE))?;
        known.wanted.store(self.requests.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut server = known.server.lock();
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let opened = Arc::new(open(known.snapshot)?);
        *server = Some(Arc::clone(&opened));
        drop(server);
        self.note_open(known);
        Ok(opened)
    }

    /// What answers for a snapshot if it is open.
    pub(crate) fn find(&self, slot: Slot) -> Option<Arc<Server>> {
        let known = self.table.lock().by_slot.get(&slot).cloned()?;
        let server = known.server.lock();
        server.clone()
    }

    /// What was opened is open. Those that were not wanted for longest are closed.
    fn note_open(&self, known: Arc<Known>) {
        let mut closed = Vec::new();
        {
            let mut open = self.open.lock();
            open.push(known);
            if open.len() > MOST {
                open.sort_by_key(|of| of.wanted.load(Ordering::Relaxed));
                let mut surplus = open.len() - MOST;
                open.retain(|of| {
                    let idle = (surplus > 0).then(|| of.take_idle()).flatten();
                    surplus -= usize::from(idle.is_some());
                    let stays = idle.is_none();
                    closed.extend(idle);
                    stays
                });
            }
        }
        closed.iter().for_each(Server::close);
    }

    /// By their numbers, what the kernel knows of snapshots that are kept for it alone.
    pub(super) fn kept(&self) -> Vec<u64> {
        let is_kept = |of: &&Arc<Known>| {
            of.is_doomed.load(Ordering::Acquire) && of.references.load(Ordering::Relaxed) > 0
        };
        let kept: Vec<_> = self.open.lock().iter().filter(is_kept).cloned().collect();
        let mut all = Vec::new();
        for of in kept {
            let server = of.server.lock().clone();
            let inodes = server.and_then(|server| Some(server.fs().ok()?.remembered()));
            let inodes = inodes.into_iter().flatten().chain([InodeNo::ROOT]);
            all.extend(inodes.filter_map(|inode| number::inside(of.slot, inode).ok()));
        }
        all
    }

    /// Closes all. None is opened behind it: the mount's filesystem, which opens them, is gone.
    pub(crate) fn close(&self) {
        let all: Vec<_> = self.open.lock().drain(..).collect();
        for of in all {
            let server = of.server.lock().take();
            if let Some(server) = server {
                server.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fresh;

    #[test]
    fn few_are_open_at_a_time_and_each_keeps_its_number() {
        let fs = fresh::mount(&fresh::volume());
        let opened = Opened::default();
        let slots: Vec<Slot> = (1..=100).map(|of| opened.slot(of).unwrap()).collect();
        let open = |_| Ok(fresh::server(&fs));
        for slot in &slots {
            opened.server(*slot, open).unwrap();
            assert!(opened.open.lock().len() <= MOST);
        }
        assert_eq!(opened.slot(7).unwrap(), slots[6]);
        // One that a request is about stays, and so does the one that was wanted last.
        let held = opened.server(slots[99], |_| panic!("it was open")).unwrap();
        let others = || slots[..MOST].iter().for_each(|of| drop(opened.server(*of, open).unwrap()));
        others();
        assert!(opened.find(slots[99]).is_some());
        drop(held);
        others();
        assert!(opened.find(slots[99]).is_none());
        // Nor is one closed that is deleted and that the kernel knows.
        opened.refer(100).unwrap();
        opened.keep(100, open).unwrap();
        opened.keep(99, |_| panic!("the kernel does not know it")).unwrap();
        others();
        assert!(opened.find(slots[99]).is_some());
        opened.refer_again(slots[99], 2);
        assert!(!opened.forget(slots[99], 2) && opened.forget(slots[99], 1));
        assert!(opened.find(slots[99]).is_none());
        // Nor is one left open whose last reference went before it was: its return found nothing to close.
        opened.refer(98).unwrap();
        let gone = |of| {
            opened.table.lock().by_slot[&slots[97]].references.store(0, Ordering::Relaxed);
            open(of)
        };
        opened.keep(98, gone).unwrap();
        assert!(opened.find(slots[97]).is_none());
        opened.close();
        assert_eq!(Arc::strong_count(&fs), 1, "all are closed");
    }

    #[test]
    fn numbers_come_back_when_the_kernel_has_forgotten_them() {
        let opened = Opened::default();
        let known = || opened.table.lock().by_slot.len();
        let kept = opened.refer(7).unwrap();
        opened.refer_again(kept, 2);
        for snapshot in 1000..1000 + 10 * KNOWN as u64 {
            let slot = opened.refer(snapshot).unwrap();
            opened.forget(slot, 1);
            assert!(known() <= KNOWN, "{}", known());
        }
        assert_eq!(opened.slot(7), Ok(kept), "it was known all the time");
        opened.forget(kept, 3);
        opened.table.lock().sweep();
        assert_eq!(known(), 0);
        // What the kernel knows stays, however many there are.
        let all: Vec<Slot> = (1..3 * KNOWN as u64).map(|of| opened.refer(of).unwrap()).collect();
        assert!((1..3 * KNOWN as u64).zip(&all).all(|(of, slot)| opened.slot(of) == Ok(*slot)));
        opened.forget(all[0], u64::MAX);
        assert_eq!(known(), all.len());
    }

    #[test]
    fn numbers_of_snapshots_that_share_a_slot_differ() {
        let opened = Opened::default();
        let of = [3, 3 + u64::from(SLOTS), u64::from(SLOTS), 1].map(|of| opened.slot(of).unwrap());
        assert_eq!(of, [3, 4, 1, 2].map(Slot));
        let unknown = opened.server(Slot(77), |_| panic!("nobody knows it"));
        assert_eq!(unknown.map(drop), Err(Errno(libc::ESTALE)));
    }
}
