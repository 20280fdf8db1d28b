//! For every issue a volume that has it: it is found, and nothing else.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo};
use holdfast_check::{Issue, Report};
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{FileType, InodeItem, LineageItem};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::{ItemKind, Key, Superblock};

use crate::common::branches::Items;
use crate::common::broken::{self, provoke};
use crate::common::journal::Journal;
use crate::common::log::Log;
use crate::common::*;

/// What is found in the sample with a change of its items.
fn with(change: impl FnOnce(&mut Maker)) -> Report {
    broken::with(change).check()
}

/// The same of the sample with a journal.
fn journaled(write: impl FnOnce(&mut Journal<'_>)) -> Report {
    broken::journaled(write).check()
}

/// The same of the sample with a log.
fn logged(write: impl FnOnce(&mut Log<'_>)) -> Report {
    broken::logged(write).check()
}

/// The same of a volume with a snapshot and a branch.
fn with_branches(change: impl FnOnce(&mut Items)) -> Report {
    broken::with_branches(change).check()
}

#[test]
fn every_issue_is_found_and_nothing_else() {
    for &issue in Issue::ALL {
        let (image, others) = provoke(issue);
        let report = image.check();
        let mut expected = [&[issue], others].concat();
        expected.sort_unstable();
        let found = issues(&report);
        assert_eq!(found, expected, "{}: {:#?}", issue.slug(), report.findings);
        let count = report.findings.iter().filter(|finding| finding.issue() == issue).count();
        assert_eq!(count, 1, "{}: {:#?}", issue.slug(), report.findings);
        let clean = issue.severity() == holdfast_check::Severity::Note;
        assert_eq!(report.exit_code(), if clean { 0 } else { 4 }, "{}", issue.slug());
    }
}

#[test]
fn the_samples_are_clean() {
    for leaf_items in [usize::MAX, 9, 4, 2] {
        let mut maker = Maker::sample();
        maker.leaf_items = leaf_items;
        let made = maker.make();
        let report = check_all(&made.device);
        assert_eq!(report.findings, [], "leaves of {leaf_items}");
        let facts = &report.facts;
        assert!(facts.complete);
        assert_eq!((facts.inodes, facts.files, facts.directories, facts.orphans), (8, 3, 3, 1));
        assert_eq!((facts.symlinks, facts.specials, facts.dentries, facts.xattrs), (1, 1, 7, 2));
        assert_eq!((facts.extents, facts.data_blocks, facts.unwritten_blocks), (4, 6, 2));
        assert_eq!(facts.verified_bytes, 4 * BLOCK_BYTES);
        assert_eq!(facts.files_nodes, made.files.len() as u64);
        assert_eq!(facts.node_blocks + facts.data_blocks, made.superblock.used_blocks);
    }
}

#[test]
fn findings_say_where() {
    let only = |report: Report| {
        assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
        report.findings[0].clone()
    };
    let finding = only(provoke(Issue::LinkCount).0.check());
    assert_eq!((finding.path.as_deref(), finding.inode), (Some("/hard"), Some(DATA)));
    let finding = only(provoke(Issue::DentryDangling).0.check());
    assert_eq!((finding.path.as_deref(), finding.inode), (Some("/ghost"), Some(ROOT)));
    let finding = only(provoke(Issue::DataDamaged).0.check());
    assert_eq!(finding.path.as_deref(), Some("/inline"));
    assert!(finding.what.contains("from byte 4096 on"), "{finding}");
    assert!(finding.block.is_some());
    let finding = only(provoke(Issue::Unreachable).0.check());
    assert_eq!((finding.path, finding.inode), (None, Some(PIPE)));
    let finding = only(provoke(Issue::LinkCount).0.check());
    let text = finding.to_string();
    assert!(text.starts_with("error 507 link-count: /hard: "), "{text}");
    let json = serde_json::to_value(&finding).expect("a finding has a JSON form");
    assert_eq!(json["id"], 507);
    assert_eq!(json["severity"], "error");
    assert_eq!(json["inode"], 18);
    assert_eq!(json["block"], serde_json::Value::Null);
}

#[test]
fn a_rotten_volume_does_not_fill_memory_with_findings() {
    let mut maker = Maker::sample();
    for index in 0..3000 {
        maker.dentry(DIR, &format!("ghost {index}"), InodeNo(100_000), FileType::Regular);
    }
    maker.change(DIR, |item| item.size += 3000);
    let report = check_all(&maker.make().device);
    assert_eq!(issues(&report), [Issue::DentryDangling]);
    assert_eq!(report.findings.len() as u64, holdfast_check::report::KEPT_MAX);
    assert_eq!(report.omitted, 2000);
}

#[test]
fn an_orphan_in_the_middle_of_its_removal_is_no_damage() {
    let report = with(|maker| {
        maker.change(ORPHAN, |item| {
            item.blocks = 7;
            item.flags = InodeItem::HAS_XATTRS;
        });
        maker.xattr(ORPHAN, "user.gone", XattrValue::Pieces { id: 3, len: 5000 });
    });
    assert_eq!(report.findings, []);
}

/// Also what journal and log have counted: a writer would begin there.
#[test]
fn high_counters_of_journal_and_log_are_found() {
    let far = COUNTER_MAX / 2 + 1;
    let changes: [fn(&mut Superblock, u64); 5] = [
        |superblock, far| superblock.lsn.0 = far,
        |superblock, far| superblock.inode_next.0 = far,
        |superblock, far| superblock.journal.commit.0 = far,
        |superblock, far| superblock.log.batch.0 = far,
        |superblock, far| superblock.epoch.0 = far - 1,
    ];
    for change in changes {
        let report = with(|maker| maker.superblock(move |superblock| change(superblock, far)));
        assert!(ids(&report).contains(&Issue::CounterHigh.number()), "{report:?}");
    }
    let report = logged(|log| {
        log.chown(PIPE);
        log.batch_with(|_, _| {}, |header| header.inode_next = far);
    });
    assert_eq!(ids(&report), [Issue::CounterHigh.number()], "{report:?}");
    let next = LineageItem { next: far, reserved: [0; 8] }.bytes().to_vec();
    let report = with_branches(|items| drop(items.insert(LineageItem::KEY, next)));
    assert_eq!(ids(&report), [Issue::CounterHigh.number()], "{report:?}");
}

/// A commit follows in history what it follows in the journal.
#[test]
fn a_commit_does_not_go_back() {
    let changes: [fn(&mut Superblock); 2] = [|now| now.lsn.0 -= 2, |now| now.inode_next.0 -= 1];
    for change in changes {
        let report = journaled(|journal| {
            let parts = journal.step(Epoch(5));
            change(&mut journal.now);
            journal.commit(&parts, 1);
        });
        assert_eq!(ids(&report), [Issue::CommitMalformed.number()], "{report:?}");
    }
}

/// A setting is of the volume, not of a group.
#[test]
fn a_setting_of_a_group_is_no_setting() {
    let key = Key::new(InodeNo(1), ItemKind::Setting, 9);
    let report = with(|maker| drop(maker.space.insert(key, vec![1])));
    assert_eq!(ids(&report), [Issue::SpaceItemOutside.number()], "{report:?}");
}

fn ids(report: &Report) -> Vec<u16> {
    report.findings.iter().map(|finding| finding.id).collect()
}
