//! The system gives no thread: the first start of one is refused, then the second, until a story has none left to
//! be refused; once, or from then on.
//!
//! A mount may say so and fail. Nothing else notices but by its speed: every call works, the volume does not stop,
//! and what it holds is whole. The table says where threads are started, and what came of it.
//!
//! A program of its own: it refuses threads to its whole process.

#![allow(missing_docs, clippy::unwrap_used)]

mod many_nodes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_device::sim::SharedDevice;
use holdfast_device::{Device, MemoryDevice, Reach};
use holdfast_posix::{FileSystem, FsError};
use holdfast_sim::judge;

use many_nodes::{formatted, look, options, work};

/// Mounts, also if the system refuses at first. Says whether it did.
fn mount(device: &Arc<MemoryDevice>) -> (FileSystem, bool) {
    // Others may reach it: so it has a guard, and a thread for that.
    let shared = || Arc::new(SharedDevice::new(Arc::clone(device) as Arc<dyn Device>, Reach::Host));
    let try_mount = || FileSystem::mount(shared(), options());
    match try_mount() {
        Ok(fs) => (fs, false),
        Err(error) => {
            let refused = give_threads();
            assert!(refused > 0 && error.to_string().contains("gives no thread"), "{error}");
            (try_mount().expect("nothing else is in the way"), true)
        }
    }
}

/// One opening of a volume. Says how many mounts were refused.
fn live(base: &MemoryDevice, place: &str) -> u64 {
    let device = Arc::new(base.snapshot());
    let (fs, first) = mount(&device);
    let works = |done: Result<(), FsError>| done.unwrap_or_else(|why| panic!("{place}: {why}"));
    works(work(&fs));
    // What a kill leaves here is recovered by several threads, too.
    let killed = Arc::new(device.snapshot());
    works(fs.checkpoint());
    assert_eq!(fs.stop_reason(), None, "{place}");
    works(fs.unmount());
    let (fs, second) = mount(&killed);
    look(&fs);
    works(fs.unmount());
    // What is judged is judged with all threads that it wants.
    give_threads();
    for device in [device, killed] {
        judge(&*device).unwrap_or_else(|why| panic!("{place}: {why}"));
        let (fs, _) = mount(&device);
        look(&fs);
        works(fs.unmount());
    }
    u64::from(first) + u64::from(second)
}

thread_local! {
    /// Which starts of threads were refused in this opening, by their place in the source.
    static PLACES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on the system has threads again. Says how many it has refused.
fn give_threads() -> usize {
    let refused = holdfast_sync::refused();
    holdfast_sync::refuse(None, false);
    PLACES.with_borrow_mut(|places| places.extend(refused.iter().map(ToString::to_string)));
    refused.len()
}

#[test]
fn every_start_of_a_thread_is_refused() {
    let base = formatted();
    let mut table: BTreeMap<(bool, String), (u64, u64)> = BTreeMap::new();
    let mut runs = 0;
    for forever in [false, true] {
        // The threads of a volume work beside it, so one opening starts a few more or fewer than another.
        let mut runs_without = 0;
        for nth in 1.. {
            let place = format!("start {nth} is refused, from then on: {forever}");
            PLACES.with_borrow_mut(Vec::clear);
            holdfast_sync::refuse(Some(nth), forever);
            let mounts = live(&base, &place);
            let places = PLACES.take();
            if places.is_empty() {
                runs_without += 1;
                if runs_without == 6 {
                    break;
                }
            }
            runs += 1;
            for place in places {
                let row = table.entry((forever, place)).or_default();
                row.0 += 1;
                row.1 += mounts;
            }
        }
    }
    println!("| refused | thread started at | refusals | mounts that said so | lost |");
    println!("| --- | --- | --- | --- | --- |");
    for ((forever, place), (refusals, mounts)) in &table {
        let how = if *forever { "from then on" } else { "once" };
        println!("| {how} | {place} | {refusals} | {mounts} | nothing |");
    }
    println!("{runs} openings");
    let named = |part: &str| table.keys().any(|(_, place)| place.contains(part));
    for part in [
        "background.rs",
        "committer.rs",
        "complete/before.rs",
        "side_by_side.rs",
        "place.rs",
        "commit.rs",
        "throttle/mod.rs",
        "guard/watch.rs",
    ] {
        assert!(named(part), "no thread was refused in {part}");
    }
}
