//! Replay of journals that are written by hand, and what a check says of them (P3, P9, P10).

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, CommitNo, Epoch};
use holdfast_check::journal::Reason;
use holdfast_check::{Issue, Subject, dump, probe};
use holdfast_format::journal::{Base, DataExtent, FrameHeader};
use holdfast_format::{JournalMark, NodePointer};

use crate::common::journal::*;
use crate::common::*;
use crate::forged_lineage::second_reader;

fn made() -> Made {
    Maker::sample().make()
}

/// A volume whose journal goes on in block `from_end` before the ring's end.
fn made_near_the_end(from_end: u64) -> Made {
    let mut maker = Maker::sample();
    maker.superblock(move |superblock| {
        let ring = superblock.geometry.journal();
        let next = BlockNo(ring.start.0 + ring.count - from_end);
        superblock.journal = JournalMark { commit: CommitNo(40), next, sum: 0x77 };
    });
    maker.make()
}

fn expect_clean(journal: &Journal<'_>) {
    let report = check_all(&journal.made.device);
    assert_eq!(report.findings, []);
    assert_eq!(report.facts.inodes, 8);
}

/// Epoch of the first commit: that of the superblock is 4.
const NEXT: u64 = 5;

#[test]
fn an_empty_journal_changes_nothing() {
    let made = made();
    let journal = Journal::new(&made);
    let replay = journal.expect(0);
    assert_eq!(replay.end.reason, Reason::Nothing);
    assert_eq!((replay.end.commit, replay.end.at), (CommitNo(8), made.superblock.journal.next));
    assert_eq!(replay.work().estimate(), std::time::Duration::ZERO);
    expect_clean(&journal);
}

#[test]
fn one_commit_counts_and_is_no_damage() {
    let made = made();
    let mut journal = Journal::new(&made);
    journal.honest(NEXT);
    let replay = journal.expect(1);
    assert_eq!(replay.bytes, BLOCK_BYTES);
    assert_eq!(replay.superblock.epoch, Epoch(NEXT));
    expect_clean(&journal);
    let report = check_all(&made.device);
    let facts = &report.facts;
    assert_eq!((facts.journal_commits, facts.journal_nodes), (1, 2));
    assert_eq!(facts.journal_bytes_used, BLOCK_BYTES);
    assert!(facts.recovery_estimate > std::time::Duration::ZERO);
    let summary = probe(&made.device).expect("it is a volume");
    assert_eq!((summary.journal_commits, summary.journal_nodes), (1, 2));
    assert_eq!((summary.epoch, summary.lsn), (4, 101));
    let json = serde_json::to_value(&summary).expect("a summary has a JSON form");
    assert!(json["recovery_estimate_ns"].as_u64() > Some(0), "{json}");
    // Without the journal the old state is there, just as whole.
    made.poke(journal.frames[0], BLOCK_SIZE, |bytes| bytes[50] ^= 1);
    assert_eq!(check_all(&made.device).findings, []);
    assert_eq!(journal.replay().commits, 0);
}

#[test]
fn commits_of_one_epoch_change_their_nodes_in_place() {
    let made = made();
    let mut journal = Journal::new(&made);
    for _ in 0..5 {
        journal.honest(NEXT);
    }
    assert_eq!(journal.nodes.len(), 2);
    journal.expect(5);
    expect_clean(&journal);
}

#[test]
fn a_change_of_epoch_copies_nodes_of_the_journal_and_of_the_device() {
    let made = made();
    let mut journal = Journal::new(&made);
    // From the device, from the nodes in memory, and over another epoch.
    for epoch in [NEXT, NEXT, NEXT + 1, NEXT + 1, NEXT + 2] {
        journal.honest(epoch);
    }
    assert_eq!(journal.nodes.len(), 6);
    let replay = journal.expect(5);
    assert_eq!(replay.superblock.epoch, Epoch(NEXT + 2));
    expect_clean(&journal);
}

#[test]
fn an_epoch_that_does_not_follow_ends_the_journal() {
    for epochs in [&[NEXT - 1][..], &[NEXT + 1], &[NEXT, NEXT + 2], &[NEXT, NEXT - 1]] {
        let made = made();
        let mut journal = Journal::new(&made);
        for &epoch in epochs {
            // Only the head of the frame is judged so far.
            let parts = journal.step(Epoch(epoch.max(NEXT)));
            journal.now.epoch = Epoch(epoch);
            journal.commit(&parts, 1);
        }
        let replay = journal.replay();
        assert_eq!(replay.commits + 1, epochs.len() as u64, "{epochs:?}");
        assert_eq!(replay.end.reason, Reason::Nothing);
        assert!(replay.end.why.contains("epoch"), "{:?}", replay.end);
    }
}

#[test]
fn cancelled_nodes_are_forgotten_after_the_records() {
    let made = made();
    let mut journal = Journal::new(&made);
    let mut parts = journal.step(Epoch(NEXT));
    let leaf = new_leaf(&mut journal, Epoch(NEXT));
    parts.changes.push(leaf.clone());
    journal.commit(&parts, 1);
    assert!(journal.expect(1).nodes.contains_key(&leaf.block));
    let mut parts = journal.step(Epoch(NEXT));
    // Of an earlier commit, of this one, and of none.
    let other = new_leaf(&mut journal, Epoch(NEXT));
    parts.changes.push(other.clone());
    parts.cancels = vec![other.block, BlockNo(3), leaf.block];
    journal.commit(&parts, 1);
    assert_eq!(journal.expect(2).nodes.len(), 2);
    expect_clean(&journal);
    // What is gone cannot change; it can come back as a new node.
    let mut parts = journal.step(Epoch(NEXT));
    parts.changes.push(leaf.clone());
    journal.commit(&parts, 1);
    journal.expect(3);
    let mut parts = journal.step(Epoch(NEXT));
    parts.changes.push(Change { base: Base::Changed, ..other });
    journal.commit(&parts, 1);
    let replay = journal.replay();
    assert_eq!((replay.commits, replay.end.reason), (3, Reason::Broken));
    assert_eq!(replay.faults[0].issue, Issue::CommitBase);
}

#[test]
fn a_commit_counts_only_with_all_its_frames() {
    for missing in 0..3 {
        let made = made();
        let mut journal = Journal::new(&made);
        journal.honest(NEXT);
        let (before, nodes) = (journal.now.clone(), journal.nodes.clone());
        let parts = journal.step(Epoch(NEXT));
        journal.commit(&parts, 3);
        assert_eq!(journal.frames.len(), 4);
        assert_eq!(journal.expect(2).bytes, 4 * BLOCK_BYTES);
        let at = journal.frames[1 + missing];
        made.poke(at, BLOCK_SIZE, |bytes| bytes.fill(0));
        (journal.now, journal.nodes) = (before, nodes);
        let replay = journal.expect(1);
        let reason = if missing == 0 { Reason::Nothing } else { Reason::Incomplete };
        assert_eq!((replay.end.reason, replay.end.at), (reason, at));
        expect_clean(&journal);
    }
}

#[test]
fn frames_go_on_at_the_rings_start() {
    for from_end in [1, 2, 3] {
        let made = made_near_the_end(from_end);
        let mut journal = Journal::new(&made);
        for _ in 0..2 {
            let parts = journal.step(Epoch(NEXT));
            journal.commit(&parts, 3);
        }
        assert!(journal.mark.next < journal.frames[0]);
        journal.expect(2);
        expect_clean(&journal);
    }
}

#[test]
fn a_frame_over_the_rings_end_is_none() {
    let made = made_near_the_end(1);
    let mut journal = Journal::new(&made);
    let parts = journal.step(Epoch(NEXT));
    let mut payload = journal.payload(&parts);
    payload.resize(2 * BLOCK_SIZE, 0);
    let header = journal.header(41, 0, 1);
    let mut bytes = Vec::new();
    header.encode(&payload, &mut bytes);
    put(&made.device, journal.mark.next, &bytes);
    let replay = journal.replay();
    assert_eq!((replay.commits, replay.end.reason), (0, Reason::Nothing));
    assert!(replay.end.why.contains("ring's end"), "{:?}", replay.end);
}

/// A crash gave up a history; its frames may lie behind those of the new one.
#[test]
fn frames_of_a_history_that_was_given_up_do_not_count() {
    let made = made();
    let mut old = Journal::new(&made);
    for _ in 0..3 {
        old.honest(NEXT);
    }
    // Another first commit, of the same size, as if the old one had not been durable.
    let mut new = Journal::new(&made);
    let mut parts = new.step(Epoch(NEXT));
    parts.cancels.push(BlockNo(9));
    new.commit(&parts, 1);
    assert_eq!(new.frames[0], old.frames[0]);
    // By then nothing of the old history was durable: as its frames would say, had power failed.
    for (index, &at) in old.frames.iter().enumerate().skip(1) {
        made.poke(at, BLOCK_SIZE, |bytes| reframe(bytes, |header| header.durable = index as u64));
    }
    let replay = new.expect(1);
    assert_eq!(replay.end.why, "the frame follows another one");
    expect_clean(&new);
}

/// Changes the header of a frame of one block, and sums it again.
fn reframe(bytes: &mut [u8], change: impl FnOnce(&mut FrameHeader)) {
    let mut header = FrameHeader::decode(bytes).expect("a frame is there");
    change(&mut header);
    let payload = bytes[FrameHeader::SIZE..FrameHeader::SIZE + header.len as usize].to_vec();
    let mut out = Vec::new();
    header.encode(&payload, &mut out);
    bytes.copy_from_slice(&out);
}

#[test]
fn nothing_counts_behind_the_end() {
    let made = made();
    let mut journal = Journal::new(&made);
    journal.honest(NEXT);
    let (now, nodes) = (journal.now.clone(), journal.nodes.clone());
    journal.close();
    journal.honest(NEXT);
    (journal.now, journal.nodes) = (now, nodes);
    let replay = journal.expect(1);
    assert_eq!((replay.end.reason, replay.end.at), (Reason::Closed, journal.frames[1]));
    expect_clean(&journal);
    // Closed right away.
    let made = self::made();
    let mut journal = Journal::new(&made);
    journal.close();
    assert_eq!(journal.expect(0).end.reason, Reason::Closed);
}

#[test]
fn the_data_of_the_last_commit_must_be_there() {
    let made = made();
    let mut journal = Journal::new(&made);
    journal.honest(NEXT);
    let (before, nodes) = (journal.now.clone(), journal.nodes.clone());
    let data = BlockNo(made.superblock.geometry.first_data_block().0 + 800);
    made.poke(data, 3 * BLOCK_SIZE, |bytes| bytes.fill(7));
    let mut parts = journal.step(Epoch(NEXT));
    parts.extents =
        vec![extent_of(&made.device, data, 1), extent_of(&made.device, BlockNo(data.0 + 1), 2)];
    journal.commit(&parts, 1);
    journal.expect(2);
    made.poke(BlockNo(data.0 + 2), BLOCK_SIZE, |bytes| bytes[9] = 8);
    let (after, after_nodes) = (journal.now.clone(), journal.nodes.clone());
    (journal.now, journal.nodes) = (before, nodes);
    let replay = journal.expect(1);
    assert_eq!((replay.end.reason, replay.end.commit), (Reason::DataMissing, CommitNo(9)));
    expect_clean(&journal);
    // A commit behind it was written when the data was durable: then it may have changed since.
    (journal.now, journal.nodes) = (after, after_nodes);
    journal.honest(NEXT);
    journal.expect(3);
    // Half a commit proves as much, and counts for nothing itself.
    made.poke(journal.frames[2], BLOCK_SIZE, |bytes| {
        reframe(bytes, |header| header.frames = 2);
    });
    let replay = journal.replay();
    assert_eq!((replay.commits, replay.end.reason), (2, Reason::Incomplete));
    assert_eq!(replay.damage, None);
    assert_eq!(check_all(&made.device).findings, []);
}

#[test]
fn a_later_frame_proves_that_a_missing_commit_was_durable() {
    let made = made();
    let mut journal = Journal::new(&made);
    for _ in 0..4 {
        journal.honest(NEXT);
    }
    made.poke(journal.frames[1], BLOCK_SIZE, |bytes| bytes[200] ^= 4);
    let replay = journal.replay();
    assert_eq!((replay.commits, replay.end.commit), (1, CommitNo(9)));
    let damage = replay.damage.expect("a later frame proves it");
    assert_eq!((damage.later, damage.durable), (CommitNo(10), CommitNo(9)));
    assert_eq!(damage.at, journal.frames[2]);
    let report = check_all(&made.device);
    assert_eq!(issues(&report), [Issue::JournalDamaged]);
    // The last one alone proves nothing of itself.
    let made = self::made();
    let mut journal = Journal::new(&made);
    journal.honest(NEXT);
    journal.honest(NEXT);
    made.poke(journal.frames[1], BLOCK_SIZE, |bytes| bytes[200] ^= 4);
    assert_eq!(journal.replay().damage, None);
}

#[test]
fn whole_commits_that_cannot_be_are_findings() {
    type Break = fn(&mut Journal<'_>, &mut Parts);
    let cases: [(Issue, Break); 4] = [
        (Issue::CommitMalformed, |_, parts| parts.changes.push(parts.changes[0].clone())),
        (Issue::CommitMalformed, |journal, _| journal.now.used_blocks = 1 << 40),
        (Issue::CommitMalformed, |journal, parts| {
            let first = journal.now.geometry.first_data_block().0;
            let count = journal.now.geometry.data_blocks();
            parts.extents = vec![DataExtent { block: first, count, sum: 0 }; 2];
        }),
        (Issue::CommitBase, |_, parts| parts.changes[1].base = Base::Changed),
    ];
    for (issue, spoil) in cases {
        let made = made();
        let mut journal = Journal::new(&made);
        let mut parts = journal.step(Epoch(NEXT));
        spoil(&mut journal, &mut parts);
        journal.commit(&parts, 1);
        let replay = journal.replay();
        assert_eq!((replay.commits, replay.end.reason), (0, Reason::Broken), "{replay:?}");
        assert_eq!(replay.superblock, made.superblock);
        assert_eq!(issues(&check_all(&made.device)), [issue], "{:?}", replay.faults);
    }
}

/// A node that a commit builds on and that is not there, or another one, is lost with what is made of it. History goes on.
#[test]
fn a_commit_loses_what_it_builds_on_and_nothing_else() {
    for is_other in [false, true] {
        let made = made();
        let mut journal = Journal::new(&made);
        let mut parts = journal.step(Epoch(NEXT));
        let (block, epoch) = match is_other {
            false => (BlockNo(journal.free().0 + 50), EPOCH),
            true => (journal.made.space.block, Epoch(EPOCH.0 - 1)),
        };
        let index = usize::from(is_other);
        parts.changes[index].base = Base::Copied(NodePointer { block, epoch });
        journal.commit(&parts, 1);
        journal.honest(NEXT);
        let replay = journal.replay();
        assert_eq!((replay.commits, replay.end.reason), (2, Reason::Nothing), "{replay:?}");
        assert!(replay.is_whole() && replay.faults.is_empty());
        let found = issues(&check_all(&made.device));
        assert_eq!(found, [Issue::NodeDamaged, Issue::CommitBaseLost], "{is_other}");
        let Some(said) = second_reader(&made.device) else { continue };
        assert!(said.contains("[808]") && !said.contains("[803]"), "{said}");
    }
}

#[test]
fn a_base_that_does_not_read_ends_no_history() {
    let made = made();
    let mut journal = Journal::new(&made);
    let parts = journal.step(Epoch(NEXT));
    journal.commit(&parts, 1);
    journal.honest(NEXT);
    let Base::Copied(base) = parts.changes[0].base else { panic!("it is a copy") };
    let report = check_all(&Rotten(made.device.snapshot(), BlockRange::new(base.block, 1)));
    assert_eq!(issues(&report), [Issue::NodeDamaged, Issue::CommitBaseLost]);
    assert_eq!(report.facts.journal_commits, 2);
}

#[test]
fn what_commits_make_must_be_valid_nodes() {
    let made = made();
    let mut journal = Journal::new(&made);
    let mut parts = journal.step(Epoch(NEXT));
    // Never reached by a tree, but a recovery would write it.
    let mut leaf = new_leaf(&mut journal, Epoch(NEXT));
    leaf.after[40] = 3;
    parts.changes.push(leaf);
    // As old as the superblock: a node that must not change in place.
    parts.changes.push(new_leaf(&mut journal, Epoch(4)));
    journal.commit(&parts, 1);
    let report = check_all(&made.device);
    assert_eq!(issues(&report), [Issue::CommitNode]);
    assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
}

#[test]
fn a_dump_shows_the_journal() {
    let made = made();
    let mut journal = Journal::new(&made);
    let mut parts = journal.step(Epoch(NEXT));
    parts.cancels.push(BlockNo(9));
    let data = BlockNo(made.superblock.geometry.first_data_block().0);
    parts.extents.push(extent_of(&made.device, data, 1));
    journal.commit(&parts, 2);
    journal.honest(NEXT);
    journal.close();
    let mut out = Vec::new();
    dump(&made.device, &Subject::Journal, &mut out).expect("it is a volume");
    let text = String::from_utf8(out).expect("a dump is text");
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((lines("frame "), lines("commit="), lines("change ")), (3, 2, 4), "{text}");
    assert_eq!((lines("cancel commit=8 node=9"), lines("data commit=8 ")), (1, 1), "{text}");
    assert!(text.contains("base=copied from="), "{text}");
    assert!(text.contains("base=changed len="), "{text}");
    assert!(text.contains("end commit=10 "), "{text}");
    assert!(text.contains("reason=closed"), "{text}");
    assert!(text.contains("replay commits=2 nodes=2 bytes=12288"), "{text}");
}
