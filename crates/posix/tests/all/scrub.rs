//! A scrub finds what has rotted, by path, in each tree that has it; reads what trees share once; goes on where it was stopped; and
//! finds nothing where nothing is damaged, whatever happens beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_posix::{
    Caller, FileSystem, FsError, MountOptions, OpenFlags, Scrub, ScrubFinding, ScrubKind,
    ScrubListener, StoreError,
};

use crate::common::*;

/// What a scrub has said.
#[derive(Default)]
struct Heard {
    found: Vec<ScrubFinding>,
    bytes: u64,
    /// It is stopped behind so many bytes.
    most: Option<u64>,
    state: Vec<u8>,
}

impl ScrubListener for Heard {
    fn has_read(&mut self, scrub: &Scrub, bytes: u64, _took: Duration) -> bool {
        self.bytes += bytes;
        if self.most.is_some_and(|most| self.bytes > most) {
            self.state = scrub.to_bytes();
            return false;
        }
        true
    }

    fn found(&mut self, finding: ScrubFinding) {
        self.found.push(finding);
    }
}

/// A scrub to the end.
fn scrub(fs: &FileSystem) -> Heard {
    let mut heard = Heard::default();
    assert!(fs.scrub(None, &mut heard).expect("scrub"), "it comes to its end");
    heard
}

/// What was found, as the program prints it.
fn told(heard: &Heard) -> Vec<(ScrubKind, String)> {
    let mut told: Vec<_> = heard.found.iter().map(|of| (of.kind, of.what())).collect();
    told.sort_by_key(|(kind, what)| (*kind as u8, what.clone()));
    told
}

/// Bytes that stand nowhere else.
fn pattern(seed: u32, blocks: u32) -> Vec<u8> {
    let byte = |at: u32| {
        let at = u64::from(at) | u64::from(seed) << 32;
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
    };
    (0..blocks * 4096).map(byte).collect()
}

fn put(fs: &FileSystem, name: &str, bytes: &[u8]) {
    let file = create(fs, name);
    write_all(fs, &file, 0, bytes);
    fs.fsync(&file, false).expect("fsync");
}

/// Flips a bit in each part of the device that begins with these bytes. Returns how many there are.
fn rot(device: &MemoryDevice, bytes: &[u8]) -> usize {
    let image = device.to_image();
    let places = image.chunks_exact(4096).zip(0u64..).filter(|(it, _)| it.starts_with(bytes));
    let places: Vec<u64> = places.map(|(_, block)| block * 4096).collect();
    places.iter().for_each(|at| flip(device, *at));
    places.len()
}

fn flip(device: &MemoryDevice, at: u64) {
    let mut sector = [0; 512];
    device.read(at, &mut sector).expect("read");
    sector[77] ^= 0x10;
    device.write(at, &sector).expect("write");
}

/// Flips a bit in each leaf that has these bytes somewhere.
fn rot_leaf_with(device: &MemoryDevice, bytes: &[u8]) -> usize {
    let image = device.to_image();
    let is_leaf = |node: &[u8]| node.starts_with(b"hfNd");
    let nodes = image.chunks_exact(16384).zip(0u64..);
    let hit = nodes.filter(|(it, _)| is_leaf(it) && it.windows(bytes.len()).any(|at| at == bytes));
    let hit: Vec<u64> = hit.map(|(_, index)| index * 16384).collect();
    hit.iter().for_each(|at| flip(device, *at));
    hit.len()
}

#[test]
fn a_clean_volume_is_read_once_however_many_trees_share_it() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for name in ["a", "b", "c"] {
        put(&fs, name, &pattern(u32::from(name.as_bytes()[0]), 1024));
    }
    put(&fs, "small", b"inline");
    fs.sync().expect("sync");
    let one = scrub(&fs);
    assert_eq!(one.found, []);
    assert!((12 * MIB..14 * MIB).contains(&one.bytes), "{}", one.bytes);
    for snapshot in 0..20 {
        fs.snapshot(format!("s{snapshot}").as_bytes()).expect("snapshot");
        put(&fs, &format!("new{snapshot}"), b"x");
        let snapshot = format!("s{snapshot}");
        fs.fork(format!("fork-{snapshot}").as_bytes(), Some(snapshot.as_bytes())).expect("fork");
    }
    let many = scrub(&fs);
    assert_eq!(many.found, []);
    // A path of nodes for each that has changed, and no data.
    assert!(many.bytes < one.bytes + 3 * MIB, "{} after {}", many.bytes, one.bytes);
    assert_eq!(fs.counters().scrubbed_bytes.get(), one.bytes + many.bytes);
    assert_eq!(fs.superblock().fault, None);
}

#[test]
fn damage_is_told_by_path_in_each_tree_that_has_it() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let dir = fs.mkdir(&Caller::root(), InodeNo::ROOT, b"dir", 0o755).expect("mkdir").inode;
    let bytes = pattern(7, 64);
    put(&fs, "kept", &pattern(8, 64));
    put(&fs, "gone", &bytes);
    let none = holdfast_posix::RenameFlags::empty();
    fs.rename(&Caller::root(), InodeNo::ROOT, b"gone", dir, b"gone", none).expect("rename");
    fs.snapshot(b"monday").expect("snapshot");
    fs.unlink(&Caller::root(), dir, b"gone").expect("unlink");
    put(&fs, "later", &pattern(9, 64));
    fs.snapshot(b"tuesday").expect("snapshot");
    assert_eq!(scrub(&fs).found, []);
    // Two blocks beside each other and one alone; and one of a file that all three have.
    for block in [3, 4, 9] {
        assert_eq!(rot(&device, &bytes[block * 4096..(block + 1) * 4096]), 1);
    }
    assert_eq!(rot(&device, &pattern(8, 64)[..4096]), 1);
    let heard = scrub(&fs);
    let data = |what: &str| (ScrubKind::Data, what.to_owned());
    assert_eq!(
        told(&heard),
        [
            data("main:/kept, bytes 0 to 4095"),
            data("main@monday:/dir/gone, bytes 12288 to 20479"),
            data("main@monday:/dir/gone, bytes 36864 to 40959"),
            data("main@monday:/kept, bytes 0 to 4095"),
            data("main@tuesday:/kept, bytes 0 to 4095"),
        ]
    );
    assert!(heard.found.iter().all(|of| of.why.contains("checksum") && !of.is_mended));
    put(&fs, "other", b"x");
    fs.checkpoint().expect("checkpoint");
    let fault = fs.superblock().fault.expect("the next superblock says so");
    assert!(fault.reason.contains("kept") || fault.reason.contains("gone"), "{}", fault.reason);
}

#[test]
fn a_damaged_node_is_told_with_the_files_that_are_in_it() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for index in 0..600 {
        put(&fs, &format!("file{index:04}"), &[index as u8; 100]);
    }
    fs.snapshot(b"monday").expect("snapshot");
    fs.checkpoint().expect("checkpoint");
    assert_eq!(scrub(&fs).found, []);
    // The content of that file is in a leaf, beside that of its neighbours; names are in leaves of their own.
    assert!(rot_leaf_with(&device, &[201; 100]) >= 1);
    let heard = scrub(&fs);
    let of = |tree: &str, kind: ScrubKind| {
        let is_of = |of: &&ScrubFinding| of.tree.as_deref() == Some(tree) && of.kind == kind;
        heard.found.iter().filter(is_of).cloned().collect::<Vec<_>>()
    };
    for tree in ["main", "main@monday"] {
        let nodes = of(tree, ScrubKind::Node);
        assert!(!nodes.is_empty() && nodes.iter().all(|of| of.block.is_some()), "{nodes:?}");
        let files: Vec<_> =
            of(tree, ScrubKind::File).into_iter().filter_map(|it| it.path).collect();
        assert!(files.contains(&"/file0201".to_owned()), "{tree}: {files:?}");
        assert!(files.len() < 300, "only what is near: {}", files.len());
    }
    // What is in memory hides it from programs; one that opens the volume anew meets it.
    let told: Vec<String> =
        of("main", ScrubKind::File).into_iter().filter_map(|it| it.path).collect();
    drop(fs);
    let fs = mount(&device, &MountOptions { read_only: true, ..quiet() });
    for index in 0..600 {
        let name = format!("file{index:04}");
        let read = fs
            .lookup(&Caller::root(), InodeNo::ROOT, name.as_bytes())
            .and_then(|attr| fs.open(&Caller::root(), attr.inode, OpenFlags::READ))
            .and_then(|file| read(&fs, &file, 0, 100));
        if read.is_err() {
            assert!(told.contains(&format!("/{name}")), "{name} fails and was not told");
        }
    }
    // The same is found where nothing may be written.
    assert!(scrub(&fs).found.iter().any(|of| of.kind == ScrubKind::Node));
}

#[test]
fn it_goes_on_where_it_was_stopped_and_reads_each_thing_once() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for name in 0..24 {
        put(&fs, &format!("f{name}"), &pattern(name, 256));
    }
    fs.snapshot(b"monday").expect("snapshot");
    // Nothing is in the rings, which would be read once.
    fs.checkpoint().expect("checkpoint");
    let whole = scrub(&fs).bytes;
    assert!(whole > 24 * MIB);
    let (mut state, mut bytes, mut rounds) = (None, 0, 0);
    loop {
        let mut heard = Heard { most: Some(3 * MIB), ..Heard::default() };
        let is_over = fs.scrub(state.as_deref(), &mut heard).expect("scrub");
        assert_eq!(heard.found, []);
        (bytes, rounds) = (bytes + heard.bytes, rounds + 1);
        if is_over {
            break;
        }
        state = Some(heard.state);
        // It is still good when the volume has gone on.
        put(&fs, &format!("more{rounds}"), b"x");
        fs.checkpoint().expect("checkpoint");
    }
    assert!(rounds >= 8, "{rounds}");
    // The nodes on the way, each time.
    assert!(bytes < whole + rounds * 400_000, "{bytes} in {rounds} rounds, {whole} at once");
    // What makes no sense is not gone on with.
    let mut wrong = state.expect("it was stopped");
    wrong[20] ^= 1;
    let mut heard = Heard::default();
    assert!(fs.scrub(Some(&wrong), &mut heard).expect("scrub"));
    assert!(heard.bytes >= whole);
}

#[test]
fn one_scrub_at_a_time() {
    struct Second<'a>(&'a FileSystem, u32);
    impl ScrubListener for Second<'_> {
        fn has_read(&mut self, _: &Scrub, _: u64, _: Duration) -> bool {
            let refused = self.0.scrub(None, &mut Heard::default());
            let is_it = matches!(&refused, Err(FsError::Store(StoreError::Refused(why))) if why.contains("under way"));
            assert!(is_it, "{refused:?}");
            self.1 += 1;
            true
        }

        fn found(&mut self, finding: ScrubFinding) {
            panic!("{finding:?}");
        }
    }
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let mut second = Second(&fs, 0);
    assert!(fs.scrub(None, &mut second).expect("scrub"));
    assert!(second.1 > 0);
    assert_eq!(scrub(&fs).found, [], "the place is free again");
}

#[test]
fn a_superblock_that_rots_is_written_anew() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    put(&fs, "a", b"a");
    fs.checkpoint().expect("checkpoint");
    let slot = fs.superblock().slot().0 * 4096;
    let far = fs.superblock().geometry.far_copy().0 * 4096;
    let signpost = holdfast_format::geometry::SIGNPOST.0 * 4096;
    for at in [slot, far, signpost] {
        assert_eq!(scrub(&fs).found, []);
        flip(&device, at);
        let heard = scrub(&fs);
        assert_eq!(told(&heard), [(ScrubKind::Superblock, "the volume".to_owned())]);
        assert!(heard.found[0].is_mended);
    }
    assert_eq!(scrub(&fs).found, []);
}

/// A device that refuses writes to one block.
#[derive(Debug)]
struct Unwritable {
    inner: MemoryDevice,
    block: AtomicU64,
}

impl Device for Unwritable {
    forward!(inner: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let (bad, len) = (self.block.load(Ordering::Relaxed) * 4096, bytes.len() as u64);
        if bad < at + len && at < bad + 4096 && bad > 0 {
            let source = std::io::Error::other("the test wants it so");
            return Err(DeviceError::Io { call: "write", at, len, source });
        }
        self.inner.write(at, bytes)
    }
}

/// What is found is told before the error of a mend; and a mend writes over nothing that is whole, which may be all that is left.
#[test]
fn a_superblock_that_cannot_be_mended_is_told_and_stays_what_it_is() {
    let inner = new_volume(16 * MIB, 16384).snapshot();
    let device = Arc::new(Unwritable { inner, block: AtomicU64::new(0) });
    let fs = mount(&device, &quiet());
    put(&fs, "a", b"a");
    assert_eq!(scrub(&fs).found, []);
    let slot = fs.superblock().slot().0;
    flip(&device.inner, slot * 4096);
    device.block.store(slot, Ordering::Relaxed);
    for _ in 0..2 {
        let mut heard = Heard::default();
        let error = fs.scrub(None, &mut heard).expect_err("it cannot be written");
        assert!(error.to_string().contains("the test wants it so"), "{error}");
        assert_eq!(told(&heard), [(ScrubKind::Superblock, "the volume".to_owned())]);
        assert!(!heard.found[0].is_mended);
        assert_eq!(fs.stop_reason(), None);
    }
    let far = fs.superblock().geometry.far_copy().0 * 4096;
    let place = |at: u64| {
        let mut block = [0; 4096];
        device.inner.read(at, &mut block).expect("read");
        block
    };
    let older = (16 + 48 - slot) * 4096;
    let others = [place(far), place(older)];
    device.block.store(0, Ordering::Relaxed);
    let epoch = fs.superblock().epoch;
    let heard = scrub(&fs);
    assert!(heard.found[0].is_mended);
    assert_eq!(fs.superblock().epoch, epoch, "it is the same one");
    assert!([place(far), place(older)] == others, "nothing that was whole is written");
    assert_eq!(scrub(&fs).found, []);
}

/// A device that cannot read some blocks, or nothing any more.
#[derive(Debug)]
struct Unreadable {
    inner: MemoryDevice,
    block: AtomicU64,
    count: AtomicU64,
    is_gone: AtomicBool,
}

impl Unreadable {
    fn of(inner: MemoryDevice) -> Arc<Unreadable> {
        let (block, count, is_gone) = Default::default();
        Arc::new(Unreadable { inner, block, count, is_gone })
    }
}

impl Device for Unreadable {
    forward!(inner: write, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let bad = self.block.load(Ordering::Relaxed) * 4096;
        let end = bad + self.count.load(Ordering::Relaxed) * 4096;
        let len = into.len() as u64;
        if bad < at + len && at < end || self.is_gone.load(Ordering::Relaxed) {
            let source = std::io::Error::other("the test wants it so");
            return Err(DeviceError::Io { call: "read", at, len, source });
        }
        self.inner.read(at, into)
    }
}

#[test]
fn a_block_that_cannot_be_read_is_told_and_its_neighbours_are_judged() {
    let volume = new_volume(64 * MIB, 16384);
    let device = Unreadable::of(volume.snapshot());
    let fs = mount(&device, &quiet());
    let bytes = pattern(3, 64);
    put(&fs, "f", &bytes);
    assert_eq!(scrub(&fs).found, []);
    let image = device.inner.to_image();
    let place = |block: usize| {
        let of = &bytes[block * 4096..(block + 1) * 4096];
        image.chunks_exact(4096).position(|it| it == of).expect("it is there") as u64
    };
    device.block.store(place(20), Ordering::Relaxed);
    device.count.store(1, Ordering::Relaxed);
    flip(&device.inner, place(22) * 4096);
    let heard = scrub(&fs);
    let data = |what: &str| (ScrubKind::Data, what.to_owned());
    assert_eq!(
        told(&heard),
        [data("main:/f, bytes 81920 to 86015"), data("main:/f, bytes 90112 to 94207")]
    );
}

/// More in a row than a device needs to be taken for gone, if nothing else of it were read either.
#[test]
fn many_blocks_in_a_row_that_cannot_be_read_are_told() {
    let device = Unreadable::of(new_volume(64 * MIB, 16384).snapshot());
    let fs = mount(&device, &quiet());
    let bytes = pattern(3, 100);
    put(&fs, "f", &bytes);
    fs.checkpoint().expect("checkpoint");
    let image = device.inner.to_image();
    let first = image.chunks_exact(4096).position(|it| it == &bytes[10 * 4096..11 * 4096]);
    device.block.store(first.expect("it is there") as u64, Ordering::Relaxed);
    device.count.store(40, Ordering::Relaxed);
    let heard = scrub(&fs);
    let what = format!("main:/f, bytes {} to {}", 10 * 4096, 50 * 4096 - 1);
    assert_eq!(told(&heard), [(ScrubKind::Data, what)]);
}

/// A device that goes amid a scrub: nothing is told as damage, and what was verified is verified.
#[test]
fn a_device_that_has_gone_is_no_damage_and_the_scrub_goes_on_when_it_is_back() {
    struct Goes<'a> {
        device: &'a Unreadable,
        heard: Heard,
        left: u64,
    }
    impl ScrubListener for Goes<'_> {
        fn has_read(&mut self, scrub: &Scrub, bytes: u64, took: Duration) -> bool {
            self.left = self.left.saturating_sub(bytes);
            self.device.is_gone.fetch_or(self.left == 0, Ordering::Relaxed);
            self.heard.has_read(scrub, bytes, took)
        }

        fn found(&mut self, finding: ScrubFinding) {
            self.heard.found(finding);
        }

        fn is_cut_short(&mut self, scrub: &Scrub) {
            self.heard.state = scrub.to_bytes();
        }
    }
    let device = Unreadable::of(new_volume(64 * MIB, 16384).snapshot());
    let fs = mount(&device, &quiet());
    for name in 0..12 {
        put(&fs, &format!("f{name}"), &pattern(name, 256));
    }
    fs.snapshot(b"monday").expect("snapshot");
    let whole = scrub(&fs).bytes;
    for left in [1, MIB, 7 * MIB] {
        let mut goes = Goes { device: &device, heard: Heard::default(), left };
        let done = fs.scrub(None, &mut goes);
        let is_it = matches!(&done, Err(FsError::Store(StoreError::NoAnswer { .. })));
        assert!(is_it, "{left}: {done:?}");
        assert_eq!(goes.heard.found, [], "{left}");
        assert!(!goes.heard.state.is_empty(), "{left}: it can go on");
        device.is_gone.store(false, Ordering::Relaxed);
        let mut heard = Heard::default();
        assert!(fs.scrub(Some(&goes.heard.state), &mut heard).expect("scrub"));
        assert_eq!(heard.found, []);
        let sum = heard.bytes + goes.heard.bytes;
        assert!(heard.bytes + left < whole + MIB && sum < whole + 2 * MIB, "{left}: {sum}");
    }
    assert_eq!(fs.superblock().fault, None, "nothing was found");
    put(&fs, "later", b"it goes on");
}

/// What is in the rings when a scrub begins.
#[test]
fn what_rots_in_journal_and_log_is_told_and_needed_no_more() {
    let device = new_volume(64 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let ring = fs.superblock().geometry.log();
    put(&fs, "committed", b"small");
    fs.commit().expect("commit");
    put(&fs, "logged", b"small");
    put(&fs, "logged too", b"small");
    for (magic, kind, name) in
        [(b"hfJf", ScrubKind::Journal, "the journal"), (b"hfLb", ScrubKind::Log, "the log")]
    {
        let image = device.to_image();
        put(&fs, name, b"small");
        if kind == ScrubKind::Journal {
            fs.commit().expect("commit");
        }
        let now = device.to_image();
        let start = ring.start.0 * 4096;
        let sectors = (start..).step_by(512).zip(now[start as usize..].chunks_exact(512));
        let is_new = |at: u64, it: &[u8]| it != &image[at as usize..][..512];
        let new = sectors.filter(|(at, it)| it.starts_with(magic) && is_new(*at, it));
        let at = new.map(|(at, _)| at).next().expect("it was written");
        flip(&device, at);
        let heard = scrub(&fs);
        let [finding] = &heard.found[..] else { panic!("{name}: {:?}", heard.found) };
        assert_eq!((finding.kind, finding.is_mended), (kind, true), "{finding:?}");
        assert_eq!(finding.block.map(|block| block.0), Some(at / 4096), "{finding:?}");
        assert_eq!(finding.bytes.as_ref().map(|bytes| bytes.start), Some(at), "{finding:?}");
        let what = finding.what();
        assert!(what.starts_with(&format!("{name}, bytes {at} to ")), "{what}");
        assert_eq!(scrub(&fs).found, [], "{name}");
    }
    assert_eq!(fs.superblock().fault, None, "nothing is lost");
    let left = Arc::new(device.snapshot());
    drop(fs);
    let fs = mount(&left, &quiet());
    for name in ["committed", "logged", "logged too", "the journal", "the log"] {
        fs.lookup(&Caller::root(), InodeNo::ROOT, name.as_bytes()).expect(name);
    }
}

/// Between any two reads of the scrub the volume changes: files go, others get their blocks, nodes move, and what is free is
/// used again at once.
#[test]
fn what_is_freed_and_used_again_between_two_reads_is_no_damage() {
    struct Beside<'a> {
        fs: &'a FileSystem,
        round: u32,
        found: Vec<ScrubFinding>,
    }
    impl ScrubListener for Beside<'_> {
        fn has_read(&mut self, _: &Scrub, _: u64, _: Duration) -> bool {
            self.round += 1;
            let fs = self.fs;
            let name = format!("f{}", self.round * 7 % 40);
            let _ = fs.unlink(&Caller::root(), InodeNo::ROOT, name.as_bytes());
            for _ in 0..2 {
                fs.checkpoint().expect("checkpoint");
            }
            put(fs, &name, &pattern(self.round, 40));
            if self.round.is_multiple_of(9) {
                let _ = fs.delete_branch(b"try");
                let _ = fs.delete_snapshot(b"main", b"s");
                let _ = fs.snapshot(b"s");
                let _ = fs.fork(b"try", Some(b"s"));
            }
            if self.round.is_multiple_of(31) {
                let _ = fs.promote(b"main", b"try", None, false);
                let _ = fs.finish_deletions();
            }
            fs.checkpoint().expect("checkpoint");
            true
        }

        fn found(&mut self, finding: ScrubFinding) {
            self.found.push(finding);
        }
    }
    let device = new_volume(16 * MIB, 4096);
    let fs = mount(&device, &quiet());
    for name in 0..40 {
        put(&fs, &format!("f{name}"), &pattern(name, 40));
    }
    for _ in 0..4 {
        let mut beside = Beside { fs: &fs, round: 0, found: Vec::new() };
        assert!(fs.scrub(None, &mut beside).expect("scrub"));
        assert_eq!(beside.found, []);
        assert!(beside.round > 10);
    }
    assert!(fs.counters().scrub_restarts.get() > 0, "it did meet what had moved");
}

#[test]
fn a_scrub_beside_threads_that_write_and_remove_reports_nothing() {
    let device = new_volume(32 * MIB, 4096);
    let options = MountOptions { commit_secs: 1, ..MountOptions::default() };
    let fs = &mount(&device, &options);
    let seed = seed();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            scope.spawn(move || {
                let mut round = seed as u32;
                while !is_over.load(Ordering::Relaxed) {
                    round = round.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let name = format!("t{thread}-{}", round >> 16 & 31);
                    let _ = fs.unlink(&Caller::root(), InodeNo::ROOT, name.as_bytes());
                    put(fs, &name, &pattern(round, 1 + (round >> 8 & 31)));
                    if round >> 20 & 15 == 0 {
                        fs.checkpoint().expect("checkpoint");
                    }
                    if thread == 0 && round >> 12 & 15 == 0 {
                        let _ = fs.delete_snapshot(b"main", b"s");
                        let _ = fs.snapshot(b"s");
                    }
                }
            });
        }
        for _ in 0..40 {
            let mut heard = Heard::default();
            let done = fs.scrub(None, &mut heard);
            if !matches!(done, Ok(true)) || !heard.found.is_empty() {
                is_over.store(true, Ordering::Relaxed);
                panic!("HOLDFAST_SEED={seed}: {done:?}: {:?}", heard.found);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Each place of each node is read, and one that is bad is written again from the other.
#[test]
fn bad_places_of_nodes_are_mended_whichever_they_are() {
    let device = new_volume_with(64 * MIB, 16384, 2);
    let fs = mount(&device, &quiet());
    for number in 0..400 {
        put(&fs, &format!("{number}"), &pattern(number, 1)[..900]);
    }
    fs.snapshot(b"monday").expect("snapshot");
    for number in 0..40 {
        put(&fs, &format!("new-{number}"), b"x");
    }
    fs.sync().expect("sync");
    assert_eq!(scrub(&fs).found, []);
    let sound = device.to_image();
    let mut reported = None;
    for which in 0..3 {
        let is_node = |node: &[u8]| node.starts_with(b"hfNd");
        let nodes = sound.chunks_exact(16384).zip(0u64..).filter(|(it, _)| is_node(it));
        let mut hit = 0;
        for (node, index) in nodes {
            let address = u64::from_le_bytes(node[16..24].try_into().expect("8 bytes"));
            let is_first = address == index * 4;
            // The first places, the second ones, some of either.
            if [is_first, !is_first, is_first == (address % 8 == 0)][which] {
                flip(&device, index * 16384);
                hit += 1;
            }
        }
        let heard = scrub(&fs);
        assert!(heard.found.len() > 20 && hit >= heard.found.len(), "{which}: {hit}");
        let is_mended = |of: &ScrubFinding| of.is_mended && of.kind == ScrubKind::Node;
        assert!(heard.found.iter().all(is_mended), "{which}: {:#?}", heard.found);
        reported = heard.found.last().and_then(|of| of.block).map(|block| block.0);
        let count = heard.found.len() as u64;
        assert!(fs.counters().copies_mended.get() >= count, "{which}");
        assert_eq!(scrub(&fs).found, [], "{which}");
    }
    // A reader tells of them, and leaves them.
    assert_eq!(fs.superblock().fault, None, "nothing is lost");
    fs.unmount().expect("unmount");
    flip(&device, reported.expect("a node of a tree") * 4096);
    let before = device.to_image();
    let fs = mount(&device, &MountOptions { read_only: true, ..quiet() });
    let heard = scrub(&fs);
    assert!(!heard.found.is_empty(), "the bad place is found");
    assert!(heard.found.iter().all(|of| !of.is_mended && of.kind == ScrubKind::Node));
    drop(fs);
    assert!(device.to_image() == before, "a reader has written");
}
