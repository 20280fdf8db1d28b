//! Memory of a volume is held to its options: pages, and the heap beside them, while 99 writers are faster than the
//! device, and when they have ended.
//!
//! Every byte is counted, by the allocator and by the pages' own memory. What the C library makes of it, and the stacks
//! of threads, `scripts/prove/memory.sh` measures.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use holdfast::{CreateOptions, VolumeOptions};
use holdfast_device::{Device, DeviceError, FileDevice, OpenMode, forward, page};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const WRITERS: usize = 99;
const FILE: usize = 8 << 10;
const CACHE: usize = 16 << 20;
const DIRTY: usize = 48 << 20;
const RECENT: usize = 1 << 20;
/// Pages in use from which on the device writes at all.
const FILLED: usize = DIRTY / 4 * 3;
/// How long the device takes for 4 KiB.
const BLOCK: Duration = Duration::from_micros(200);
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of the heap, of pages in use, and of pages that are kept for more.
fn memory() -> (usize, usize, usize) {
    let (used, idle) = page::memory_bytes();
    (HEAP.current_usage(), used, idle)
}

/// A device that keeps writes waiting until memory is nearly full of what they would write, however slow the writers are
/// on this machine, and then does 20 MB a second.
#[derive(Debug)]
struct Slow {
    below: FileDevice,
    turn: Mutex<()>,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Slow {
    fn new(dir: &tempfile::TempDir) -> Arc<Slow> {
        let path = dir.path().join("volume");
        std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
        let below = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
        let (turn, is_open) = (Mutex::new(()), Mutex::new(true));
        Arc::new(Slow { below, turn, is_open, opened: Condvar::new() })
    }

    fn hold(&self) {
        *self.is_open.lock().unwrap() = false;
    }

    fn let_go(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Device for Slow {
    forward!(below: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let is_open = self.is_open.lock().unwrap();
        let (is_open, _) =
            self.opened.wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open).unwrap();
        assert!(*is_open, "the writers have not filled the memory that they may use");
        drop(is_open);
        let _turn = self.turn.lock().unwrap();
        std::thread::sleep(BLOCK * bytes.len().div_ceil(4096) as u32);
        self.below.write(at, bytes)
    }
}

#[test]
fn ninety_nine_writers_need_no_more_than_the_options_say() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Slow::new(&dir);
    let device: Arc<dyn Device> = slow.clone();
    let options = VolumeOptions::new().cache_bytes(CACHE).dirty_bytes(DIRTY).recent_bytes(RECENT);
    CreateOptions::default().format(&device).unwrap();
    let before = memory().0;
    let volume = options.commit_secs(1).at_rest(at_rest).open_device(device).unwrap();
    // The first change of a new volume takes room for the log, and writes there.
    volume.create_dir("first").unwrap();
    slow.hold();
    let peak = AtomicUsize::new(0);
    // Twice as much as may wait, in files of two pages; and each tenth writer makes one large file.
    let files = 2 * DIRTY / FILE / WRITERS;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (root, peak, slow) = (&volume, &peak, &slow);
            scope.spawn(move || {
                let bytes = vec![writer as u8; FILE];
                root.create_dir(format!("{writer}")).unwrap();
                let large = root.create(format!("{writer}/large")).unwrap();
                for file in 0..files {
                    match writer % 10 {
                        0 => large.write_all_at(&bytes, (file * FILE) as u64).unwrap(),
                        _ => {
                            let small = root.create(format!("{writer}/{file}")).unwrap();
                            small.write_all_at(&bytes, 0).unwrap();
                        }
                    }
                    let (heap, used, idle) = memory();
                    peak.fetch_max(heap.saturating_sub(before) + used + idle, Ordering::Relaxed);
                    if used > FILLED {
                        slow.let_go();
                    }
                }
            });
        }
    });
    let (peak, most) = (peak.into_inner(), (CACHE + DIRTY) / 10 * 12);
    println!("peak {} KiB of {} KiB", peak >> 10, most >> 10);
    assert!(peak > FILLED, "the device has not waited: {peak} bytes");
    assert!(peak <= most, "{peak} bytes, {most} were allowed");

    // What is left when all of it is removed and the volume has come to rest: cached nodes, and what was just written.
    for writer in 0..WRITERS {
        volume.remove_dir_all(format!("{writer}")).unwrap();
    }
    *RESTED.lock().unwrap() = None;
    let rested = RESTED.lock().unwrap();
    let (rested, _) = RESTS.wait_timeout_while(rested, PATIENCE, |at| at.is_none()).unwrap();
    let (heap, used, idle) = rested.expect("it comes to rest");
    println!("at rest {} KiB, pages {used} and {idle} bytes", (heap - before) >> 10);
    assert!(heap - before <= CACHE, "{} bytes of heap at rest", heap - before);
    assert!(used <= RECENT && idle == 0, "{used} and {idle} bytes of pages at rest");
}

/// What is in memory when the volume has given back what it can.
static RESTED: Mutex<Option<(usize, usize, usize)>> = Mutex::new(None);
static RESTS: Condvar = Condvar::new();

fn at_rest() {
    *RESTED.lock().unwrap() = Some(memory());
    RESTS.notify_all();
}
