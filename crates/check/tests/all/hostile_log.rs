//! Hostile and damaged logs: a report or an error, never a panic or a hang (P10).
//!
//! Batches are changed at random, mostly with new checksums, or made up. Every
//! failure prints the seed that repeats it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_base::{BatchNo, BlockNo, BlockRange, InodeNo};
use holdfast_check::Issue;
use holdfast_format::item::Extent;
use holdfast_format::log::{Content, Encoder, LogHeader, LogMark, Patch};
use holdfast_format::{Geometry, ItemKind, Key};

use crate::common::log::Log;
use crate::common::*;

/// A log of some honest batches over the ring's end.
pub(super) fn write_log(log: &mut Log<'_>, prng: &mut Prng) {
    let mut files: Vec<(String, InodeNo)> = Vec::new();
    for batch in 0..2 + prng.below(5) {
        for operation in 0..=prng.below(5) {
            let file = if files.is_empty() { None } else { Some(prng.pick(&files).clone()) };
            match (prng.below(6), file) {
                (0 | 1, _) | (2..=4, None) => {
                    let name = format!("{batch} {operation}");
                    let number = log.create(&name, prng.below(256) as u8);
                    files.push((name, number));
                }
                (2, Some((_, number))) => {
                    let mut bytes = vec![0; 1 + prng.below(600) as usize];
                    prng.fill(&mut bytes);
                    log.overwrite(number, prng.below(3000) as usize, &bytes);
                }
                (3, Some((name, _))) => {
                    let new = format!("{name} {operation}");
                    log.rename(&name, &new);
                    files
                        .iter_mut()
                        .filter(|file| file.0 == name)
                        .for_each(|file| file.0 = new.clone());
                }
                (4, Some((name, number))) => {
                    log.remove(&name, number);
                    files.retain(|file| file.0 != name);
                }
                _ => log.chown(PIPE),
            }
        }
        log.durable = prng.one_in(3).then_some(log.mark.batch.0.saturating_sub(prng.below(3)));
        log.batch();
    }
}

/// Changes bytes of a batch, mostly with a new sum for it and all behind it.
pub(super) fn damage_batches(log: &Log<'_>, prng: &mut Prng) {
    let at = *prng.pick(&log.batches);
    let resum = !prng.one_in(4);
    log.poke(at, resum, |bytes| {
        for _ in 0..=prng.below(3) {
            let at = match prng.below(4) {
                0 => prng.below(LogHeader::SIZE as u64),
                1 => 56 + prng.below(40),
                _ => prng.below(bytes.len() as u64),
            } as usize;
            match prng.below(4) {
                0 => bytes[at] = 0xff,
                1 => bytes[at] = 0,
                2 => bytes[at] ^= 1 << prng.below(8),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
        }
    });
}

/// What is read of a log may be anything; what comes of it is an answer (P10).
#[test]
fn damaged_logs_are_survived() {
    let started = Stopwatch::start();
    let (mut rounds, mut applied, mut ended, mut faults) = (0u64, 0, 0, 0);
    while rounds < 400 || (started.elapsed() < Duration::from_secs(3) && rounds < 10_000) {
        let seed = rounds;
        rounds += 1;
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut prng = Prng::seeded(seed);
            let mut maker = Maker::sample();
            maker.leaf_items = *prng.pick(&[usize::MAX, 5, 3]);
            let from_end = (prng.below(8) + 1) * 4096;
            maker.superblock(move |superblock| {
                let len = superblock.geometry.log().count * 4096;
                superblock.log = LogMark { batch: BatchNo(40), next: len - from_end, sum: 0 };
            });
            let made = maker.make();
            let mut log = Log::new(&made);
            log.sector = *prng.pick(&[512, 4096]);
            write_log(&mut log, &mut prng);
            let whole = log.batches.len() as u64;
            // The engine is asked now and then.
            if seed % 16 == 0 {
                log.expect(whole);
            }
            assert_eq!(log.replay().batches, whole);
            for _ in 0..=prng.below(2) {
                damage_batches(&log, &mut prng);
            }
            use_all(&made.device);
            let replay = log.replay();
            assert!(replay.batches <= whole);
            (replay.batches, u64::from(replay.batches < whole), replay.faults.len())
        }));
        match result {
            Ok((batches, before, found)) => {
                applied += batches;
                ended += before;
                faults += found as u64;
            }
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(applied > rounds, "{applied} batches of {rounds} logs were applied");
    assert!(ended > rounds / 2, "{ended} of {rounds} logs ended early");
    assert!(faults > rounds / 10, "{faults} faults in {rounds} logs");
}

/// Records that no engine ever wrote, in batches that are whole.
#[test]
fn made_up_records_are_survived() {
    let made = Maker::sample().make();
    let base = made.superblock.geometry.first_data_block().0;
    let (mut applied, mut faults) = (0, 0);
    for seed in 0..3000 {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut prng = Prng::seeded(seed);
            let mut log = Log::new(&made);
            for _ in 0..=prng.below(3) {
                log.operation();
                let count = prng.below(6);
                let records = |encoder: &mut Encoder, out: &mut Vec<u8>| {
                    (0..count).for_each(|_| made_up(&mut prng, base, encoder, out));
                };
                log.batch_with(records, |_| {});
            }
            let report = check_all(&made.device);
            let replay = log.replay();
            // The next round begins with an empty log.
            log.write(0, &[0; 16 * 4096]);
            (replay.batches, replay.faults.len().min(report.findings.len()))
        }));
        match result {
            Ok((batches, found)) => {
                applied += batches;
                faults += found;
            }
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(applied > 1000 && faults > 500, "{applied} batches, {faults} faults");
}

/// Any record that the decoder takes, about things that are there or nearly.
fn made_up(prng: &mut Prng, base: u64, encoder: &mut Encoder, out: &mut Vec<u8>) {
    let block = BlockNo(base + prng.below(40));
    let blocks = BlockRange::new(block, 1 + prng.below(3));
    let inode = InodeNo(prng.below(26));
    let kind = *prng.pick(&[
        ItemKind::Inode,
        ItemKind::Inline,
        ItemKind::Dentry,
        ItemKind::Extent,
        ItemKind::Orphan,
    ]);
    let key = Key::new(inode, kind, prng.below(3) * 4096);
    let mut value = vec![0; prng.below(140) as usize];
    prng.fill(&mut value);
    match prng.below(7) {
        0 => encoder.put(&key, &value, out),
        1 => encoder.delete(&key, out),
        2 => {
            let blocks = BlockRange::new(block, 1 << prng.below(11));
            let extent = Extent::new(blocks, Vec::new());
            encoder.put(&Key::new(inode, ItemKind::Extent, key.offset), &extent.encode(), out);
        }
        3 => encoder.take(blocks, &Content::Unwritten, out),
        4 => encoder.take(blocks, &Content::Summed(prng.next_u64()), out),
        5 => {
            let patches = (0..blocks.count).map(|_| Patch {
                base: prng.one_in(2).then_some(BlockNo(base + prng.below(40))),
                at: prng.below(3900) as u16,
                bytes: &value,
            });
            encoder.take(blocks, &Content::Inside(patches.collect()), out);
        }
        _ => encoder.free(blocks, out),
    }
}

/// Ranges of exabytes, chains of a hundred thousand changes, and a ring full of headers that all claim
/// the same bytes cost only what is there.
#[test]
fn claims_of_a_log_cost_only_what_is_there() {
    let started = Stopwatch::start();
    // Nearly all of a volume of 1 PiB is taken for one file, or taken and given back at once.
    let maker = Maker::sample();
    let made = maker.make();
    let mut superblock = made.superblock.clone();
    superblock.geometry.volume_blocks = (1 << 50) / 4096;
    made.write_superblock(0, &superblock);
    let all = BlockRange::new(BlockNo(10_000), (1 << 38) - 10_016);
    let (mut log, mut again) = (Log::new(&made), Log::new(&made));
    log.operation();
    log.batch_with(|encoder, out| encoder.take(all, &Content::Unwritten, out), |_| {});
    let report = check_all(&made.device);
    assert!(issues(&report).contains(&Issue::BlocksLeaked), "{:?}", report.findings);
    assert_eq!(report.facts.log_batches, 1);
    again.operation();
    let records = |encoder: &mut Encoder, out: &mut Vec<u8>| {
        encoder.free(all, out);
        encoder.take(all, &Content::Unwritten, out);
    };
    again.batch_with(records, |_| {});
    let report = check_all(&made.device);
    assert_eq!(report.facts.log_batches, 1);
    assert!(!issues(&report).contains(&Issue::BlocksLeaked), "{:?}", report.findings);
    // Each block over the one before it.
    let geometry = Geometry::for_device(64 << 20, NODE).expect("64 MiB are enough");
    let geometry = geometry.with_ring_blocks(1024, geometry.journal_blocks);
    let made = Maker::empty_in(geometry).filled().make();
    let mut superblock = made.superblock.clone();
    superblock.geometry.volume_blocks = 1 << 20;
    made.write_superblock(0, &superblock);
    let mut log = Log::new(&made);
    log.operation();
    let first = made.superblock.geometry.first_data_block().0 + 1000;
    let count = 100_000;
    let patches = (0..count).map(|index| Patch {
        base: (index > 0).then(|| BlockNo(first + index - 1)),
        at: index as u16 % 4096,
        bytes: b"x",
    });
    let content = Content::Inside(patches.collect());
    let blocks = BlockRange::new(BlockNo(first), count);
    log.batch_with(|encoder, out| encoder.take(blocks, &content, out), |_| {});
    assert_eq!(check_all(&made.device).facts.log_batches, 1);
    use_all(&made.device);
    // A hole, and headers at every sector that would prove it if the sum of megabytes matched.
    let made = Maker::empty_in(geometry).filled().make();
    let mut log = Log::new(&made);
    log.operation();
    log.batch();
    let template = log.read(0, 512);
    let (len, _) = log.ring();
    for at in (512..len).step_by(512) {
        let mut bytes = template.clone();
        bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&u64::to_le_bytes(at));
        bytes[32..40].copy_from_slice(&u64::to_le_bytes(9));
        bytes[40..48].copy_from_slice(&u64::to_le_bytes(8));
        bytes[88..92].copy_from_slice(&(len as u32 - 96).to_le_bytes());
        log.write(at, &bytes);
    }
    let replay = log.replay();
    assert_eq!((replay.batches, replay.damage), (1, None));
    use_all(&made.device);
    assert!(started.elapsed() < Duration::from_secs(300));
}
