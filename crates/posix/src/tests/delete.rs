//! What is deleted, and what is open at that moment.

use holdfast_sync::atomic::{AtomicU64, Ordering};
use parking_lot::Mutex;

use super::*;

/// Keeps a snapshot open until it has been asked so often.
struct Keeps {
    opened: Mutex<Option<FileSystem>>,
    left: AtomicU64,
}

impl Keeps {
    fn new(opened: FileSystem, times: u64) -> Arc<Keeps> {
        Arc::new(Keeps { opened: Mutex::new(Some(opened)), left: AtomicU64::new(times) })
    }
}

impl CloseIdle for Keeps {
    fn close_idle(&self, only: Option<u64>) {
        let kept = self.opened.lock().as_ref().map(FileSystem::tree_number);
        assert!(only.is_none() || kept.is_none() || only == kept, "another one is to be closed");
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let opened = self.opened.lock().take().expect("it was open");
            opened.unmount().unwrap();
        }
    }
}

fn idle(of: &Arc<Keeps>) -> std::sync::Weak<dyn CloseIdle> {
    Arc::<Keeps>::downgrade(of)
}

#[test]
fn a_deletion_waits_a_moment_for_what_nobody_uses() {
    let v = Volume::new();
    v.fs.fork(b"work", None).unwrap();
    let open = |branch: &[u8]| {
        v.fs.snapshot_of(branch, b"s").unwrap();
        v.fs.open_snapshot(branch, b"s", options()).unwrap()
    };
    for times in [1, 2, 7] {
        let keeps = Keeps::new(open(b"main"), times);
        v.fs.close_before_deletions(idle(&keeps));
        v.fs.delete_snapshot(b"main", b"s").unwrap();
        assert!(keeps.opened.lock().is_none());
    }
    let keeps = Keeps::new(open(b"work"), 3);
    v.fs.close_before_deletions(idle(&keeps));
    v.fs.delete_branch(b"work").unwrap();
    // What is in use stays in use.
    let keeps = Keeps::new(open(b"main"), u64::MAX);
    v.fs.close_before_deletions(idle(&keeps));
    assert!(matches!(v.fs.delete_snapshot(b"main", b"s"), Err(FsError::InUse(_))));
    keeps.opened.lock().take().unwrap().unmount().unwrap();
    v.fs.delete_snapshot(b"main", b"s").unwrap();
    assert_eq!(errno(v.fs.delete_snapshot(b"main", b"s")), libc::ENOENT);
    v.fs.unmount().unwrap();
}

/// A branch that is mounted is refused at once: asking others does not close it.
#[test]
fn an_open_branch_is_not_waited_for() {
    let v = Volume::new();
    v.fs.fork(b"work", None).unwrap();
    v.fs.snapshot_of(b"work", b"s").unwrap();
    let snapshot = v.fs.open_snapshot(b"work", b"s", options()).unwrap();
    let work = v.fs.open_branch(b"work", options()).unwrap();
    let keeps = Keeps::new(snapshot, 1);
    v.fs.close_before_deletions(idle(&keeps));
    assert!(matches!(v.fs.delete_branch(b"work"), Err(FsError::InUse(_))));
    assert_eq!(keeps.left.load(Ordering::Relaxed), 1, "nobody was asked");
    work.unmount().unwrap();
    v.fs.delete_branch(b"work").unwrap();
    v.fs.unmount().unwrap();
}
