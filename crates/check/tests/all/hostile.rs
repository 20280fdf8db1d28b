//! Hostile and damaged images: a report or an error, never a panic or a hang (P10).
//!
//! Bytes are changed at random, with and without new checksums. Every failure
//! prints the seed that repeats it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, Epoch, InodeNo, TreeId};
use holdfast_check::journal::Reason;
use holdfast_check::{Issue, check};
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::{Extent, FileType, InodeItem};
use holdfast_format::journal::FrameHeader;
use holdfast_format::{ItemKind, Key, NodePointer, Superblock};

use crate::common::journal::{Journal, extent_of, new_leaf};
use crate::common::*;

#[test]
fn random_damage_is_survived() {
    let started = Stopwatch::start();
    let mut rounds = 0u64;
    let mut noticed = 0u64;
    while rounds < 400 || (started.elapsed() < Duration::from_secs(3) && rounds < 20_000) {
        let seed = rounds;
        rounds += 1;
        let mut prng = Prng::seeded(seed);
        let mut maker = Maker::sample();
        maker.leaf_items = *prng.pick(&[usize::MAX, 5, 3]);
        let made = maker.make();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut prng = Prng::seeded(seed);
            for _ in 0..=prng.below(3) {
                damage(&made, &mut prng);
            }
            use_all(&made.device);
            let report = check(&made.device, &holdfast_check::Options::default());
            report.is_err() || report.is_ok_and(|report| !report.findings.is_empty())
        }));
        match result {
            Ok(found) => noticed += u64::from(found),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Some damage hits free space or changes nothing that is judged, such as a time.
    assert!(noticed * 2 > rounds, "only {noticed} of {rounds} damages were noticed");
}

/// Overwrites some bytes of a node or superblock, mostly with a new checksum.
fn damage(made: &Made, prng: &mut Prng) {
    let slot = prng.below(12) as usize;
    let block = match slot {
        0 | 1 => SUPERBLOCK_SLOTS[slot],
        2 => made.space.block,
        _ => prng.pick(&made.files).block,
    };
    let reseal = !prng.one_in(5);
    made.poke(block, BLOCK_SIZE, |bytes| {
        for _ in 0..=prng.below(4) {
            let at = match prng.below(3) {
                0 => prng.below(272),
                1 => BLOCK_SIZE as u64 - 1 - prng.below(1500),
                _ => prng.below(BLOCK_SIZE as u64),
            };
            let len = (1 + prng.below(8)).min(BLOCK_SIZE as u64 - at);
            let part = &mut bytes[at as usize..(at + len) as usize];
            match prng.below(4) {
                0 => part.fill(0xff),
                1 => part.fill(0),
                2 => part[0] ^= 1 << prng.below(8),
                _ => prng.fill(part),
            }
        }
        if reseal && slot < 2 {
            let sum = holdfast_format::checksum::crc64_with_hole(bytes, 16);
            bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        } else if reseal {
            holdfast_format::node::seal(bytes);
        }
    });
}

/// A tree in which each node names the next one many times would have more paths than atoms.
#[test]
fn shared_nodes_do_not_multiply() {
    let maker = Maker::sample();
    let made = maker.make();
    let first = made.superblock.geometry.first_data_block().0 + 500;
    for level in 1..=15u8 {
        let pointer = NodePointer { block: BlockNo(first + u64::from(level)), epoch: EPOCH };
        let child = NodePointer { block: BlockNo(pointer.block.0 - 1), epoch: EPOCH };
        let key = |index| if index == 0 { Key::MIN } else { Key::inode(InodeNo(index)) };
        let records: Vec<_> = (0..80).map(|at| (key(at), child.encode().to_vec())).collect();
        let bytes = node_bytes(TreeId::Files, level, pointer, &records);
        made.poke(pointer.block, BLOCK_SIZE, |block| block.copy_from_slice(&bytes));
    }
    let files = NodePointer { block: BlockNo(first + 15), epoch: EPOCH };
    made.write_superblock(0, &Superblock { files, files_level: 15, ..made.superblock.clone() });
    let started = Stopwatch::start();
    use_all(&made.device);
    assert!(started.elapsed() < Duration::from_secs(200));
}

/// Extents that claim nearly everything on a device of exabytes cost nothing.
#[test]
fn claims_of_exabytes_cost_neither_time_nor_memory() {
    let mut maker = Maker::sample();
    let blocks_max = u64::from(u32::MAX);
    maker.change(DATA, |item| item.blocks = 5 + 60 * blocks_max);
    for index in 0..60u64 {
        let start = BlockNo(10_000 + index * blocks_max);
        let blocks = BlockRange::new(start, blocks_max);
        let extent = Extent::new(blocks, Vec::new());
        maker.extent(DATA, (1 + index) * (blocks_max + 1) * 4096, &extent);
    }
    // Made for the small geometry, where they lie outside; then the superblock lies.
    let made = maker.make();
    let mut superblock = made.superblock.clone();
    superblock.geometry.volume_blocks = (1 << 63) / 4096 - 1;
    made.write_superblock(0, &superblock);
    let started = Stopwatch::start();
    let report = check_all(&made.device);
    assert!(started.elapsed() < Duration::from_secs(100));
    assert!(report.facts.data_blocks > 60 * blocks_max);
    assert!(!report.is_clean());
}

#[test]
fn long_chains_of_directories_end() {
    let mut maker = Maker::sample();
    let count = 6000u64;
    let number = |index: u64| InodeNo(100 + index);
    for index in 0..count {
        let parent = if index == 0 { SUB } else { number(index - 1) };
        let last = index + 1 == count;
        let item = InodeItem {
            parent,
            ..inode(FileType::Directory, if last { 2 } else { 3 }, u64::from(!last))
        };
        maker.inode(number(index), item);
        maker.dentry(parent, "down", number(index), FileType::Directory);
    }
    maker.change(SUB, |item| (item.size, item.nlink) = (1, 3));
    maker.superblock(move |superblock| superblock.inode_next = number(count));
    let last = number(count - 1);
    // A wrong count at the far end, where no path reaches any more.
    maker.change(last, |item| item.size = 1);
    let report = check_all(&maker.make().device);
    assert_eq!(issues(&report), [holdfast_check::Issue::DirectorySize]);
    assert_eq!(report.findings[0].path, None);
}

#[test]
fn an_inode_with_too_many_links_in_its_head_is_one_finding() {
    let mut maker = Maker::sample();
    let key = Key::new(PIPE, ItemKind::Inode, 0);
    maker.files.get_mut(&key).expect("it exists")[12..16].fill(0xff);
    let report = check_all(&maker.make().device);
    assert_eq!(issues(&report), [holdfast_check::Issue::ItemDamaged]);
    assert_eq!(report.findings[0].path.as_deref(), Some("/pipe"));
}

/// A journal of some commits, honest ones and ones in several frames.
fn write_journal(journal: &mut Journal<'_>, prng: &mut Prng) {
    let mut epoch = 5;
    for _ in 0..=prng.below(4) {
        let mut parts = journal.step(Epoch(epoch));
        if prng.one_in(2) {
            parts.changes.push(new_leaf(journal, Epoch(epoch)));
        }
        // A leaf that is made and gone in one commit.
        if prng.one_in(3) {
            let leaf = new_leaf(journal, Epoch(epoch));
            parts.cancels.push(leaf.block);
            parts.changes.push(leaf);
        }
        if prng.one_in(3) {
            let first = journal.made.superblock.geometry.first_data_block();
            parts.extents.push(extent_of(&journal.made.device, first, 1 + prng.below(4)));
        }
        journal.commit(&parts, 1 + prng.below(3) as usize);
        epoch += prng.below(2);
    }
    if prng.one_in(4) {
        journal.close();
    }
}

/// Changes bytes of a frame of one block; with `resum` its sum follows, and so do those of all frames
/// behind it, which are chained to it.
fn damage_frames(journal: &Journal<'_>, prng: &mut Prng) {
    let victim = prng.below(journal.frames.len() as u64) as usize;
    let resum = !prng.one_in(4);
    let mut prior = None;
    for (index, &at) in journal.frames.iter().enumerate().skip(victim) {
        journal.made.poke(at, BLOCK_SIZE, |bytes| {
            let len_at = FrameHeader::SIZE - 24;
            let len = |bytes: &[u8]| u32::from_le_bytes([0, 1, 2, 3].map(|at| bytes[len_at + at]));
            if index == victim {
                // The header, the head of a payload, or anywhere in it.
                let end = (FrameHeader::SIZE as u64 + u64::from(len(bytes))).min(4096);
                for _ in 0..=prng.below(3) {
                    let at = match prng.below(3) {
                        0 => prng.below(FrameHeader::SIZE as u64),
                        1 => (96 + prng.below(112)).min(end - 1),
                        _ => prng.below(end),
                    } as usize;
                    match prng.below(4) {
                        0 => bytes[at] = 0xff,
                        1 => bytes[at] = 0,
                        2 => bytes[at] ^= 1 << prng.below(8),
                        _ => bytes[at] = bytes[at].wrapping_add(1),
                    }
                }
            }
            if let Some(prior) = prior {
                bytes[56..64].copy_from_slice(&u64::to_le_bytes(prior));
            }
            if resum {
                let end = (FrameHeader::SIZE + len(bytes) as usize).min(BLOCK_SIZE);
                let sum = crc64_with_hole(&bytes[..end], 8);
                bytes[8..16].copy_from_slice(&sum.to_le_bytes());
                prior = Some(sum);
            }
        });
        if !resum {
            break;
        }
    }
}

/// What is read of a journal may be anything; what comes of it is an answer (P10).
#[test]
fn damaged_journals_are_survived() {
    let started = Stopwatch::start();
    let (mut rounds, mut applied, mut ended) = (0u64, 0, 0);
    while rounds < 300 || (started.elapsed() < Duration::from_secs(2) && rounds < 10_000) {
        let seed = rounds;
        rounds += 1;
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut prng = Prng::seeded(seed);
            let mut maker = Maker::sample();
            let from_end = prng.below(64) + 1;
            maker.superblock(move |superblock| {
                let ring = superblock.geometry.journal();
                superblock.journal.next = BlockNo(ring.start.0 + ring.count - from_end);
            });
            let made = maker.make();
            let mut journal = Journal::new(&made);
            write_journal(&mut journal, &mut prng);
            let whole = journal.expect(journal.mark.commit.0 - 7).commits;
            for _ in 0..=prng.below(2) {
                damage_frames(&journal, &mut prng);
            }
            use_all(&made.device);
            let replay = journal.replay();
            assert!(replay.commits <= whole);
            (replay.commits, u64::from(replay.commits < whole))
        }));
        match result {
            Ok((commits, before)) => {
                applied += commits;
                ended += before;
            }
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(applied > rounds / 2, "{applied} commits of {rounds} journals were applied");
    assert!(ended > rounds / 2, "{ended} of {rounds} journals ended early");
}

/// A commit that claims more nodes than memory may hold, and frames that lie over each other.
#[test]
fn claims_of_a_journal_cost_only_what_is_there() {
    let made = Maker::sample().make();
    let mut journal = Journal::new(&made);
    let parts = journal.step(Epoch(5));
    let mut payload = journal.payload(&parts);
    // The counts of records, cancels and extents.
    payload[72..84].fill(0xff);
    journal.put(&payload, 1);
    assert_eq!(issues(&check_all(&made.device)), [Issue::CommitMalformed]);
    // A commit of all frames that there can be.
    let made = Maker::sample().make();
    let mut journal = Journal::new(&made);
    journal.now.epoch = Epoch(5);
    for index in 0..64 {
        let header = journal.header(8, index, u32::MAX);
        journal.frame(header, &[1]);
    }
    let replay = journal.replay();
    assert_eq!((replay.commits, replay.end.reason), (0, Reason::Incomplete), "{:?}", replay.end);
    use_all(&made.device);
}
