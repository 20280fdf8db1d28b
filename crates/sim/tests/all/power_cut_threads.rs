//! Power fails under many threads, and inside mkfs.
//!
//! With threads there is no single script to compare with, so each thread says
//! by a mark what an fsync has promised it, and every image has to keep that.

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::prng::{Prng, entropy};
use holdfast_check::Options;
use holdfast_device::sim::{Event, Policy};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem, FsError, NewSize, OpenFlags, RenameFlags, WriteHow};
use holdfast_script::{Data, Target};
use holdfast_sim::{Engine, Setup, Verdict, agree_on_log};

const THREADS: u64 = 4;
const ROUNDS: u64 = 12;

/// What a thread writes in a round, larger and smaller than what fits into an inode.
fn content(thread: u64, round: u64) -> Vec<u8> {
    let len = [100, 5000, 40_000][(round % 3) as usize];
    Data::Pattern { len, seed: (thread * 100 + round + 1) as u32 }.bytes()
}

fn name(thread: u64) -> Vec<u8> {
    format!("file-{thread}").into_bytes()
}

/// Replaces one file again and again, the way careful programs do, and marks what is durable.
fn work(fs: &FileSystem, device: &SimDevice, thread: u64) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let temporary = format!("new-{thread}").into_bytes();
    for round in 0..ROUNDS {
        let (_, file) = fs
            .create(&root, InodeNo::ROOT, &temporary, 0o644, flags, true)
            .expect("the volume has room");
        let bytes = content(thread, round);
        let count = fs.write(&root, &file, 0, &bytes, WriteHow::default());
        assert_eq!(count.expect("the volume has room"), bytes.len());
        if round % 2 == 0 {
            fs.fsync(&file, false).expect("the device works");
        }
        drop(file);
        fs.rename(
            &root,
            InodeNo::ROOT,
            &temporary,
            InodeNo::ROOT,
            &name(thread),
            RenameFlags::empty(),
        )
        .expect("the name exists");
        fs.fsync_inode(InodeNo::ROOT).expect("the device works");
        device.mark(thread * ROUNDS + round);
    }
}

/// What a thread's file holds after a round of [`overwrite`].
fn overwritten(thread: u64, round: u64) -> Vec<u8> {
    let mut bytes = Data::Pattern { len: 40_000, seed: thread as u32 + 1 }.bytes();
    for round in 1..=round {
        let (at, part) = change(thread, round);
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    bytes
}

/// What a round changes: a few bytes, mostly near those of the round before, or some blocks.
fn change(thread: u64, round: u64) -> (usize, Vec<u8>) {
    let mut prng = Prng::seeded(thread << 32 | round);
    let at = (round * 700 + prng.below(3000)) as usize;
    let len = if prng.one_in(4) { 9000 } else { 1 + prng.below(900) };
    (at, Data::Pattern { len, seed: (thread * 1000 + round) as u32 }.bytes())
}

/// Changes one file in place, as a database does: the log holds what changed, over data at its location or in
/// the log itself. Round 0 makes the file.
fn overwrite(fs: &FileSystem, device: &SimDevice, thread: u64) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (_, file) = fs
        .create(&root, InodeNo::ROOT, &name(thread), 0o644, flags, true)
        .expect("the volume has room");
    for round in 0..ROUNDS {
        let (at, part) = match round {
            0 => (0, overwritten(thread, 0)),
            _ => change(thread, round),
        };
        fs.write(&root, &file, at as u64, &part, WriteHow::default()).expect("there is room");
        fs.fsync(&file, round % 2 == 0).expect("the device works");
        device.mark(thread * ROUNDS + round);
    }
}

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Replace,
    Overwrite,
}

impl Work {
    /// Whether a thread that was promised a round may find these bytes.
    fn allows(self, thread: u64, promised: Option<u64>, found: &[u8]) -> bool {
        // A replacement is whole or did not happen (P4). The first one replaced nothing, but it was
        // fsynced before it got its name.
        let first = promised.unwrap_or(0);
        match self {
            Work::Replace => (first..ROUNDS).any(|round| content(thread, round) == found),
            // The file has its name before its data.
            Work::Overwrite if promised.is_none() && found.is_empty() => true,
            // No thread begins a round before its last one was acknowledged.
            Work::Overwrite => {
                (first..ROUNDS.min(first + 2)).any(|round| overwritten(thread, round) == found)
            }
        }
    }
}

/// What is wrong with an image in which each thread was promised its round (or nothing yet).
fn wrong(work: Work, image: MemoryDevice, promised: &[Option<u64>]) -> Option<String> {
    match agree_on_log(&image) {
        Ok(Verdict::Whole(_)) => {}
        other => return Some(format!("replays: {other:?}")),
    }
    let report = match holdfast_check::check(&image, &Options { data: true, ..Options::default() })
    {
        Ok(report) => report,
        Err(error) => return Some(format!("check: {error}")),
    };
    if !report.is_clean() {
        return Some(format!("{:?}", report.findings));
    }
    let setup = Setup::new(4096, 100);
    let fs = match FileSystem::mount(Arc::new(image), setup.mount) {
        Ok(fs) => fs,
        Err(error) => return Some(format!("mount: {error}")),
    };
    let root = Caller::root();
    for (thread, promised) in (0..).zip(promised) {
        let attr = match fs.lookup(&root, InodeNo::ROOT, &name(thread)) {
            Ok(attr) => attr,
            Err(_) if promised.is_none() => continue,
            Err(error) => return Some(format!("thread {thread}, round {promised:?}: {error}")),
        };
        let mut bytes = vec![0; attr.size as usize];
        let read = fs
            .open(&root, attr.inode, OpenFlags::READ)
            .and_then(|file| fs.read(&file, 0, &mut bytes));
        if let Err(error) = read {
            return Some(format!("thread {thread}: {error}"));
        }
        if !work.allows(thread, *promised, &bytes) {
            let len = bytes.len();
            return Some(format!("thread {thread}, promised {promised:?}, has {len} other bytes"));
        }
    }
    fs.unmount().err().map(|error| format!("unmount: {error}"))
}

#[test]
fn threads_keep_what_each_of_them_was_promised() {
    threads(32 << 20, Work::Replace, None);
}

#[test]
fn threads_keep_it_beside_checkpoints_and_in_a_small_ring() {
    threads(8 << 20, Work::Replace, Some(FileSystem::checkpoint));
}

#[test]
fn threads_keep_what_they_changed_in_place() {
    threads(16 << 20, Work::Overwrite, None);
    threads(16 << 20, Work::Overwrite, Some(FileSystem::commit));
}

/// It becomes larger all the time, up to all that the device has.
#[test]
fn threads_keep_it_while_the_volume_grows() {
    let setup = |bytes| {
        let mut setup = Setup::new(4096, 100);
        setup.mkfs.bytes = Some(bytes);
        setup
    };
    let grow: Beside = |fs| fs.resize(NewSize::More(512 << 10)).map(drop).or(Ok(()));
    threads_on((32 << 20, setup(12 << 20)), Work::Replace, Some(grow));
    threads_on((32 << 20, setup(16 << 20)), Work::Overwrite, Some(grow));
}

/// What another thread does all the time.
type Beside = fn(&FileSystem) -> Result<(), FsError>;

fn threads(volume: u64, how: Work, beside: Option<Beside>) {
    threads_on((volume, Setup::new(4096, 100)), how, beside);
}

fn threads_on((volume, setup): (u64, Setup), how: Work, beside: Option<Beside>) {
    let base = Arc::new(MemoryDevice::new(volume));
    let under = Arc::clone(&base) as Arc<dyn Device>;
    FileSystem::mkfs(&under, &setup.mkfs).expect("the device works");
    let device = Arc::new(SimDevice::new(&base));
    let fs = FileSystem::mount(Arc::clone(&device) as Arc<dyn Device>, setup.mount)
        .expect("the volume is new");
    std::thread::scope(|scope| {
        let (fs, device) = (&fs, &*device);
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || match how {
                    Work::Replace => work(fs, device, thread),
                    Work::Overwrite => overwrite(fs, device, thread),
                })
            })
            .collect();
        while let Some(beside) =
            beside.filter(|_| workers.iter().any(|worker| !worker.is_finished()))
        {
            beside(fs).expect("the device works");
        }
    });
    drop(fs);
    let recording = device.recording();
    let seed = entropy();
    println!("seed {seed}, {} events", recording.events.len());
    let mut prng = Prng::seeded(seed);
    let policy = Policy { seed, exhaustive: 3, each: 3, samples: 3, torn: 3 };
    let mut promised = [None; THREADS as usize];
    let mut cut = recording.start();
    let mut images = 0;
    for event in &recording.events {
        cut.advance(event);
        if let Event::Mark(mark) = event {
            promised[(mark / ROUNDS) as usize] = Some(mark % ROUNDS);
        }
        let worth = matches!(event, Event::Mark(_)) || event.changes_images() && prng.one_in(4);
        for image in cut.images(&policy).filter(|_| worth) {
            images += 1;
            if let Some(wrong) = wrong(how, image.device(), &promised) {
                panic!("seed {seed}, event {}, {}: {wrong}", cut.index(), image.describe());
            }
        }
    }
    assert!(images > 100, "{images}");
}

#[test]
fn a_mkfs_that_is_cut_short_leaves_a_volume_or_none() {
    let setup = Setup::new(4096, 16);
    // An older volume with a file is there: what is left must never be a mixture of the two.
    let old = Arc::new(MemoryDevice::new(16 << 20));
    let mut engine = Engine::create(Arc::clone(&old) as Arc<dyn Device>, setup.clone())
        .expect("the device works");
    let script: holdfast_script::Script =
        "mkdir /old; mkfile /old/f; write /old/f 0 9000 1".parse().expect("it is well formed");
    script.ops().for_each(|op| drop(engine.apply(op)));
    let before = engine.walk().expect("the volume is whole");
    engine.unmount().expect("the device works");
    let device = Arc::new(SimDevice::new(&old));
    FileSystem::mkfs(&(Arc::clone(&device) as Arc<dyn Device>), &setup.mkfs)
        .expect("the device works");
    let recording = device.recording();
    let mut cut = recording.start();
    let (mut none, mut whole) = (0, 0);
    let policy = Policy { exhaustive: 4, each: 4, samples: 4, torn: 4, ..Policy::default() };
    for event in recording.events.iter().filter(|event| event.changes_images()) {
        cut.advance(event);
        for image in cut.images(&policy) {
            let image_device = Arc::new(image.device());
            let place = format!("event {}, {}", cut.index(), image.describe());
            if holdfast_check::probe(&*image_device).is_none() {
                none += 1;
                let mounted = FileSystem::mount(image_device, setup.mount.clone());
                assert!(mounted.is_err(), "{place}: a volume that check does not know");
                continue;
            }
            whole += 1;
            let options = Options { data: true, ..Options::default() };
            let report = holdfast_check::check(&*image_device, &options).expect("it was probed");
            let mut engine = Engine::open(image_device, setup.clone())
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            let tree = engine.walk().unwrap_or_else(|error| panic!("{place}: {error}"));
            let same = tree.differences(&before).is_empty();
            assert!(report.is_clean() && (same || tree.0.len() == 1), "{place}: {report:?} {tree}");
        }
    }
    println!("{none} images without a volume, {whole} with one");
    assert!(none > 10 && whole > 3, "{none} {whole}");
}
