//! For every issue a volume that has it, and nothing else unless said so.
//!
//! The `match` has an arm for each issue: a new one does not compile without
//! its damage.

use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, Epoch, InodeNo};
use holdfast_check::{Issue, Report};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::lineage::{LINEAGE, LineageItem, child_key, name_key};
use holdfast_format::item::xattr::piece_offset;
use holdfast_format::item::{
    Dentry, Extent, FileType, GroupItem, PunchItem, RootItem, TreeItem, WalkItem, WalkPlace,
};
use holdfast_format::journal::Base;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_format::node::SLOTS_AT;
use holdfast_format::superblock::FoundDamage;
use holdfast_format::{ItemKind, Key, NodePointer, Stored, Superblock};

use super::branches::{Grown, Items, grown, grown_behind};
use super::journal::{Journal, new_leaf};
use super::log::Log;
use super::*;

/// A volume with damage, of which some blocks may not read.
pub(crate) struct Image {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) rotten: Option<BlockRange>,
}

impl Image {
    fn of(device: MemoryDevice) -> Image {
        Image::shared(Arc::new(device))
    }

    fn shared(device: Arc<MemoryDevice>) -> Image {
        Image { device, rotten: None }
    }

    fn rotten(device: MemoryDevice, bad: BlockRange) -> Image {
        Image { rotten: Some(bad), ..Image::of(device) }
    }

    /// As a device that reads what it can.
    pub(crate) fn device(&self) -> Box<dyn Device> {
        let device = self.device.snapshot();
        match self.rotten {
            Some(bad) => Box::new(Rotten(device, bad)),
            None => Box::new(device),
        }
    }

    /// What is found in it, data read too.
    pub(crate) fn check(&self) -> Report {
        check_all(&*self.device())
    }
}

/// The sample with a change of its items.
pub(crate) fn with(change: impl FnOnce(&mut Maker)) -> Image {
    let mut maker = Maker::sample();
    change(&mut maker);
    Image::of(maker.make().device)
}

/// The sample, made, with small leaves, then damaged.
pub(crate) fn after(damage: impl FnOnce(&Made)) -> Image {
    let mut maker = Maker::sample();
    maker.leaf_items = 6;
    let made = maker.make();
    assert!(made.superblock.files_level >= 1);
    damage(&made);
    Image::of(made.device)
}

/// The sample with a journal.
pub(crate) fn journaled(write: impl FnOnce(&mut Journal<'_>)) -> Image {
    let made = Maker::sample().make();
    let mut journal = Journal::new(&made);
    journal.now.epoch = Epoch(5);
    write(&mut journal);
    Image::of(made.device)
}

/// The sample with a log.
pub(crate) fn logged(write: impl FnOnce(&mut Log<'_>)) -> Image {
    let made = Maker::sample().make();
    let mut log = Log::new(&made);
    log.operation();
    write(&mut log);
    Image::of(made.device)
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
    GroupItem::key(0)
}

fn bitmap_key() -> Key {
    Key::new(InodeNo(0), ItemKind::Bitmap, 0)
}

/// A volume that has `issue`, and what else that brings with it.
pub(crate) fn provoke(issue: Issue) -> (Image, &'static [Issue]) {
    let none: &[Issue] = &[];
    match issue {
        Issue::SuperblockInvalid => {
            let image = after(|made| {
                made.poke(SUPERBLOCK_SLOTS[1], BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (image, none)
        }
        Issue::NoSuperblock => {
            let image = after(|made| {
                for slot in SUPERBLOCK_SLOTS {
                    made.poke(slot, BLOCK_SIZE, |bytes| bytes[100] ^= 1);
                }
            });
            (image, none)
        }
        Issue::FarCopyInvalid => {
            let image = after(|made| {
                let far = made.superblock.geometry.far_copy();
                made.poke(far, BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (image, none)
        }
        Issue::Fault => {
            let fault =
                FoundDamage { time: Default::default(), reason: "a node was damaged".into() };
            (with(move |m| m.superblock(move |s| s.fault = Some(fault.clone()))), none)
        }
        Issue::NewestSuperblockLost => {
            let image = after(|made| {
                // The slot before it leads to nodes that are not there any more.
                let other = Superblock { epoch: Epoch(1), ..made.superblock.clone() };
                let files = NodePointer { epoch: Epoch(1), ..other.files };
                let space = NodePointer { epoch: Epoch(1), ..other.space };
                made.write_superblock(1, &Superblock { files, space, ..other });
                made.poke(SUPERBLOCK_SLOTS[0], BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            });
            (image, &[Issue::SuperblockInvalid])
        }
        Issue::SuperblocksDisagree => {
            let image = after(|made| {
                let other = Superblock { hash_seed: 3, epoch: Epoch(1), ..made.superblock.clone() };
                let roots = NodePointer { epoch: Epoch(1), ..other.files };
                let space = NodePointer { epoch: Epoch(1), ..other.space };
                made.write_superblock(1, &Superblock { files: roots, space, ..other });
            });
            (image, none)
        }
        Issue::VolumeCutShort => {
            let image = after(|made| {
                for slot in [0, 1] {
                    let mut longer = made.superblock.clone();
                    longer.geometry.volume_blocks += 16;
                    longer.epoch.0 += slot as u64;
                    made.write_superblock(slot, &longer);
                    made.write_signpost(&longer);
                }
            });
            (image, none)
        }
        Issue::FeaturesUnknown => (with(|m| m.superblock(|s| s.features_ro_compat = 4)), none),
        Issue::CounterHigh => (with(|m| m.superblock(|s| s.lsn.0 = COUNTER_MAX / 2)), none),

        Issue::NodeUnreadable => {
            let mut maker = Maker::sample();
            maker.leaf_items = 6;
            let made = maker.make();
            let bad = BlockRange::new(made.files[2].block, 1);
            (Image::rotten(made.device, bad), none)
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
            let image = after(|made| {
                set_child(made, 1, NodePointer { epoch: Epoch(6), ..made.files[1] });
            });
            (image, none)
        }
        Issue::NodeOutOfBounds => (after(|made| set_child(made, 1, made.files[2])), none),
        Issue::NodeCopyBad => {
            let mut maker = Maker::sample_with_copies();
            maker.leaf_items = 6;
            let made = maker.make();
            let copy = made.superblock.geometry.copy_of(made.files[2].block, Stored::Twice);
            made.poke(copy.expect("it has copies"), BLOCK_SIZE, |bytes| bytes[3000] ^= 1);
            (Image::of(made.device), none)
        }
        Issue::FramePlaceBad => {
            let made = Maker::sample_with_ring_copies().make();
            let mut journal = Journal::new(&made);
            journal.now.epoch = Epoch(5);
            journal.honest(5);
            journal.honest(5);
            let at = journal.frames[0].0 + made.superblock.geometry.ring_distance;
            made.poke(BlockNo(at), BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            (Image::of(made.device), none)
        }
        Issue::BatchPlaceBad => {
            let made = Maker::sample_with_ring_copies().make();
            let mut log = Log::new(&made);
            log.operation();
            for _ in 0..2 {
                log.chown(PIPE);
                log.batch();
            }
            // The first place of the first one.
            made.poke(made.superblock.geometry.log().start, BLOCK_SIZE, |bytes| bytes[100] ^= 1);
            (Image::of(made.device), none)
        }
        Issue::ItemMisplaced => {
            let key = Key::new(InodeNo(0), ItemKind::Setting, 1);
            (with(|maker| drop(maker.files.insert(key, vec![1]))), none)
        }

        Issue::ItemDamaged => {
            let image = with(|maker| {
                maker.files.get_mut(&Key::inode(PIPE)).expect("it exists")[127] = 1;
            });
            (image, none)
        }
        Issue::ItemWithoutInode => {
            let image = with(|maker| {
                maker.files.insert(Key::new(InodeNo(15), ItemKind::Inline, 0), vec![1]);
            });
            (image, none)
        }
        Issue::InodeNumber => (with(|maker| maker.superblock(|s| s.inode_next = ORPHAN)), none),
        Issue::InodeFields => (with(|maker| maker.change(PIPE, |item| item.rdev = 1)), none),
        Issue::KindMisfit => {
            let key = Key::new(PIPE, ItemKind::Inline, 0);
            (with(|maker| drop(maker.files.insert(key, vec![1]))), none)
        }
        Issue::ExtentUnaligned => {
            let image = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                maker.unwritten(DATA, FILE_SIZE_MAX - BLOCK_BYTES + 1, 1);
            });
            (image, none)
        }
        Issue::ExtentsOverlap => {
            let image = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                maker.unwritten(DATA, BLOCK_BYTES, 1);
            });
            (image, none)
        }
        Issue::ExtentOutside => {
            let image = with(|maker| {
                maker.change(DATA, |item| item.blocks += 9);
                let blocks = BlockRange::new(BlockNo(maker.geometry.volume_blocks - 1), 9);
                maker.extent(DATA, 1 << 40, &Extent::new(blocks, Vec::new()));
            });
            (image, none)
        }
        Issue::BlocksWrong => (with(|maker| maker.change(DATA, |item| item.blocks = 4)), none),
        Issue::ContentTwice => {
            let image = with(|maker| {
                maker.files.insert(Key::new(DATA, ItemKind::Inline, 0), vec![1; 100]);
            });
            (image, none)
        }
        Issue::ContentWrong => (with(|maker| maker.change(INLINE, |item| item.size = 6)), none),
        Issue::XattrPieces => {
            let key = Key::new(DATA, ItemKind::XattrPiece, piece_offset(0, 1));
            (with(|maker| drop(maker.files.remove(&key))), none)
        }
        Issue::XattrName => {
            let image = with(|maker| {
                let value = maker.files.remove(&xattr_key(DATA, "user.short"));
                let elsewhere = xattr_key(DATA, "user.other");
                maker.files.insert(elsewhere, value.expect("it exists"));
            });
            (image, none)
        }
        Issue::XattrFlag => (with(|maker| maker.change(DATA, |item| item.flags = 0)), none),
        Issue::InodeCount => (with(|maker| maker.superblock(|s| s.inode_count += 1)), none),

        Issue::ExtentBirth => {
            let image = with(|maker| {
                let blocks = maker.take(1);
                let birth = Epoch(EPOCH.0 + 3);
                let extent = Extent { birth, ..Extent::new(blocks, Vec::new()) };
                maker.extent(DATA, 1 << 30, &extent);
                maker.change(DATA, |item| item.blocks += 1);
            });
            (image, none)
        }

        Issue::BlocksShared => {
            let image = with(|maker| {
                maker.change(DATA, |item| item.blocks += 1);
                let mut blocks = maker.take(2);
                maker.change(DATA, |item| item.blocks += 2);
                maker.extent(DATA, 1 << 30, &Extent::new(blocks, Vec::new()));
                blocks.count = 1;
                maker.extent(DATA, 1 << 31, &Extent::new(blocks, Vec::new()));
            });
            (image, none)
        }
        Issue::BlocksNotMarked => {
            let image = with(|maker| {
                maker.accounts(|space| {
                    let bits = space.get_mut(&bitmap_key()).expect("it exists");
                    let used = bits.iter().position(|&byte| byte == 0xff).expect("eight in use");
                    bits[used] = 0xfe;
                });
            });
            (image, none)
        }
        Issue::BlocksLeaked => {
            let image = with(|maker| {
                maker.accounts(|space| {
                    space.get_mut(&bitmap_key()).expect("it exists")[200] |= 4;
                });
            });
            (image, none)
        }
        Issue::SpaceItemDamaged => {
            // Of the group, so that no mark is missing.
            let image = with(|maker| {
                maker.accounts(|space| drop(space.insert(group_key(), vec![1; 15])));
            });
            (image, &[Issue::GroupCount])
        }
        Issue::SpaceItemOutside => {
            let image = with(|maker| {
                maker.accounts(|space| {
                    space.get_mut(&bitmap_key()).expect("it exists")[0] |= 1;
                });
            });
            (image, none)
        }
        Issue::GroupCount => {
            let image = with(|maker| {
                maker.accounts(|space| {
                    let bytes = space.get_mut(&group_key()).expect("it exists");
                    let mut group = GroupItem::decode(bytes).expect("it is sound");
                    group.node_blocks += 1;
                    *bytes = group.encode();
                });
            });
            (image, none)
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
            (Image::of(maker.make().device), none)
        }
        Issue::DentryDangling => {
            let image = with(|maker| {
                maker.dentry(ROOT, "ghost", InodeNo(9), FileType::Regular);
                maker.change(ROOT, |item| item.size += 1);
            });
            (image, none)
        }
        Issue::DentryType => {
            let image = with(|maker| {
                let name = b"pipe";
                let dentry = Dentry { inode: PIPE, file_type: FileType::Socket, name };
                maker.files.insert(dentry_key(ROOT, "pipe"), dentry.encode());
            });
            (image, none)
        }
        Issue::DentrySlot => {
            let image = with(|maker| {
                let value = maker.files.remove(&dentry_key(ROOT, "pipe"));
                maker.files.insert(dentry_key(ROOT, "pope"), value.expect("it exists"));
            });
            (image, none)
        }
        Issue::NameTwice => {
            let image = with(|maker| {
                maker.dentry(ROOT, "pipe", PIPE, FileType::Fifo);
                maker.change(ROOT, |item| item.size += 1);
                maker.change(PIPE, |item| item.nlink += 1);
            });
            (image, none)
        }
        Issue::DirectorySize => (with(|maker| maker.change(SUB, |item| item.size = 1)), none),
        Issue::LinkCount => (with(|maker| maker.change(DATA, |item| item.nlink = 3)), none),
        Issue::ParentWrong => (with(|maker| maker.change(SUB, |item| item.parent = ROOT)), none),
        Issue::DirectoryNames => {
            let image = with(|maker| {
                maker.dentry(SUB, "again", DIR, FileType::Directory);
                maker.change(SUB, |item| (item.size, item.nlink) = (1, 3));
            });
            (image, none)
        }
        Issue::Unreachable => {
            let image = with(|maker| {
                maker.files.remove(&dentry_key(ROOT, "pipe"));
                maker.change(ROOT, |item| item.size -= 1);
            });
            (image, none)
        }
        Issue::DirectoryCycle => {
            // `/dir` moves into `/dir/sub`.
            let image = with(|maker| {
                maker.files.remove(&dentry_key(ROOT, "dir"));
                maker.change(ROOT, |item| (item.size, item.nlink) = (4, 2));
                maker.dentry(SUB, "dir", DIR, FileType::Directory);
                maker.change(SUB, |item| (item.size, item.nlink) = (1, 3));
                maker.change(DIR, |item| item.parent = SUB);
            });
            (image, none)
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
            (Image::of(made.device), none)
        }
        Issue::DataUnreadable => {
            let mut maker = Maker::sample();
            maker.change(INLINE, |item| (item.size, item.blocks) = (12_288, 3));
            maker.files.remove(&Key::new(INLINE, ItemKind::Inline, 0));
            let blocks = maker.written(INLINE, 0, 3);
            let bad = BlockRange::new(BlockNo(blocks.start.0 + 2), 1);
            (Image::rotten(maker.make().device, bad), none)
        }

        Issue::JournalDamaged => {
            let image = journaled(|journal| {
                journal.honest(5);
                journal.honest(5);
                journal.made.poke(journal.frames[0], BLOCK_SIZE, |bytes| bytes[300] ^= 1);
            });
            (image, none)
        }
        Issue::JournalWiped => {
            let mut maker = Maker::sample();
            maker.superblock(|superblock| superblock.journal.sum = 0x77);
            (Image::of(maker.make().device), none)
        }
        Issue::LogWiped => {
            let mut maker = Maker::sample();
            maker.superblock(|superblock| superblock.log.sum = 0x77);
            (Image::of(maker.make().device), none)
        }
        Issue::CommitMalformed => (journaled(|journal| journal.put(b"nonsense", 1)), none),
        Issue::CommitBase => {
            let image = journaled(|journal| {
                let mut parts = journal.step(Epoch(5));
                parts.changes[0].base = Base::Changed;
                journal.commit(&parts, 1);
            });
            (image, none)
        }
        Issue::CommitBaseLost => {
            let image = journaled(|journal| {
                let parts = journal.step(Epoch(5));
                journal.commit(&parts, 1);
                let Some(Base::Copied(base)) = parts.changes.first().map(|change| change.base)
                else {
                    panic!("the first change is a copy");
                };
                journal.made.poke(base.block, NODE, |bytes| bytes[1000] ^= 1);
            });
            (image, &[Issue::NodeDamaged])
        }
        Issue::CommitNode => {
            let image = journaled(|journal| {
                let mut parts = journal.step(Epoch(5));
                let mut leaf = new_leaf(journal, Epoch(5));
                leaf.after[0] = b'x';
                parts.changes.push(leaf);
                journal.commit(&parts, 1);
            });
            (image, none)
        }
        Issue::JournalUnreadable => {
            let made = Maker::sample().make();
            let bad = BlockRange::new(made.superblock.journal.next, 1);
            (Image::rotten(made.device, bad), none)
        }
        Issue::LogDamaged => {
            let image = logged(|log| {
                for _ in 0..2 {
                    log.chown(PIPE);
                    log.batch();
                }
                log.poke(0, false, |bytes| bytes[100] ^= 1);
            });
            (image, none)
        }
        Issue::BatchMalformed => {
            let image = logged(|log| {
                log.batch_with(|_, out| out.push(0), |_| {});
            });
            (image, none)
        }
        Issue::BatchGap => {
            let image = logged(|log| {
                log.chown(PIPE);
                log.batch_with(|_, _| {}, |header| header.after -= 1);
            });
            (image, none)
        }
        Issue::BatchBlocks => {
            let image = logged(|log| {
                let blocks = log.free_blocks(2);
                log.batch_with(|encoder, out| encoder.free(blocks, out), |_| {});
            });
            (image, none)
        }
        Issue::LogUnreadable => {
            let made = Maker::sample().make();
            let bad = BlockRange::new(made.superblock.geometry.log().start, 1);
            (Image::rotten(made.device, bad), none)
        }
        of_branches => provoke_in_branches(of_branches),
    }
}

/// A volume with a snapshot, 2, of main and a branch, 3, that grew out of it, with other items of these.
pub(crate) fn with_branches(change: impl FnOnce(&mut Items)) -> Image {
    let grown = grown();
    grown.patch(change);
    Image::shared(grown.device)
}

/// Changes the item of a branch or snapshot.
pub(crate) fn change_tree(items: &mut Items, id: u64, change: impl FnOnce(&mut TreeItem)) {
    let bytes = items.get_mut(&TreeItem::key(id)).expect("it is there");
    let mut item = TreeItem::decode(bytes).expect("it is sound");
    change(&mut item);
    *bytes = item.encode();
}

fn provoke_in_branches(issue: Issue) -> (Image, &'static [Issue]) {
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
            (Image::shared(grown.device), none)
        }
        Issue::ExtentYounger => {
            let image = with(|maker| {
                let key = Key::new(DATA, ItemKind::Extent, 0);
                let bytes = maker.files.get_mut(&key).expect("it is there");
                bytes[8..16].copy_from_slice(&(EPOCH.0 + 1).to_le_bytes());
            });
            (image, none)
        }
        Issue::LineageItemDamaged => {
            let key = Key::new(InodeNo(LINEAGE), ItemKind::Name, 5);
            (with(|maker| drop(maker.space.insert(key, vec![1]))), none)
        }
        Issue::BranchRoot => (with_branches(|items| drop(items.remove(&RootItem::key(3)))), none),
        Issue::ParentMissing => {
            let image = with_branches(|items| {
                change_tree(items, 3, |item| item.parent = 77);
                items.remove(&child_key(2, 3));
                items.insert(child_key(77, 3), Vec::new());
            });
            (image, none)
        }
        Issue::LineageCycle => {
            let image = with_branches(|items| {
                change_tree(items, 2, |item| item.parent = 2);
                items.insert(child_key(2, 2), Vec::new());
            });
            (image, none)
        }
        Issue::ChildItem => (with_branches(|items| drop(items.remove(&child_key(2, 3)))), none),
        Issue::TreeName => {
            (with_branches(|items| drop(items.remove(&name_key(0, b"agent")))), none)
        }
        Issue::SnapshotEpoch => {
            let far = Epoch(1 << 30);
            let image = with_branches(|items| change_tree(items, 2, |item| item.epoch = far));
            (image, &[Issue::RootAge])
        }
        Issue::RootAge => {
            // `main` has not changed since, and has the root of the snapshot.
            let grown = grown_behind(usize::MAX, false);
            let epoch = grown.superblock.epoch;
            grown.patch(|items| change_tree(items, 2, |item| item.epoch = epoch));
            (Image::shared(grown.device), none)
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
            let image = with_branches(|items| {
                change_tree(items, 2, |item| item.branch = 9);
                let name = items.remove(&name_key(1, b"before")).expect("it is there");
                items.insert(name_key(9, b"before"), name);
            });
            (image, none)
        }
        other => unreachable!("{other:?} is provoked elsewhere"),
    }
}
