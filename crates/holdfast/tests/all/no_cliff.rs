//! No cliff: whatever was done between two fsyncs, the second one costs the bytes of its own records and
//! no more than a constant beside them, with one flush, and nothing escapes to a commit.
//!
//! Each operation runs in a directory of its own: right after a commit, and behind a long history that
//! only the log holds. Then all of them run one after the other in random orders, without a commit. The
//! second half makes the escapes happen, on purpose: they are counted, and durable all the same.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use holdfast::device::{Device, DeviceError, MemoryDevice};
use holdfast::{
    Batching, CreateOptions, Dir, File, FileTimes, FileType, LogFallback, OpenOptions, Permissions,
    RenameFlags, Volume, VolumeOptions, XattrFlags,
};
use holdfast_base::prng::Prng;
use holdfast_device::sim::Policy;
use holdfast_device::{SimDevice, forward};

/// Bytes that an fsync may write beside what its operation brought in (names, values, data, and eight
/// bytes of checksum for each block of data): the header of a batch, a few inodes and keys, and what is
/// missing to a whole sector.
const CONSTANT: u64 = 1024;

/// What is to be synced after an operation.
enum Sync {
    File(File),
    Dir,
    Inside(&'static str),
    /// The operation was synchronous.
    Nothing,
}

/// An operation between two fsyncs.
struct Operation {
    name: &'static str,
    /// Bytes that it brings in.
    own: u64,
    prepare: fn(&Dir),
    act: fn(&Dir) -> Sync,
}

fn op(name: &'static str, own: u64, prepare: fn(&Dir), act: fn(&Dir) -> Sync) -> Operation {
    Operation { name, own, prepare, act }
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::seeded(seed).fill(&mut bytes);
    bytes
}

/// Bytes of `len` bytes of data with their checksums.
const fn data(len: u64) -> u64 {
    len + len.div_ceil(4096) * 8
}

fn nothing(_: &Dir) {}

/// A new file `f` with so many bytes.
fn file(dir: &Dir, len: usize) -> File {
    let file = dir.create("f").unwrap();
    file.write_all_at(&bytes(len, 1), 0).unwrap();
    file
}

fn small(dir: &Dir) {
    file(dir, 100);
}

fn blocks(dir: &Dir) {
    file(dir, 100_000);
}

/// A file of 64 pieces that do not lie side by side.
fn pieces(dir: &Dir) {
    let file = file(dir, 0);
    (0..64).for_each(|piece| file.write_all_at(&bytes(4096, piece), piece * 8192).unwrap());
}

fn two(dir: &Dir) {
    small(dir);
    dir.write("g", bytes(5000, 2)).unwrap();
}

fn linked(dir: &Dir) {
    small(dir);
    dir.hard_link("f", "h").unwrap();
}

fn dirs(dir: &Dir) {
    dir.create_dir("d").unwrap();
    dir.create_dir("e").unwrap();
    dir.write("d/inside", b"x").unwrap();
}

fn writable(dir: &Dir) -> File {
    OpenOptions::new().read(true).write(true).open(dir, "f").unwrap()
}

fn on_file(dir: &Dir, act: impl FnOnce(&File)) -> Sync {
    let file = writable(dir);
    act(&file);
    Sync::File(file)
}

fn write(dir: &Dir, len: usize, at: u64) -> Sync {
    on_file(dir, |file| file.write_all_at(&bytes(len, 3), at).unwrap())
}

fn rename(dir: &Dir, from: &str, to: &str, flags: RenameFlags) -> Sync {
    dir.rename_with(from, dir, to, flags).unwrap();
    Sync::Dir
}

fn names() -> Vec<Operation> {
    vec![
        op("create", 10, nothing, |dir| Sync::File(dir.create("f").unwrap())),
        op("mkdir", 10, nothing, |dir| {
            dir.create_dir("d").unwrap();
            Sync::Dir
        }),
        op("mknod fifo", 10, nothing, |dir| {
            dir.create_node("p", FileType::Fifo, 0o644, 0).unwrap();
            Sync::Dir
        }),
        op("mknod device", 10, nothing, |dir| {
            dir.create_node("c", FileType::CharDevice, 0o644, 259).unwrap();
            Sync::Dir
        }),
        op("symlink", 10, nothing, |dir| {
            dir.symlink("over/there", "l").unwrap();
            Sync::Dir
        }),
        op("long symlink", 4000, nothing, |dir| {
            dir.symlink("t".repeat(4000), "l").unwrap();
            Sync::Dir
        }),
        op("long name", 255, nothing, |dir| Sync::File(dir.create("n".repeat(255)).unwrap())),
        op("link", 10, two, |dir| {
            dir.hard_link("f", "h").unwrap();
            Sync::Dir
        }),
        op("unlink", 0, two, |dir| {
            dir.remove_file("g").unwrap();
            Sync::Dir
        }),
        op("unlink of one of two names", 0, linked, |dir| {
            dir.remove_file("h").unwrap();
            Sync::Dir
        }),
        op("unlink of a file of pieces", 64 * 20, pieces, |dir| {
            dir.remove_file("f").unwrap();
            Sync::Dir
        }),
        op("unlink of an open file", 0, blocks, |dir| {
            let file = writable(dir);
            dir.remove_file("f").unwrap();
            Sync::File(file)
        }),
        op("rmdir", 0, dirs, |dir| {
            dir.remove_dir("e").unwrap();
            Sync::Dir
        }),
        op("rename", 10, two, |dir| rename(dir, "f", "h", RenameFlags::empty())),
        op("rename to another directory", 10, dirs, |dir| {
            dir.rename("d/inside", "e/outside").unwrap();
            Sync::Inside("e")
        }),
        op("rename over", 10, two, |dir| rename(dir, "g", "f", RenameFlags::empty())),
        op("rename of new data over", data(4096), small, |dir| {
            dir.write("g", bytes(3000, 5)).unwrap();
            rename(dir, "g", "f", RenameFlags::empty())
        }),
        op("rename of much new data over", data(1 << 20), small, |dir| {
            dir.write("g", bytes(1 << 20, 5)).unwrap();
            rename(dir, "g", "f", RenameFlags::empty())
        }),
        op("rename noreplace", 10, two, |dir| rename(dir, "f", "h", RenameFlags::NOREPLACE)),
        op("rename exchange", 10, two, |dir| rename(dir, "f", "g", RenameFlags::EXCHANGE)),
        op("rename whiteout", 10, two, |dir| rename(dir, "f", "h", RenameFlags::WHITEOUT)),
        op("rename whiteout over", 10, two, |dir| rename(dir, "f", "g", RenameFlags::WHITEOUT)),
        op("rename of a directory", 10, dirs, |dir| rename(dir, "d", "h", RenameFlags::empty())),
        op("rename of a directory over", 10, dirs, |dir| {
            rename(dir, "d", "e", RenameFlags::empty())
        }),
        op("rename of a directory into another", 10, dirs, |dir| {
            rename(dir, "d", "e/d", RenameFlags::empty())
        }),
        op("rename exchange of directories", 10, dirs, |dir| {
            rename(dir, "d", "e", RenameFlags::EXCHANGE)
        }),
        op("tmpfile", 0, nothing, |dir| {
            let how = OpenOptions::new().read(true).write(true);
            Sync::File(how.tmpfile(dir, ".").unwrap())
        }),
        op("tmpfile with data and a name", data(8192), nothing, |dir| {
            let file = OpenOptions::new().read(true).write(true).tmpfile(dir, ".").unwrap();
            file.write_all_at(&bytes(5000, 1), 0).unwrap();
            dir.link_file(&file, "t").unwrap();
            Sync::File(file)
        }),
    ]
}

fn contents() -> Vec<Operation> {
    vec![
        op("write into an empty file", 100, |dir| drop(file(dir, 0)), |dir| write(dir, 100, 0)),
        op("write that leaves the inode", data(4096), small, |dir| write(dir, 3000, 100)),
        op("append", 100, blocks, |dir| write(dir, 100, 100_000)),
        op("append of 4 KiB", data(4096), blocks, |dir| write(dir, 4096, 100_000)),
        op("append of 64 KiB", data(68 << 10), blocks, |dir| write(dir, 64 << 10, 100_000)),
        op("append of 1 MiB", data(1028 << 10), blocks, |dir| write(dir, 1 << 20, 100_000)),
        op("overwrite of 10 bytes", 10 + 25 * 8, blocks, |dir| write(dir, 10, 30_000)),
        op("overwrite of 10 bytes over two blocks", 10 + 25 * 8, blocks, |dir| {
            write(dir, 10, 32_763)
        }),
        op("overwrite of a block", data(4096) + 25 * 8, blocks, |dir| write(dir, 4096, 8192)),
        op("overwrite of all", data(100 << 10), blocks, |dir| write(dir, 100_000, 0)),
        op("overwrite of all pieces", data(512 << 10) + 64 * 40, pieces, |dir| {
            write(dir, 512 << 10, 0)
        }),
        op("write behind a hole", 100, blocks, |dir| write(dir, 100, 1 << 40)),
        op("truncate to more", 0, blocks, |dir| on_file(dir, |f| f.set_len(1 << 40).unwrap())),
        op("truncate into a block", 0, blocks, |dir| on_file(dir, |f| f.set_len(50_001).unwrap())),
        op("truncate at a block", 0, blocks, |dir| on_file(dir, |f| f.set_len(8192).unwrap())),
        op("truncate to nothing", 0, pieces, |dir| on_file(dir, |f| f.set_len(0).unwrap())),
        op("allocate behind what the inode holds", data(4096), small, |dir| {
            on_file(dir, |f| f.allocate(0, 1 << 20).unwrap())
        }),
        op("allocate between pieces", 64 * 30, pieces, |dir| {
            on_file(dir, |f| f.allocate(0, 1 << 20).unwrap())
        }),
        op("allocate and keep the size", 0, blocks, |dir| {
            on_file(dir, |f| f.allocate_keep_size(1 << 20, 1 << 20).unwrap())
        }),
        op(
            "write into allocated space",
            data(8192),
            |dir| {
                file(dir, 0).allocate(0, 1 << 20).unwrap();
            },
            |dir| write(dir, 5000, 10_000),
        ),
        op("punch", 0, blocks, |dir| on_file(dir, |f| f.punch_hole(8192, 8192).unwrap())),
        op("punch with edges", data(8192), blocks, |dir| {
            on_file(dir, |f| f.punch_hole(5000, 30_000).unwrap())
        }),
        op("punch of pieces", 64 * 20, pieces, |dir| {
            on_file(dir, |f| f.punch_hole(0, 1 << 20).unwrap())
        }),
        op("zero", 0, blocks, |dir| on_file(dir, |f| f.zero_range(8192, 8192).unwrap())),
        op("zero with edges", data(8192), blocks, |dir| {
            on_file(dir, |f| f.zero_range(5000, 30_000).unwrap())
        }),
        op("zero behind the end", 0, blocks, |dir| {
            on_file(dir, |f| f.zero_range(100_000, 1 << 20).unwrap())
        }),
        op("synchronous write", 100, blocks, |dir| {
            let file = OpenOptions::new().write(true).sync(true).open(dir, "f").unwrap();
            file.write_all_at(&bytes(100, 4), 100_000).unwrap();
            Sync::Nothing
        }),
        op("synchronous data", data(4096), blocks, |dir| {
            let file = OpenOptions::new().write(true).dsync(true).open(dir, "f").unwrap();
            file.write_all_at(&bytes(4096, 4), 0).unwrap();
            Sync::Nothing
        }),
    ]
}

fn attributes() -> Vec<Operation> {
    fn set(dir: &Dir, name: &str, len: usize) {
        dir.set_xattr("f", name, &bytes(len, 6), XattrFlags::empty()).unwrap();
    }
    vec![
        op("chmod", 0, small, |dir| {
            on_file(dir, |f| f.set_permissions(Permissions::from_mode(0o4711)).unwrap())
        }),
        op("chown", 0, small, |dir| {
            dir.chown("f", Some(5), Some(6)).unwrap();
            Sync::File(writable(dir))
        }),
        op("utimens", 0, small, |dir| {
            let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
            on_file(dir, |f| f.set_times(FileTimes::new().set_modified(then)).unwrap())
        }),
        op("chmod of a directory", 0, dirs, |dir| {
            dir.set_permissions("d", Permissions::from_mode(0o700)).unwrap();
            Sync::Inside("d")
        }),
        op("setxattr", 32, small, |dir| {
            set(dir, "user.a", 20);
            Sync::File(writable(dir))
        }),
        op("setxattr of 64 KiB", 65_600, small, |dir| {
            set(dir, "user.a", 65_536);
            Sync::File(writable(dir))
        }),
        op(
            "setxattr of 64 KiB over another",
            65_600 + 17 * 10,
            |dir| {
                small(dir);
                set(dir, "user.a", 65_000);
            },
            |dir| {
                set(dir, "user.a", 65_536);
                Sync::File(writable(dir))
            },
        ),
        op(
            "removexattr",
            0,
            |dir| {
                small(dir);
                set(dir, "user.a", 20);
            },
            |dir| {
                dir.remove_xattr("f", "user.a").unwrap();
                Sync::File(writable(dir))
            },
        ),
        op(
            "removexattr of 64 KiB",
            17 * 10,
            |dir| {
                small(dir);
                set(dir, "user.a", 65_536);
            },
            |dir| {
                dir.remove_xattr("f", "user.a").unwrap();
                Sync::File(writable(dir))
            },
        ),
    ]
}

fn all() -> Vec<Operation> {
    names().into_iter().chain(contents()).chain(attributes()).collect()
}

fn volume(bytes: u64, options: VolumeOptions) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(bytes));
    CreateOptions::new().format(&(device.clone() as Arc<dyn Device>)).unwrap();
    let volume = options.commit_secs(0).open_device(device.clone()).unwrap();
    (device, volume)
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let all = volume.counters().unwrap();
    all.iter().find(|reading| reading.name == name).unwrap().value
}

/// Does `operation` in `dir`, where it is prepared. Gives what is wrong with its price.
fn price(
    device: &MemoryDevice,
    volume: &Volume,
    dir: &Dir,
    operation: &Operation,
    constant: u64,
) -> Option<String> {
    let commits = counter(volume, "commits");
    let before = device.stats();
    match (operation.act)(dir) {
        Sync::File(file) => file.sync_all().unwrap(),
        Sync::Dir => dir.sync_all().unwrap(),
        Sync::Inside(name) => dir.open_dir(name).unwrap().sync_all().unwrap(),
        Sync::Nothing => {}
    }
    let after = device.stats();
    let bytes = after.written_bytes - before.written_bytes;
    let flushes = after.flushes - before.flushes;
    for name in ["log_full", "log_too_large", "journal_full"] {
        assert_eq!(counter(volume, name), 0, "{}: {name}", operation.name);
    }
    let name = operation.name;
    assert_eq!(counter(volume, "commits"), commits, "{name}: a commit came between");
    let beside = bytes.saturating_sub(operation.own);
    let dear = beside > constant || flushes != 1;
    dear.then(|| {
        format!("{name}: {beside} bytes beside its own {}, {flushes} flushes", operation.own)
    })
}

fn prepare(volume: &Volume, number: usize, operation: &Operation) -> Dir {
    let path = format!("/dir-{number}");
    volume.create_dir(&path).unwrap();
    let dir = volume.open_dir(&path).unwrap();
    (operation.prepare)(&dir);
    dir
}

#[test]
fn right_after_a_commit() {
    let (device, volume) = volume(256 << 20, VolumeOptions::new());
    let mut dear = Vec::new();
    for (number, operation) in all().iter().enumerate() {
        let dir = prepare(&volume, number, operation);
        volume.commit().unwrap();
        dear.extend(price(&device, &volume, &dir, operation, CONSTANT));
    }
    assert!(dear.is_empty(), "{}", dear.join("\n"));
}

/// Fsyncs of many files, in the same directory as well, that no commit has: what an fsync costs does not
/// depend on what the log holds.
#[test]
fn behind_a_long_history_that_only_the_log_holds() {
    let mut dear = Vec::new();
    let whole_blocks = 2 * 4096;
    for (options, constant) in [
        (VolumeOptions::new(), CONSTANT),
        (VolumeOptions::new().inode_cache(0).batching(Batching::Scan), CONSTANT),
        (VolumeOptions::new().log_data_bytes(0), CONSTANT + whole_blocks),
    ] {
        let (device, volume) = volume(1 << 30, options);
        for (number, operation) in all().iter().enumerate() {
            let dir = prepare(&volume, number, operation);
            for sibling in 0..20 {
                dir.create(format!("sibling-{sibling}")).unwrap().sync_all().unwrap();
            }
            volume.sync().unwrap();
            dear.extend(price(&device, &volume, &dir, operation, constant));
        }
    }
    assert!(dear.is_empty(), "{}", dear.join("\n"));
}

#[test]
fn in_random_orders_without_a_commit() {
    let seed = 20_260_101;
    println!("seed {seed}");
    let mut prng = Prng::seeded(seed);
    let (device, volume) = volume(1 << 30, VolumeOptions::new());
    let mut dear = Vec::new();
    let mut number = 0;
    for _ in 0..3 {
        let mut operations = all();
        prng.shuffle(&mut operations);
        let prepared: Vec<Dir> = operations
            .iter()
            .map(|operation| {
                number += 1;
                prepare(&volume, number, operation)
            })
            .collect();
        volume.sync().unwrap();
        for (dir, operation) in prepared.iter().zip(&operations) {
            dear.extend(price(&device, &volume, dir, operation, CONSTANT));
        }
    }
    assert!(dear.is_empty(), "{}", dear.join("\n"));
}

/// A device on which writes into one zone wait for a gate.
#[derive(Debug)]
struct Gate {
    under: SimDevice,
    zone: Mutex<Range<u64>>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, zone: Range<u64>) {
        *self.zone.lock().unwrap() = zone;
    }

    fn open(&self) {
        self.shut(0..0);
        self.opened.notify_all();
    }
}

impl Device for Gate {
    forward!(under: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let zone = self.zone.lock().unwrap();
        drop(self.opened.wait_while(zone, |zone| zone.contains(&at)).unwrap());
        self.under.write(at, bytes)
    }
}

/// A volume with the smallest log ring: 256 KiB.
fn gated() -> (Arc<Gate>, Volume) {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    CreateOptions::new().format(&(device.clone() as Arc<dyn Device>)).unwrap();
    let under = SimDevice::new(&device);
    let gate = Arc::new(Gate { under, zone: Mutex::new(0..0), opened: Condvar::new() });
    let volume = VolumeOptions::new().commit_secs(0).open_device(gate.clone()).unwrap();
    (gate, volume)
}

/// What is found if power fails now, and takes everything that no flush has covered.
fn after_a_power_cut(gate: &Gate) -> Volume {
    let cut = gate.under.cut();
    let image = cut.images(&Policy::whole_only()).next().unwrap().device();
    VolumeOptions::new().commit_secs(0).open_device(Arc::new(image)).unwrap()
}

/// Where the journal of such a volume lies.
fn journal_bytes(volume: &Volume) -> std::ops::Range<u64> {
    let geometry = volume.engine().unwrap().superblock().geometry;
    let journal = geometry.journal();
    journal.start.0 * 4096..(journal.start.0 + journal.count) * 4096
}

/// Commits hang: fsyncs go on until the ring is really full. That one waits for the commit, is counted, says so, and is
/// durable when it returns.
#[test]
fn a_full_log_is_counted_and_durable() {
    let (gate, volume) = gated();
    let file = volume.create("/f").unwrap();
    file.sync_all().unwrap();
    gate.shut(journal_bytes(&volume));
    let (logged, receipt) = std::thread::scope(|scope| {
        let commit = scope.spawn(|| volume.commit());
        let fsyncs = scope.spawn(|| {
            for round in 0.. {
                file.write_all_at(&bytes(4096, round), round * 4096).unwrap();
                let receipt = file.sync_all_with_receipt().unwrap();
                if receipt.fallback.is_some() {
                    return (round, receipt);
                }
                assert_eq!((receipt.log_writes.min(1), receipt.flushes), (1, 1));
            }
            unreachable!("the ring is full some time");
        });
        while counter(&volume, "log_full") == 0 {
            assert!(!fsyncs.is_finished(), "it returned before anything was durable");
            std::thread::yield_now();
        }
        gate.open();
        commit.join().unwrap().unwrap();
        fsyncs.join().unwrap()
    });
    assert_eq!(receipt.fallback, Some(LogFallback::LogFull));
    assert!(logged >= 50, "only {logged} batches of 4.5 KiB found room in 256 KiB");
    assert_eq!((counter(&volume, "log_full"), counter(&volume, "log_too_large")), (1, 0));
    let found = after_a_power_cut(&gate).read("/f").unwrap();
    let written: Vec<u8> = (0..=logged).flat_map(|round| bytes(4096, round)).collect();
    assert!(found == written, "{} bytes of {}", found.len(), written.len());
    // The commit has made room: the next one costs what it always does.
    file.write_all_at(b"more", 0).unwrap();
    let receipt = file.sync_all_with_receipt().unwrap();
    assert_eq!((receipt.fallback, receipt.flushes), (None, 1));
    assert!(receipt.log_bytes <= CONSTANT, "{receipt:?}");
}

/// More is pending than fits behind what the log holds: no batch is written in part.
#[test]
fn more_pending_than_the_log_has_room_for_is_counted_and_durable() {
    let (gate, volume) = gated();
    volume.create("/f").unwrap();
    volume.commit().unwrap();
    // No commit of the background makes room meanwhile.
    gate.shut(journal_bytes(&volume));
    let value = |seed| bytes(60_000, seed);
    for attribute in ["user.a", "user.b"] {
        volume.set_xattr("/f", attribute, &value(1), XattrFlags::empty()).unwrap();
        volume.sync().unwrap();
        assert_eq!(counter(&volume, "log_full"), 0);
    }
    for attribute in ["user.c", "user.d", "user.e"] {
        volume.set_xattr("/f", attribute, &value(2), XattrFlags::empty()).unwrap();
    }
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| volume.sync());
        while counter(&volume, "log_full") == 0 {
            assert!(!sync.is_finished(), "it returned before anything was durable");
            std::thread::yield_now();
        }
        gate.open();
        sync.join().unwrap().unwrap();
    });
    assert_eq!(counter(&volume, "log_full"), 1);
    let found = after_a_power_cut(&gate);
    for (attribute, seed) in [("user.a", 1), ("user.b", 1), ("user.c", 2), ("user.e", 2)] {
        assert!(found.xattr("/f", attribute).unwrap() == value(seed), "{attribute}");
    }
}
