//! What is deleted, and what is open or used at that moment.

use parking_lot::Mutex;

use super::*;

/// Uses each snapshot that is about to be deleted, and writes down what becomes of names.
struct Shows {
    fs: Arc<FileSystem>,
    used: Mutex<Vec<FileSystem>>,
    heard: Mutex<Vec<(u64, String, String)>>,
}

impl ShowsSnapshots for Shows {
    fn keep(&self, snapshot: u64) {
        let view = self.fs.view(b"main", Some(Which::Numbered(snapshot))).unwrap();
        self.used.lock().push(view);
    }

    fn tidy(&self) {}

    fn named(&self, what: &NameChange) {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        self.heard.lock().push(match what {
            NameChange::Snapshot(one) => (one.branch, text(&one.was), text(&one.is)),
            NameChange::Joined { from, to } => (*to, format!("all of {from}"), String::new()),
        });
    }
}

/// As an unlinked file does.
#[test]
fn a_snapshot_that_is_used_lives_on_without_a_name() {
    let v = Volume::new();
    let fs = Arc::new(v.fs);
    let root = Caller::root();
    let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
    fs.mknod(&root, InodeNo::ROOT, b"f", new).unwrap();
    fs.snapshot(b"s").unwrap();
    fs.unlink(&root, InodeNo::ROOT, b"f").unwrap();
    let shows =
        Arc::new(Shows { fs: Arc::clone(&fs), used: Mutex::default(), heard: Mutex::default() });
    fs.shown_by(Arc::<Shows>::downgrade(&shows));
    fs.delete_snapshot(b"main", b"s").unwrap();
    assert_eq!(errno(fs.delete_snapshot(b"main", b"s")), libc::ENOENT);
    fs.finish_deletions().unwrap();
    let used = shows.used.lock().pop().unwrap();
    used.lookup(&root, InodeNo::ROOT, b"f").unwrap();
    assert_eq!(fs.counters().deletions_left.get(), 1, "it waits for who uses it");
    used.unmount().unwrap();
    fs.finish_deletions().unwrap();
    assert_eq!(fs.counters().deletions_left.get(), 0);
    drop(shows);
    Arc::into_inner(fs).unwrap().unmount().unwrap();
}

#[test]
fn who_shows_snapshots_hears_of_each_name() {
    let v = Volume::new();
    let fs = Arc::new(v.fs);
    let shows =
        Arc::new(Shows { fs: Arc::clone(&fs), used: Mutex::default(), heard: Mutex::default() });
    fs.shown_by(Arc::<Shows>::downgrade(&shows));
    let heard = || std::mem::take(&mut *shows.heard.lock());
    let told = |branch, was: &str, is: &str| (branch, was.to_owned(), is.to_owned());
    let main = fs.branch_number().unwrap();
    fs.snapshot(b"s").unwrap();
    assert_eq!(heard(), [told(main, "", "s")]);
    fs.rename_snapshot(b"main", b"s", b"t").unwrap();
    assert_eq!(heard(), [told(main, "s", "t")]);
    fs.hold(b"main", b"t", b"mine").unwrap();
    fs.unhold(b"main", b"t", b"mine").unwrap();
    assert_eq!(heard(), []);
    fs.rollback(b"t", Some(b"kept")).unwrap();
    assert_eq!(heard(), [told(main, "", "kept")]);
    // A fork brings its snapshots with it.
    let fork = fs.fork(b"work", None).unwrap();
    fs.snapshot_of(b"work", b"of work").unwrap();
    assert_eq!(heard(), [told(fork, "", "of work")]);
    fs.promote(b"main", b"work", Some(b"before"), false).unwrap();
    let mut all = heard();
    all.sort();
    let mut wanted = [told(main, &format!("all of {fork}"), ""), told(main, "", "before")];
    wanted.sort();
    assert_eq!(all, wanted);
    fs.delete_snapshot(b"main", b"t").unwrap();
    assert_eq!(heard(), [told(main, "t", "")]);
    shows.used.lock().drain(..).for_each(|used| used.unmount().unwrap());
    drop(shows);
    Arc::into_inner(fs).unwrap().unmount().unwrap();
}

#[test]
fn what_is_open_is_not_deleted() {
    let v = Volume::new();
    v.fs.fork(b"work", None).unwrap();
    v.fs.snapshot_of(b"work", b"s").unwrap();
    let snapshot = v.fs.open_snapshot(b"work", b"s", options()).unwrap();
    assert!(matches!(v.fs.delete_snapshot(b"work", b"s"), Err(FsError::InUse(_))));
    assert!(matches!(v.fs.delete_branch(b"work"), Err(FsError::InUse(_))));
    snapshot.unmount().unwrap();
    let work = v.fs.open_branch(b"work", options()).unwrap();
    assert!(matches!(v.fs.delete_branch(b"work"), Err(FsError::InUse(_))));
    work.unmount().unwrap();
    v.fs.delete_branch(b"work").unwrap();
    v.fs.unmount().unwrap();
}

/// Deletions may go on for long and free nothing: a caller without room beside them has an answer behind a few rounds.
#[test]
fn no_room_beside_deletions_without_end_is_an_answer() {
    let v = Volume::new();
    let core = &v.fs.core;
    let mut attempts = 0;
    let answer: Result<()> = core.with_room(|| {
        attempts += 1;
        assert!(attempts < 50, "it waits for what may have no end");
        core.deletions.begin();
        Err(StoreError::NoSpace.into())
    });
    assert!(matches!(answer, Err(FsError::Store(StoreError::NoSpace))), "{answer:?}");
    assert!(attempts > 2, "what a deletion frees may be enough");
    v.fs.unmount().unwrap();
}
