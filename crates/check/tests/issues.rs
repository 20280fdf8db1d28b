//! For every issue a volume that has it, and nothing else unless said so.
//!
//! The `match` has an arm for each issue: a new one does not compile without
//! its damage.

mod common;

use common::branches::{Grown, Items, grown, grown_behind};
use common::journal::{Journal, new_leaf};
use common::log::Log;
use common::*;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_check::{Issue, Report};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::lineage::{LINEAGE, LineageItem, child_key, name_key};
use holdfast_format::item::xattr::{XattrValue, piece_offset};
use holdfast_format::item::{
    Dentry, Extent, FileType, GroupItem, InodeItem, PunchItem, RootItem, TreeItem, WalkItem,
    WalkPlace,
};
use holdfast_format::journal::Base;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_format::node::SLOTS_AT;
use holdfast_format::superblock::FoundDamage;
use holdfast_format::{ItemKind, Key, NodePointer, Superblock};

/// The sample with a change of its items.
fn with(change: impl FnOnce(&mut Maker)) -> Report {
    let mut maker = Maker::sample();
    change(&mut maker);
    check_all(&maker.make().device)
}

/// The sample, made, with small leaves, then damaged.
fn after(damage: impl FnOnce(&Made)) -> Report {
    let mut maker = Maker::sample();
    maker.leaf_items = 6;
    let made = maker.make();
    assert!(made.superblock.files_level >= 1);
    damage(&made);
    check_all(&made.device)
}

/// The sample with a journal.
fn journaled(write: impl FnOnce(&mut Journal<'_>)) -> Report {
    let made = Maker::sample().make();
    let mut journal = Journal::new(&made);
    journal.now.epoch = Epoch(5);
    write(&mut journal);
    check_all(&made.device)
}

/// The sample with a log.
fn logged(write: impl FnOnce(&mut Log<'_>)) -> Report {
    let made = Maker::sample().make();
    let mut log = Log::new(&made);
    log.operation();
    write(&mut log);
    check_all(&made.device)
}

/// Changes the value of record `index` in a node.
fn value_at(bytes: &mut [u8], index: usize, change: impl FnOnce(&mut [u8])) {
    let at = SLOTS_AT + 4 * index;
    let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (offset, len) = (word(at), word(at + 2));
    change(&mut bytes[offset + Key::SIZE..offset + len]);
}

/// Points child `index` of the root elsewhere.
fn set_child(made: &Made, index: usize, pointer: NodePointer) {
    made.poke_node(made.root(), |bytes| {
        value_at(bytes, index, |value| value.copy_from_slice(&pointer.encode()));
    });
}

fn group_key() -> Key {
    Key::new(InodeNo(0), ItemKind::Group, 0)
}

fn bitmap_key() -> Key {
    Key::new(InodeNo(0), ItemKind::Bitmap, 0)
}

/// The report of a volume that has `issue`, and what else that brings with it.
fn provoke(issue: Issue) -> (Report, &'static [Issue]) {
    let none: &[Issue] = &[];
    match issue {
        Issue::SuperblockInvalid => {
            let report = after(|made| {
                made.poke(SUPERBLOCK_SLOTS[1], BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (report, none)
        }
        Issue::NoSuperblock => {
            let report = after(|made| {
                for slot in SUPERBLOCK_SLOTS {
                    made.poke(slot, BLOCK_SIZE, |bytes| bytes[100] ^= 1);
                }
            });
            (report, none)
        }
        Issue::FarCopyInvalid => {
            let report = after(|made| {
                let far = made.superblock.geometry.far_copy();
                made.poke(far, BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (report, none)
        }
        Issue::Fault => {
            let fault =
                FoundDamage { time: Default::default(), reason: "a node was damaged".into() };
            (with(move |m| m.superblock(move |s| s.fault = Some(fault.clone()))), none)
        }
        Issue::NewestSuperblockLost => {
            let report = after(|made| {
                // The slot before it leads to nodes that are not there any more.
                let other = Superblock { epoch: Epoch(1), ..made.superblock.clone() };
                let files = NodePointer { epoch: Epoch(1), ..other.files };
                let space = NodePointer { epoch: Epoch(1), ..other.space };
                made.write_superblock(1, &Superblock { files, space, ..other });
                made.poke(SUPERBLOCK_SLOTS[0], BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (report, &[Issue::SuperblockInvalid])
        }
        Issue::SuperblocksDisagree => {
            let report = after(|made| {
                let other = Superblock { hash_seed: 3, epoch: Epoch(1), ..made.superblock.clone() };
                let roots = NodePointer { epoch: Epoch(1), ..other.files };
                let space = NodePointer { epoch: Epoch(1), ..other.space };
                made.write_superblock(1, &Superblock { files: roots, space, ..other });
            });
            (report, none)
        }
        Issue::VolumeCutShort => {
            let report = after(|made| {
                for slot in [0, 1] {
                    let mut longer = made.superblock.clone();
                    longer.geometry.volume_blocks += 16;
                    longer.epoch.0 += slot as u64;
                    made.write_superblock(slot, &longer);
                }
            });
            (report, none)
        }
        Issue::FeaturesUnknown => (with(|m| m.superblock(|s| s.features_ro_compat = 4)), none),
        Issue::CounterHigh => (with(|m| m.superblock(|s| s.lsn.0 = COUNTER_MAX / 2)), none),

        Issue::NodeUnreadable => {
            let mut maker = Maker::sample();
            maker.leaf_items = 6;
            let made = maker.make();
            let bad = BlockRange::new(made.files[2].block, 1);
            (check_all(&Rotten(made.device, bad)), none)
        }
        Issue::NodeDamaged => {
            (after(|made| made.poke(made.files[2].block, BLOCK_SIZE, |b| b[3000] ^= 1)), none)
        }
        Issue::NodeOutside => {
            let pointer = NodePointer { block: BlockNo(70), epoch: EPOCH };
            (after(|made| set_child(made, 1, pointer)), none)
        }
        Issue::NodeTwice => (after(|made| set_child(made, 1, made.files[0])), none),
        Issue::NodeFromFuture => {
            let report = after(|made| {
                set_child(made, 1, NodePointer { epoch: Epoch(6), ..made.files[1] });
            });
            (report, none)
        }
        Issue::NodeOutOfBounds => (after(|made| set_child(made, 1, made.files[2])), none),
        Issue::ItemMisplaced => {
            let key = Key::new(InodeNo(0), ItemKind::Setting, 1);
            (with(|maker| drop(maker.files.insert(key, vec![1]))), none)
        }

        Issue::ItemDamaged => {
            let report = with(|maker| {
                maker.files.get_mut(&Key::inode(PIPE)).expect("it exists")[127] = 1;
            });
            (report, none)
        }
        Issue::ItemWithoutInode => {
            let report = with(|maker| {
                maker.files.insert(Key::new(InodeNo(15), ItemKind::Inline, 0), vec![1]);
            });
            (report, none)
        }
        Issue::InodeNumber => (with(|maker| maker.superblock(|s| s.inode_next = ORPHAN)), none),
        Issue::InodeFields => (with(|maker| maker.change(PIPE, |item| item.rdev = 1)), none),
        Issue::KindMisfit => {
            let key = Key::new(PIPE, ItemKind::Inline, 0);
            (with(|maker| drop(maker.files.insert(key, vec![1]))), none)
        }
        Issue::ExtentUnaligned => {
            let report = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                maker.unwritten(DATA, FILE_SIZE_MAX - BLOCK_BYTES + 1, 1);
            });
            (report, none)
        }
        Issue::ExtentsOverlap => {
            let report = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                maker.unwritten(DATA, BLOCK_BYTES, 1);
            });
            (report, none)
        }
        Issue::ExtentOutside => {
            let report = with(|maker| {
                maker.change(DATA, |item| item.blocks += 9);
                let blocks = BlockRange::new(BlockNo(maker.geometry.volume_blocks - 1), 9);
                maker.extent(DATA, 1 << 40, &Extent::new(blocks, Vec::new()));
            });
            (report, none)
        }
        Issue::BlocksWrong => (with(|maker| maker.change(DATA, |item| item.blocks = 4)), none),
        Issue::ContentTwice => {
            let report = with(|maker| {
                maker.files.insert(Key::new(DATA, ItemKind::Inline, 0), vec![1; 100]);
            });
            (report, none)
        }
        Issue::ContentWrong => (with(|maker| maker.change(INLINE, |item| item.size = 6)), none),
        Issue::XattrPieces => {
            let key = Key::new(DATA, ItemKind::XattrPiece, piece_offset(0, 1));
            (with(|maker| drop(maker.files.remove(&key))), none)
        }
        Issue::XattrName => {
            let report = with(|maker| {
                let value = maker.files.remove(&xattr_key(DATA, "user.short"));
                let elsewhere = xattr_key(DATA, "user.other");
                maker.files.insert(elsewhere, value.expect("it exists"));
            });
            (report, none)
        }
        Issue::XattrFlag => (with(|maker| maker.change(DATA, |item| item.flags = 0)), none),
        Issue::InodeCount => (with(|maker| maker.superblock(|s| s.inode_count += 1)), none),

        Issue::ExtentBirth => {
            let report = with(|maker| {
                let blocks = maker.take(1);
                let birth = Epoch(EPOCH.0 + 3);
                let extent = Extent { birth, ..Extent::new(blocks, Vec::new()) };
                maker.extent(DATA, 1 << 30, &extent);
                maker.change(DATA, |item| item.blocks += 1);
            });
            (report, none)
        }

        Issue::BlocksShared => {
            let report = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                let mut blocks = maker.take(2);
                maker.change(DATA, |item| item.blocks += 2);
                maker.extent(DATA, 1 << 30, &Extent::new(blocks, Vec::new()));
                blocks.count = 1;
                maker.extent(DATA, 1 << 31, &Extent::new(blocks, Vec::new()));
            });
            (report, none)
        }
        Issue::BlocksNotMarked => {
            let report = with(|maker| {
                maker.accounts(|space| {
                    let bits = space.get_mut(&bitmap_key()).expect("it exists");
                    let used = bits.iter().position(|&byte| byte == 0xff).expect("eight in use");
                    bits[used] = 0xfe;
                });
            });
            (report, none)
        }
        Issue::BlocksLeaked => {
            let report = with(|maker| {
                maker.accounts(|space| {
                    space.get_mut(&bitmap_key()).expect("it exists")[200] |= 4;
                });
            });
            (report, none)
        }
        Issue::SpaceItemDamaged => {
            // Of the group, so that no mark is missing.
            let report = with(|maker| {
                maker.accounts(|space| drop(space.insert(group_key(), vec![1; 15])));
            });
            (report, &[Issue::GroupCount])
        }
        Issue::SpaceItemOutside => {
            let report = with(|maker| {
                maker.accounts(|space| {
                    space.get_mut(&bitmap_key()).expect("it exists")[0] |= 1;
                });
            });
            (report, none)
        }
        Issue::GroupCount => {
            let report = with(|maker| {
                maker.accounts(|space| {
                    let bytes = space.get_mut(&group_key()).expect("it exists");
                    let mut group = GroupItem::decode(bytes).expect("it is sound");
                    group.node_blocks += 1;
                    *bytes = group.encode();
                });
            });
            (report, none)
        }
        Issue::ReferencedBlocks => {
            (with(|maker| maker.superblock(|s| s.referenced_blocks += 1)), none)
        }
        Issue::UsedBlocks => (with(|maker| maker.superblock(|s| s.used_blocks += 1)), none),
        Issue::SettingUnknown => {
            let key = Key::new(InodeNo(0), ItemKind::Setting, 9);
            (with(|maker| drop(maker.space.insert(key, vec![1]))), none)
        }

        Issue::RootMissing => {
            let mut maker = Maker::empty();
            maker.superblock(|superblock| superblock.inode_count = 0);
            (check_all(&maker.make().device), none)
        }
        Issue::DentryDangling => {
            let report = with(|maker| {
                maker.dentry(ROOT, "ghost", InodeNo(9), FileType::Regular);
                maker.change(ROOT, |item| item.size += 1);
            });
            (report, none)
        }
        Issue::DentryType => {
            let report = with(|maker| {
                let name = b"pipe";
                let dentry = Dentry { inode: PIPE, file_type: FileType::Socket, name };
                maker.files.insert(dentry_key(ROOT, "pipe"), dentry.encode());
            });
            (report, none)
        }
        Issue::DentrySlot => {
            let report = with(|maker| {
                let value = maker.files.remove(&dentry_key(ROOT, "pipe"));
                maker.files.insert(dentry_key(ROOT, "pope"), value.expect("it exists"));
            });
            (report, none)
        }
        Issue::NameTwice => {
            let report = with(|maker| {
                maker.dentry(ROOT, "pipe", PIPE, FileType::Fifo);
                maker.change(ROOT, |item| item.size += 1);
                maker.change(PIPE, |item| item.nlink += 1);
            });
            (report, none)
        }
        Issue::DirectorySize => (with(|maker| maker.change(SUB, |item| item.size = 1)), none),
        Issue::LinkCount => (with(|maker| maker.change(DATA, |item| item.nlink = 3)), none),
        Issue::ParentWrong => (with(|maker| maker.change(SUB, |item| item.parent = ROOT)), none),
        Issue::DirectoryNames => {
            let report = with(|maker| {
                maker.dentry(SUB, "again", DIR, FileType::Directory);
                maker.change(SUB, |item| (item.size, item.nlink) = (1, 3));
            });
            (report, none)
        }
        Issue::Unreachable => {
            let report = with(|maker| {
                maker.files.remove(&dentry_key(ROOT, "pipe"));
                maker.change(ROOT, |item| item.size -= 1);
            });
            (report, none)
        }
        Issue::DirectoryCycle => {
            // `/dir` moves into `/dir/sub`.
            let report = with(|maker| {
                maker.files.remove(&dentry_key(ROOT, "dir"));
                maker.change(ROOT, |item| (item.size, item.nlink) = (4, 2));
                maker.dentry(SUB, "dir", DIR, FileType::Directory);
                maker.change(SUB, |item| (item.size, item.nlink) = (1, 3));
                maker.change(DIR, |item| item.parent = SUB);
            });
            (report, none)
        }

        Issue::NamePlace => (with(|maker| maker.change(SUB, |item| item.parent_slot += 1)), none),

        Issue::OrphanDangling => {
            (with(|maker| drop(maker.files.insert(Key::orphan(InodeNo(15)), Vec::new()))), none)
        }
        Issue::OrphanNamed => {
            (with(|maker| drop(maker.files.insert(Key::orphan(PIPE), Vec::new()))), none)
        }
        Issue::OrphanUnlisted => {
            (with(|maker| drop(maker.files.remove(&Key::orphan(ORPHAN)))), none)
        }
        Issue::OrphanKey => {
            let key = Key::new(PIPE, ItemKind::Orphan, PIPE.0);
            (with(|maker| drop(maker.files.insert(key, Vec::new()))), none)
        }

        Issue::PunchDangling => {
            let hole = PunchItem { first: 0, end: 1, state: 0, reserved: [0; 4] };
            (with(|maker| drop(maker.files.insert(Key::punch(PIPE), hole.encode()))), none)
        }
        Issue::PunchKey => {
            let hole = PunchItem { first: 0, end: 1, state: 0, reserved: [0; 4] };
            let key = Key::new(PIPE, ItemKind::Punch, PIPE.0);
            (with(|maker| drop(maker.files.insert(key, hole.encode()))), none)
        }

        Issue::DataDamaged => {
            let mut maker = Maker::sample();
            maker.change(INLINE, |item| (item.size, item.blocks) = (12_288, 3));
            maker.files.remove(&Key::new(INLINE, ItemKind::Inline, 0));
            let blocks = maker.written(INLINE, 0, 3);
            let made = maker.make();
            made.poke(BlockNo(blocks.start.0 + 1), BLOCK_SIZE, |bytes| bytes[4000] ^= 1);
            (check_all(&made.device), none)
        }
        Issue::DataUnreadable => {
            let mut maker = Maker::sample();
            maker.change(INLINE, |item| (item.size, item.blocks) = (12_288, 3));
            maker.files.remove(&Key::new(INLINE, ItemKind::Inline, 0));
            let blocks = maker.written(INLINE, 0, 3);
            let bad = BlockRange::new(BlockNo(blocks.start.0 + 2), 1);
            (check_all(&Rotten(maker.make().device, bad)), none)
        }

        Issue::JournalDamaged => {
            let report = journaled(|journal| {
                journal.honest(5);
                journal.honest(5);
                journal.made.poke(journal.frames[0], BLOCK_SIZE, |bytes| bytes[300] ^= 1);
            });
            (report, none)
        }
        Issue::CommitMalformed => (journaled(|journal| journal.put(b"nonsense", 1)), none),
        Issue::CommitBase => {
            let report = journaled(|journal| {
                let mut parts = journal.step(Epoch(5));
                parts.changes[0].base = Base::Changed;
                journal.commit(&parts, 1);
            });
            (report, none)
        }
        Issue::CommitNode => {
            let report = journaled(|journal| {
                let mut parts = journal.step(Epoch(5));
                let mut leaf = new_leaf(journal, Epoch(5));
                leaf.after[0] = b'x';
                parts.changes.push(leaf);
                journal.commit(&parts, 1);
            });
            (report, none)
        }
        Issue::JournalUnreadable => {
            let made = Maker::sample().make();
            let bad = BlockRange::new(made.superblock.journal.next, 1);
            (check_all(&Rotten(made.device, bad)), none)
        }
        Issue::LogDamaged => {
            let report = logged(|log| {
                for _ in 0..2 {
                    log.chown(PIPE);
                    log.batch();
                }
                log.poke(0, false, |bytes| bytes[100] ^= 1);
            });
            (report, none)
        }
        Issue::BatchMalformed => {
            let report = logged(|log| {
                log.batch_with(|_, out| out.push(0), |_| {});
            });
            (report, none)
        }
        Issue::BatchGap => {
            let report = logged(|log| {
                log.chown(PIPE);
                log.batch_with(|_, _| {}, |header| header.after -= 1);
            });
            (report, none)
        }
        Issue::BatchBlocks => {
            let report = logged(|log| {
                let blocks = log.free_blocks(2);
                log.batch_with(|encoder, out| encoder.free(blocks, out), |_| {});
            });
            (report, none)
        }
        Issue::LogUnreadable => {
            let made = Maker::sample().make();
            let bad = BlockRange::new(made.superblock.geometry.log().start, 1);
            (check_all(&Rotten(made.device, bad)), none)
        }
        of_branches => provoke_in_branches(of_branches),
    }
}

/// A volume with a snapshot, 2, of main and a branch, 3, that grew out of it, with other items of these.
fn with_branches(change: impl FnOnce(&mut Items)) -> Report {
    let grown = grown();
    grown.patch(change);
    check_all(&*grown.device)
}

/// Changes the item of a branch or snapshot.
fn change_tree(items: &mut Items, id: u64, change: impl FnOnce(&mut TreeItem)) {
    let bytes = items.get_mut(&TreeItem::key(id)).expect("it is there");
    let mut item = TreeItem::decode(bytes).expect("it is sound");
    change(&mut item);
    *bytes = item.encode();
}

fn provoke_in_branches(issue: Issue) -> (Report, &'static [Issue]) {
    let none: &[Issue] = &[];
    match issue {
        Issue::NodeRange => {
            let Grown { device, superblock } = grown_behind(6, true);
            let grown = Grown { device, superblock };
            let leaf = grown.first_child(grown.superblock.files);
            grown.patch(|items| {
                change_tree(items, 2, |item| (item.root, item.level) = (leaf, 0));
                change_tree(items, 2, |item| item.epoch = leaf.epoch);
                change_tree(items, 1, |item| item.parent = 0);
                change_tree(items, 3, |item| item.parent = 0);
                items.retain(|key, _| key.kind != ItemKind::Child);
            });
            (check_all(&*grown.device), none)
        }
        Issue::ExtentYounger => {
            let report = with(|maker| {
                let key = Key::new(DATA, ItemKind::Extent, 0);
                let bytes = maker.files.get_mut(&key).expect("it is there");
                bytes[8..16].copy_from_slice(&(EPOCH.0 + 1).to_le_bytes());
            });
            (report, none)
        }
        Issue::LineageItemDamaged => {
            let key = Key::new(InodeNo(LINEAGE), ItemKind::Name, 5);
            (with(|maker| drop(maker.space.insert(key, vec![1]))), none)
        }
        Issue::BranchRoot => (with_branches(|items| drop(items.remove(&RootItem::key(3)))), none),
        Issue::ParentMissing => {
            let report = with_branches(|items| {
                change_tree(items, 3, |item| item.parent = 77);
                items.remove(&child_key(2, 3));
                items.insert(child_key(77, 3), Vec::new());
            });
            (report, none)
        }
        Issue::LineageCycle => {
            let report = with_branches(|items| {
                change_tree(items, 2, |item| item.parent = 2);
                items.insert(child_key(2, 2), Vec::new());
            });
            (report, none)
        }
        Issue::ChildItem => (with_branches(|items| drop(items.remove(&child_key(2, 3)))), none),
        Issue::TreeName => {
            (with_branches(|items| drop(items.remove(&name_key(0, b"agent")))), none)
        }
        Issue::SnapshotEpoch => {
            let far = Epoch(1 << 30);
            let report = with_branches(|items| change_tree(items, 2, |item| item.epoch = far));
            (report, &[Issue::RootAge])
        }
        Issue::RootAge => {
            // `main` has not changed since, and has the root of the snapshot.
            let grown = grown_behind(usize::MAX, false);
            let epoch = grown.superblock.epoch;
            grown.patch(|items| change_tree(items, 2, |item| item.epoch = epoch));
            (check_all(&*grown.device), none)
        }
        Issue::DeletionWrong => {
            let walk = WalkItem::at(&WalkPlace::start()).bytes().to_vec();
            (with_branches(|items| drop(items.insert(WalkItem::key(2), walk))), none)
        }
        Issue::TreeNumber => {
            let next = LineageItem { next: 3, reserved: [0; 8] }.bytes().to_vec();
            (with_branches(|items| drop(items.insert(LineageItem::KEY, next))), none)
        }
        Issue::BranchMissing => {
            let report = with_branches(|items| {
                change_tree(items, 2, |item| item.branch = 9);
                let name = items.remove(&name_key(1, b"before")).expect("it is there");
                items.insert(name_key(9, b"before"), name);
            });
            (report, none)
        }
        other => unreachable!("{other:?} is provoked elsewhere"),
    }
}

#[test]
fn every_issue_is_found_and_nothing_else() {
    for &issue in Issue::ALL {
        let (report, others) = provoke(issue);
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
    let finding = only(provoke(Issue::LinkCount).0);
    assert_eq!((finding.path.as_deref(), finding.inode), (Some("/hard"), Some(DATA)));
    let finding = only(provoke(Issue::DentryDangling).0);
    assert_eq!((finding.path.as_deref(), finding.inode), (Some("/ghost"), Some(ROOT)));
    let finding = only(provoke(Issue::DataDamaged).0);
    assert_eq!(finding.path.as_deref(), Some("/inline"));
    assert!(finding.what.contains("from byte 4096 on"), "{finding}");
    assert!(finding.block.is_some());
    let finding = only(provoke(Issue::Unreachable).0);
    assert_eq!((finding.path, finding.inode), (None, Some(PIPE)));
    let finding = only(provoke(Issue::LinkCount).0);
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
