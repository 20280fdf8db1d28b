//! Logs that the engine writes: what fsyncs leave in the ring is clean, and is what its recovery finds.
//!
//! Small writes travel inside batches, at both sizes of sectors; threads fsync
//! while commits and checkpoints run beside them. Every failure prints its seed.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_check::{Subject, dump, view};
use holdfast_device::sim::Policy;
use holdfast_device::{Device, DeviceError, MemoryDevice, SimDevice, forward};
use holdfast_format::journal::frame::MAGIC;
use holdfast_posix::{
    Caller, FileSystem, MkfsOptions, MountOptions, OpenFile, OpenFlags, RenameFlags, WriteHow,
};

use crate::common::check_all;
use crate::common::log::expect_engine;

fn mounted(sector: u32) -> (Arc<MemoryDevice>, FileSystem) {
    let device = Arc::new(MemoryDevice::with_sector_size(64 << 20, sector));
    let target: Arc<dyn Device> = device.clone();
    let options = MkfsOptions {
        node_size: 4096,
        label: "log".into(),
        uuid: Some([9; 16]),
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&target, &options).expect("the device is large enough");
    // Only the test commits.
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(device.clone(), options).expect("a new volume mounts");
    (device, fs)
}

fn create(fs: &FileSystem, name: &str) -> Arc<OpenFile> {
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let caller = Caller::root();
    let created = fs.create(&caller, InodeNo::ROOT, name.as_bytes(), 0o644, flags, false);
    created.expect("there is room").1
}

fn write(fs: &FileSystem, file: &OpenFile, at: u64, bytes: &[u8]) {
    let how = WriteHow::default();
    let written = fs.write(&Caller::root(), file, at, bytes, how).expect("there is room");
    assert_eq!(written, bytes.len());
}

/// What a crash leaves now is clean, and is what the engine recovers. Returns the batches in the log
/// and the blocks whose data lies in them.
fn expect_crash(device: &MemoryDevice, when: &str) -> (u64, usize) {
    let crashed = device.snapshot();
    let report = check_all(&crashed);
    assert_eq!(report.findings, [], "{when}");
    let ours = view(&crashed).unwrap_or_else(|error| panic!("{when}: {error}"));
    expect_engine(&crashed, &ours);
    let mut out = Vec::new();
    dump(&crashed, &Subject::Log, &mut out).expect("it is a volume");
    let text = String::from_utf8(out).expect("a dump is text");
    let inside = text.lines().filter(|line| line.starts_with("data batch=")).count();
    (report.facts.log_batches, inside)
}

/// P1: after each fsync, for files that grow by a little, change in the middle, or are replaced.
#[test]
fn small_writes_and_their_fsyncs() {
    for (seed, sector) in [(1, 512), (2, 4096)] {
        let (device, fs) = mounted(sector);
        let mut prng = Prng::seeded(seed);
        let files: Vec<_> = (0..4).map(|index| create(&fs, &format!("file {index}"))).collect();
        let mut content = vec![Vec::<u8>::new(); files.len()];
        let (mut batches, mut inside) = (0, 0);
        for round in 0..120u64 {
            let which = prng.below(4) as usize;
            let (file, content) = (&files[which], &mut content[which]);
            let max = if prng.one_in(8) { 20_000 } else { 300 };
            let mut bytes = vec![0; 1 + prng.below(max) as usize];
            prng.fill(&mut bytes);
            let at = match prng.below(3) {
                0 => prng.below(content.len() as u64 + 1) as usize,
                _ => content.len(),
            };
            write(&fs, file, at as u64, &bytes);
            let end = content.len().max(at + bytes.len());
            content.resize(end, 0);
            content[at..at + bytes.len()].copy_from_slice(&bytes);
            if prng.one_in(10) {
                let (from, to) = (format!("file {which}"), format!("other {which}"));
                let (from, to) = (from.as_bytes(), to.as_bytes());
                let (caller, flags) = (Caller::root(), RenameFlags::empty());
                for (from, to) in [(from, to), (to, from)] {
                    fs.rename(&caller, InodeNo::ROOT, from, InodeNo::ROOT, to, flags)
                        .expect("the name is there");
                }
            }
            fs.fsync(file, prng.one_in(2)).expect("memory takes every write");
            if round % 8 == 0 {
                let when = format!("seed {seed}, round {round}");
                let (now, data) = expect_crash(&device, &when);
                batches = batches.max(now);
                inside = inside.max(data);
                expect_content(&device, which, content, &when);
            }
            if prng.one_in(40) {
                fs.commit().expect("memory takes every write");
            }
        }
        assert!(batches > 20 && inside > 20, "{batches} batches, {inside} blocks inside");
    }
}

/// A file of the crashed volume, as a mount shows it.
fn expect_content(device: &MemoryDevice, which: usize, content: &[u8], when: &str) {
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(Arc::new(device.snapshot()), options).expect("it was clean");
    let name = format!("file {which}");
    let caller = Caller::root();
    let inode = fs.lookup(&caller, InodeNo::ROOT, name.as_bytes()).expect("it was synced").inode;
    let file = fs.open(&caller, inode, OpenFlags::READ).expect("it was synced");
    let mut found = vec![0; content.len() + 1];
    let count = fs.read(&file, 0, &mut found).expect("memory reads");
    assert!(found[..count] == *content, "{when}: the file holds something else");
}

/// Commits freeze between an operation and its fsync: then two batches go out with one flush.
#[test]
fn fsyncs_of_threads_beside_commits() {
    for sector in [512, 4096] {
        let (device, fs) = mounted(sector);
        let mut most = 0;
        for round in 0..6 {
            std::thread::scope(|scope| {
                for thread in 0..3u64 {
                    let fs = &fs;
                    scope.spawn(move || {
                        let file = create(fs, &format!("{round} {thread}"));
                        for index in 0..40u64 {
                            let len = if index % 9 == 0 { 9000 } else { 77 };
                            write(fs, &file, index * 50, &vec![index as u8; len]);
                            fs.fsync(&file, index % 2 == 0).expect("memory takes every write");
                        }
                    });
                }
                scope.spawn(|| {
                    for index in 0..5 {
                        let done = if index == 3 { fs.checkpoint() } else { fs.commit() };
                        done.expect("memory takes every write");
                    }
                });
            });
            // The last commit may have come last.
            let file = create(&fs, &format!("{round}"));
            for index in 0..12 {
                write(&fs, &file, index * 10, &[1; 10]);
                fs.fsync(&file, true).expect("memory takes every write");
            }
            let (batches, _) = expect_crash(&device, &format!("round {round}"));
            most = most.max(batches);
        }
        assert!(most > 10, "{most} batches at most");
    }
}

/// P3, P9: whatever power leaves of fsyncs of two threads, of commits and a checkpoint beside them: it is
/// clean, and both opinions make the same of it.
#[test]
fn power_cuts_in_fsyncs_beside_commits() {
    let mut ends = [0u64; 4];
    for (seed, sector) in [(1, 512), (2, 4096)] {
        let (base, fs) = mounted(sector);
        fs.unmount().expect("memory takes every write");
        let device = Arc::new(SimDevice::new(&base));
        let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
        let fs = FileSystem::mount(device.clone(), options).expect("it was clean");
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let fs = &fs;
                scope.spawn(move || {
                    let file = create(fs, &format!("file {thread}"));
                    for index in 0..12u64 {
                        let len = if index % 3 == 0 { 9000 } else { 2500 };
                        write(fs, &file, index * 200, &vec![index as u8; len]);
                        fs.fsync(&file, false).expect("memory takes every write");
                    }
                });
            }
            scope.spawn(|| {
                for done in [fs.commit(), fs.checkpoint(), fs.commit()] {
                    done.expect("memory takes every write");
                }
            });
        });
        drop(fs);
        let recording = device.recording();
        let policy = Policy { seed, exhaustive: 3, each: 3, samples: 2, torn: 6 };
        let (mut cut, mut seen) = (recording.start(), HashSet::new());
        for event in &recording.events {
            cut.advance(event);
            if !event.changes_images() {
                continue;
            }
            for image in cut.images(&policy) {
                if !seen.insert(image.fingerprint()) {
                    continue;
                }
                let when = format!("seed {seed}, event {}, {}", cut.index(), image.describe());
                let crashed = image.device();
                expect_crash(&crashed, &when);
                let reason = reason(&crashed);
                let known = ["nothing", "incomplete", "data-missing", "closed"];
                let kind = known.iter().position(|name| reason == *name);
                ends[kind.unwrap_or_else(|| panic!("{when}: {reason}"))] += 1;
            }
        }
    }
    // How often each happens, the threads decide.
    assert!(ends[..3].iter().sum::<u64>() > 100, "{ends:?}");
}

/// Why the log ends.
fn reason(device: &MemoryDevice) -> String {
    let mut out = Vec::new();
    dump(device, &Subject::Log, &mut out).expect("it is a volume");
    let text = String::from_utf8(out).expect("a dump is text");
    let end = text.lines().find(|line| line.starts_with("end ")).expect("a log has an end");
    let reason = end.split(' ').find_map(|word| word.strip_prefix("reason="));
    reason.expect("an end has a reason").into()
}

/// A device whose next write of a journal frame waits until it is let go, when asked for.
#[derive(Debug)]
struct Gate {
    inner: Arc<MemoryDevice>,
    state: Mutex<Pass>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    Open,
    HoldsTheNext,
    Holding,
}

impl Gate {
    fn set(&self, pass: Pass) {
        *self.state.lock().expect("nobody panics with it") = pass;
        self.changed.notify_all();
    }

    fn wait_until(&self, wanted: impl Fn(Pass) -> bool) {
        let state = self.state.lock().expect("nobody panics with it");
        let patience = Duration::from_secs(300);
        let waited = self.changed.wait_timeout_while(state, patience, |pass| !wanted(*pass));
        let (_state, timeout) = waited.expect("nobody panics with it");
        assert!(!timeout.timed_out(), "nobody came to the gate, or let go of it");
    }
}

impl Device for Gate {
    forward!(inner: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let holds = {
            let mut state = self.state.lock().expect("nobody panics with it");
            let holds = *state == Pass::HoldsTheNext && bytes.starts_with(&MAGIC);
            if holds {
                *state = Pass::Holding;
            }
            holds
        };
        if holds {
            self.changed.notify_all();
            self.wait_until(|pass| pass == Pass::Open);
        }
        self.inner.write(at, bytes)
    }
}

/// What a crash leaves while a commit is being written and an fsync did not wait for it; and what it
/// leaves when the commit is durable.
fn crash_in_a_commit(log_data_bytes: usize) -> [MemoryDevice; 2] {
    let (device, fs) = mounted(512);
    fs.unmount().expect("memory takes every write");
    let gate = Arc::new(Gate {
        inner: device.clone(),
        state: Mutex::new(Pass::Open),
        changed: Condvar::new(),
    });
    let options = MountOptions {
        commit_secs: 0,
        log_data_bytes: Some(log_data_bytes),
        ..MountOptions::default()
    };
    let fs = FileSystem::mount(gate.clone(), options).expect("it was clean");
    let first = create(&fs, "first");
    create(&fs, "old");
    fs.fsync(&first, false).expect("memory takes every write");
    // Its data is written by the rename, and nothing is synced: all of it waits for the commit.
    write(&fs, &first, 0, &[1; 9000]);
    let (caller, flags) = (Caller::root(), RenameFlags::empty());
    fs.rename(&caller, InodeNo::ROOT, b"first", InodeNo::ROOT, b"old", flags)
        .expect("both are there");
    gate.set(Pass::HoldsTheNext);
    let crashed = std::thread::scope(|scope| {
        let commit = scope.spawn(|| fs.commit());
        gate.wait_until(|pass| pass == Pass::Holding);
        let second = create(&fs, "second");
        write(&fs, &second, 0, &[2; 9000]);
        fs.fsync(&second, false).expect("memory takes every write");
        let crashed = device.snapshot();
        gate.set(Pass::Open);
        commit.join().expect("no panic").expect("memory takes every write");
        [crashed, device.snapshot()]
    });
    fs.unmount().expect("memory takes every write");
    crashed
}

/// Without the commit both batches count, and with it the second: that makes the same.
fn crash_before_a_commit(log_data_bytes: usize) -> MemoryDevice {
    let [crashed, committed] = crash_in_a_commit(log_data_bytes);
    assert_eq!(expect_crash(&crashed, "without the commit").0, 3);
    assert_eq!(expect_crash(&committed, "with the commit").0, 1);
    let [crashed_view, committed_view] =
        [&crashed, &committed].map(|device| view(device).expect("it is sound"));
    assert_eq!(crashed_view.difference(&committed_view), None);
    crashed
}

/// The data of the fsync lies in the log, that of the commit is at its location.
#[test]
fn an_fsync_with_its_data_in_a_commit() {
    crash_before_a_commit(16 << 10);
}

/// An fsync does not wait for a commit that is being made: what the commit contains goes into the log
/// too, as a batch of its own, and both batches out with one flush.
#[test]
fn an_fsync_in_a_commit() {
    let crashed = crash_before_a_commit(0);
    let printed = |device: &MemoryDevice| {
        let mut out = Vec::new();
        dump(device, &Subject::Log, &mut out).expect("it is a volume");
        String::from_utf8(out).expect("a dump is text")
    };
    let text = printed(&crashed);
    assert_eq!(text.matches(" durable=2 ").count(), 2, "{text}");
    // The data of either batch may be missing then. The first number is that of the marker of mkfs.
    for (batch, left) in [(4, 2), (3, 1)] {
        let line = text.lines().find(|line| {
            line.starts_with(&format!("take batch={batch} ")) && line.contains(" sum=")
        });
        let line = line.unwrap_or_else(|| panic!("no data in batch {batch}: {text}"));
        let block = line.split(' ').find_map(|word| word.strip_prefix("block="));
        let block: u64 = block.expect("it names blocks").parse().expect("a number");
        let device = crashed.snapshot();
        device.write(block * 4096, &[7; 4096]).expect("memory takes every write");
        assert_eq!(expect_crash(&device, &format!("without the data of {batch}")).0, left);
        assert!(printed(&device).contains("reason=data-missing"));
    }
}
