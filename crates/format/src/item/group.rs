//! A block group: what `space` must know of 128 MiB before it looks at their bitmaps.
//!
//! The records of all groups are one run of keys, a few MB for the largest volume, without the bitmaps between them. A group
//! without a record is empty. Blocks with several references have their count beside the bitmaps ([`SharedItem`]). A bitmap item covers 4,096 blocks, the
//! lowest bit of the first byte the first block; a set bit is a block in use.
//! A bitmap without an item is all zero.

use holdfast_base::InodeNo;

use crate::limits::{BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use crate::{ItemKind, Key, Malformed};

/// What a record says of free slots is a multiple of this.
const SLOTS_STEP: u64 = 32;

/// The key of a piece of the bitmap of `group`.
pub const fn bitmap_key(group: u64, piece: u64) -> Key {
    Key::new(InodeNo(group), ItemKind::Bitmap, piece)
}

/// The group that the key of a record, of a piece of a bitmap or of shared blocks names; `None` of any other key. Whether the volume has that group is
/// the caller's to check.
pub fn group_of(key: &Key) -> Option<u64> {
    match key.kind {
        ItemKind::Group => (key.inode.0 == 0).then_some(key.offset),
        ItemKind::Bitmap => (key.offset < BITMAPS_PER_GROUP).then_some(key.inode.0),
        ItemKind::Shared => (key.offset < GROUP_BLOCKS).then_some(key.inode.0),
        _ => None,
    }
}

record! {
    /// A block group.
    pub struct GroupItem("group", 16 bytes) {
        /// Blocks in use.
        used_blocks: u32,
        /// Of those, of nodes.
        node_blocks: u32,
        /// Blocks of its shared items.
        shared_blocks: u32,
        /// Lower bound of free slots, each for a node with its copy.
        free_slots: u32,
    }
}

record! {
    /// Blocks of a group with more than one reference, each with so many. Volumes of the feature [`crate::superblock::SHARED_BLOCKS`] have such.
    pub struct SharedItem("shared", 8 bytes) {
        /// Blocks from the key's on.
        blocks: u32,
        /// References to each, at least 2.
        references: u32,
    }
}

impl SharedItem {
    /// The key of shared blocks from block `first` of `group` on.
    pub const fn key(group: u64, first: u64) -> Key {
        Key::new(InodeNo(group), ItemKind::Shared, first)
    }

    /// Reads and judges shared blocks at their key.
    pub fn decode(key: &Key, bytes: &[u8]) -> Result<SharedItem, Malformed> {
        let item = SharedItem::exactly(bytes)?;
        let behind = GROUP_BLOCKS.saturating_sub(key.offset);
        if !(1..=behind).contains(&u64::from(item.blocks)) || item.references < 2 {
            let why = format!("{} blocks with {} references", item.blocks, item.references);
            return SharedItem::fail(why);
        }
        Ok(item)
    }
}

impl GroupItem {
    /// The key of the record of `group`.
    pub const fn key(group: u64) -> Key {
        Key::new(InodeNo(0), ItemKind::Group, group)
    }

    /// A record of these counts, of a group whose blocks have one reference each. Of `free_slots` it says a bound that stays good for a while, as a commit would
    /// else write it for each block that moves: the one that stands `before`, or the next lower one.
    pub fn bounded(
        used_blocks: u64,
        node_blocks: u64,
        free_slots: u64,
        before: Option<&GroupItem>,
    ) -> GroupItem {
        let bound = before.map(|item| u64::from(item.free_slots));
        let bound = bound.filter(|bound| (*bound..bound + 2 * SLOTS_STEP).contains(&free_slots));
        let bound = bound.unwrap_or(free_slots / SLOTS_STEP * SLOTS_STEP);
        GroupItem {
            used_blocks: used_blocks as u32,
            node_blocks: node_blocks as u32,
            shared_blocks: 0,
            free_slots: bound as u32,
        }
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Reads and judges a group.
    pub fn decode(bytes: &[u8]) -> Result<GroupItem, Malformed> {
        let item = GroupItem::exactly(bytes)?;
        let GroupItem { used_blocks, node_blocks, shared_blocks, free_slots } = item;
        let free = GROUP_BLOCKS.checked_sub(used_blocks.into());
        if node_blocks > used_blocks || free.is_none_or(|free| u64::from(free_slots) > free) {
            let why =
                format!("{used_blocks} used, {node_blocks} of nodes, {free_slots} slots free");
            return GroupItem::fail(why);
        }
        if shared_blocks > used_blocks - node_blocks {
            return GroupItem::fail("its shared blocks cannot be");
        }
        Ok(item)
    }
}

/// Reads a bitmap item.
pub fn decode_bitmap(bytes: &[u8]) -> Result<&[u8; BITMAP_BYTES], Malformed> {
    bytes.try_into().map_err(|_| {
        Malformed::new("bitmap", format!("{} bytes instead of {BITMAP_BYTES}", bytes.len()))
    })
}
