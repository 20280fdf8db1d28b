//! Logs that no crash leaves: what a check says of them, and that the engine does not write to them (P9, P10).

use std::sync::Arc;

use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, InodeNo};
use holdfast_check::journal::Reason;
use holdfast_check::log::Damage;
use holdfast_check::{Issue, view};
use holdfast_format::item::{Dentry, FileType};
use holdfast_format::log::{Content, DATA_BLOCKS_MAX, Encoder, LogHeader, Patch};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{OpenOptions, Store};

use crate::common;
use crate::common::log::*;
use crate::common::*;

#[test]
fn a_later_batch_proves_that_a_missing_one_was_durable() {
    let made = made();
    let mut log = Log::new(&made);
    for _ in 0..4 {
        log.chown(PIPE);
        log.batch();
    }
    let at = log.batches[1];
    log.poke(at, false, |bytes| bytes[100] ^= 1);
    let replay = log.replay();
    assert_eq!((replay.batches, replay.end.batch, replay.end.at), (1, BatchNo(2), at));
    let Damage { batch, proof } = replay.damage.expect("a later batch proves it");
    assert_eq!((batch, proof.batch, proof.durable), (BatchNo(2), BatchNo(4), BatchNo(3)));
    assert_eq!(proof.at, log.batches[3]);
    assert_eq!(last_shown(&made.device), replay.superblock.lsn);
    assert_eq!(issues(&check_all(&made.device)), [Issue::LogDamaged]);
    assert!(view(&made.device).is_err());
    // Wherever the proof lies: here behind the ring's end.
    let made = made_near_the_end(1024);
    let mut log = Log::new(&made);
    for _ in 0..4 {
        log.chown(PIPE);
        log.batch();
    }
    log.poke(log.batches[0], false, |bytes| bytes.fill(0));
    log.poke(log.batches[1], false, |bytes| bytes.fill(0));
    assert_eq!(log.replay().damage.map(|damage| damage.proof.batch), Some(BatchNo(44)));
    // Two of one flush prove nothing of each other, and the last one nothing of itself.
    let made = common::log::made();
    let mut log = Log::new(&made);
    for durable in [0, 1, 1] {
        log.durable = Some(durable);
        log.chown(PIPE);
        log.batch();
    }
    log.poke(log.batches[1], false, |bytes| bytes[LogHeader::SIZE + 4] ^= 1);
    assert_eq!((log.replay().batches, log.replay().damage), (1, None));
    assert_eq!(check_all(&made.device).findings, []);
    // What was durable needs no data to prove it, also before a hole: then it is the file's loss.
    for durable in [1, 2] {
        let made = common::log::made();
        let mut log = Log::new(&made);
        let new = log.create("new", 1);
        log.batch();
        for durable in [1, durable] {
            log.durable = Some(durable);
            log.chown(PIPE);
            log.batch();
        }
        log.poke(log.batches[1], false, |bytes| bytes[LogHeader::SIZE + 4] ^= 1);
        made.poke(log.block_of(new), BLOCK_SIZE, |bytes| bytes[9] ^= 8);
        let replay = log.replay();
        assert_eq!((replay.batches, replay.end.reason), (1, Reason::Incomplete));
        let missing = (durable == 2).then_some(BatchNo(2));
        assert_eq!(replay.damage.map(|damage| damage.batch), missing);
        let expected = [Issue::DataDamaged, Issue::LogDamaged];
        let expected = &expected[..if missing.is_some() { 2 } else { 1 }];
        assert_eq!(issues(&check_all(&made.device)), expected);
        // The engine keeps it as well.
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(Arc::new(made.device.snapshot()), &options, Arc::default());
        assert_eq!(store.expect("it can be looked at").latest(), replay.superblock.lsn);
    }
}

/// A crash gave up a history; its batches may lie behind those of the new one.
#[test]
fn batches_of_a_history_that_was_given_up_do_not_count() {
    let made = made();
    let (mut old, mut new) = (Log::new(&made), Log::new(&made));
    old.durable = Some(0);
    for _ in 0..3 {
        old.chown(PIPE);
        old.batch();
    }
    new.chown(INLINE);
    new.batch();
    assert_eq!(new.batches[0], old.batches[0]);
    let replay = new.expect(1);
    assert_eq!(replay.end.why, "the batch follows another one");
    // Nor do those of another volume, or of elsewhere in the ring.
    let changes: [HeaderChange; 2] =
        [|header| header.volume[0] ^= 1, |header| header.address += 512];
    for change in changes {
        let before = new.replay();
        let mut other = Log::new(&made);
        other.mark = new.mark;
        other.batch_with(
            |_, _| {},
            |header| {
                (header.after, header.last) = (101, 102);
                change(header);
            },
        );
        let replay = new.replay();
        assert_eq!((replay.batches, &replay.end.at), (before.batches, &before.end.at));
        assert_eq!(replay.end.why, "the batch belongs elsewhere");
    }
}

/// Appends records to an honest batch.
type Spoil = fn(&mut Encoder, &mut Vec<u8>, Blocks);

/// Makes a header dishonest.
type HeaderChange = fn(&mut LogHeader);

/// Blocks for damage.
#[derive(Clone, Copy)]
struct Blocks {
    /// In use before the log.
    used: BlockNo,
    /// Free, with one behind it.
    free: BlockNo,
    /// Taken by an earlier batch.
    taken: BlockNo,
    /// Given back by an earlier batch.
    freed: BlockNo,
    /// A node of the files tree.
    node: BlockNo,
    node_blocks: u64,
}

fn one(block: BlockNo) -> BlockRange {
    BlockRange::new(block, 1)
}

fn inside(base: BlockNo) -> Content<'static> {
    Content::Inside(vec![Patch { base: Some(base), at: 0, bytes: b"x" }])
}

fn named(to: InodeNo) -> Vec<u8> {
    Dentry { inode: to, file_type: FileType::Fifo, name: b"early" }.encode()
}

#[test]
fn whole_batches_that_cannot_be_are_findings() {
    let cases: [(Issue, Spoil); 22] = [
        (Issue::BatchMalformed, |_, out, _| out.push(9)),
        (Issue::BatchMalformed, |encoder, out, _| {
            encoder.delete(&Key::inode(InodeNo(500)), out);
            out.pop();
        }),
        (Issue::BatchMalformed, |encoder, out, _| {
            encoder.put(&Key::new(PIPE, ItemKind::Inline, 0), &[1; 1025], out)
        }),
        (Issue::BatchMalformed, |encoder, out, _| encoder.free(one(BlockNo(3)), out)),
        (Issue::BatchMalformed, |encoder, out, places| {
            encoder.free(BlockRange::new(places.used, 1 << 40), out)
        }),
        (Issue::BatchMalformed, |encoder, out, places| {
            encoder.take(one(places.free), &inside(BlockNo(3)), out)
        }),
        (Issue::BatchMalformed, |encoder, out, _| {
            encoder.delete(&Key::new(DIR, ItemKind::Xattr, 7), out);
            encoder.put(&Key::new(DIR, ItemKind::Xattr, 7), b"", out);
        }),
        (Issue::BatchMalformed, |encoder, out, _| {
            encoder.put(&dentry_key(DIR, "early"), &named(InodeNo(600)), out);
            encoder.put(&Key::inode(InodeNo(600)), &inode(FileType::Fifo, 1, 0).encode(), out);
        }),
        (Issue::BatchMalformed, |encoder, out, places| {
            for from in [100, 1100] {
                let start = BlockNo(places.used.0 + from);
                let blocks = BlockRange::new(start, DATA_BLOCKS_MAX / 2 + 1);
                encoder.take(blocks, &Content::Summed(0), out);
            }
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.take(one(places.used), &Content::Unwritten, out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.take(one(places.taken), &Content::Summed(1), out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.take(one(places.freed), &Content::Unwritten, out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.take(BlockRange::new(places.free, 2), &Content::Unwritten, out);
            encoder.take(one(BlockNo(places.free.0 + 1)), &Content::Unwritten, out);
        }),
        (Issue::BatchBlocks, |encoder, out, places| encoder.free(one(places.free), out)),
        (Issue::BatchBlocks, |encoder, out, places| encoder.free(one(places.freed), out)),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.free(one(places.used), out);
            encoder.free(one(places.used), out);
        }),
        // Of a node, and of a file that the batch does not change.
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.free(BlockRange::new(places.node, places.node_blocks), out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| encoder.free(one(places.node), out)),
        (Issue::BatchBlocks, |encoder, out, places| encoder.free(one(places.taken), out)),
        // Some of it in use, some not.
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.free(BlockRange::new(places.taken, 50), out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            encoder.take(one(places.free), &inside(places.freed), out)
        }),
        (Issue::BatchBlocks, |encoder, out, places| {
            // The base of a block is one of the blocks before it.
            let next = BlockNo(places.free.0 + 1);
            encoder.take(one(places.free), &inside(next), out);
            encoder.take(one(next), &Content::Unwritten, out);
        }),
    ];
    for (index, (issue, spoil)) in cases.into_iter().enumerate() {
        let made = made();
        let mut log = Log::new(&made);
        let new = log.create("new", 1);
        log.overwrite(new, 3, b"three");
        log.batch();
        let before = log.view();
        let taken = log.block_of(new);
        let used = made.superblock.geometry.first_data_block();
        let places = Blocks {
            used,
            free: BlockNo(taken.0 + 400),
            taken,
            freed: BlockNo(taken.0 - 1),
            node: made.superblock.files.block,
            node_blocks: made.superblock.geometry.node_blocks(),
        };
        log.chown(PIPE);
        let at = log.batch_with(|encoder, out| spoil(encoder, out, places), |_| {});
        log.chown(PIPE);
        log.batch();
        let replay = log.replay();
        let found: Vec<_> = replay.faults.iter().map(|fault| fault.issue).collect();
        assert_eq!(found, [issue], "case {index}: {:?}", replay.faults);
        assert_eq!((replay.batches, replay.end.reason, replay.end.at), (1, Reason::Broken, at));
        // Nothing of it and of what follows is there, and nothing else is wrong for it.
        assert_eq!(issues(&check_all(&made.device)), [issue], "case {index}");
        assert_eq!(replay.superblock.lsn, before.lsn);
        assert_eq!(replay.superblock.log.batch, BatchNo(1));
        assert_eq!(last_shown(&made.device), before.lsn, "case {index}");
        assert!(view(&made.device).is_err());
    }
}

#[test]
fn headers_that_cannot_follow_are_findings() {
    let cases: [(Issue, HeaderChange); 5] = [
        (Issue::BatchGap, |header| header.after += 1),
        // A batch that reaches over the moment of a commit.
        (Issue::BatchGap, |header| header.after -= 1),
        (Issue::BatchMalformed, |header| header.inode_next = 5),
        (Issue::InodeCount, |header| header.inode_count += 1),
        (Issue::InodeNumber, |header| header.inode_next -= 1),
    ];
    for (issue, change) in cases {
        let made = made();
        let mut log = Log::new(&made);
        log.create("new", 1);
        log.operation();
        log.batch_with(|_, _| {}, change);
        assert_eq!(issues(&check_all(&made.device)), [issue]);
        if matches!(issue, Issue::BatchGap | Issue::BatchMalformed) {
            assert_eq!(last_shown(&made.device), log.replay().superblock.lsn);
        }
    }
    // A batch that claims what the first one of the log lies in.
    let made = made();
    let mut log = Log::new(&made);
    log.chown(PIPE);
    log.batch();
    log.chown(PIPE);
    let at = log.batch();
    let all = log.ring().0 as u32;
    log.poke(at, true, |bytes| bytes[4..8].copy_from_slice(&(all - 512).to_le_bytes()));
    assert_eq!(log.replay().batches, 2);
    log.poke(at, true, |bytes| bytes[4..8].copy_from_slice(&all.to_le_bytes()));
    assert_eq!((log.replay().batches, log.replay().end.reason), (1, Reason::Broken));
    assert_eq!(issues(&check_all(&made.device)), [Issue::BatchMalformed]);
    assert_eq!(last_shown(&made.device), log.replay().superblock.lsn);
    // Longer than the ring: no batch at all.
    log.poke(at, true, |bytes| bytes[4..8].copy_from_slice(&(all + 512).to_le_bytes()));
    assert_eq!((log.replay().batches, log.replay().end.reason), (1, Reason::Nothing));
}

#[test]
fn a_log_that_does_not_read_is_a_finding() {
    let made = made();
    let mut log = Log::new(&made);
    log.sector = BLOCK_SIZE;
    log.chown(PIPE);
    log.batch();
    let ring = made.superblock.geometry.log();
    let report = check_all(&Rotten(made.device.snapshot(), one(ring.start)));
    assert_eq!(issues(&report), [Issue::LogUnreadable]);
    assert_eq!((report.findings[0].block, report.facts.log_batches), (Some(ring.start), 0));
    let before = log.replay().superblock.lsn;
    // What is before it can be read, by the engine as well; nothing is written to such a volume.
    log.chown(PIPE);
    let second = BlockNo(ring.start.0 + log.batch() / 4096);
    assert!(second > ring.start, "it lies in another block");
    let rotten = Arc::new(Rotten(made.device.snapshot(), one(second)));
    let report = check_all(&*rotten);
    assert_eq!(issues(&report), [Issue::LogUnreadable]);
    assert_eq!((report.findings[0].block, report.facts.log_batches), (Some(second), 1));
    for (read_only, last) in [(true, Some(before)), (false, None)] {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let store = Store::open(rotten.clone(), &options, Arc::default());
        assert_eq!(store.ok().map(|store| store.latest()), last);
    }
    // Behind the last batch it takes nothing away.
    let far = BlockNo(ring.start.0 + 50);
    let report = check_all(&Rotten(made.device.snapshot(), one(far)));
    assert_eq!(issues(&report), [Issue::LogUnreadable]);
    assert_eq!(report.facts.log_batches, 2);
}
