//! A disk tries long before it gives up a sector. What does not read of a ring is asked for a few times in all, however often a check and a repair
//! look there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, DeviceError, MemoryDevice, Remembering, forward};
use holdfast_repair::is_repaired;

use crate::behind_hole::{crashed, synced};
use crate::every_finding::{Healing, LOSS, found, planned};
use crate::ring_sweep::frames;

/// Counts the reads of a block.
#[derive(Debug)]
struct Counting {
    under: Healing,
    block: u64,
    reads: AtomicU64,
}

impl Device for Counting {
    forward!(under: write, flush, discard, len, room, take_room, sector_size, reach, stats);

    fn data_from(&self, at: u64) -> u64 {
        self.under.data_from(at)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (start, end) = (self.block * BLOCK_BYTES, (self.block + 1) * BLOCK_BYTES);
        if at < end && at + into.len() as u64 > start {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.under.read(at, into)
    }
}

/// How often a check and a repair ask for a block that does not read.
fn reads(device: &MemoryDevice, block: u64, is_remembered: bool) -> u64 {
    let under = Healing::with(Arc::new(device.snapshot()), vec![block]);
    let counting = Arc::new(Counting { under, block, reads: AtomicU64::new(0) });
    let device: Arc<dyn Device> = match is_remembered {
        true => Arc::new(Remembering::over(counting.clone())),
        false => counting.clone(),
    };
    assert!(!is_repaired(&found(&*device)), "block {block} is needed");
    let plan = planned(&*device, &LOSS).expect("it is possible");
    let reads = counting.reads.load(Ordering::Relaxed);
    plan.write(&*device).expect("memory takes it");
    assert!(is_repaired(&found(&*device)), "what was written reads again");
    reads
}

#[test]
fn a_bad_block_of_a_ring_is_asked_for_a_few_times() {
    let files = |count| {
        crashed(
            |volume| {
                synced(volume, "/before", b"before");
                volume.commit().expect("memory takes it");
            },
            |volume| {
                for file in 0..count {
                    synced(volume, &format!("/file-{file}"), &[b'f'; 3000]);
                }
            },
        )
    };
    let of = |count, is_remembered| {
        let (device, at) = files(count);
        let frame = frames(&device).into_keys().next().expect("there was a commit");
        [at / BLOCK_BYTES, frame].map(|block| reads(&device, block, is_remembered))
    };
    let few = of(2, true);
    assert_eq!(few, of(60, true));
    // A part of the ring, its blocks, and the sectors of the bad one.
    assert!(few[0] <= 12 && few[1] <= 3, "{few:?}");
    let anew = of(2, false);
    assert!(anew[0] > 3 * few[0] && anew[1] > 3 * few[1], "{few:?}, and without that {anew:?}");
}
