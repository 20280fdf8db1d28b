//! Replay of logs that are written by hand, and what a check says of them (P1, P3, P9, P10).

use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, Epoch};
use holdfast_check::journal::{Reason, replay as replay_journal};
use holdfast_check::{Issue, Subject, dump, probe};
use holdfast_format::checksum::block_sum;
use holdfast_format::item::Extent;
use holdfast_format::log::{Content, LogHeader, LogMark};
use holdfast_format::{ItemKind, Key};

use crate::common;
use crate::common::journal::Journal;
use crate::common::log::*;
use crate::common::*;

/// The sample with leaves of few items, so that changes fall before, between and behind leaves.
fn made_of_small_leaves() -> Made {
    let mut maker = Maker::sample();
    maker.leaf_items = 3;
    maker.make()
}

#[test]
fn an_empty_log_changes_nothing() {
    let made = made();
    let log = Log::new(&made);
    let replay = log.expect(0);
    assert_eq!(
        (replay.end.reason, replay.end.batch, replay.end.at),
        (Reason::Nothing, BatchNo(1), 0)
    );
    assert_eq!(replay.superblock, made.superblock);
}

#[test]
fn batches_change_the_volume_one_after_the_other() {
    for made in [made(), made_of_small_leaves()] {
        let mut log = Log::new(&made);
        let mut views = vec![log.view()];
        let new = log.create("new", 7);
        log.batch();
        views.push(log.view());
        log.overwrite(new, 100, b"inside");
        log.chown(PIPE);
        log.batch();
        views.push(log.view());
        log.rename("new", "renamed");
        log.rename("inline", "outline");
        log.batch();
        views.push(log.view());
        let short = log.create("short", 9);
        log.remove("short", short);
        log.remove("renamed", new);
        log.batch();
        views.push(log.view());
        let replay = log.expect(4);
        assert_eq!((replay.end.reason, replay.end.batch), (Reason::Nothing, BatchNo(5)));
        assert_eq!(replay.superblock.log, log.mark);
        // Each batch that is missing at the end takes its own operations away and nothing else.
        for (index, &at) in log.batches.iter().enumerate().rev() {
            log.poke(at, false, |bytes| bytes[130] ^= 1);
            let replay = log.expect_view(index as u64, &views[index]);
            assert_eq!((replay.end.reason, replay.end.at), (Reason::Incomplete, at));
        }
    }
}

/// A look through `get`, `look_up` and the passes shows no seam between tree and log.
#[test]
fn names_and_items_of_the_log_are_like_those_of_the_tree() {
    let made = made_of_small_leaves();
    let mut log = Log::new(&made);
    log.create("new", 7);
    log.rename("inline", "outline");
    log.batch();
    let printed = |path: &str| {
        let mut out = Vec::new();
        let done = dump(&made.device, &Subject::path(path.as_bytes()), &mut out);
        done.map(|()| String::from_utf8(out).expect("a dump is text"))
    };
    let text = printed("/new").expect("the log makes it");
    let block = made.superblock.geometry.log().start;
    assert!(text.contains("type=Regular") && text.contains("kind=Extent"), "{text}");
    assert!(text.lines().all(|line| line.starts_with(&format!("item node={block} "))), "{text}");
    assert!(printed("/outline").expect("the log renames it").contains("kind=Inline"));
    assert!(printed("/inline").is_err());
    let report = check_all(&made.device);
    assert_eq!((report.facts.inodes, report.facts.log_batches), (9, 1));
    assert_eq!(report.facts.log_bytes_used, 512);
    assert!(report.facts.log_records >= 7);
    let summary = probe(&made.device).expect("it is a volume");
    assert_eq!((summary.lsn, summary.inodes, summary.inode_next), (102, 9, 24));
    assert_eq!((summary.log_batches, summary.log_bytes_used), (1, 512));
    assert_eq!(summary.used_blocks, made.superblock.used_blocks + 1);
    assert!(summary.recovery_estimate > std::time::Duration::ZERO);
    // Damage in a batch is found like damage in a tree, with the path that the log gives it.
    log.operation();
    log.change(INLINE, |item| item.size = 3);
    log.batch();
    let report = check_all(&made.device);
    assert_eq!(issues(&report), [Issue::ContentWrong]);
    assert_eq!(report.findings[0].path.as_deref(), Some("/outline"));
}

#[test]
fn batches_go_on_at_the_rings_start() {
    let mut straddling = 0;
    for (sector, from_end) in [(512, 512), (512, 1024), (512, 2048), (4096, 4096), (4096, 8192)] {
        let made = made_near_the_end(from_end);
        let mut log = Log::new(&made);
        log.sector = sector;
        let mut files = Vec::new();
        for index in 0..4 {
            // A batch of some sectors, so that one lies on both sides of the end.
            for inside in 0..=index {
                files.push(log.create(&format!("file {index} {inside}"), index));
                log.overwrite(files[0], 5, &[index; 900]);
            }
            log.batch();
        }
        assert!(log.mark.next < log.batches[0], "{from_end}: {:?}", log.batches);
        assert!(log.batches.iter().all(|at| at.is_multiple_of(sector as u64)));
        log.expect(4);
        // What lies over the ring's end is judged to its last byte.
        let straddles = |&&at: &&u64| {
            let header = LogHeader::decode(&log.read(at, LogHeader::SIZE)).expect("it is whole");
            at + u64::from(header.bytes) > log.ring().0
        };
        if let Some(&at) = log.batches.iter().find(straddles) {
            let index = log.batches.iter().position(|batch| *batch == at);
            let header = log.read(at, LogHeader::SIZE);
            let header = LogHeader::decode(&header).expect("it is whole");
            let last = LogHeader::SIZE + header.len as usize - 1;
            log.poke(at, false, |bytes| bytes[last] ^= 1);
            assert_eq!(Some(log.replay().batches as usize), index);
            straddling += 1;
        }
    }
    assert!(straddling >= 3);
}

/// A ring that is used up many times: dead batches of earlier rounds lie everywhere.
#[test]
fn a_ring_is_used_again_and_again() {
    let made = made_near_the_end(512 * 7);
    let (len, _) = Log::new(&made).ring();
    let mut log = Log::new(&made);
    let mut used = 0;
    while used < 3 * len {
        for inode in [PIPE, INLINE, DIR] {
            log.chown(inode);
        }
        log.batch();
        used += 512;
    }
    // A checkpoint has contained all of it but the last three.
    let keep = log.batches.len() - 3;
    let header = log.read(log.batches[keep], LogHeader::SIZE);
    let header = LogHeader::decode(&header).expect("it is whole");
    let mut superblock = made.superblock.clone();
    superblock.log =
        LogMark { batch: BatchNo(header.number - 1), next: log.batches[keep], sum: header.prior };
    superblock.lsn.0 = header.after;
    made.write_superblock(0, &superblock);
    let journal = replay_journal(&made.device, &superblock).expect("it reads");
    let replay = holdfast_check::log::replay(&made.device, &journal).expect("it reads");
    assert_eq!((replay.batches, &replay.damage, &replay.faults[..]), (3, &None, &[][..]));
    assert_eq!(check_all(&made.device).findings, []);
}

/// What a commit contains is passed over, and the rest builds on the commit.
#[test]
fn batches_that_the_journal_contains_are_passed_over() {
    let made = made();
    let mut journal = Journal::new(&made);
    let mut log = Log::new(&made);
    // Both batches are of operations that the commit contains: it changes the same as they do.
    for _ in 0..2 {
        log.chown(PIPE);
        log.change(INLINE, |item| item.uid += 1);
        log.batch();
    }
    log.expect(2);
    for _ in 0..2 {
        journal.honest(5);
    }
    assert_eq!(journal.now.lsn, log.now.lsn);
    let replay = log.expect(0);
    assert_eq!((replay.skipped, replay.end.batch), (2, BatchNo(3)));
    assert_eq!(replay.superblock.log, log.mark);
    // The next one builds on the commit, and may have been written before it was durable.
    log.create("new", 1);
    log.batch();
    let replay = log.expect(1);
    assert_eq!((replay.skipped, replay.bytes), (2, 1536));
    // A commit whose mark lies behind the first of them.
    let made = common::log::made();
    let mut journal = Journal::new(&made);
    let mut log = Log::new(&made);
    log.chown(PIPE);
    log.change(INLINE, |item| item.uid += 1);
    log.batch();
    journal.now.log = log.mark;
    journal.honest(5);
    log.create("new", 1);
    log.batch();
    let replay = log.expect(1);
    assert_eq!((replay.skipped, replay.bytes), (0, 512));
}

#[test]
fn a_journal_that_was_closed_or_is_damaged_ends_the_log() {
    let made = made();
    let mut journal = Journal::new(&made);
    let mut log = Log::new(&made);
    log.chown(PIPE);
    log.batch();
    log.chown(PIPE);
    log.batch();
    log.poke(0, false, |bytes| bytes[100] ^= 1);
    assert_eq!(issues(&check_all(&made.device)), [Issue::LogDamaged]);
    journal.now.epoch = Epoch(5);
    journal.close();
    let replay = log.replay();
    assert_eq!((replay.batches, replay.damage), (0, None));
    assert_eq!(check_all(&made.device).findings, []);
    // What a log builds on must be there.
    let made = common::log::made();
    let mut journal = Journal::new(&made);
    for _ in 0..3 {
        journal.honest(5);
    }
    let mut log = Log::behind(&made, &journal.now);
    log.chown(PIPE);
    log.batch();
    log.expect(1);
    made.poke(journal.frames[1], BLOCK_SIZE, |bytes| bytes[200] ^= 4);
    assert_eq!(log.replay().end.reason, Reason::Broken);
    assert_eq!(issues(&check_all(&made.device)), [Issue::JournalDamaged]);
    assert_eq!(last_shown(&made.device), log.replay().superblock.lsn);
}

#[test]
fn the_data_of_the_last_batch_must_be_there() {
    let made = made();
    let mut log = Log::new(&made);
    log.create("first", 1);
    log.batch();
    let before = log.view();
    let second = log.create("second", 2);
    let at = log.batch();
    log.expect(2);
    let data = log.block_of(second);
    made.poke(data, BLOCK_SIZE, |bytes| bytes[9] ^= 8);
    let replay = log.expect_view(1, &before);
    assert_eq!((replay.end.reason, replay.end.at), (Reason::DataMissing, at));
    assert!(
        replay.end.why.contains(&format!("1 blocks of data from {data} on")),
        "{:?}",
        replay.end
    );
    // A batch behind it was written when the data was durable: then it is the file's loss.
    log.chown(PIPE);
    log.batch();
    assert_eq!(log.replay().batches, 3);
    assert_eq!(issues(&check_all(&made.device)), [Issue::DataDamaged]);
    // The data of those before the last is not looked at, and what is there makes it whole again.
    made.poke(data, BLOCK_SIZE, |bytes| bytes[9] ^= 8);
    log.expect(3);
}

/// Data that one flush made durable is all looked at: there may be only so much of it.
#[test]
fn batches_of_one_flush_share_the_limit_of_data() {
    let mut maker = Maker::sample();
    maker.geometry.volume_blocks = 4096;
    let made = maker.make();
    for (durable, batches) in [(0, 1), (1, 2)] {
        let mut log = Log::new(&made);
        for (batch, durable) in [(0, 0), (1, durable)] {
            log.operation();
            log.durable = Some(durable);
            let start = BlockNo(made.superblock.geometry.first_data_block().0 + 100 + batch * 700);
            let blocks = BlockRange::new(start, 600);
            let content = Content::Summed(sum_of(&made, blocks));
            log.batch_with(|encoder, out| encoder.take(blocks, &content, out), |_| {});
        }
        let replay = log.replay();
        assert_eq!((replay.batches, replay.faults.len()), (batches, 2 - batches as usize));
        assert_eq!(recovered(&made.device).is_ok(), batches == 2);
        log.write(0, &[0; 1024]);
    }
}

/// Two batches of one flush: neither proves that the data of the other arrived.
#[test]
fn batches_of_one_flush_must_all_have_their_data() {
    let made = made();
    let mut log = Log::new(&made);
    log.create("first", 1);
    log.batch();
    let before = log.view();
    log.durable = Some(1);
    let second = log.create("second", 2);
    let at = log.batch();
    log.create("third", 3);
    log.batch();
    log.expect(3);
    made.poke(log.block_of(second), BLOCK_SIZE, |bytes| bytes[9] ^= 8);
    let replay = log.expect_view(1, &before);
    assert_eq!((replay.end.reason, replay.end.at), (Reason::DataMissing, at));
    // A later flush: the data of both was there.
    log.durable = None;
    log.chown(PIPE);
    log.batch();
    assert_eq!(log.replay().batches, 4);
}

#[test]
fn data_that_does_not_read_speaks_against_its_file() {
    let made = made();
    let mut log = Log::new(&made);
    let new = log.create("new", 1);
    log.batch();
    let rotten = Rotten(made.device.snapshot(), BlockRange::new(log.block_of(new), 1));
    let report = check_all(&rotten);
    assert_eq!((report.facts.log_batches, report.facts.inodes), (1, 9));
    assert_eq!(issues(&report), [Issue::DataUnreadable]);
    assert_eq!(report.findings[0].path.as_deref(), Some("/new"));
    // The same for a block that lies in the log over one that does not read.
    log.overwrite(new, 7, b"seven");
    log.batch();
    let old = log.batches.len();
    assert_eq!(old, 2);
    let base = BlockNo(log.block_of(new).0 - 1);
    let report = check_all(&Rotten(made.device.snapshot(), BlockRange::new(base, 1)));
    assert_eq!((report.facts.log_batches, issues(&report)), (2, vec![Issue::DataUnreadable]));
}

#[test]
fn data_inside_is_read_over_its_bases() {
    let made = made();
    let mut log = Log::new(&made);
    let new = log.create("new", 1);
    // Over a block of the same batch, over data of earlier batches, and far more often than are joined.
    log.overwrite(new, 0, b"first");
    log.batch();
    for index in 0..100u8 {
        log.overwrite(new, usize::from(index) * 40, &[index; 50]);
        if index % 3 == 0 {
            log.batch();
        }
    }
    let batches = log.batches.len() as u64;
    let replay = log.expect(batches);
    let journal = replay_journal(&made.device, &made.superblock).expect("it reads");
    let work = replay.work(&journal);
    assert_eq!((work.journal_bytes, work.log_bytes, work.log_blocks), (0, replay.bytes, 1));
    // Whole blocks and blocks over zeros, several in one record.
    log.operation();
    let blocks = log.free_blocks(3);
    let old = BlockRange::new(log.block_of(new), 1);
    let mut last = log.pages[&old.start.0].clone();
    last[4090..].fill(5);
    let pages = [vec![3; BLOCK_SIZE], [vec![0; 40], vec![4; 20], vec![0; 4036]].concat(), last];
    let sums = pages.iter().map(|page| block_sum(page)).collect();
    let patches = vec![
        (None, 0, pages[0].clone()),
        (None, 40, vec![4; 20]),
        (Some(old.start), 4090, vec![5; 6]),
    ];
    log.take(blocks, Data::Inside(patches));
    log.give_back(old);
    log.put(Key::new(new, ItemKind::Extent, 0), Extent::new(blocks, sums).encode());
    log.change(new, |item| (item.size, item.blocks) = (3 * 4096, 3));
    log.batch();
    log.expect(batches + 1);
    // Wrong bytes in a batch are the file's loss, as on the device.
    log.operation();
    let blocks = log.free_blocks(1);
    log.take(blocks, Data::Inside(vec![(None, 0, b"wrong".to_vec())]));
    let extent = Extent::new(blocks, vec![1]);
    log.put(Key::new(new, ItemKind::Extent, 8 * 4096), extent.encode());
    log.change(new, |item| item.blocks = 4);
    log.batch();
    let report = check_all(&made.device);
    assert_eq!(issues(&report), [Issue::DataDamaged]);
    assert_eq!(report.findings[0].block, Some(blocks.start));
}

#[test]
fn a_dump_shows_the_log() {
    let made = made();
    let mut log = Log::new(&made);
    let new = log.create("new", 1);
    log.batch();
    log.overwrite(new, 3, b"three");
    log.rename("inline", "outline");
    log.operation();
    let blocks = log.free_blocks(2);
    log.take(blocks, Data::Unwritten);
    let extent = Extent::new(blocks, Vec::new());
    log.put(Key::new(new, ItemKind::Extent, 4096), extent.encode());
    log.change(new, |item| item.blocks = 3);
    log.batch();
    let print = |what| {
        let mut out = Vec::new();
        dump(&made.device, &what, &mut out).expect("it is a volume");
        String::from_utf8(out).expect("a dump is text")
    };
    let text = print(Subject::Log);
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        (lines("batch="), lines("put batch=1 "), lines("take batch=1 ")),
        (2, 4, 1),
        "{text}"
    );
    assert_eq!((lines("take batch=2 "), lines("data batch=2 "), lines("free batch=2 ")), (2, 1, 1));
    assert_eq!(lines("delete batch=2 inode=1 kind=Dentry "), 1, "{text}");
    assert!(text.contains("name=\"outline\""), "{text}");
    assert!(text.contains("at=3 len=5"), "{text}");
    assert!(text.contains("end batch=3 at=1024 reason=nothing"), "{text}");
    assert!(text.contains("replay batches=2 skipped=0 "), "{text}");
    assert!(print(Subject::Superblocks).contains("log=batch=0 next=0 sum=0000000000000000"));
    let tree = print(Subject::Tree(holdfast_base::TreeId::Files));
    assert!(tree.contains("item log=272 ") && tree.contains("deleted log=272 "), "{tree}");
    // Damage is printed where it stands.
    log.poke(log.batches[0], true, |bytes| bytes[LogHeader::SIZE] = 0xff);
    let text = print(Subject::Log);
    assert!(text.contains("DAMAGED batch=1 why=") && text.contains("reason=broken"), "{text}");
}
