//! A branch that stands still, and what is compared before it becomes what its fork is.

use std::sync::{OnceLock, Weak};

use holdfast_device::{DeviceError, forward};
use holdfast_sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::core::Core;
use crate::op::promote::{Looks, Next};

const FILES: u64 = 600;

/// A call waits for a branch to stand still. Meanwhile that is closed, and opened anew: the call is about the one that is open
/// then, and what was written to that is in the snapshot.
#[test]
fn a_branch_that_was_opened_anew_stands_still_as_it_is_now() {
    let v = Volume::new();
    v.fs.fork(b"work", None).unwrap();
    let work = v.fs.open_branch(b"work", options()).unwrap();
    std::thread::scope(|scope| {
        let core = Arc::clone(&work.core);
        let inside = core.gate.enter();
        let taken = scope.spawn(|| v.fs.snapshot_of(b"work", b"s"));
        while !core.gate.is_awaited() {
            std::thread::yield_now();
        }
        // Both come behind what is inside, in some order: the branch leaves the list of what is open inside its gate.
        let closed = scope.spawn(|| work.unmount());
        drop(inside);
        drop(core);
        let again = loop {
            match v.fs.open_branch(b"work", options()) {
                Ok(again) => break again,
                Err(FsError::InUse(_)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let file = again.create(&root(), ROOT, b"f", 0o644, flags, true).unwrap().1;
        again.write(&root(), &file, 0, &[7; 9000], WriteHow::default()).unwrap();
        taken.join().unwrap().unwrap();
        closed.join().unwrap().unwrap();
        // Taken of what was open first, of nothing that was open, or of what is open now: a write is in it whole or not at all.
        let snapshot = v.fs.open_snapshot(b"work", b"s", options()).unwrap();
        let found = snapshot.lookup(&root(), ROOT, b"f").map(|of| of.size);
        assert!(matches!(found, Ok(0 | 9000) | Err(FsError::NotFound)), "{found:?}");
        snapshot.unmount().unwrap();
        v.fs.snapshot_of(b"work", b"now").unwrap();
        let snapshot = v.fs.open_snapshot(b"work", b"now", options()).unwrap();
        assert_eq!(snapshot.lookup(&root(), ROOT, b"f").unwrap().size, 9000);
        snapshot.unmount().unwrap();
        drop(file);
        again.unmount().unwrap();
    });
    v.fs.unmount().unwrap();
}

/// Counts what is read while a branch goes on, and while it stands still.
#[derive(Debug)]
struct Watching {
    under: Arc<MemoryDevice>,
    core: OnceLock<Weak<Core>>,
    goes_on: AtomicU64,
    stands: AtomicU64,
}

impl Watching {
    fn reads(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.swap(0, Ordering::Relaxed);
        (count(&self.goes_on), count(&self.stands))
    }
}

impl Device for Watching {
    forward!(under: write, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<(), DeviceError> {
        if let Some(core) = self.core.get().and_then(Weak::upgrade) {
            let is_open = core.gate.try_enter().is_some();
            let count = if is_open { &self.goes_on } else { &self.stands };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.under.read(at, into)
    }
}

/// A volume of many files with a fork, opened anew: nothing of them is in memory. With `read` all of them were read since.
fn with_fork(read: bool) -> (Volume, Arc<Watching>) {
    with_fork_of(read, 0)
}

/// The same, and so many snapshots of the fork.
fn with_fork_of(read: bool, snapshots: u32) -> (Volume, Arc<Watching>) {
    let v = Volume::new();
    let both = OpenFlags::READ | OpenFlags::WRITE;
    let write = |name: &str| {
        let (_, file) = v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, both, false).unwrap();
        v.fs.write(&root(), &file, 0, b"content", WriteHow::default()).unwrap();
    };
    (0..FILES).for_each(|file| write(&format!("f{file}")));
    v.fs.fork(b"try", None).unwrap();
    for snapshot in 0..snapshots {
        v.fs.snapshot_of(b"try", format!("s{snapshot}").as_bytes()).unwrap();
    }
    let Volume { fs, device } = v;
    fs.unmount().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).unwrap();
    let watching = Arc::new(Watching {
        under: Arc::new(MemoryDevice::from_image(&bytes)),
        core: OnceLock::new(),
        goes_on: AtomicU64::new(0),
        stands: AtomicU64::new(0),
    });
    let device: Arc<dyn Device> = watching.clone();
    let how = MountOptions { atime: Atime::Always, cache_bytes: 0, ..options() };
    if read {
        let fs = FileSystem::mount(device.clone(), how.clone()).unwrap();
        for file in 0..FILES {
            let no = fs.lookup(&root(), ROOT, format!("f{file}").as_bytes()).unwrap().inode;
            let file = fs.open(&root(), no, OpenFlags::READ).unwrap();
            assert_eq!(fs.read(&file, 0, &mut [0; 7]).unwrap(), 7);
        }
        fs.unmount().unwrap();
    }
    let fs = FileSystem::mount(device.clone(), how).unwrap();
    watching.core.set(Arc::downgrade(&fs.core)).unwrap();
    watching.reads();
    (Volume { fs, device }, watching)
}

/// Cold, and with a cache of few nodes: snapshots of the fork are looked at while programs go on. For many of them programs wait for no more
/// reads than for a few.
#[test]
fn a_fork_with_many_snapshots_is_looked_at_while_programs_go_on() {
    for unchanged in [true, false] {
        let [few, many] = [10, 800].map(|count| {
            let (v, watching) = with_fork_of(false, count);
            v.fs.promote(b"main", b"try", None, unchanged).unwrap();
            let reads = watching.reads();
            assert_eq!(v.fs.snapshots().unwrap().len(), count as usize);
            v.check();
            reads
        });
        assert!(many.0 > 4 * few.0, "{few:?} and {many:?} reads");
        assert!(many.1 <= few.1 + 16, "{few:?} and {many:?} reads while programs wait");
    }
}

fn promote(v: &Volume) -> Result<()> {
    v.fs.promote(b"main", b"try", None, true)
}

/// The number of the next branch or snapshot.
fn next_number(v: &Volume) -> u64 {
    v.fs.fork(b"passing", None).unwrap()
}

#[test]
fn a_branch_without_a_younger_node_is_not_compared() {
    let (v, watching) = with_fork(false);
    let before = next_number(&v);
    watching.reads();
    promote(&v).unwrap();
    let (goes_on, stands) = watching.reads();
    assert!(goes_on + stands <= 3, "{goes_on} and {stands} reads");
    // What the fork was, and what the branch was.
    v.fs.delete_branch(b"passing").unwrap();
    assert!(next_number(&v) - before <= 5, "no snapshot was taken to compare");
    v.check();
}

#[test]
fn a_branch_that_was_only_read_is_compared_while_programs_go_on() {
    let (v, watching) = with_fork(true);
    promote(&v).unwrap();
    let (goes_on, stands) = watching.reads();
    assert!(goes_on > 3 && stands < goes_on / 2, "{goes_on} and {stands} reads");
    v.check();
}

/// Programs that never stop to read change access times between any two looks: what came since the last comparison is compared once while they
/// wait, and all of it never.
#[test]
fn a_branch_that_is_read_all_the_time_becomes_what_its_fork_is() {
    let (v, watching) = with_fork(true);
    let number = |name: &[u8]| v.fs.find_branch(name).unwrap().number;
    let (branch, fork) = (number(b"main"), number(b"try"));
    let store = v.fs.core.store.store();
    let mut looks = Looks::new(store.look_before_promotion(branch, fork).unwrap(), None);
    let (mut compared, mut looked) = (0, 0);
    loop {
        let file = v.fs.open(&root(), v.find(ROOT, "f300").unwrap(), OpenFlags::READ).unwrap();
        assert_eq!(v.fs.read(&file, 0, &mut [0; 7]).unwrap(), 7);
        match v.fs.look_at_both(branch, fork, None, &mut looks).unwrap() {
            Next::Compare(moments) => v.fs.compare(branch, moments, &mut looks).unwrap(),
            Next::Look => looks.look_again(store).unwrap(),
            Next::Promoted => break,
        }
        match watching.reads() {
            (0, _) => looked += 1,
            _ => compared += 1,
        }
    }
    let (_, stands) = watching.reads();
    assert!((1..=2).contains(&compared) && looked <= 1, "{compared} and {looked} rounds");
    assert!(stands < FILES / 20, "{stands} reads while programs wait");
    v.check();
}

#[test]
fn a_branch_that_has_changed_does_not_become_what_its_fork_is() {
    for read in [false, true] {
        let (v, _) = with_fork(read);
        let no = v.find(ROOT, "f300").unwrap();
        let change = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        v.fs.setattr(&root(), no, None, change).unwrap();
        assert!(matches!(promote(&v), Err(FsError::Diverged(name)) if name == "main"), "{read}");
        // Forced, or when it is again what it was.
        match read {
            true => v.fs.promote(b"main", b"try", None, false).unwrap(),
            false => {
                let back = SetAttr { perm: Some(0o644), ..change };
                v.fs.setattr(&root(), no, None, back).unwrap();
                promote(&v).unwrap();
            }
        }
        assert_eq!(v.stat(no).perm, 0o644);
        v.check();
    }
}

/// What was compared of a branch says nothing of it behind a rollback: it is compared anew, while programs go on, and not for ever.
#[test]
fn a_branch_that_is_rolled_back_between_two_looks_is_compared_anew_and_then_refused() {
    let (v, _) = with_fork(true);
    v.fs.snapshot(b"read").unwrap();
    let number = |name: &[u8]| v.fs.find_branch(name).unwrap().number;
    let (branch, fork) = (number(b"main"), number(b"try"));
    let store = v.fs.core.store.store();
    let mut looks = Looks::new(store.look_before_promotion(branch, fork).unwrap(), None);
    let mut compared = 0;
    let refused = loop {
        match v.fs.look_at_both(branch, fork, None, &mut looks) {
            Ok(Next::Compare(moments)) => v.fs.compare(branch, moments, &mut looks).unwrap(),
            Ok(Next::Look) => {
                looks.look_again(store).unwrap();
                continue;
            }
            Ok(Next::Promoted) => panic!("what it was compared with has gone"),
            Err(refused) => break refused,
        }
        compared += 1;
        v.fs.rollback(b"read", None).unwrap();
    };
    assert!(matches!(&refused, FsError::Diverged(name) if name == "main"), "{refused}");
    assert_eq!(compared, 4, "the first time, and three times anew");
    // As ever once it stays as it is.
    promote(&v).unwrap();
    v.check();
}
