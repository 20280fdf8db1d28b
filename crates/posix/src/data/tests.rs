//! States that only a crash in the middle of something, or a damaged disk, can leave.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo, wait};
use holdfast_device::{Device, DeviceError, Flushed, MemoryDevice, Page, forward};
use holdfast_format::item::Extent;
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Need, StoreError, Transaction};

use crate::data::writeback;
use crate::*;
use parking_lot::{Condvar, Mutex};

pub(super) const BOTH: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);

fn mount(device: &Arc<MemoryDevice>) -> FileSystem {
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    FileSystem::mount(device.clone(), options).unwrap()
}

pub(super) fn volume() -> Arc<MemoryDevice> {
    volume_of(16 << 20)
}

pub(super) fn volume_of(bytes: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let shared: Arc<dyn Device> = device.clone();
    let options = MkfsOptions {
        node_size: 4096,
        label: String::new(),
        uuid: None,
        owner: (0, 0),
        ..MkfsOptions::default()
    };
    FileSystem::mkfs(&shared, &options).unwrap();
    device
}

pub(super) fn write(fs: &FileSystem, file: &OpenFile, at: u64, bytes: &[u8]) {
    let how = WriteHow::default();
    assert_eq!(fs.write(&Caller::root(), file, at, bytes, how).unwrap(), bytes.len());
}

pub(super) fn open(fs: &FileSystem) -> Arc<OpenFile> {
    fs.create(&Caller::root(), InodeNo::ROOT, b"f", 0o644, BOTH, false).unwrap().1
}

fn read(fs: &FileSystem, file: &OpenFile, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let len = fs.read(file, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// A file with a piece for every second block, cut down to `size` by a truncate whose further transactions
/// were lost: its inode has the new size, and everything behind it is still there.
fn interrupted_truncate(size: u64) -> Arc<MemoryDevice> {
    let device = volume();
    let fs = mount(&device);
    let file = open(&fs);
    for i in 0..150 {
        write(&fs, &file, i * 2 * BLOCK_BYTES, &[0x77; BLOCK_BYTES as usize]);
    }
    fs.fsync(&file, false).unwrap();
    let item = {
        let mut item = file.inode.state.read().disk;
        item.size = size;
        item
    };
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(file.inode()), item.encode());
    let store = &fs.core.store;
    let mut reservation = store.reserve(Need::Writeback { changes: 1 }).unwrap();
    let lsn = store.apply(transaction, &mut reservation).unwrap();
    store.sync(lsn, InodeNo::ROOT).unwrap();
    device
}

#[test]
fn what_an_interrupted_truncate_left_reads_as_zeros_however_the_file_grows() {
    let size = 20 * BLOCK_BYTES + 100;
    let end = 300 * BLOCK_BYTES;
    for way in 0..3 {
        let device = interrupted_truncate(size);
        let fs = mount(&device);
        let file = open(&fs);
        let mut want = read(&fs, &file, size as usize + 10);
        assert_eq!(want.len() as u64, size);
        assert_eq!(want[want.len() - 1], 0x77);
        match way {
            0 => {
                let change = SetAttr { size: Some(end), ..SetAttr::default() };
                fs.setattr(&Caller::root(), file.inode(), Some(&file), change).unwrap();
            }
            1 => write(&fs, &file, end - 1, &[0]),
            _ => fs.fallocate(&file, FallocateFlags::empty(), end - 1, 1).unwrap(),
        }
        want.resize(end as usize, 0);
        assert!(read(&fs, &file, end as usize + 10) == want, "way {way}");
        // Ten pieces before the end, the one it cuts, and at most one new block.
        assert!(fs.getattr(file.inode()).unwrap().blocks <= 12 * 8);
        fs.fsync(&file, false).unwrap();
        drop((file, fs));
        let fs = mount(&device);
        assert!(read(&fs, &open(&fs), end as usize + 10) == want, "way {way}");
    }
}

#[test]
fn an_unlink_removes_what_an_interrupted_truncate_left() {
    let device = interrupted_truncate(0);
    let fs = mount(&device);
    let used = fs.statfs().blocks_free;
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"f").unwrap();
    fs.sync().unwrap();
    assert!(fs.statfs().blocks_free >= used + 140);
}

#[test]
fn extents_that_make_no_sense_are_errors_that_name_the_inode() {
    let device = volume();
    let fs = mount(&device);
    let file = open(&fs);
    write(&fs, &file, 0, &[1; 5 * BLOCK_BYTES as usize]);
    fs.fsync(&file, false).unwrap();
    let inode = file.inode();
    let put = |offset: u64, start: u64, count: u64| {
        let blocks = BlockRange::new(BlockNo(start), count);
        let extent = Extent::new(blocks, vec![1; count as usize]);
        let mut transaction = Transaction::new();
        transaction.put(Key::new(inode, ItemKind::Extent, offset), extent.encode());
        let store = &fs.core.store;
        let mut reservation = store.reserve(Need::Writeback { changes: 1 }).unwrap();
        store.apply(transaction, &mut reservation).unwrap();
    };
    let expect_refusal = |what: &str| {
        let mut bytes = vec![0; 10 * BLOCK_BYTES as usize];
        match fs.read(&file, 0, &mut bytes) {
            Err(FsError::Store(StoreError::Item { what, .. })) => {
                assert!(what.contains(&inode.to_string()), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    };
    let data = fs.core.store.geometry().first_data_block().0;
    put(2 * BLOCK_BYTES, data, 2);
    expect_refusal("inside the extent before it");
    put(2 * BLOCK_BYTES, 3, 2);
    expect_refusal("on the superblocks");
    put(2 * BLOCK_BYTES, u64::MAX - 1, 1);
    expect_refusal("beyond the volume");
    put(2 * BLOCK_BYTES + 1, data, 1);
    expect_refusal("off the grid");
    // A writeback that meets them gives up its pages and says so; it does not stop the volume.
    write(&fs, &file, 3 * BLOCK_BYTES, &[2; BLOCK_BYTES as usize]);
    assert!(matches!(fs.fsync(&file, false), Err(FsError::Io(_))));
    assert_eq!(fs.dirty_bytes(), 0);
    assert_eq!(fs.stop_reason(), None);
}

#[test]
fn a_synchronous_write_says_that_its_data_was_lost_by_another_writeback() {
    let device = volume();
    let fs = mount(&device);
    let file = open(&fs);
    write(&fs, &file, 0, &[1; 5 * BLOCK_BYTES as usize]);
    fs.fsync(&file, false).unwrap();
    let sync = fs.open(&Caller::root(), file.inode(), BOTH | OpenFlags::DSYNC).unwrap();
    let key = Key::new(file.inode(), ItemKind::Extent, 0);
    let store = &fs.core.store;
    let good = store.get(&key).unwrap().unwrap();
    let put = |value: Vec<u8>| {
        let mut transaction = Transaction::new();
        transaction.put(key, value);
        let mut reservation = store.reserve(Need::Writeback { changes: 1 }).unwrap();
        store.apply(transaction, &mut reservation).unwrap();
    };
    let outside = Extent::new(BlockRange::new(BlockNo(3), 1), vec![1]);
    put(outside.encode());
    write(&fs, &file, BLOCK_BYTES, &[2; BLOCK_BYTES as usize]);
    assert!(fs.core.write_back().is_err());
    put(good);
    // Nothing is dirty any more that a writeback could fail with (P7).
    let again = || fs.write(&Caller::root(), &sync, 0, &[3; 100], WriteHow::default());
    assert!(matches!(again(), Err(FsError::Io(_))));
    let lost = again().unwrap_err().to_string();
    assert!(lost.contains("bytes 4096 to 8192"), "they are still gone: {lost}");
    write(&fs, &file, BLOCK_BYTES, &[2; BLOCK_BYTES as usize]);
    assert_eq!(again().unwrap(), 100, "written again: nothing is lost any more");
}

#[test]
fn a_stream_goes_to_the_device_on_its_own_and_what_is_small_or_does_not_grow_waits() {
    let device = volume_of(192 << 20);
    let fs = mount(&device);
    let root = Caller::root();
    let create = |name: &[u8]| fs.create(&root, InodeNo::ROOT, name, 0o644, BOTH, false).unwrap().1;
    let (small, hot, stream) = (create(b"small"), create(b"hot"), create(b"stream"));
    let written = || fs.counters().data_bytes_written.get();
    let chunk = vec![7; 1 << 20];
    write(&fs, &small, 0, b"small");
    let longer = SetAttr { size: Some(40 << 20), ..SetAttr::default() };
    fs.setattr(&root, hot.inode(), Some(&hot), longer).unwrap();
    (0..40).for_each(|n| write(&fs, &hot, n << 20, &chunk));
    assert!(hot.inode.data.is_much() && written() == 0, "it does not grow");
    (0..33).for_each(|n| write(&fs, &stream, n << 20, &chunk));
    let patience = Deadline::after(Duration::from_secs(60));
    while written() < 32 << 20 {
        assert!(!patience.left().is_zero(), "{} bytes were written", written());
        std::thread::yield_now();
    }
    assert_eq!((small.inode.data.pages(), hot.inode.data.pages()), (1, 40 << 8));
}

#[test]
fn writes_that_overlap_keep_no_more_in_memory_than_they_leave() {
    let device = volume();
    let fs = mount(&device);
    let file = open(&fs);
    let bytes = vec![7; 64 * BLOCK_BYTES as usize];
    // Pages that wait, and pages in memory because of them.
    let held = || {
        let pages = file.inode.data.lock_content().pages.collect(0..u64::MAX);
        let mut runs: Vec<&Page> = Vec::new();
        for page in pages.values() {
            if !runs.iter().any(|run| run.shares_run(page)) {
                runs.push(page);
            }
        }
        (pages.len(), runs.iter().map(|run| run.run_pages()).sum::<usize>())
    };
    let write_blocks = |from: u64, count: u64| {
        write(&fs, &file, from * BLOCK_BYTES, &bytes[..(count * BLOCK_BYTES) as usize]);
    };
    let begin = || {
        let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        fs.setattr(&Caller::root(), file.inode(), Some(&file), size(0)).unwrap();
        assert_eq!(held(), (0, 0));
    };
    for from in 0..64 {
        write_blocks(from, 64 - from);
        assert_eq!(held(), (64, 64), "after the write from block {from}");
    }
    // Shorter ones below longer ones, and shifted ones.
    for (first, then) in [((30, 2), (0, 64)), ((0, 32), (0, 64)), ((0, 32), (16, 32))] {
        begin();
        write_blocks(first.0, first.1);
        write_blocks(then.0, then.1);
        let (waiting, memory) = held();
        assert_eq!(waiting, memory, "{first:?} and then {then:?}");
    }
    begin();
    write_blocks(0, 64);
    write(&fs, &file, 30 * BLOCK_BYTES + 5, b"changed");
    assert_eq!(held(), (64, 64), "a few bytes in the middle of a run");
    begin();
    write_blocks(0, 64);
    let shorter = SetAttr { size: Some(9 * BLOCK_BYTES), ..SetAttr::default() };
    fs.setattr(&Caller::root(), file.inode(), Some(&file), shorter).unwrap();
    let (waiting, memory) = held();
    assert_eq!(waiting, memory, "a file that was cut");
}

#[test]
fn pages_of_an_inode_that_was_removed_are_refused() {
    let device = volume();
    let fs = mount(&device);
    let file = open(&fs);
    let inode = file.inode.clone();
    drop(file);
    fs.unlink(&Caller::root(), InodeNo::ROOT, b"f").unwrap();
    let page = Page::from(&[1; BLOCK_BYTES as usize]);
    let done = super::grow::make_dirty(&fs.core, &inode, vec![(0, page)]);
    assert!(matches!(done, Err(FsError::NotFound)));
    assert_eq!(fs.dirty_bytes(), 0);
}

#[test]
fn an_unlink_waits_for_the_last_space() {
    let device = volume();
    let fs = mount(&device);
    drop(open(&fs));
    let mut held = Vec::new();
    for changes in [64, 1] {
        while let Ok(reservation) = fs.core.store.reserve(Need::Shrink { changes }) {
            held.push(reservation);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(held);
        });
        // Others hold the emergency reserve for a moment only (P8).
        fs.unlink(&Caller::root(), InodeNo::ROOT, b"f").unwrap();
    });
}

#[test]
fn an_inode_at_or_above_the_next_number_refuses_the_mount() {
    let device = volume();
    let fs = mount(&device);
    let item = open(&fs).inode.state.read().disk;
    let no = InodeNo(u64::MAX);
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(no), item.encode());
    transaction.put(Key::orphan(no), holdfast_format::item::orphan::VALUE);
    let store = &fs.core.store;
    let mut reservation = store.reserve(Need::Writeback { changes: 2 }).unwrap();
    let lsn = store.apply(transaction, &mut reservation).unwrap();
    store.sync(lsn, InodeNo::ROOT).unwrap();
    drop((reservation, fs));
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let refused = FileSystem::mount(device.clone(), options.clone());
    assert!(matches!(refused, Err(FsError::Store(StoreError::Refused(_)))));
    let options = MountOptions { read_only: true, ..options };
    FileSystem::mount(device, options).unwrap();
}

#[test]
fn a_circle_of_directories_is_an_error_whatever_the_volume_claims_to_hold() {
    let device = volume();
    let fs = mount(&device);
    let root = Caller::root();
    let dir = |parent: InodeNo, name: &[u8]| fs.mkdir(&root, parent, name, 0o755).unwrap().inode;
    let above = dir(InodeNo::ROOT, b"above");
    let below = dir(above, b"below");
    let moved = dir(InodeNo::ROOT, b"moved");
    let item = {
        let inode = fs.core.inode(above).unwrap();
        let mut state = inode.state.write();
        (state.disk.parent, state.attr.parent) = (below, below);
        state.disk
    };
    let store = &fs.core.store;
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(above), item.encode());
    transaction.count_inodes(i64::MAX / 4);
    let mut reservation = store.reserve(Need::Writeback { changes: 1 }).unwrap();
    store.apply(transaction, &mut reservation).unwrap();
    let done = fs.rename(&root, InodeNo::ROOT, b"moved", below, b"moved", RenameFlags::empty());
    assert!(matches!(done, Err(FsError::Io(_))), "{done:?}");
    assert_eq!(fs.lookup(&root, InodeNo::ROOT, b"moved").unwrap().inode, moved);
}

#[test]
fn a_small_write_does_not_wait_for_the_data_of_a_stranger() {
    let device = volume();
    let options = MountOptions { commit_secs: 0, dirty_bytes: 4 << 20, ..MountOptions::default() };
    let fs = FileSystem::mount(device.clone(), options).unwrap();
    let large = open(&fs);
    let small = fs.create(&Caller::root(), InodeNo::ROOT, b"small", 0o644, BOTH, false).unwrap().1;
    write(&fs, &large, 5 << 20, &[1]);
    fs.fsync(&large, false).unwrap();
    // Nothing can write it back, neither the background nor the writer of the other file.
    let held = large.inode.data.lock_map();
    for part in 0..3 {
        write(&fs, &large, part << 20, &[1; 1 << 20]);
    }
    assert!(fs.core.data.totals.is_full() && !fs.core.data.totals.is_overfull());
    write(&fs, &small, 0, &[2; 100]);
    fs.fsync(&small, false).unwrap();
    drop(held);
    fs.sync().unwrap();
    assert_eq!(fs.dirty_bytes(), 0);
}

/// Large writes stay at a gate until it is opened.
#[derive(Debug)]
struct Gate {
    under: Arc<MemoryDevice>,
    /// Writes that wait, and whether any does.
    waiting: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Device for Gate {
    forward!(under: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), DeviceError> {
        if bytes.len() > 64 << 10 {
            let mut waiting = self.waiting.lock();
            waiting.0 += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut waiting, |(_, is_shut)| *is_shut);
            waiting.0 -= 1;
        }
        self.under.write(at, bytes)
    }
}

#[test]
fn an_fsync_waits_for_no_write_of_a_writeback_but_that_of_its_file() {
    const FILES: usize = 3000;
    let gate = Arc::new(Gate {
        under: volume_of(96 << 20),
        waiting: Mutex::new((0, false)),
        changed: Condvar::new(),
    });
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(gate.clone(), options).unwrap();
    let create = |n: usize| {
        let name = n.to_string();
        fs.create(&Caller::root(), InodeNo::ROOT, name.as_bytes(), 0o644, BOTH, false).unwrap().1
    };
    let files: Vec<Arc<OpenFile>> = (0..FILES).map(create).collect();
    files.iter().for_each(|file| write(&fs, file, 0, &[7; 16 << 10]));
    // What the files are is durable: the transactions of the fsyncs are small.
    fs.fsync_inode(InodeNo::ROOT).unwrap();
    gate.waiting.lock().1 = true;
    let writers = fs.core.data.in_flight.most().min(3);
    std::thread::scope(|scope| {
        scope.spawn(|| fs.core.write_back().unwrap());
        // Each has sent a write that does not return: none of them takes a file more.
        let mut waiting = gate.waiting.lock();
        gate.changed.wait_while(&mut waiting, |(count, _)| *count < writers);
        drop(waiting);
        let is_free = |file: &&Arc<OpenFile>| file.inode.data.try_lock_map().is_some();
        let free: Vec<_> = files.iter().filter(is_free).collect();
        for file in free.iter().step_by(100).take(20) {
            fs.fsync(file, false).unwrap();
        }
        let held = FILES - free.len();
        gate.waiting.lock().1 = false;
        gate.changed.notify_all();
        assert!(held <= writers * 16, "{held} files wait for writes that are not theirs");
    });
    assert_eq!(fs.dirty_bytes(), 0);
}

/// A device that does one call at a time, in the order in which they come, and while it is held each only when it may.
#[derive(Debug)]
struct OneByOne {
    under: Arc<MemoryDevice>,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    is_held: bool,
    /// Bytes of the writes that have come since then; a flush is `None`.
    come: Vec<Option<usize>>,
    may_pass: usize,
    /// How often a thread has said that it is about to wait.
    waits: usize,
}

impl OneByOne {
    fn turn(&self, call: Option<usize>) {
        let mut turns = self.turns.lock();
        if turns.is_held {
            let turn = turns.come.len();
            turns.come.push(call);
            self.changed.notify_all();
            self.changed.wait_while(&mut turns, |turns| turns.is_held && turns.may_pass <= turn);
        }
    }

    /// Returns what has come, once it is enough.
    fn wait_for(&self, enough: impl Fn(&Turns) -> bool) -> Vec<Option<usize>> {
        let mut turns = self.turns.lock();
        self.changed.wait_while(&mut turns, |turns| !enough(turns));
        turns.come.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Turns)) {
        change(&mut self.turns.lock());
        self.changed.notify_all();
    }
}

impl Device for OneByOne {
    forward!(under: read, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> std::result::Result<(), DeviceError> {
        self.turn(Some(bytes.len()));
        self.under.write(at, bytes)
    }

    fn flush(&self) -> std::result::Result<Flushed, DeviceError> {
        self.turn(None);
        self.under.flush()
    }
}

/// Two threads write back files of 256 KiB each. An fsync of another file finds one of these writes before its own, and
/// none between that and its flush.
#[test]
fn an_fsync_finds_one_write_before_it_on_a_device_that_gains_nothing_from_two() {
    const LARGE: usize = 256 << 10;
    let (under, turns) = (volume_of(32 << 20), Mutex::default());
    let device = Arc::new(OneByOne { under, turns, changed: Condvar::new() });
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(device.clone(), options).unwrap();
    let create = |name: &[u8], bytes: usize| {
        let file = fs.create(&Caller::root(), InodeNo::ROOT, name, 0o644, BOTH, false).unwrap().1;
        write(&fs, &file, 0, &vec![7; bytes]);
        file
    };
    let large = [b"a", b"b", b"c", b"d"].map(|name| create(name, LARGE));
    let small = create(b"small", 16 << 10);
    fs.fsync_inode(InodeNo::ROOT).unwrap();
    fs.core.data.in_flight.found_no_gain();
    device.change(|turns| turns.is_held = true);
    let is_large = |call: &&Option<usize>| **call == Some(LARGE);
    // Each of so many large writes is on its way, or waits for that.
    let settled =
        |turns: &Turns, count| turns.come.iter().filter(is_large).count() + turns.waits >= count;
    let (before_write, before_flush) = std::thread::scope(|scope| {
        for files in large.chunks(2) {
            let (fs, told) = (&fs, Arc::clone(&device));
            scope.spawn(move || {
                wait::before_waiting(move |_| told.change(|turns| turns.waits += 1));
                for file in files {
                    writeback::write_back(&fs.core, &file.inode).unwrap();
                }
            });
        }
        device.wait_for(|turns| settled(turns, 2));
        scope.spawn(|| fs.fsync(&small, false).unwrap());
        let is_small = |call: &Option<usize>| call.is_some_and(|bytes| bytes < LARGE);
        let before_write = device.wait_for(|turns| turns.come.iter().any(is_small));
        // The large write returns. The thread that waited behind it would send the next one, and so would its own.
        device.change(|turns| turns.may_pass = 1);
        device.wait_for(|turns| settled(turns, 4));
        // From here on all pass: what is sent meanwhile is sent before the flush.
        device.change(|turns| turns.may_pass = usize::MAX);
        let before_flush = device.wait_for(|turns| turns.come.contains(&None));
        (before_write, before_flush)
    });
    let large_in = |calls: &[Option<usize>]| {
        calls.iter().take_while(|call| call.is_some()).filter(is_large).count()
    };
    assert_eq!((before_write.len(), large_in(&before_write)), (2, 1), "{before_write:?}");
    assert_eq!(large_in(&before_flush), 1, "{before_flush:?}");
    assert_eq!(fs.dirty_bytes(), 0);
}
