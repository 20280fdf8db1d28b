//! What is taken of forged logs behind a hole: an answer, and never two owners of one thing (P10).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, InodeNo};
use holdfast_check::reading::{Gaps, MadeLater, VolumeReading};
use holdfast_device::Device;
use holdfast_format::checksum::block_sum;
use holdfast_format::item::{Dentry, Extent, FileType};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::log::{Content, LogHeader};
use holdfast_format::{ItemKind, Key};

use super::hostile_log::{damage_batches, write_log};
use crate::common::log::*;
use crate::common::*;

const MAIN: u64 = 1;

fn crossed(made: &Made) -> VolumeReading<'_> {
    VolumeReading::open_over(&made.device, false, Gaps::Cross).expect("there is a volume")
}

/// Files of `main` that come back.
fn files(made: &Made) -> Vec<InodeNo> {
    crossed(made).made_later().keys().map(|(_, inode)| *inode).collect()
}

/// A batch, another that is lost, but proven by all that follow, and one that says which inodes are older: what comes then is the test's.
fn with_hole(made: &Made) -> Log<'_> {
    let mut log = Log::new(made);
    for _ in 0..3 {
        log.chown(PIPE);
        log.batch();
    }
    log
}

fn lose(log: &Log<'_>, batch: usize) {
    log.poke(log.batches[batch], false, |bytes| bytes[LogHeader::SIZE + 4] ^= 1);
}

/// Blocks of data that two files have that are there behind the hole.
fn shared(reading: &VolumeReading<'_>) -> Vec<u64> {
    let of_later = |key: &&Key| reading.made_later().contains_key(&(MAIN, key.inode));
    let extents = reading.changes(MAIN).iter().filter(|(key, _)| of_later(key));
    let extents = extents.filter(|(key, _)| key.kind == ItemKind::Extent);
    let extents = extents.filter_map(|(_, change)| Extent::decode(change.value.as_ref()?).ok());
    let blocks = extents.map(|of| of.blocks).flat_map(|of| of.start.0..of.start.0 + of.count);
    let mut blocks: Vec<u64> = blocks.collect();
    blocks.sort_unstable();
    blocks.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect()
}

#[test]
fn what_is_made_behind_a_hole_comes_back() {
    let made = made();
    let mut log = with_hole(&made);
    let new = log.create("new", 1);
    log.batch();
    log.overwrite(new, 5, b"more");
    log.batch();
    log.chown(PIPE);
    log.batch();
    lose(&log, 1);
    let file = MadeLater { last_batch: 5, blocks: 1, used_again: 0, unread: 0 };
    assert_eq!(crossed(&made).made_later().iter().collect::<Vec<_>>(), [(&(MAIN, new), &file)]);
    // Only a repair asks which blocks are needed for that.
    let taken = log.block_of(new).0;
    let needs = |reading: VolumeReading<'_>| {
        reading.rings().needed.iter().any(|(start, end)| (*start..*end).contains(&taken))
    };
    assert!(needs(crossed(&made)));
    let plain = VolumeReading::open(&made.device, false).expect("there is a volume");
    assert!(!needs(plain));
}

/// Of each file its data is looked at, in the log and in its place.
#[test]
fn what_was_used_again_is_counted() {
    let made = made();
    let mut log = with_hole(&made);
    let [sound, gone, half] = ["sound", "gone", "half"].map(|name| log.create(name, 1));
    let second = log.free_blocks(1);
    log.take(second, Data::Written);
    let page = vec![0; BLOCK_SIZE];
    let extent = Extent::new(second, vec![block_sum(&page)]);
    log.put(Key::new(half, ItemKind::Extent, BLOCK_SIZE as u64), extent.encode());
    log.batch();
    for _ in 0..2 {
        log.chown(PIPE);
        log.batch();
    }
    lose(&log, 1);
    for file in [gone, half] {
        made.poke(log.block_of(file), BLOCK_SIZE, |bytes| bytes[9] ^= 8);
    }
    let reading = crossed(&made);
    let found: Vec<_> = reading.made_later().iter().map(|(of, file)| (of.1, *file)).collect();
    let file = |blocks, used_again| MadeLater { last_batch: 4, blocks, used_again, unread: 0 };
    assert_eq!(found, [(sound, file(1, 0)), (half, file(2, 1))]);
    assert!(reading.changes(MAIN).keys().all(|key| key.inode != gone));
    let names = reading.cut_changes().remove(&MAIN).expect("something is lost").names;
    assert!(names.iter().any(|(_, name, inode)| (&name[..], *inode) == (b"gone", gone)));
}

/// Lengths that reach over the ring, or over themselves; the batches behind them are there.
#[test]
fn lengths_beyond_the_ring_are_no_batches() {
    for (at, value) in [(4, u32::MAX), (4, 4 << 20), (4, 513), (88, u32::MAX), (88, 4 << 20)] {
        for resum in [false, true] {
            let made = made_near_the_end(2048);
            let mut log = with_hole(&made);
            log.create("before", 1);
            log.batch();
            log.chown(PIPE);
            log.batch();
            let new = log.create("new", 2);
            log.batch();
            log.chown(PIPE);
            log.batch();
            lose(&log, 1);
            let bad = log.batches[3];
            log.poke(bad, resum, |bytes| {
                bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            });
            assert_eq!(files(&made), [new], "{at}: {value}");
        }
    }
}

/// Batches that name each other's numbers, one that follows itself, and one place that has another batch than the other one has there.
#[test]
fn chains_that_loop_end() {
    for copies in [false, true] {
        let made = match copies {
            false => Maker::sample().make(),
            true => Maker::sample_with_ring_copies().make(),
        };
        let mut log = with_hole(&made);
        let numbers = [9, 10, 9, 10, 10, 8, 11, 3];
        for number in numbers {
            log.create(&format!("{number} {}", log.mark.next), 1);
            log.durable = Some(number - 1);
            log.batch_with(|_, _| {}, |header| header.number = number);
        }
        // It lies where it began: behind the ring's last byte is its first.
        let at = log.mark.next;
        log.chown(PIPE);
        log.batch();
        let own = LogHeader::decode(&log.read(at, LogHeader::SIZE)).expect("it is whole").sum;
        log.poke(at, true, |bytes| bytes[48..56].copy_from_slice(&own.to_le_bytes()));
        lose(&log, 1);
        let reading = crossed(&made);
        assert_eq!(shared(&reading), [0u64; 0]);
        assert!(reading.made_later().len() <= numbers.len());
    }
}

/// A header with such a number is none, or one of a batch as any other.
#[test]
fn numbers_at_their_end_are_survived() {
    for most in [COUNTER_MAX, COUNTER_MAX + 1, u64::MAX] {
        type Change = fn(&mut LogHeader, u64);
        let changes: [Change; 6] = [
            |header, most| header.number = most,
            |header, most| (header.number, header.durable) = (most, most - 1),
            |header, most| header.last = most,
            |header, most| (header.after, header.last) = (most - 1, most),
            |header, most| header.inode_next = most,
            |header, most| header.inode_count = most,
        ];
        for change in changes {
            let made = made();
            let mut log = with_hole(&made);
            log.create("first", 1);
            log.batch_with(|_, _| {}, |header| change(header, most));
            log.mark.batch = BatchNo(4);
            for name in ["second", "third"] {
                log.create(name, 1);
                log.batch();
            }
            lose(&log, 1);
            let reading = crossed(&made);
            assert!(reading.made_later().len() <= 3);
            assert_eq!(shared(&reading), [0u64; 0]);
            reading.rings();
            reading.cut_changes();
        }
    }
}

/// The last chain has what two claim: an inode, a name, blocks.
#[test]
fn what_two_chains_claim_is_that_of_the_last() {
    for claims_inode in [true, false] {
        let made = made();
        let mut log = with_hole(&made);
        let first = log.create("file", 1);
        let block = log.block_of(first);
        log.batch();
        log.chown(PIPE);
        // The second hole, and what follows calls no inode old, or each.
        log.batch();
        log.chown(PIPE);
        log.batch_with(
            |_, _| {},
            |header| {
                if claims_inode {
                    header.inode_next = first.0;
                }
            },
        );
        let second = match claims_inode {
            true => first,
            false => InodeNo(log.now.inode_next.0 + 3),
        };
        log.operation();
        let mut item = log.now.items[&Key::inode(first)].clone();
        item[0] ^= 1;
        log.put(Key::inode(second), item);
        let name = Dentry { inode: second, file_type: FileType::Regular, name: b"file" };
        log.put(dentry_key(ROOT, "file"), name.encode());
        let sums = vec![block_sum(&[1; BLOCK_SIZE])];
        let extent = Extent::new(BlockRange::new(block, 1), sums);
        log.put(Key::new(second, ItemKind::Extent, 0), extent.encode());
        log.take(BlockRange::new(block, 1), Data::Written);
        log.now.inode_next = InodeNo(second.0 + 1);
        log.batch();
        log.chown(PIPE);
        log.batch();
        lose(&log, 1);
        lose(&log, 4);
        let reading = crossed(&made);
        let found: Vec<InodeNo> = reading.made_later().keys().map(|(_, inode)| *inode).collect();
        assert_eq!(found, [second]);
        assert_eq!(shared(&reading), [0u64; 0]);
        let change = reading.changes(MAIN).get(&dentry_key(ROOT, "file"));
        let value = change.and_then(|change| change.value.as_ref()).expect("it has its name");
        assert_eq!(Dentry::decode(value).map(|of| of.inode), Ok(second));
    }
}

/// However much batches claim, what it costs is theirs.
#[test]
fn claims_cost_what_the_ring_has() {
    let made = made();
    let mut log = with_hole(&made);
    let all = made.superblock.geometry.first_data_block();
    let count = made.device.len() / BLOCK_SIZE as u64 - all.0 - 64;
    let started = Stopwatch::start();
    for _ in 0..8 {
        log.create("new", 1);
        log.batch_with(
            |encoder, out| {
                for at in 0..400 {
                    let blocks = BlockRange::new(BlockNo(all.0 + at % 7), count - at);
                    encoder.take(blocks, &Content::Unwritten, out);
                }
            },
            |_| {},
        );
    }
    lose(&log, 1);
    let reading = crossed(&made);
    let needed = reading.rings().needed;
    let most = needed.iter().map(|(start, end)| end - start).max();
    assert!(most >= Some(count), "{most:?}");
    assert!(needed.len() < 100, "{}", needed.len());
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// Any bytes of batches changed, behind one that is lost.
#[test]
fn damaged_chains_are_survived() {
    let mut back = 0;
    for seed in 0..400 {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut prng = Prng::seeded(seed);
            let made = made_near_the_end((prng.below(8) + 1) * 4096);
            let mut log = Log::new(&made);
            log.sector = *prng.pick(&[512, 4096]);
            write_log(&mut log, &mut prng);
            lose(&log, prng.below(log.batches.len() as u64 - 1) as usize);
            for _ in 0..prng.below(3) {
                damage_batches(&log, &mut prng);
            }
            let reading = crossed(&made);
            assert_eq!(shared(&reading), [0u64; 0]);
            reading.rings();
            reading.cut_changes();
            reading.made_later().len()
        }));
        match result {
            Ok(files) => back += files,
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(back > 20, "{back} files came back");
}
