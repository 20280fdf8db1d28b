//! Pass 3: every item of every inode.
//!
//! Items come in the order of their keys, so all of an inode's come together
//! and its own item first. [`Current`] gathers them; [`finish`] judges the
//! inode when the next one begins.

use std::ops::ControlFlow;

use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_base::{BlockNo, Epoch, InodeNo, TreeId};
use holdfast_format::item::{Dentry, Extent, FileType, InodeItem, PunchItem, orphan};
use holdfast_format::limits::{FILE_SIZE_MAX, SYMLINK_MAX};
use holdfast_format::{ItemKind, Key};

use super::xattrs::Xattrs;
use super::{Context, Use};
use crate::bounds::Bounds;
use crate::inodes::Entry;
use crate::issue::Issue;

/// Inodes between two reports of progress.
const STRIDE: u64 = 4096;

/// The inode whose items are being read.
struct Current {
    number: InodeNo,
    /// Its item; `Err` if it is missing or damaged.
    item: Result<InodeItem, NoItem>,
    /// Items that need an inode.
    items: u64,
    /// Length of the inline content.
    inline: Option<u64>,
    /// Blocks of all extents.
    blocks: u64,
    /// Where the last extent ends, in bytes of the file.
    end: u64,
    /// Whether extents cover the file from its start without a hole so far.
    unbroken: bool,
    xattrs: Xattrs,
    /// Kinds of items that its type cannot have.
    misfits: Vec<ItemKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NoItem {
    Missing,
    Damaged,
}

/// Takes items in the order of their keys, and judges each inode when the next one begins.
#[derive(Default)]
pub(super) struct Reader {
    current: Option<Current>,
}

impl Reader {
    pub(super) fn take(
        &mut self,
        context: &mut Context<'_>,
        block: BlockNo,
        key: &Key,
        value: &[u8],
    ) {
        if key.kind.tree() != TreeId::Files || key.kind.asks().is_some() {
            return;
        }
        match key.kind {
            ItemKind::Orphan | ItemKind::Punch => return take_work(context, block, key, value),
            _ => {}
        }
        let is_next = self.current.as_ref().is_none_or(|current| current.number != key.inode);
        if is_next && let Some(done) = self.current.replace(Current::new(key.inode)) {
            finish(context, done);
        }
        if let Some(current) = &mut self.current {
            take(context, current, block, key, value);
        }
    }

    pub(super) fn end(self, context: &mut Context<'_>) {
        if let Some(done) = self.current {
            finish(context, done);
        }
    }
}

pub(super) fn run(context: &mut Context<'_>) {
    let volume = context.volume;
    let mut reader = Reader::default();
    let _ = volume.items(TreeId::Files, Bounds::ALL, &mut |block, key, value| {
        reader.take(context, block, &key, value);
        ControlFlow::Continue(())
    });
    reader.end(context);
    let orphans = std::mem::take(&mut context.orphans);
    for inode in &orphans {
        if let Some(at) = context.inodes.find(*inode) {
            context.inodes.0[at].orphan = true;
        }
    }
    context.facts.orphans = orphans.len() as u64;
    context.orphans = orphans;
    let (counted, said) = (context.facts.inodes, volume.superblock.inode_count);
    if counted != said && context.files_lost.is_empty() {
        let what = format!("the superblock counts {said} inodes, there are {counted}");
        context.add(Issue::InodeCount, what);
    }
}

impl Current {
    fn new(number: InodeNo) -> Current {
        Current {
            number,
            item: Err(NoItem::Missing),
            items: 0,
            inline: None,
            blocks: 0,
            end: 0,
            unbroken: true,
            xattrs: Xattrs::default(),
            misfits: Vec::new(),
        }
    }
}

/// An orphan, or a hole that is being made.
fn take_work(context: &mut Context<'_>, block: BlockNo, key: &Key, value: &[u8]) {
    let (misplaced, decoded, all) = match key.kind {
        ItemKind::Orphan => (Issue::OrphanKey, orphan::decode(value), &mut context.orphans),
        _ => (Issue::PunchKey, PunchItem::decode(value).map(drop), &mut context.punches),
    };
    if key.inode.0 != 0 {
        context.add(misplaced, format!("{key:?} should belong to inode 0")).block(block);
        return;
    }
    all.push(InodeNo(key.offset));
    if let Err(malformed) = decoded {
        damaged(context, block, key, &malformed.why);
    }
}

fn damaged(context: &mut Context<'_>, block: BlockNo, key: &Key, why: &str) {
    let finding = context.add(Issue::ItemDamaged, format!("{key:?}: {why}"));
    finding.block(block);
    if key.inode.0 != 0 {
        finding.inode(key.inode);
    }
}

fn take(context: &mut Context<'_>, current: &mut Current, block: BlockNo, key: &Key, value: &[u8]) {
    if key.kind == ItemKind::Inode {
        return take_inode(context, current, block, key, value);
    }
    current.items += 1;
    if current.item.is_ok_and(|item| !item.may_have(key.kind))
        && !current.misfits.contains(&key.kind)
    {
        current.misfits.push(key.kind);
    }
    let outcome = match key.kind {
        ItemKind::Inline => {
            current.inline = Some(value.len() as u64);
            if key.offset != 0 { Err("its offset is not 0".into()) } else { Ok(()) }
        }
        ItemKind::Dentry => match Dentry::decode(value) {
            Ok(_) => {
                context.facts.dentries += 1;
                Ok(())
            }
            Err(malformed) => Err(malformed.why),
        },
        ItemKind::Xattr => {
            context.facts.xattrs += 1;
            current.xattrs.take(context, key, value)
        }
        ItemKind::XattrPiece => {
            current.xattrs.take_piece(key, value);
            Ok(())
        }
        ItemKind::Extent => match Extent::decode(value) {
            Ok(extent) => {
                take_extent(context, current, block, key, &extent);
                Ok(())
            }
            Err(malformed) => Err(malformed.why),
        },
        _ => Ok(()),
    };
    if let Err(why) = outcome {
        damaged(context, block, key, &why);
    }
}

fn take_inode(
    context: &mut Context<'_>,
    current: &mut Current,
    block: BlockNo,
    key: &Key,
    value: &[u8],
) {
    let number = key.inode;
    let superblock = context.volume.superblock;
    let known = number == InodeNo::ROOT
        || (number >= InodeNo::FIRST_FREE && number < superblock.inode_next);
    if !known || key.offset != 0 {
        let next = superblock.inode_next;
        let what = format!("the inode {key:?} cannot be: the next number is {next}");
        context.add(Issue::InodeNumber, what).inode(number).block(block);
        if key.offset != 0 {
            return;
        }
    }
    let facts = &mut context.facts;
    facts.inodes += 1;
    if facts.inodes.is_multiple_of(STRIDE) {
        context.progress(context.facts.inodes, superblock.inode_count);
    }
    match InodeItem::decode(value) {
        Ok(item) => {
            if let Err(unknown) = item.check_carried(value, superblock.carried()) {
                damaged(context, block, key, &unknown.why);
            }
            let facts = &mut context.facts;
            match item.file_type() {
                FileType::Regular => facts.files += 1,
                FileType::Directory => facts.directories += 1,
                FileType::Symlink => facts.symlinks += 1,
                _ => facts.specials += 1,
            }
            current.item = Ok(item);
        }
        Err(malformed) => {
            current.item = Err(NoItem::Damaged);
            damaged(context, block, key, &malformed.why);
        }
    }
}

fn take_extent(
    context: &mut Context<'_>,
    current: &mut Current,
    block: BlockNo,
    key: &Key,
    extent: &Extent,
) {
    let number = current.number;
    let count = extent.blocks.count;
    context.facts.extents += 1;
    context.facts.data_blocks += count;
    if !extent.is_written() {
        context.facts.unwritten_blocks += count;
    }
    current.blocks = current.blocks.saturating_add(count);
    // What the log holds becomes part of the tree in the next one.
    let youngest = context.volume.superblock.epoch.next();
    if !(Epoch(1)..=youngest).contains(&extent.birth) {
        let what = format!(
            "the extent at {} of inode {number} is born in epoch {}, the next one is {youngest}",
            key.offset, extent.birth
        );
        context.add(Issue::ExtentBirth, what).inode(number).block(block);
    }
    let end = count.checked_mul(BLOCK_BYTES).and_then(|bytes| key.offset.checked_add(bytes));
    match end {
        Some(end) if key.offset.is_multiple_of(BLOCK_BYTES) && end <= FILE_SIZE_MAX => {
            if key.offset < current.end {
                let what = format!(
                    "the extent at {} of inode {number} begins before the end of the one before, {}",
                    key.offset, current.end
                );
                context.add(Issue::ExtentsOverlap, what).inode(number).block(block);
            }
            current.unbroken &= key.offset == current.end && extent.is_written();
            current.end = current.end.max(end);
        }
        _ => {
            let what = format!(
                "the extent of {count} blocks at {} of inode {number} cannot be",
                key.offset
            );
            context.add(Issue::ExtentUnaligned, what).inode(number).block(block);
        }
    }
    if !context.volume.superblock.geometry.holds_data(extent.blocks) {
        let what = format!(
            "the extent at {} of inode {number} has the blocks {:?}, outside the data zone",
            key.offset, extent.blocks
        );
        context.add(Issue::ExtentOutside, what).inode(number).block(extent.blocks.start);
        return;
    }
    context.uses.push(Use::of(key, extent));
}

/// Judges an inode of which all items have been read.
fn finish(context: &mut Context<'_>, current: Current) {
    let number = current.number;
    let item = match current.item {
        Ok(item) => item,
        Err(NoItem::Damaged) => {
            context.inodes.push(Entry::new(number));
            return;
        }
        Err(NoItem::Missing) => {
            if current.items > 0 && !context.may_be_lost(&Key::inode(number)) {
                let what = format!("{} items belong to inode {number}", current.items);
                context.add(Issue::ItemWithoutInode, what).inode(number);
            }
            return;
        }
    };
    context.inodes.push(Entry {
        file_type: Some(item.file_type()),
        nlink: item.nlink,
        size: item.size,
        parent: item.parent,
        parent_slot: item.parent_slot,
        ..Entry::new(number)
    });
    for kind in &current.misfits {
        let what = format!("inode {number} is a {:?} and has {kind:?} items", item.file_type());
        context.add(Issue::KindMisfit, what).inode(number);
    }
    check_fields(context, number, &item);
    // An orphan is removed in steps, each of which leaves a part; a lost node hides a part.
    if item.nlink > 0 && !context.is_partly_lost(number) {
        if current.misfits.is_empty() {
            check_content(context, &current, &item);
        }
        current.xattrs.finish(context, number, &item);
    }
}

fn check_fields(context: &mut Context<'_>, number: InodeNo, item: &InodeItem) {
    let mut wrong = Vec::new();
    let file_type = item.file_type();
    let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
    if item.rdev != 0 && !is_device {
        wrong.push(format!("a device number {:#x}", item.rdev));
    }
    let is_special = is_device || matches!(file_type, FileType::Fifo | FileType::Socket);
    if is_special && item.size != 0 {
        wrong.push(format!("a size {}", item.size));
    }
    if item.blocks != 0 && (is_special || file_type == FileType::Directory) {
        wrong.push(format!("{} blocks", item.blocks));
    }
    if file_type == FileType::Symlink && !(1..=SYMLINK_MAX as u64).contains(&item.size) {
        wrong.push(format!("a target of {} bytes", item.size));
    }
    if !wrong.is_empty() {
        let what = format!("inode {number} is a {file_type:?} with {}", wrong.join(" and "));
        context.add(Issue::InodeFields, what).inode(number);
    }
}

fn check_content(context: &mut Context<'_>, current: &Current, item: &InodeItem) {
    let number = current.number;
    let has_content = matches!(item.file_type(), FileType::Regular | FileType::Symlink);
    if has_content && current.blocks != item.blocks {
        let what = format!(
            "inode {number} counts {} blocks, its extents have {}",
            item.blocks, current.blocks
        );
        context.add(Issue::BlocksWrong, what).inode(number);
    }
    let wrong = match current.inline {
        Some(_) if current.blocks > 0 => {
            let what = format!("inode {number} has inline content and extents");
            context.add(Issue::ContentTwice, what).inode(number);
            return;
        }
        Some(len) if len != item.size => Some(format!(
            "inode {number} has {len} bytes of inline content and the size {}",
            item.size
        )),
        Some(_) => None,
        None if item.file_type() != FileType::Symlink => None,
        None => {
            let whole = current.unbroken && current.end == blocks_for(item.size) * BLOCK_BYTES;
            (!whole).then(|| {
                format!(
                    "the target of the symbolic link {number} of {} bytes is not there",
                    item.size
                )
            })
        }
    };
    if let Some(what) = wrong {
        context.add(Issue::ContentWrong, what).inode(number);
    }
}
