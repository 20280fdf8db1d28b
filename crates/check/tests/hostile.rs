//! Hostile and damaged images: a report or an error, never a panic or a hang (P10).
//!
//! Bytes are changed at random, with and without new checksums. Every failure
//! prints the seed that repeats it.

mod common;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use common::journal::{Journal, extent_of, new_leaf};
use common::log::Log;
use common::*;
use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::Prng;
use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, Epoch, InodeNo, TreeId};
use holdfast_check::journal::Reason;
use holdfast_check::{Issue, What, check, dump, identify, probe};
use holdfast_device::Device;
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::{Extent, FileType, InodeItem};
use holdfast_format::journal::FrameHeader;
use holdfast_format::log::{Content, Encoder, LogHeader, LogMark, Patch};
use holdfast_format::{Geometry, Key, Kind, NodePointer, Superblock};

/// Everything that reads an image.
fn use_all(device: &dyn Device) {
    let report = check(device, &holdfast_check::Options { data: true, progress: None });
    let mut out = Vec::new();
    let mut print = |what| drop(dump(device, &what, &mut out));
    print(What::Superblocks);
    print(What::Journal);
    print(What::Log);
    print(What::Tree(TreeId::Files));
    print(What::Tree(TreeId::Space));
    print(What::Inode(DATA));
    print(What::Path(b"/dir/data".to_vec()));
    if let Some(finding) = report.iter().flat_map(|report| &report.findings).next()
        && let Some(block) = finding.block
    {
        print(What::Node(block));
    }
    probe(device);
    identify(device);
}

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
    let uuid = made.superblock.uuid;
    for level in 1..=15u8 {
        let pointer = NodePointer { block: BlockNo(first + u64::from(level)), epoch: EPOCH };
        let child = NodePointer { block: BlockNo(pointer.block.0 - 1), epoch: EPOCH };
        let key = |index| if index == 0 { Key::MIN } else { Key::inode(InodeNo(index)) };
        let records: Vec<_> = (0..80).map(|at| (key(at), child.encode().to_vec())).collect();
        let bytes = node_bytes(TreeId::Files, level, pointer, &records, &uuid);
        made.poke(pointer.block, BLOCK_SIZE, |block| block.copy_from_slice(&bytes));
    }
    let files = NodePointer { block: BlockNo(first + 15), epoch: EPOCH };
    made.write_superblock(0, &Superblock { files, files_level: 15, ..made.superblock.clone() });
    let started = Stopwatch::start();
    use_all(&made.device);
    assert!(started.elapsed() < Duration::from_secs(20));
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
        let extent = Extent { blocks, sums: Vec::new() };
        maker.extent(DATA, (1 + index) * (blocks_max + 1) * 4096, &extent);
    }
    // Made for the small geometry, where they lie outside; then the superblock lies.
    let made = maker.make();
    let mut superblock = made.superblock.clone();
    superblock.geometry.volume_blocks = (1 << 63) / 4096 - 1;
    made.write_superblock(0, &superblock);
    let started = Stopwatch::start();
    let report = check_all(&made.device);
    assert!(started.elapsed() < Duration::from_secs(10));
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
    let key = Key::new(PIPE, Kind::Inode, 0);
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

/// A log of some honest batches over the ring's end.
fn write_log(log: &mut Log<'_>, prng: &mut Prng) {
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
fn damage_batches(log: &Log<'_>, prng: &mut Prng) {
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
                superblock.log = LogMark { batch: BatchNo(40), next: len - from_end, sum: 0x77 };
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

/// Records that nobody ever wrote, in batches that are whole.
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
    let kind = *prng.pick(&[Kind::Inode, Kind::Inline, Kind::Dentry, Kind::Extent, Kind::Orphan]);
    let key = Key::new(inode, kind, prng.below(3) * 4096);
    let mut value = vec![0; prng.below(140) as usize];
    prng.fill(&mut value);
    match prng.below(7) {
        0 => encoder.put(&key, &value, out),
        1 => encoder.delete(&key, out),
        2 => {
            let blocks = BlockRange::new(block, 1 << prng.below(11));
            let extent = Extent { blocks, sums: Vec::new() };
            encoder.put(&Key::new(inode, Kind::Extent, key.offset), &extent.encode(), out);
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
    // Nearly all of a volume of 1 PiB is taken for one file, and given back.
    let maker = Maker::sample();
    let made = maker.make();
    let mut superblock = made.superblock.clone();
    superblock.geometry.volume_blocks = (1 << 50) / 4096;
    made.write_superblock(0, &superblock);
    let all = BlockRange::new(BlockNo(10_000), (1 << 38) - 10_000);
    let mut log = Log::new(&made);
    log.operation();
    log.batch_with(|encoder, out| encoder.take(all, &Content::Unwritten, out), |_| {});
    let report = check_all(&made.device);
    assert!(issues(&report).contains(&Issue::BlocksLeaked), "{:?}", report.findings);
    assert_eq!(report.facts.log_batches, 1);
    log.operation();
    log.batch_with(|encoder, out| encoder.free(all, out), |_| {});
    assert_eq!(check_all(&made.device).facts.log_batches, 2);
    // Each block over the one before it.
    let mut geometry = Geometry::for_device(64 << 20, NODE).expect("64 MiB are enough");
    geometry.log_blocks = 1024;
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
    assert!(started.elapsed() < Duration::from_secs(30));
}
