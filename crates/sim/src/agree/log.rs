//! Two recoveries of one log: the engine's and the second opinion's must lead to the same volume.
//!
//! Where nodes lie is the engine's own business, so volumes are compared by what
//! they hold: every item, every block in use, the counters. First without
//! writing anything, as a read-only mount sees it; then what a recovery really
//! wrote is read again without the engine.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_check::journal::Fault;
use holdfast_check::{View, view};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::Key;
use holdfast_store::{Branch, OpenOptions, Store, StoreError};

use super::{Verdict, agree, newest};

/// Recovers `image`, journal and log, both ways; nothing is written to it. The error says where they
/// differ. The numbers of the verdict are batches of the log.
pub fn agree_on_log(image: &MemoryDevice) -> Result<Verdict, String> {
    match agree(image)? {
        Verdict::Whole(_) => {}
        Verdict::Hole(_) => return Err("the journal before the log has a hole".into()),
        other => return Ok(other),
    }
    let superblock = newest(image)?.expect("both replays have found it");
    let text = |error: holdfast_check::CheckError| format!("check: {error}");
    let journal = holdfast_check::journal::replay(image, &superblock).map_err(text)?;
    let ours = holdfast_check::log::replay(image, &journal).map_err(text)?;
    let looked = open(image, true);
    if let Some(Fault { what, .. }) = ours.faults.first() {
        // The engine leaves some rules to check that a log of its own cannot break.
        return match looked.and_then(|_| open(image, false)) {
            Ok(_) => Err(format!("the engine recovers what check refuses: {what}")),
            Err(_) => Ok(Verdict::Refused),
        };
    }
    let store =
        looked.map_err(|error| format!("the engine cannot look at what check replays: {error}"))?;
    let batches = store.counters().recovered_batches.get();
    let (lsn, ours_lsn) = (store.latest(), ours.superblock.lsn);
    if (batches, lsn) != (ours.batches, ours_lsn) {
        return Err(format!(
            "the engine replays {batches} batches up to {lsn:?}, check {} up to {ours_lsn:?} ({:?})",
            ours.batches, ours.end
        ));
    }
    if let Some(damage) = &ours.damage {
        return match open(image, false) {
            Err(StoreError::Refused(_)) => Ok(Verdict::Hole(batches)),
            other => Err(format!("check misses a batch ({damage:?}), the engine: {other:?}")),
        };
    }
    let before = view(image).map_err(text)?;
    let mut items = Vec::new();
    let all = store.scan(&Key::MIN, &Key::MAX, |key, value| {
        items.push((key, value.to_vec()));
        ControlFlow::Continue(())
    });
    all.map_err(|error| format!("read-only: {error}"))?;
    if !items.iter().map(|(key, value)| (key, value)).eq(&before.items) {
        return Err("a read-only opening holds other items than check".into());
    }
    recovered(image, &before, ours.high_counter().is_some())?;
    Ok(Verdict::Whole(batches))
}

/// The engine recovers a copy of the image: without it, check sees the same volume. It may refuse what check
/// says is too near the end of a counter.
fn recovered(image: &MemoryDevice, before: &View, is_high: bool) -> Result<(), String> {
    let copy = Arc::new(image.snapshot());
    match open_on(copy.clone(), false) {
        Ok(store) => drop(store),
        Err(StoreError::Refused(why)) if is_high && why.contains("has counted to") => return Ok(()),
        Err(error) => return Err(format!("recovery: {error}")),
    }
    let after = view(&*copy).map_err(|error| format!("check after a recovery: {error}"))?;
    if after == *before {
        return Ok(());
    }
    let numbers = |view: &View| (view.lsn, view.inode_next, view.inode_count);
    let different = |key: &&Key| before.items.get(key) != after.items.get(key);
    let keys = before.items.keys().chain(after.items.keys());
    Err(format!(
        "a recovery leaves another volume: {:?} and {:?}, items {:?}, blocks in use {:?} and {:?}",
        numbers(before),
        numbers(&after),
        keys.filter(different).take(3).collect::<Vec<_>>(),
        before.data,
        after.data
    ))
}

fn open(image: &MemoryDevice, read_only: bool) -> Result<Branch, StoreError> {
    open_on(Arc::new(image.snapshot()), read_only)
}

fn open_on(device: Arc<dyn Device>, read_only: bool) -> Result<Branch, StoreError> {
    let options = OpenOptions { read_only, threads: false, ..OpenOptions::default() };
    Store::open(device, &options, Arc::new(Counters::default())).map(Store::into_main)
}
