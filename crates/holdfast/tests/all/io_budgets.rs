//! What an fsync may cost, counted at the device: bytes, writes and flushes per operation, on disks of 512n, of 4Kn,
//! and of 512e: those have logical sectors of 512 bytes and physical ones of 4,096.
//!
//! The volume holds 20,000 files and one of 64 MiB, and no background commit disturbs the
//! counts. The budgets are maxima of the mean; flushes must be exact. `--nocapture` prints the table,
//! with what the commit that follows adds to each operation: log-resident data goes to its
//! location, and the journal gets the nodes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use holdfast::device::{Device, DeviceError, MemoryDevice};
use holdfast::{
    CreateOptions, Dir, File, OpenOptions, Permissions, Volume, VolumeOptions, XattrFlags,
};
use holdfast_base::prng::Prng;
use holdfast_device::Flushed;
use holdfast_device::forward;

const BYTES: u64 = 1 << 30;
const FILES: u64 = 10_000;
const LARGE: u64 = 64 << 20;

/// What a row is called, what it may cost per operation, and one operation.
struct Row {
    name: &'static str,
    /// KiB, on physical sectors of 512 and of 4,096 bytes.
    kib: [f64; 2],
    flushes: u64,
    work: Box<dyn FnMut(u64)>,
    ops: u64,
}

/// What it cost, per operation.
struct Cost {
    kib: f64,
    writes: f64,
    flushes: f64,
    /// Added by the commit that follows: data at its location, and bytes of the journal.
    home_kib: f64,
    journal_kib: f64,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { kib, writes, flushes, home_kib, journal_kib } = self;
        write!(f, "{kib:8.2} {writes:7.2} {flushes:7.2} | {home_kib:8.2} {journal_kib:8.2}")
    }
}

fn open(device: Arc<MemoryDevice>) -> Volume {
    VolumeOptions::new().commit_secs(0).open_device(device).unwrap()
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prng::seeded(seed).fill(&mut bytes);
    bytes
}

fn name(number: u64) -> String {
    format!("file-{number:05}")
}

/// A volume that was closed, with two directories of 10,000 files each and a large file.
fn prepared(sector: u32, physical: u32) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::with_sector_sizes(BYTES, sector, physical));
    CreateOptions::new().format(&(device.clone() as Arc<dyn Device>)).unwrap();
    let volume = open(device.clone());
    for dir in ["/a", "/b"] {
        volume.create_dir(dir).unwrap();
        let dir = volume.open_dir(dir).unwrap();
        for number in 0..FILES {
            dir.create(name(number)).unwrap().write_all_at(b"some bytes", 0).unwrap();
        }
    }
    let part = bytes(1 << 20, 1);
    let large = volume.create("/large").unwrap();
    (0..LARGE).step_by(part.len()).for_each(|at| large.write_all_at(&part, at).unwrap());
    volume.create("/log").unwrap().write_all_at(&part[..10_000], 0).unwrap();
    drop(large);
    volume.close().unwrap();
    device.snapshot()
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let all = volume.counters().unwrap();
    all.iter().find(|reading| reading.name == name).unwrap().value
}

/// Nothing made an fsync wait for more than its batch.
fn no_escape(volume: &Volume) {
    for name in ["log_full", "log_too_large", "journal_full"] {
        assert_eq!(counter(volume, name), 0, "{name}");
    }
}

/// Runs a row on a copy of `base`.
fn run(base: &MemoryDevice, prepare: &dyn Fn(&Volume) -> Row) -> (Row, Cost) {
    let device = Arc::new(base.snapshot());
    let volume = open(device.clone());
    let mut row = prepare(&volume);
    volume.commit().unwrap();
    let (before, commits) = (device.stats(), counter(&volume, "commits"));
    (0..row.ops).for_each(|op| (row.work)(op));
    let after = device.stats();
    assert_eq!(counter(&volume, "commits"), commits, "{}: nobody commits meanwhile", row.name);
    let data = counter(&volume, "data_bytes_written");
    let journal = counter(&volume, "journal_bytes_written");
    volume.commit().unwrap();
    no_escape(&volume);
    let each = |count: u64| count as f64 / row.ops as f64;
    let kib = |bytes: u64| each(bytes) / 1024.0;
    let cost = Cost {
        kib: kib(after.written_bytes - before.written_bytes),
        writes: each(after.writes - before.writes),
        flushes: each(after.flushes - before.flushes),
        home_kib: kib(counter(&volume, "data_bytes_written") - data),
        journal_kib: kib(counter(&volume, "journal_bytes_written") - journal),
    };
    (row, cost)
}

/// A way to make a row on an open volume.
type Prepare = Box<dyn Fn(&Volume) -> Row>;

fn row(
    name: &'static str,
    kib: [f64; 2],
    flushes: u64,
    work: impl Fn(&Volume) -> Box<dyn FnMut(u64)> + 'static,
) -> Prepare {
    Box::new(move |volume| Row { name, kib, flushes, work: work(volume), ops: 300 })
}

fn writable(volume: &Volume, path: &str) -> File {
    OpenOptions::new().read(true).write(true).open(volume, path).unwrap()
}

fn dir(volume: &Volume) -> Dir {
    volume.open_dir("/a").unwrap()
}

/// A file of the directory, another one for each operation.
fn one(op: u64) -> String {
    name(op * 7919 % FILES)
}

fn writes() -> Vec<Prepare> {
    let append = |len: usize, path: &'static str| {
        move |volume: &Volume| -> Box<dyn FnMut(u64)> {
            let file = writable(volume, path);
            Box::new(move |op| {
                let end = file.metadata().unwrap().len();
                file.write_all_at(&bytes(len, op), end).unwrap();
                file.sync_all().unwrap();
            })
        }
    };
    let overwrite = |data_only: bool| {
        move |volume: &Volume| -> Box<dyn FnMut(u64)> {
            let file = writable(volume, "/large");
            let mut prng = Prng::seeded(7);
            Box::new(move |op| {
                let at = prng.below(LARGE / 4096) * 4096;
                file.write_all_at(&bytes(4096, op), at).unwrap();
                if data_only { file.sync_data().unwrap() } else { file.sync_all().unwrap() }
            })
        }
    };
    vec![
        row("append 4 KiB + fsync", [5.0, 8.0], 1, append(4096, "/large")),
        row("append 12,360 B + fsync", [13.0, 20.0], 1, append(12_360, "/large")),
        row("append 100 B + fsync", [1.0, 4.0], 1, append(100, "/log")),
        row("append 100 B to a small file + fsync", [1.0, 4.0], 1, append(100, "/a/file-00007")),
        row("overwrite 4 KiB + fsync", [5.0, 8.0], 1, overwrite(false)),
        row("overwrite 4 KiB + fdatasync", [5.0, 8.0], 1, overwrite(true)),
    ]
}

fn files() -> Vec<Prepare> {
    vec![
        row("create 4 KiB + fsync + fsync(dir)", [5.5, 8.0], 1, |volume| {
            let dir = dir(volume);
            Box::new(move |op| {
                let file = dir.create(format!("new-{op}")).unwrap();
                file.write_all_at(&bytes(4096, op), 0).unwrap();
                file.sync_all().unwrap();
                dir.sync_all().unwrap();
            })
        }),
        row("create empty + fsync", [1.0, 4.0], 1, |volume| {
            let dir = dir(volume);
            Box::new(move |op| dir.create(format!("new-{op}")).unwrap().sync_all().unwrap())
        }),
        row("atomic replace of 4 KiB", [6.0, 12.0], 2, |volume| {
            let dir = dir(volume);
            Box::new(move |op| {
                let file = dir.create("temporary").unwrap();
                file.write_all_at(&bytes(4096, op), 0).unwrap();
                file.sync_all().unwrap();
                dir.rename("temporary", one(op)).unwrap();
                dir.sync_all().unwrap();
            })
        }),
        row("atomic replace of the same file", [6.0, 12.0], 2, |volume| {
            let dir = dir(volume);
            Box::new(move |op| {
                let file = dir.create("temporary").unwrap();
                file.write_all_at(&bytes(4096, op), 0).unwrap();
                file.sync_all().unwrap();
                dir.rename("temporary", "target").unwrap();
                dir.sync_all().unwrap();
            })
        }),
        row("clean fsync", [0.0, 0.0], 0, |volume| {
            let (file, dir) = (writable(volume, "/large"), dir(volume));
            Box::new(move |_| {
                file.sync_all().unwrap();
                file.sync_data().unwrap();
                dir.sync_all().unwrap();
            })
        }),
    ]
}

fn names() -> Vec<Prepare> {
    let small = |name, work: fn(&Dir, &Dir, u64)| {
        row(name, [1.0, 4.0], 1, move |volume| {
            let (root, dir) = (volume.open_dir("/").unwrap(), dir(volume));
            Box::new(move |op| {
                work(&root, &dir, op);
                dir.sync_all().unwrap();
            })
        })
    };
    vec![
        small("rename in a directory of 10,000 + fsync(dir)", |_, dir, op| {
            dir.rename(one(op), format!("renamed-{op}")).unwrap();
        }),
        small("rename to another directory + fsync(dir)", |root, dir, op| {
            let to = root.open_dir("/b").unwrap();
            let flags = holdfast::RenameFlags::empty();
            dir.rename_with(one(op), &to, format!("moved-{op}"), flags).unwrap();
        }),
        small("link + fsync(dir)", |_, dir, op| {
            dir.hard_link(one(op), format!("link-{op}")).unwrap();
        }),
        small("unlink in a directory of 10,000 + fsync(dir)", |_, dir, op| {
            dir.remove_file(one(op)).unwrap();
        }),
        small("mkdir + fsync(dir)", |_, dir, op| dir.create_dir(format!("dir-{op}")).unwrap()),
        small("symlink + fsync(dir)", |_, dir, op| {
            dir.symlink("somewhere/else", format!("symlink-{op}")).unwrap();
        }),
        row("chmod + fsync", [1.0, 4.0], 1, |volume| {
            let file = writable(volume, "/large");
            Box::new(move |op| {
                file.set_permissions(Permissions::from_mode(0o600 | (op as u32 & 0o77))).unwrap();
                file.sync_all().unwrap();
            })
        }),
        row("setxattr + fsync", [1.0, 4.0], 1, |volume| {
            let (file, root) = (writable(volume, "/large"), volume.open_dir("/").unwrap());
            Box::new(move |op| {
                let value = bytes(32, op);
                root.set_xattr("/large", "user.test", &value, XattrFlags::empty()).unwrap();
                file.sync_all().unwrap();
            })
        }),
        row("truncate + fsync", [1.0, 4.0], 1, |volume| {
            let file = writable(volume, "/large");
            Box::new(move |op| {
                file.set_len(LARGE - (op + 1) * 4096).unwrap();
                file.sync_all().unwrap();
            })
        }),
    ]
}

fn many() -> Prepare {
    Box::new(|volume| {
        let dir = dir(volume);
        let work = move |op: u64| {
            for number in 0..1000 {
                dir.rename(one(number), format!("renamed-{op}-{number}")).unwrap();
            }
            dir.sync_all().unwrap();
        };
        let name = "1,000 renames + one fsync(dir)";
        Row { name, kib: [128.0, 128.0], flushes: 1, work: Box::new(work), ops: 1 }
    })
}

#[test]
fn every_row_is_within_its_budget() {
    let rows: Vec<Prepare> =
        writes().into_iter().chain(files()).chain(names()).chain([many()]).collect();
    let mut over = Vec::new();
    for (sector, physical, which) in [(512, 512, 0), (4096, 4096, 1), (512, 4096, 1)] {
        let base = prepared(sector, physical);
        let title = format!("sectors of {sector} in {physical}");
        println!("\n{title:48}     KiB  writes flushes |  +nodes KiB +journal");
        for prepare in &rows {
            let (row, cost) = run(&base, &**prepare);
            println!("{:48} {cost}", row.name);
            if cost.kib > row.kib[which] || cost.flushes != row.flushes as f64 {
                let (budget, flushes) = (row.kib[which], row.flushes);
                over.push(format!("{title}: {}: {cost}, not {budget} {flushes}", row.name));
            }
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

/// 16 KiB travel inside the log, with one write, unless the volume is so small that its log must be kept for many.
#[test]
fn a_small_volume_puts_less_data_into_its_log() {
    for (megabytes, writes) in [(64, 1), (32, 2)] {
        let device = Arc::new(MemoryDevice::with_sector_size(megabytes << 20, 512));
        CreateOptions::new().format(&(device.clone() as Arc<dyn Device>)).unwrap();
        let volume = open(device.clone());
        let file = volume.create("/a").unwrap();
        file.sync_all().unwrap();
        let before = device.stats().writes;
        file.write_all_at(&bytes(16 << 10, 1), 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(device.stats().writes - before, writes, "{megabytes} MiB");
    }
}

/// Files that are fsynced and soon gone, as an editor's, a compiler's and a database's are, stay in the log: nothing of them
/// is written to a location.
#[test]
fn what_is_deleted_soon_is_written_once() {
    let device = Arc::new(prepared(512, 512).snapshot());
    let volume = open(device.clone());
    let dir = dir(&volume);
    volume.commit().unwrap();
    let counters = || ["commits", "data_bytes_written"].map(|name| counter(&volume, name));
    let before = counters();
    for op in 0..1000 {
        let file = dir.create(format!("new-{op}")).unwrap();
        file.write_all_at(&bytes(4096, op), 0).unwrap();
        file.sync_all().unwrap();
    }
    for op in 0..1000 {
        dir.remove_file(format!("new-{op}")).unwrap();
    }
    dir.sync_all().unwrap();
    assert_eq!(counters(), before, "4 MiB in the log are no reason for a commit");
    volume.commit().unwrap();
    let [commits, data] = counters();
    assert_eq!((commits, data), (before[0] + 1, before[1]));
}

/// A device whose flushes take a moment, in which others arrive.
#[derive(Debug)]
struct SlowFlush {
    memory: MemoryDevice,
    flushes: AtomicU64,
}

impl Device for SlowFlush {
    forward!(memory: read, write, discard, room, take_room, len, sector_size, reach, stats);

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.memory.flush()
    }
}

#[test]
fn threads_that_fsync_at_once_share_flushes() {
    const THREADS: u64 = 16;
    const ROUNDS: u64 = 20;
    let memory = MemoryDevice::new(256 << 20);
    let device = Arc::new(SlowFlush { memory, flushes: AtomicU64::new(0) });
    CreateOptions::new().format(&(device.clone() as Arc<dyn Device>)).unwrap();
    let volume = VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap();
    let files: Vec<File> =
        (0..THREADS).map(|thread| volume.create(name(thread)).unwrap()).collect();
    volume.commit().unwrap();
    let before = device.flushes.load(Ordering::SeqCst);
    let at_once = Barrier::new(THREADS as usize);
    // Judged afterwards: a thread that failed between two rounds would keep the others waiting.
    let receipts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (thread, file) in files.iter().enumerate() {
            let (at_once, receipts) = (&at_once, &receipts);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    at_once.wait();
                    file.write_all_at(&bytes(4096, thread as u64), round * 4096).unwrap();
                    let receipt = file.sync_all_with_receipt();
                    receipts.lock().unwrap().push(receipt);
                }
            });
        }
    });
    for receipt in receipts.into_inner().unwrap() {
        let receipt = receipt.unwrap();
        // Or another thread's batch had taken its records along before it asked.
        assert!(receipt.flushes == 1 || receipt.is_clean(), "its batch had one: {receipt:?}");
    }
    let flushes = device.flushes.load(Ordering::SeqCst) - before;
    println!("{} fsyncs of {THREADS} threads, {flushes} flushes", THREADS * ROUNDS);
    assert!(flushes < THREADS * ROUNDS, "{flushes} flushes");
    // A commit in the background may add its own.
    assert!(counter(&volume, "log_flushes") <= flushes);
    no_escape(&volume);
    drop(files);
    volume.close().unwrap();
}
