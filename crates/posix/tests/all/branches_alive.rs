//! Branches that are in use: open files and what is kept above, threads, deletion in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use holdfast_base::InodeNo;
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, forward};
use holdfast_posix::{Caller, FsError, MountOptions, OpenFlags};
use parking_lot::{Condvar, Mutex};

use crate::common::*;

const ROOT: InodeNo = InodeNo::ROOT;

#[test]
fn an_orphan_of_a_snapshot_is_collected_in_its_fork_and_lives_where_it_is_open() {
    let device = new_volume(64 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "orphan");
    write_all(&fs, &file, 0, &[7; 100_000]);
    fs.unlink(&Caller::root(), ROOT, b"orphan").unwrap();
    fs.snapshot(b"s").unwrap();
    let counted = |fs: &holdfast_posix::FileSystem| {
        let space = fs.statfs();
        space.inodes - space.inodes_free
    };
    assert_eq!(fs.snapshots().unwrap()[0].inodes, 2, "root, and the orphan");
    fs.fork(b"fork", Some(b"s")).unwrap();
    let fork = fs.open_branch(b"fork", quiet()).unwrap();
    assert_eq!((counted(&fork), counted(&fs)), (1, 2));
    assert!(matches!(fork.getattr(file.inode()), Err(FsError::NotFound)));
    assert_eq!(read(&fs, &file, 0, 100_000).unwrap(), [7; 100_000]);
    fork.unmount().unwrap();
    // The rollback finds it without a name and open.
    fs.rollback(b"s", None).unwrap();
    assert_eq!(read(&fs, &file, 0, 100_000).unwrap(), [7; 100_000]);
    drop(file);
    assert_eq!(counted(&fs), 1);
    fs.unmount().unwrap();
}

#[test]
fn numbers_of_inodes_are_of_the_volume() {
    let device = new_volume(64 * MIB, 4096);
    let fs = mount(&device, &quiet());
    fs.snapshot(b"s").unwrap();
    fs.fork(b"fork", Some(b"s")).unwrap();
    let fork = fs.open_branch(b"fork", quiet()).unwrap();
    let mut numbers: Vec<InodeNo> = Vec::new();
    for at in 0..20 {
        numbers.push(create(&fs, &format!("a{at}")).inode());
        numbers.push(create(&fork, &format!("b{at}")).inode());
    }
    // What was made after the snapshot is not there, and its numbers come no more.
    fs.rollback(b"s", None).unwrap();
    numbers.push(create(&fs, "c").inode());
    let last = *numbers.last().unwrap();
    fs.sync().unwrap();
    drop((fs, fork));
    let fs = mount(&device, &quiet());
    numbers.push(create(&fs, "d").inode());
    let count = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
    assert!(*numbers.last().unwrap() > last);
    fs.unmount().unwrap();
}

#[test]
fn what_keeps_inodes_above_is_told_of_a_rollback() {
    let device = new_volume(64 * MIB, 4096);
    let fs = mount(&device, &quiet());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    fs.watch_rollback(move |turned| {
        assert_eq!(turned.number, 1);
        tell.lock().extend(turned.known.iter().map(|of| of.inode));
    });
    let (known, unknown) = (create(&fs, "known").inode(), create(&fs, "unknown").inode());
    fs.snapshot(b"s").unwrap();
    let later = create(&fs, "later");
    fs.remember(known, 2);
    fs.remember(ROOT, 1);
    let change = holdfast_posix::SetAttr { perm: Some(0o600), ..Default::default() };
    fs.setattr(&Caller::root(), known, None, change).unwrap();
    fs.rollback(b"s", Some(b"was")).unwrap();
    assert_eq!(*told.lock(), [ROOT, known, later.inode()]);
    assert_eq!(fs.getattr(known).unwrap().perm, 0o644);
    assert!(fs.getattr(unknown).is_ok());
    assert!(matches!(fs.getattr(later.inode()), Err(FsError::NotFound)));
    // It is remembered as before.
    fs.unlink(&Caller::root(), ROOT, b"known").unwrap();
    fs.forget(known, 1);
    assert!(fs.getattr(known).is_ok());
    fs.forget(known, 1);
    assert!(matches!(fs.getattr(known), Err(FsError::NotFound)));
    drop(later);
    fs.unmount().unwrap();
}

#[test]
fn the_background_gives_the_space_of_a_deleted_snapshot_back() {
    let device = new_volume(64 * MIB, 4096);
    // No tick comes: nothing but the deletion wakes the thread.
    let fs = mount(&device, &MountOptions { commit_secs: 3600, ..MountOptions::default() });
    let file = create(&fs, "file");
    write_all(&fs, &file, 0, &vec![1; 8 << 20]);
    fs.snapshot(b"s").unwrap();
    set_size(&fs, &file, 0).unwrap();
    fs.commit().unwrap();
    let before = fs.statfs().blocks_free;
    fs.delete_snapshot(b"main", b"s").unwrap();
    let began = Instant::now();
    while fs.statfs().blocks_free < before + 2000 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}, was {before}", fs.statfs());
        std::thread::yield_now();
    }
    drop(file);
    fs.unmount().unwrap();
}

#[test]
fn threads_work_while_snapshots_and_rollbacks_come() {
    let device = new_volume(128 * MIB, 4096);
    let fs = mount(&device, &MountOptions { commit_secs: 1, ..MountOptions::default() });
    write_all(&fs, &create(&fs, "base"), 0, b"base");
    fs.snapshot(b"base").unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let (fs, ended) = (&fs, &ended);
            scope.spawn(move || {
                let name = format!("file{thread}");
                let flags = OpenFlags::READ | OpenFlags::WRITE;
                let mut round = 0_u64;
                while !ended.load(Ordering::Acquire) {
                    round += 1;
                    // Whatever a rollback takes away may be missing, and nothing else goes wrong.
                    let made =
                        fs.create(&Caller::root(), ROOT, name.as_bytes(), 0o644, flags, false);
                    let Ok((_, file)) = made.map_err(gone) else { continue };
                    let bytes = [thread + 1; 10_000];
                    let _ = write(fs, &file, round % 7 * 3000, &bytes).map_err(gone);
                    if let Ok(read) = read(fs, &file, 0, 40_000).map_err(gone) {
                        assert!(read.iter().all(|byte| *byte == 0 || *byte == thread + 1));
                    }
                    let _ = fs.fsync(&file, false).map_err(gone);
                    if round.is_multiple_of(5) {
                        let _ = fs.unlink(&Caller::root(), ROOT, name.as_bytes()).map_err(gone);
                    }
                }
            });
        }
        for round in 0..40 {
            let name = format!("s{round}").into_bytes();
            fs.snapshot(&name).unwrap();
            let keep = format!("k{round}").into_bytes();
            match round % 4 {
                0 => fs.rollback(b"base", None).unwrap(),
                1 => fs.rollback(&name, Some(&keep)).unwrap(),
                _ => {}
            }
            assert_eq!(read(&fs, &open(&fs, "base", OpenFlags::READ), 0, 9).unwrap(), b"base");
            if round % 2 == 0 {
                fs.delete_snapshot(b"main", &name).unwrap();
            }
        }
        ended.store(true, Ordering::Release);
    });
    fs.rollback(b"base", None).unwrap();
    let mut names = Vec::new();
    let add = &mut |entry: &holdfast_posix::DirEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    fs.readdir(ROOT, 0, &mut |entry| add(&entry)).unwrap();
    assert_eq!(names, [".", "..", "base"]);
    for snapshot in fs.snapshots().unwrap() {
        let name = snapshot.name;
        if !name.is_empty() {
            let seen = fs.open_snapshot(b"main", &name, quiet()).unwrap();
            assert_eq!(read(&seen, &open(&seen, "base", OpenFlags::READ), 0, 9).unwrap(), b"base");
            seen.unmount().unwrap();
        }
    }
    fs.unmount().unwrap();
    mount(&device, &quiet()).unmount().unwrap();
}

/// A device that lets nothing be written behind a flush, until it may go on.
#[derive(Debug)]
struct Stuck {
    under: Arc<MemoryDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Free,
    /// With the next flush it is stuck.
    Armed,
    Stuck,
    /// So many wait.
    Waited,
}

impl Stuck {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits until a write has come.
    fn wait(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| *state != State::Waited);
    }
}

impl Device for Stuck {
    forward!(under: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        while matches!(*state, State::Stuck | State::Waited) {
            *state = State::Waited;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        drop(state);
        self.under.write(offset, bytes)
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        let flushed = self.under.flush();
        let mut state = self.state.lock();
        if *state == State::Armed {
            *state = State::Stuck;
        }
        flushed
    }
}

/// A snapshot leaves the checkpoint of what it sealed to a thread. The next one waits for that, and programs do not.
#[test]
fn programs_do_not_wait_for_the_checkpoint_of_the_last_snapshot() {
    let under = new_volume(64 * MIB, 4096);
    let stuck = Arc::new(Stuck { under, state: Mutex::new(State::Free), changed: Condvar::new() });
    let fs = mount(&stuck, &quiet());
    write_all(&fs, &create(&fs, "file"), 0, &[1; 100_000]);
    fs.commit().unwrap();
    stuck.set(State::Armed);
    fs.snapshot(b"one").unwrap();
    stuck.wait();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| fs.snapshot(b"two").unwrap());
        let (done, told) = channel();
        let fs = &fs;
        scope.spawn(move || {
            // Also while the snapshot looks whether it may begin.
            for n in 0..1000 {
                create(fs, &format!("new-{n}"));
                if n % 50 == 0 {
                    std::thread::yield_now();
                }
            }
            done.send(()).unwrap();
        });
        let worked = told.recv_timeout(Duration::from_secs(600));
        assert!(!next.is_finished(), "it waits for the checkpoint");
        stuck.set(State::Free);
        assert_eq!(worked, Ok(()), "programs wait for it as well");
    });
    assert_eq!(fs.snapshots().unwrap().len(), 2);
    fs.unmount().unwrap();
}

/// What a call may answer whose file or name a rollback has taken away.
fn gone(error: FsError) {
    let is_gone = matches!(error, FsError::Stale | FsError::NotFound | FsError::Exists);
    assert!(is_gone, "{error}");
}
