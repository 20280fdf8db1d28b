//! Threads whose every step is chosen by a seed, on the real engine; then power is cut.
//!
//! The group-commit queue, the freeze of a commit beside fsyncs, the seal of a
//! checkpoint beside changers, and the hand-over of ordered extents are met at
//! every lock and every call of the device. A schedule that hangs, panics, or
//! lets an image break a promise (P1 to P5) fails with its seed.
//!
//! `HOLDFAST_SEED=n` runs that seed alone, `HOLDFAST_SCHEDULES=n` so many instead of a few.

use std::env;
use std::sync::Arc;
// Not steered: it counts for the test.
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::InodeNo;
use holdfast_base::clock::SimulatedClock;
use holdfast_base::prng::{Prng, entropy};
use holdfast_base::switch::FsyncWait;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::mpsc::channel;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};
use steered_device::sim::{Event, Policy};
use steered_device::{Device, MemoryDevice, SimDevice};
use steered_posix::{
    Caller, FallocateFlags, FileSystem, FsError, MountOptions, OpenFile, OpenFlags, RenameFlags,
    SetAttr, StoreError, Which, WriteHow,
};

const BYTES: u64 = 8 << 20;
const ROUNDS: u64 = 2;
/// Cuts of each schedule whose images are looked at.
const CUTS: usize = 3;

/// What another thread does beside the writers.
type Beside = fn(&FileSystem) -> Result<(), FsError>;

/// What is done.
#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    work: fn(&FileSystem, &SimDevice, u64),
    /// Whether a file may have these bytes, if this round was promised.
    allows: fn(u64, Option<u64>, Option<&[u8]>) -> bool,
    threads: u64,
    beside: &'static [Beside],
    fsync_wait: FsyncWait,
    /// Data of up to so many bytes goes into the log.
    log_data_bytes: usize,
    /// Whether the volume has no room but what its files have reserved.
    is_full: bool,
}

/// Two threads that overwrite and fsync, alone.
const ORDINARY: Scene = Scene {
    name: "",
    work: overwrite,
    allows: has_overwritten,
    threads: 2,
    beside: &[],
    fsync_wait: FsyncWait::Writeback,
    log_data_bytes: 4096,
    is_full: false,
};

fn name(thread: u64) -> Vec<u8> {
    format!("file-{thread}").into_bytes()
}

/// The bytes of a thread's file after a round, other ones each time.
fn content(thread: u64, round: u64) -> Vec<u8> {
    let len = [300, 5000, 9000][((thread + round) % 3) as usize];
    vec![(thread * 16 + round + 1) as u8; len]
}

/// Replaces a file as careful programs do, with an fsync of the directory behind it.
fn replace(fs: &FileSystem, device: &SimDevice, thread: u64) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let new = format!("new-{thread}").into_bytes();
    for round in 0..ROUNDS {
        let (_, file) =
            fs.create(&root, InodeNo::ROOT, &new, 0o644, flags, true).expect("the volume has room");
        let bytes = content(thread, round);
        fs.write(&root, &file, 0, &bytes, WriteHow::default()).expect("there is room");
        if round == 0 {
            // It replaces nothing: only an fsync promises its data.
            fs.fsync(&file, false).expect("the device works");
        }
        drop(file);
        fs.rename(&root, InodeNo::ROOT, &new, InodeNo::ROOT, &name(thread), RenameFlags::empty())
            .expect("the name exists");
        fs.fsync_inode(InodeNo::ROOT).expect("the device works");
        device.mark(thread * ROUNDS + round);
    }
}

/// P3 and P4: a replacement is whole or did not happen, and not before what was promised.
fn replaced(thread: u64, promised: Option<u64>, found: Option<&[u8]>) -> bool {
    match found {
        None => promised.is_none(),
        Some(found) => (promised.unwrap_or(0)..ROUNDS).any(|round| found == content(thread, round)),
    }
}

/// Changes a file in place: the log holds the change, over data at its location or in the log.
fn overwrite(fs: &FileSystem, device: &SimDevice, thread: u64) {
    overwrite_and(fs, device, thread, |file, data_only| fs.fsync(file, data_only).map(drop));
}

/// As [`overwrite`], but every second thread registers a completion callback, which the leader runs.
fn overwrite_told(fs: &FileSystem, device: &SimDevice, thread: u64) {
    if thread % 2 == 1 {
        return overwrite(fs, device, thread);
    }
    overwrite_and(fs, device, thread, |file, data_only| {
        let (tell, hear) = channel();
        fs.fsync_then(Arc::clone(file), data_only, move |done| {
            tell.send(done.map(drop)).expect("the receiver waits");
        });
        hear.recv().expect("it is told")
    });
}

/// Changes a file in place, with this fsync.
fn overwrite_and(
    fs: &FileSystem,
    device: &SimDevice,
    thread: u64,
    fsync: impl Fn(&Arc<OpenFile>, bool) -> Result<(), FsError>,
) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (_, file) = fs
        .create(&root, InodeNo::ROOT, &name(thread), 0o644, flags, true)
        .expect("the volume has room");
    for round in 0..ROUNDS {
        let (at, bytes) = overwritten(thread, round);
        fs.write(&root, &file, at as u64, &bytes, WriteHow::default()).expect("there is room");
        fsync(&file, round % 2 == 1).expect("the device works");
        device.mark(thread * ROUNDS + round);
    }
}

/// What a round writes, and where.
fn overwritten(thread: u64, round: u64) -> (usize, Vec<u8>) {
    match round {
        0 => (0, vec![thread as u8 + 1; 9000]),
        _ => (3000 + 100 * round as usize, vec![(round * 16 + thread) as u8; 2000]),
    }
}

/// P1 and P5: the file after so many rounds as were promised, or more.
fn has_overwritten(thread: u64, promised: Option<u64>, found: Option<&[u8]>) -> bool {
    let Some(found) = found else { return promised.is_none() };
    let mut file = Vec::new();
    let mut allowed = promised.is_none() && found.is_empty();
    for round in 0..ROUNDS {
        let (at, bytes) = overwritten(thread, round);
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        allowed |= promised.is_none_or(|promised| promised <= round) && found == file;
    }
    allowed
}

/// Extents of a file that is punched: more than one batch removes.
const EXTENTS: u64 = 80;

/// Every second thread makes holes of a file of many extents, whose edges are not those of blocks; the others fsync files of their own.
fn punch(fs: &FileSystem, device: &SimDevice, thread: u64) {
    if thread % 2 == 1 {
        return overwrite(fs, device, thread);
    }
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (_, file) = fs
        .create(&root, InodeNo::ROOT, &name(thread), 0o644, flags, true)
        .expect("the volume has room");
    for extent in 0..EXTENTS {
        let block = vec![extent as u8 + 1; 4096];
        fs.write(&root, &file, extent * 8192, &block, WriteHow::default()).expect("there is room");
    }
    fs.fsync(&file, false).expect("the device works");
    device.mark(thread * ROUNDS);
    let (how, at) = punched(thread);
    fs.fallocate(&file, how, at.start as u64, at.len() as u64).expect("the volume has room");
    fs.fsync(&file, false).expect("the device works");
    device.mark(thread * ROUNDS + 1);
}

/// How a thread makes a hole, and where.
fn punched(thread: u64) -> (FallocateFlags, std::ops::Range<usize>) {
    let keep = FallocateFlags::KEEP_SIZE;
    match thread {
        0 => (FallocateFlags::PUNCH_HOLE | keep, 100..EXTENTS as usize * 8192 - 8000),
        _ => (FallocateFlags::ZERO_RANGE, 5000..EXTENTS as usize * 8192 + 5000),
    }
}

/// P3: a hole is there as a whole, or not at all.
fn has_punched(thread: u64, promised: Option<u64>, found: Option<&[u8]>) -> bool {
    if thread % 2 == 1 {
        return has_overwritten(thread, promised, found);
    }
    let (Some(promised), Some(found)) = (promised, found) else { return promised.is_none() };
    let mut file = vec![0; EXTENTS as usize * 8192 - 4096];
    for (extent, two) in file.chunks_mut(8192).enumerate() {
        two[..4096].fill(extent as u8 + 1);
    }
    let is_whole = promised == 0 && found == file;
    let (how, at) = punched(thread);
    if !how.contains(FallocateFlags::KEEP_SIZE) {
        file.resize(at.end.max(file.len()), 0);
    }
    file[at].fill(0);
    is_whole || found == file
}

/// Appends to a file until nothing more is accepted.
macro_rules! fill {
    ($fs:expr, $caller:expr, $file:expr, $how:expr) => {{
        let mut len = 1 << 20;
        while len >= 4096 {
            if $fs.write($caller, $file, 0, &vec![0x77; len], $how).is_err() {
                len /= 2;
            }
        }
    }};
}

/// Bytes that a file has reserved.
const RESERVED: u64 = 160 << 10;
/// Bytes of one write to them.
const FILLED: usize = 96 << 10;
/// Bytes that a thread makes free: enough for items, too little for such a write.
const GAP: usize = 64 << 10;

/// A file that is in the way of its thread.
fn gap(thread: u64) -> Vec<u8> {
    format!("gap-{thread}").into_bytes()
}

/// Takes what is free.
fn take_room(fs: &FileSystem) {
    let root = Caller::root();
    let file = fs.lookup(&root, InodeNo::ROOT, FILLER).expect("the base has it").inode;
    let file = fs.open(&root, file, OpenFlags::WRITE).expect("it can be opened");
    fill!(fs, &root, &file, WriteHow { append: true, ..WriteHow::default() });
}

/// Writes to what a file has reserved, makes it unwritten, and writes it again.
fn write_in_place(fs: &FileSystem, device: &SimDevice, thread: u64) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let attr = fs.lookup(&root, InodeNo::ROOT, &name(thread)).expect("the base has it");
    let file = fs.open(&root, attr.inode, flags).expect("the file is there");
    for round in 0..ROUNDS {
        if round > 0 {
            // Zeros need room for items. The write behind them finds too little.
            fs.unlink(&root, InodeNo::ROOT, &gap(thread)).expect("the base has it");
            fs.sync().expect("the device works");
            let how = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            match fs.fallocate(&file, how, 0, FILLED as u64) {
                // Another thread has taken it.
                Err(FsError::Store(StoreError::NoSpace)) => return,
                done => done.expect("the device works"),
            }
        }
        let bytes = vec![(thread * 16 + round + 1) as u8; FILLED];
        fs.write(&root, &file, 0, &bytes, WriteHow::default()).expect("the blocks are reserved");
        fs.fsync(&file, round % 2 == 1).expect("the device works");
        device.mark(thread * ROUNDS + round);
    }
}

/// P1 and P5: zeros or one of the writes, whole, and zeros behind it.
fn has_written_in_place(thread: u64, promised: Option<u64>, found: Option<&[u8]>) -> bool {
    let Some((filled, behind)) = found.and_then(|found| found.split_at_checked(FILLED)) else {
        return false;
    };
    let is_all = |byte: u64| filled.iter().all(|found| u64::from(*found) == byte);
    let is_written = (promised.unwrap_or(0)..ROUNDS).any(|round| is_all(thread * 16 + round + 1));
    // Each round but the last is followed by one that first makes zeros.
    let may_be_zeros = promised.is_none_or(|promised| promised + 1 < ROUNDS);
    behind.iter().all(|byte| *byte == 0) && (is_written || may_be_zeros && is_all(0))
}

/// Takes blocks of the first file away and reserves them again, before and behind those that are being written.
fn punch_reserved(fs: &FileSystem) -> Result<(), FsError> {
    let root = Caller::root();
    let file = fs.lookup(&root, InodeNo::ROOT, &name(0))?.inode;
    let file = fs.open(&root, file, OpenFlags::READ | OpenFlags::WRITE)?;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fs.fallocate(&file, hole, FILLED as u64 + 4096, 16384)?;
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(&root, file.inode(), Some(&file), size(RESERVED - 5000))?;
    fs.fsync(&file, false)?;
    match fs.fallocate(&file, FallocateFlags::empty(), 0, RESERVED) {
        Err(FsError::Store(StoreError::NoSpace)) => Ok(()),
        done => done,
    }
}

/// Forks that come and go in a scene.
const FORKS: u64 = 3;

/// Opens forks, changes and closes them, while others do the same: each has what was written to it when it is opened once more.
fn forks_come_and_go(fs: &FileSystem) -> Result<(), FsError> {
    let options = || MountOptions { commit_secs: 0, inode_cache: 2, ..MountOptions::default() };
    // What another thread has open is its.
    let open = |name: &[u8]| match fs.open_branch(Which::Named(name), options()) {
        Ok(fork) => Ok(Some(fork)),
        Err(FsError::InUse(_)) => Ok(None),
        Err(error) => Err(error),
    };
    for fork in 0..FORKS {
        let name = format!("fork-{fork}").into_bytes();
        if fs.find_branch(&name).is_err() {
            // Another thread may be faster.
            let made = fs.fork(&name, None);
            assert!(made.is_ok() || fs.find_branch(&name).is_ok(), "{made:?}");
        }
        let Some(here) = open(&name)? else { continue };
        let before = counted(&here)?;
        let (root, flags) = (Caller::root(), OpenFlags::WRITE);
        let (_, file) = here.create(&root, InodeNo::ROOT, COUNT, 0o644, flags, false)?;
        let bytes = (before + 1).to_le_bytes();
        here.write(&root, &file, 0, &bytes, WriteHow::default())?;
        if fork == 0 {
            here.fsync(&file, false)?;
        }
        drop(file);
        here.unmount()?;
        let Some(again) = open(&name)? else { continue };
        assert!(counted(&again)? > before, "a change of `fork-{fork}` is gone");
        again.unmount()?;
    }
    Ok(())
}

/// The file that says how often its fork was opened.
const COUNT: &[u8] = b"count";

fn counted(fork: &FileSystem) -> Result<u64, FsError> {
    let root = Caller::root();
    let Ok(attr) = fork.lookup(&root, InodeNo::ROOT, COUNT) else { return Ok(0) };
    let file = fork.open(&root, attr.inode, OpenFlags::READ)?;
    let mut bytes = [0; 8];
    fork.read(&file, 0, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A volume that is full: each file has reserved its bytes.
fn filled(files: u64) -> Vec<u8> {
    use holdfast_posix::{Caller, FallocateFlags, FileSystem, MountOptions, OpenFlags, WriteHow};
    let device = Arc::new(holdfast_device::MemoryDevice::from_image(&formatted()));
    let under: Arc<dyn holdfast_device::Device> = device.clone();
    let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
    let fs = FileSystem::mount(under, options).expect("the volume is new");
    let root = Caller::root();
    let create = |name: &[u8]| {
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        let made = fs.create(&root, InodeNo::ROOT, name, 0o644, flags, true);
        made.expect("the volume has room").1
    };
    for file in 0..files {
        let file = create(&name(file));
        fs.fallocate(&file, FallocateFlags::empty(), 0, RESERVED).expect("the volume has room");
    }
    for file in 0..files {
        let bytes = vec![1; GAP];
        let done = fs.write(&root, &create(&gap(file)), 0, &bytes, WriteHow::default());
        done.expect("the volume has room");
    }
    let filler = create(FILLER);
    for _ in 0..2 {
        fill!(fs, &root, &filler, WriteHow { append: true, ..WriteHow::default() });
        // What was freed on the way is free with the next commit.
        fs.sync().expect("the device works");
    }
    drop(filler);
    fs.unmount().expect("the device works");
    device.to_image()
}

/// The file that takes what is free.
const FILLER: &[u8] = b"filler";
/// Bytes that went straight into reserved blocks, of all schedules.
static IN_PLACE: AtomicU64 = AtomicU64::new(0);

/// Ranges that were discarded, of all schedules.
static DISCARDS: AtomicU64 = AtomicU64::new(0);

/// Gives all free space back.
fn trim(fs: &FileSystem) -> Result<(), FsError> {
    fs.trim(0, |_| true).map(drop)
}

/// A volume without files, made by the engine as it is.
fn formatted() -> Vec<u8> {
    let device = Arc::new(holdfast_device::MemoryDevice::new(BYTES));
    let under: Arc<dyn holdfast_device::Device> = device.clone();
    let options = holdfast_posix::MkfsOptions {
        node_size: 4096,
        label: "steered".into(),
        uuid: Some([3; 16]),
        owner: (0, 0),
        ..holdfast_posix::MkfsOptions::default()
    };
    holdfast_posix::FileSystem::mkfs(&under, &options).expect("the device is large enough");
    device.to_image()
}

fn options(scene: &Scene) -> MountOptions {
    MountOptions {
        commit_secs: 0,
        inode_cache: 2,
        fsync_wait: scene.fsync_wait,
        log_data_bytes: Some(scene.log_data_bytes),
        ..MountOptions::default()
    }
}

/// One schedule: works, and looks at what power cuts leave.
fn play(scene: &'static Scene, base: &[u8], seed: u64) {
    let base = MemoryDevice::from_image(base);
    let device = Arc::new(SimDevice::new(&base));
    let under: Arc<dyn Device> = device.clone();
    let fs = Arc::new(FileSystem::mount(under, options(scene)).expect("the volume is new"));
    if scene.is_full {
        take_room(&fs);
    }
    let mut threads = Vec::new();
    for thread in 0..scene.threads {
        let (fs, device) = (Arc::clone(&fs), Arc::clone(&device));
        threads.push(thread::spawn(move || (scene.work)(&fs, &device, thread)));
    }
    for beside in scene.beside {
        let fs = Arc::clone(&fs);
        threads.push(thread::spawn(move || {
            for _ in 0..ROUNDS {
                beside(&fs).expect("the device works");
            }
        }));
    }
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    IN_PLACE.fetch_add(fs.counters().reserved_bytes_written.get(), Ordering::Relaxed);
    DISCARDS.fetch_add(fs.counters().discard_ranges.get(), Ordering::Relaxed);
    drop(fs);
    let recording = device.recording();
    let mut prng = Prng::seeded(seed);
    for _ in 0..CUTS {
        let at = prng.below(recording.events.len() as u64 + 1) as usize;
        let cut = recording.cut_at(at);
        let mut promised = vec![None; scene.threads as usize];
        for event in &recording.events[..at] {
            if let Event::Mark(mark) = event {
                promised[(mark / ROUNDS) as usize] = Some(mark % ROUNDS);
            }
        }
        let policy = Policy { seed, exhaustive: 0, each: 1, samples: 1, torn: 1 };
        for image in cut.images(&policy) {
            let what = format!("{}, cut at event {at}, {}", scene.name, image.describe());
            judge(scene, image.device(), &promised, &what);
        }
    }
}

/// Whether an image keeps what was promised.
fn judge(scene: &Scene, device: MemoryDevice, promised: &[Option<u64>], what: &str) {
    let real = holdfast_device::MemoryDevice::from_image(&device.to_image());
    let asked = holdfast_check::Options { data: true, ..holdfast_check::Options::default() };
    let report = holdfast_check::check(&real, &asked).expect("it is a volume");
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
    let root = Caller::root();
    let fs = FileSystem::mount(Arc::new(device), options(scene)).expect("it is recovered");
    for (thread, promised) in promised.iter().enumerate() {
        let found = fs.lookup(&root, InodeNo::ROOT, &name(thread as u64)).ok().map(|attr| {
            let mut bytes = vec![0; attr.size as usize];
            let file = fs.open(&root, attr.inode, OpenFlags::READ).expect("it can be opened");
            fs.read(&file, 0, &mut bytes).expect("its data is there");
            bytes
        });
        let len = found.as_ref().map(Vec::len);
        assert!(
            (scene.allows)(thread as u64, *promised, found.as_deref()),
            "{what}: thread {thread}, promised {promised:?}, found {len:?} other bytes"
        );
    }
    fs.unmount().expect("the device works");
}

/// Plays a scene with several schedules, or with the one that is asked for.
fn explore(scene: &'static Scene) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let base = if scene.is_full { filled(scene.threads) } else { formatted() };
    let base: Arc<Vec<u8>> = Arc::new(base);
    // What is learned from how long something took is the same each time. All threads of a run are this one's.
    let _clock = SimulatedClock::new().enter();
    let (first, count) = match number("HOLDFAST_SEED") {
        Some(seed) => (seed, 1),
        None => (entropy() >> 20, number("HOLDFAST_SCHEDULES").unwrap_or(40)),
    };
    for seed in first..first + count {
        println!("{}: HOLDFAST_SEED={seed}", scene.name);
        let mut config = Config::new();
        config.stack_size = 1 << 21;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(20_000_000);
        let base = Arc::clone(&base);
        let run = move || play(scene, &base, seed);
        // By turns: any thread goes on at any time, or few changes at the worst points.
        match seed % 2 {
            0 => Runner::new(RandomScheduler::new_from_seed(seed, 1), config).run(run),
            _ => Runner::new(PctScheduler::new_from_seed(seed, 3, 1), config).run(run),
        };
    }
}

/// The group-commit queue: which thread leads, which follow, which are answered.
#[test]
fn fsyncs_beside_fsyncs() {
    static SCENE: Scene = Scene { name: "fsyncs beside fsyncs", threads: 3, ..ORDINARY };
    explore(&SCENE);
}

/// The same where some register completion callbacks, beside a commit: a leader that gives up forgets none.
#[test]
fn fsyncs_that_are_told() {
    static SCENE: Scene = Scene {
        name: "fsyncs that are told",
        work: overwrite_told,
        threads: 4,
        beside: &[FileSystem::commit],
        ..ORDINARY
    };
    explore(&SCENE);
}

/// No batch of the log reaches over the freeze of a commit, and log-resident data is written with the commit.
#[test]
fn fsyncs_beside_commits() {
    static SCENE: Scene =
        Scene { name: "fsyncs beside commits", beside: &[FileSystem::commit], ..ORDINARY };
    explore(&SCENE);
}

/// What waits is appended between fsyncs, and the next flush is one for that as well.
#[test]
fn fsyncs_beside_rests() {
    static SCENE: Scene = Scene {
        name: "fsyncs beside rests",
        beside: &[FileSystem::rest, FileSystem::commit],
        ..ORDINARY
    };
    explore(&SCENE);
}

/// A sealed node is immutable; changers go on, on copies.
#[test]
fn changers_beside_checkpoints_and_commits() {
    static SCENE: Scene = Scene {
        name: "changers beside checkpoints and commits",
        work: replace,
        allows: replaced,
        beside: &[FileSystem::checkpoint, FileSystem::commit],
        ..ORDINARY
    };
    explore(&SCENE);
}

/// Free space is discarded, again and again, while others are given it: nothing that they write is lost, and none is refused.
#[test]
fn changers_beside_discards_and_commits() {
    static SCENE: Scene = Scene {
        name: "changers beside discards and commits",
        work: replace,
        allows: replaced,
        beside: &[trim, FileSystem::commit],
        // All data goes to blocks that were free.
        log_data_bytes: 0,
        ..ORDINARY
    };
    explore(&SCENE);
    assert!(DISCARDS.load(Ordering::Relaxed) > 0, "nothing was discarded");
}

/// The trees of forks are closed when they have no handle, beside commits and checkpoints that carry their roots; their numbers
/// are used again.
#[test]
fn forks_come_and_go_beside_checkpoints_and_commits() {
    static SCENE: Scene = Scene {
        name: "forks come and go beside checkpoints and commits",
        threads: 1,
        beside: &[forks_come_and_go, forks_come_and_go, FileSystem::checkpoint, FileSystem::commit],
        ..ORDINARY
    };
    explore(&SCENE);
}

/// A worker puts ordered extents into the tree, and all data goes to its location.
#[test]
fn extents_are_handed_over() {
    static SCENE: Scene = Scene {
        name: "extents are handed over",
        beside: &[FileSystem::commit],
        fsync_wait: FsyncWait::Completion,
        log_data_bytes: 0,
        ..ORDINARY
    };
    explore(&SCENE);
}

/// A hole with many extents is one step of history, also when another thread makes history durable meanwhile.
#[test]
fn holes_beside_fsyncs() {
    static SCENE: Scene = Scene {
        name: "holes beside fsyncs",
        work: punch,
        allows: has_punched,
        threads: 4,
        beside: &[FileSystem::commit],
        ..ORDINARY
    };
    explore(&SCENE);
}

/// Reserved blocks are written in place on a full volume, while others make the file durable, commit, and take blocks of
/// the same file away.
#[test]
fn reserved_blocks_beside_commits_and_holes() {
    static SCENE: Scene = Scene {
        name: "reserved blocks beside commits and holes",
        work: write_in_place,
        allows: has_written_in_place,
        beside: &[FileSystem::commit, punch_reserved],
        is_full: true,
        ..ORDINARY
    };
    explore(&SCENE);
    assert!(IN_PLACE.load(Ordering::Relaxed) > 0, "no data went into reserved blocks");
}
