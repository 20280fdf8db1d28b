//! A ring that a device damaged, or a forged one: both replays say the same of it.
//!
//! Replay tells damage from what a crash can do. A missing frame of a durable commit is
//! noticed, and the volume is not written any more. The last commit may vanish unnoticed, because
//! nothing shows that it was there. Forged frames carry right sums and a right chain (P10).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_base::BlockNo;
use holdfast_base::prng::Prng;
use holdfast_base::switch::Dirty;
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_device::memory::MemoryDevice;
use holdfast_device::{Device, SimDevice};
use holdfast_format::Superblock;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::journal::commit::Commit;
use holdfast_format::journal::frame::KIND_END;
use holdfast_format::journal::{FrameHeader, next_block};
use holdfast_sim::{Verdict, agree};

use crate::crash_generations::{Conditions, Map, contents, step};

/// A frame of the ring.
#[derive(Clone)]
struct Frame {
    at: BlockNo,
    header: FrameHeader,
    payload: Vec<u8>,
}

/// A volume whose journal holds everything, and what was durable with each of its commits.
struct Full {
    /// What the device held before.
    before: MemoryDevice,
    image: MemoryDevice,
    superblock: Superblock,
    frames: Vec<Frame>,
    /// The map behind so many commits.
    told: Vec<Arc<Map>>,
}

fn read(device: &MemoryDevice, at: BlockNo, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; (blocks * BLOCK_BYTES) as usize];
    device.read(at.0 * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

/// The frames from the superblock's mark on.
fn frames(device: &MemoryDevice, superblock: &Superblock) -> Vec<Frame> {
    let mut found: Vec<Frame> = Vec::new();
    let (mut at, mut prior) = (superblock.journal.next, superblock.journal.sum);
    while let Ok(header) = FrameHeader::decode(&read(device, at, 1))
        && header.prior == prior
        && header.address == at.0
    {
        let bytes = read(device, at, header.blocks());
        let payload = bytes[FrameHeader::SIZE..FrameHeader::SIZE + header.len as usize].to_vec();
        found.push(Frame { at, header, payload });
        at = next_block(superblock.geometry.journal(), at, header.blocks());
        prior = header.sum;
    }
    found
}

fn newest(device: &MemoryDevice) -> Superblock {
    let found = SUPERBLOCK_SLOTS.map(|slot| {
        let block = read(device, slot, 1);
        Superblock::decode(block.first_chunk::<BLOCK_SIZE>().unwrap(), slot).unwrap()
    });
    found.into_iter().max_by_key(|superblock| superblock.epoch).unwrap()
}

/// Nothing but commits.
fn full(how: &Conditions, prng: &mut Prng) -> Full {
    let (before, history) = how.aged(prng);
    let sim = Arc::new(SimDevice::new(&before));
    let store = how.open(sim.clone(), false).unwrap();
    let mut map = history.last().unwrap().clone();
    let mut told = vec![map.clone()];
    while told.len() < 9 {
        for _ in 0..1 + prng.below(3) {
            map = Arc::new(step(&store, &map, prng, 0).unwrap());
        }
        store.commit().unwrap();
        told.push(map.clone());
    }
    drop(store);
    let image = sim.image();
    let superblock = newest(&image);
    let frames = frames(&image, &superblock);
    // Where memory was short, a checkpoint stands somewhere between.
    let commits =
        frames.last().map_or(0, |frame| frame.header.commit - superblock.journal.commit.0);
    let told = told.split_off(told.len() - 1 - commits as usize);
    Full { before, image, superblock, frames, told }
}

fn conditions(whole: bool) -> Conditions {
    let dirty = if whole { Dirty::Whole } else { Dirty::Ranges };
    let node_size = if whole { 16384 } else { 4096 };
    // Memory and ring are so large that no checkpoint comes between.
    let large = Conditions { journal_blocks: 512, cache_bytes: 64 << 20, ..Conditions::default() };
    Conditions { node_size, dirty, ..large }
}

/// Every frame is lost once, as if the device had never written it.
#[test]
fn a_lost_frame_of_a_durable_commit_is_missed() {
    let (mut spanning, mut holes) = (0, 0);
    for seed in 0..8 {
        let how = conditions(seed % 2 == 1);
        let full = full(&how, &mut Prng::seeded(seed));
        let last = full.frames.last().unwrap().header.commit;
        for lost in &full.frames {
            spanning += u32::from(lost.header.frames > 1);
            let image = Arc::new(full.image.snapshot());
            image.write(lost.at.0 * BLOCK_BYTES, &[0; BLOCK_SIZE]).unwrap();
            let before = lost.header.commit - full.superblock.journal.commit.0 - 1;
            let what =
                format!("seed {seed}, frame {} of {}", lost.header.index, lost.header.commit);
            let verdict = agree(&*image).unwrap_or_else(|why| panic!("{what}: {why}"));
            if lost.header.commit == last {
                assert_eq!(verdict, Verdict::Whole(before), "{what}");
                continue;
            }
            holes += 1;
            // The commit before it is the last one now. What it named may have been freed since, and
            // hold something else: then it does not count either.
            let Verdict::Hole(left) = verdict else { panic!("{what}: {verdict:?}") };
            assert!(left == before || left + 1 == before, "{what}: {left} instead of {before}");
            how.open(image.clone(), false).expect_err("what is left must not be written");
            let store = how.open(image, true).unwrap();
            assert!(contents(&store) == *full.told[left as usize], "{what}: another moment");
        }
    }
    assert!(spanning > 3 && holes > 20, "{spanning} {holes}");
}

/// The first write of a opening goes where the opening before has said that no commit follows.
#[test]
fn a_lost_first_commit_is_missed_although_the_journal_had_an_end() {
    for seed in 0..4 {
        let how = conditions(false);
        let full = full(&how, &mut Prng::seeded(seed));
        let first = &full.frames[0];
        let old = read(&full.before, first.at, 1);
        assert_eq!(FrameHeader::decode(&old).map(|header| header.kind), Ok(KIND_END));
        // The opening took the end away before anything else; only then the frame was lost.
        let image = Arc::new(full.image.snapshot());
        let sim = Arc::new(SimDevice::new(&full.before));
        drop(how.open(sim.clone(), false).unwrap());
        let opened = read(&sim.image(), first.at, 1);
        image.write(first.at.0 * BLOCK_BYTES, &opened).unwrap();
        assert_eq!(agree(&*image), Ok(Verdict::Hole(0)), "seed {seed}");
        how.open(image, false).expect_err("what is left must not be written");
    }
}

/// The data that the last commit names is lost, one block of it at a time.
#[test]
fn a_last_commit_without_its_data_does_not_count() {
    let mut lost = 0;
    for seed in 0..6 {
        let how = conditions(false);
        let full = full(&how, &mut Prng::seeded(seed));
        let last = full.frames.last().unwrap().header;
        let of_last = full.frames.iter().filter(|frame| frame.header.commit == last.commit);
        let payload: Vec<u8> = of_last.flat_map(|frame| frame.payload.clone()).collect();
        let epoch = holdfast_base::Epoch(last.epoch);
        let commit = Commit::decode(&payload, epoch, &full.superblock.geometry).unwrap();
        let commits = full.told.len() as u64 - 1;
        assert_eq!(agree(&full.image), Ok(Verdict::Whole(commits)));
        for extent in &commit.extents {
            for block in extent.block..extent.block + extent.count {
                let image = Arc::new(full.image.snapshot());
                image.write(block * BLOCK_BYTES, &[0xa5; BLOCK_SIZE]).unwrap();
                assert_eq!(agree(&*image), Ok(Verdict::Whole(commits - 1)), "seed {seed}");
                let store = how.open(image, false).unwrap();
                assert!(contents(&store) == *full.told[commits as usize - 1], "seed {seed}");
                lost += 1;
            }
        }
    }
    assert!(lost > 4, "{lost}");
}

/// Changes something in the frames. Gives whether sums and chain are to be made anew.
fn spoil(frames: &mut Vec<Frame>, prng: &mut Prng) -> bool {
    let which = prng.below(frames.len() as u64) as usize;
    let words = [0, 1, 2, 64, 4095, 1 << 20, u64::from(u32::MAX), 1 << 62, u64::MAX];
    let word = if prng.one_in(2) { *prng.pick(&words) } else { prng.below(4096) };
    let frame = &mut frames[which];
    if frame.payload.is_empty() {
        return true;
    }
    match prng.below(13) {
        // The head of a payload, the head of its first record, anything.
        choice @ 0..=5 => {
            let limit = [112, 112, 160, 200, u64::MAX, u64::MAX][choice as usize];
            let at = prng.below(limit.min(frame.payload.len() as u64)) as usize;
            let width = [1, 2, 4, 8][prng.below(4) as usize].min(frame.payload.len() - at);
            frame.payload[at..at + width].copy_from_slice(&word.to_le_bytes()[..width]);
        }
        6 => frame.header.epoch = frame.header.epoch.wrapping_add(prng.below(3)).wrapping_sub(1),
        7 => frame.header.commit = frame.header.commit.wrapping_add(prng.below(3)),
        8 => frame.header.durable = frame.header.durable.wrapping_add(prng.below(4)),
        9 => frame.header.frames = prng.below(4) as u32,
        10 => drop(frames.remove(which)),
        // The end of a journal, somewhere.
        11 => {
            frame.payload.clear();
            (frame.header.kind, frame.header.index, frame.header.frames) = (KIND_END, 0, 1);
            frame.header.epoch = frame.header.epoch.wrapping_sub(prng.below(3));
        }
        _ => {
            let len = prng.below(frame.payload.len() as u64 + 1) as usize;
            frame.payload.truncate(len);
        }
    }
    !prng.one_in(6)
}

/// Writes the frames, with sums made anew and, if `chain`, each following the one before.
fn write_back(image: &MemoryDevice, superblock: &Superblock, frames: &[Frame], chain: bool) {
    let ring = superblock.geometry.journal();
    let (mut at, mut prior) = (superblock.journal.next, superblock.journal.sum);
    for frame in frames {
        let place = if chain { at } else { frame.at };
        let prior_now = if chain { prior } else { frame.header.prior };
        let header = FrameHeader { address: place.0, prior: prior_now, ..frame.header };
        let mut bytes = Vec::new();
        prior = header.encode(&frame.payload, &mut bytes);
        let blocks = bytes.len() as u64 / BLOCK_BYTES;
        if place.0 + blocks > ring.start.0 + ring.count {
            return;
        }
        image.write(place.0 * BLOCK_BYTES, &bytes).unwrap();
        at = next_block(ring, place, blocks);
    }
}

/// `HOLDFAST_SEEDS=50` runs fifty times as many.
#[test]
fn both_replays_judge_damaged_rings_alike() {
    let more = std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut verdicts = [0; 3];
    for seed in 0..6 * more.unwrap_or(1) {
        let how = conditions(seed % 3 == 2);
        let mut prng = Prng::seeded(seed);
        let full = full(&how, &mut prng);
        for round in 0..120 {
            let image = Arc::new(full.image.snapshot());
            let mut prng = Prng::seeded(seed << 32 | round);
            if prng.one_in(4) {
                // Bytes that rot, in frames or between.
                for _ in 0..1 + prng.below(3) {
                    let at = prng.pick(&full.frames).at.0 * BLOCK_BYTES + prng.below(6000);
                    let sector = at / 512 * 512;
                    let mut bytes = [0; 512];
                    image.read(sector, &mut bytes).unwrap();
                    bytes[(at - sector) as usize] ^= 1 << prng.below(8);
                    image.write(sector, &bytes).unwrap();
                }
            } else {
                let mut frames = full.frames.clone();
                let mut chain = true;
                for _ in 0..1 + prng.below(2) {
                    chain &= frames.is_empty() || spoil(&mut frames, &mut prng);
                }
                write_back(&image, &full.superblock, &frames, chain);
            }
            let what = format!("seed {seed} round {round}");
            let judged = catch_unwind(AssertUnwindSafe(|| agree(&*image)));
            let verdict = judged.unwrap_or_else(|_| panic!("{what}: a replay panicked"));
            match verdict.unwrap_or_else(|why| panic!("{what}: {why}")) {
                Verdict::Whole(_) => verdicts[0] += 1,
                Verdict::Hole(_) => verdicts[1] += 1,
                Verdict::Refused => verdicts[2] += 1,
                Verdict::NoVolume => panic!("{what}: the superblocks were not touched"),
            }
            let opened = catch_unwind(AssertUnwindSafe(|| {
                for read_only in [true, false] {
                    if let Ok(store) = how.open(image.clone(), read_only) {
                        let _ = store.get(&holdfast_format::Key::MIN);
                    }
                }
            }));
            assert!(opened.is_ok(), "{what}: an opening panicked");
        }
    }
    println!("{verdicts:?}");
    assert!(verdicts.iter().all(|count| *count > 50), "{verdicts:?}");
}
