//! What each power cut may leave: one moment of history, whatever is cut again in the recovery.
//!
//! Every image is replayed both ways, opened, and compared with what was told of
//! that moment, data included. Knows nothing of how the history came about.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Event, Policy, Recording};
use holdfast_device::{Device, SimDevice};
use holdfast_format::ItemKind;
use holdfast_format::checksum::block_sums;
use holdfast_format::item::Extent;
use holdfast_sim::{Verdict, agree, agree_on_log};

use super::{Conditions, Map, Seen, contents};

/// The recoveries of one image in so many are compared with those of the second opinion.
const AGREE: usize = 4;

/// Judges what one cut may leave: the map of one moment, not before `acked`. Gives that moment, and how
/// many batches of the log led to it.
fn judge(
    how: &Conditions,
    image: MemoryDevice,
    told: &[Arc<Map>],
    acked: u64,
    what: &str,
) -> (u64, u64) {
    let device: Arc<dyn Device> = Arc::new(image);
    let store = how.open(device, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    let lsn = store.latest().0;
    assert!(lsn >= acked, "{what}: at {lsn}, but {acked} was durable");
    let map = contents(&store);
    let expected = told.get(lsn as usize).unwrap_or_else(|| panic!("{what}: {lsn}?"));
    assert!(map == **expected, "{what}: not the map of {lsn}");
    for (key, value) in map.iter().filter(|(key, _)| key.kind == ItemKind::Extent) {
        let extent = Extent::decode(value).unwrap();
        let mut bytes = vec![0; extent.blocks.bytes().unwrap() as usize];
        store.read(extent.blocks, &mut bytes).unwrap();
        let sums: Vec<u64> = block_sums(&bytes).collect();
        assert_eq!(sums, extent.sums, "{what}: the data of {key:?} at {lsn}");
    }
    (lsn, store.counters().recovered_batches.get())
}

/// The first opening recovers; after it, opening and closing writes nothing that can be told from
/// what was there.
fn open_twice(how: &Conditions, image: MemoryDevice, what: &str) {
    let image = Arc::new(image);
    let mut before = None;
    for _ in 0..3 {
        let store = how.open(image.clone(), false).unwrap();
        #[cfg(debug_assertions)]
        store.invariants();
        store.close().unwrap();
        let after = image.to_image();
        if let Some(before) = before {
            assert!(after == before, "{what}: opening changed the volume");
        }
        before = Some(after);
    }
}

/// Power fails at every call of the recovery, `deep` times one inside the other: nothing changes.
fn recover_again(
    how: &Conditions,
    image: &MemoryDevice,
    told: &[Arc<Map>],
    lsn: u64,
    (deep, policy): (u32, &Policy),
    what: &str,
) -> usize {
    let sim = Arc::new(SimDevice::new(image));
    drop(how.open(sim.clone(), false).unwrap());
    let recording = sim.recording();
    let mut cut = recording.start();
    let mut seen = HashSet::new();
    let mut images = 0;
    for event in recording.events.iter().filter(|event| event.changes_images()) {
        cut.advance(event);
        for image in cut.images(policy) {
            if !seen.insert(image.fingerprint()) {
                continue;
            }
            let place = || format!("{what}, again at {}: {}", cut.index(), image.describe());
            let device = image.device();
            agree(&device).unwrap_or_else(|why| panic!("{}: {why}", place()));
            let (found, _) = judge(how, device.snapshot(), told, lsn, &place());
            assert_eq!(found, lsn, "{}: another moment", place());
            images += 1;
            if deep > 1 {
                let policy = (deep - 1, policy);
                images += recover_again(how, &device, told, lsn, policy, &place());
            }
        }
    }
    images
}

/// Judges every image of every cut. Gives those of the cut behind event `at`, each with its history.
#[allow(clippy::too_many_arguments)]
pub(crate) fn judge_all(
    what: &str,
    seed: u64,
    how: &Conditions,
    recording: &Recording,
    told: &[Vec<Arc<Map>>],
    again: usize,
    at: usize,
    seen: &mut Seen,
) -> Vec<(MemoryDevice, Vec<Arc<Map>>)> {
    let policy = Policy { seed, exhaustive: 4, each: 5, samples: 5, torn: 6 };
    let few = Policy { seed, exhaustive: 3, each: 2, samples: 2, torn: 2 };
    let mut cut = recording.start();
    let mut judged = HashSet::new();
    let mut left = Vec::new();
    let (mut opening, mut acked) = (0, 0);
    for (index, event) in recording.events.iter().enumerate() {
        cut.advance(event);
        if let Event::Mark(mark) = event {
            (opening, acked) = ((mark >> 32) as usize, mark & 0xffff_ffff);
        }
        if !event.changes_images() && index != at {
            continue;
        }
        for image in cut.images(&policy) {
            if !judged.insert((image.fingerprint(), opening, acked)) && index != at {
                continue;
            }
            let what = format!("{what} opening {opening} cut {index}: {}", image.describe());
            let device = image.device();
            match agree(&device).unwrap_or_else(|why| panic!("{what}: {why}")) {
                Verdict::Whole(commits) => seen.commits = seen.commits.max(commits),
                other => panic!("{what}: {other:?}"),
            }
            let (lsn, batches) = judge(how, device.snapshot(), &told[opening], acked, &what);
            seen.batches = seen.batches.max(batches);
            if judged.len().is_multiple_of(AGREE) {
                let verdict = agree_on_log(&device).unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(verdict, Verdict::Whole(batches), "{what}");
            }
            if judged.len().is_multiple_of(again) {
                open_twice(how, device.snapshot(), &what);
                // Now and then also inside the recovery of what a cut recovery left.
                let deep = if judged.len().is_multiple_of(8 * again) { 2 } else { 1 };
                let policy = (deep, &few);
                seen.again += recover_again(how, &device, &told[opening], lsn, policy, &what);
            }
            if index == at {
                left.push((device, told[opening][..=lsn as usize].to_vec()));
            }
        }
    }
    seen.images += judged.len();
    left
}
