//! A block group: what `space` must know of 128 MiB before it looks at their bitmaps.
//!
//! The records of all groups are one run of keys, a few MB for the largest volume, without the bitmaps between them. A group
//! without a record is empty. Blocks with several references have their count beside the bitmaps ([`SharedItem`]). A bitmap item covers 4,096 blocks, the
//! lowest bit of the first byte the first block; a set bit is a block in use.
//! A bitmap without an item is all zero.

use holdfast_base::InodeNo;

use crate::codec::Reader;
use crate::limits::{BITMAP_BYTES, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use crate::{ItemKind, Key, Malformed};

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
    #[derive(Copy)]
    pub struct GroupItem("group", 16 bytes) {
        /// Blocks in use.
        used_blocks: u32,
        /// Of those, blocks of tree nodes.
        node_blocks: u32,
        /// Blocks with more than one reference: those of its shared items.
        shared_blocks: u32,
        /// Zero.
        reserved: [u8; 4],
    }
}

record! {
    /// Blocks of a group with more than one reference, each with so many. Volumes of the feature [`crate::superblock::SHARED_BLOCKS`] have such.
    #[derive(Copy)]
    pub struct SharedItem("shared", 8 bytes) {
        /// Blocks from the one of the key on, which end within the group.
        blocks: u32,
        /// References to each of them, at least 2.
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
        let mut reader = Reader::new(SharedItem::TITLE, bytes);
        let item = SharedItem::read(&mut reader)?;
        reader.finish()?;
        let behind = GROUP_BLOCKS.saturating_sub(key.offset);
        if !(1..=behind).contains(&u64::from(item.blocks)) || item.references < 2 {
            let why = format!("{} blocks with {} references", item.blocks, item.references);
            return Err(Malformed::new(SharedItem::TITLE, why));
        }
        Ok(item)
    }
}

impl GroupItem {
    /// The record of a group whose blocks have one reference each.
    pub const fn of(used_blocks: u32, node_blocks: u32) -> GroupItem {
        GroupItem { used_blocks, node_blocks, shared_blocks: 0, reserved: [0; 4] }
    }

    /// The key of the record of `group`.
    pub const fn key(group: u64) -> Key {
        Key::new(InodeNo(0), ItemKind::Group, group)
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Reads and judges a group.
    pub fn decode(bytes: &[u8]) -> Result<GroupItem, Malformed> {
        let mut reader = Reader::new(GroupItem::TITLE, bytes);
        let item = GroupItem::read(&mut reader)?;
        reader.finish()?;
        if u64::from(item.used_blocks) > GROUP_BLOCKS || item.node_blocks > item.used_blocks {
            return Err(Malformed::new(
                GroupItem::TITLE,
                format!("{} used, {} of nodes", item.used_blocks, item.node_blocks),
            ));
        }
        if item.reserved != [0; 4] || item.shared_blocks > item.used_blocks - item.node_blocks {
            return Err(Malformed::new(
                GroupItem::TITLE,
                "its shared blocks or reserved bytes cannot be",
            ));
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
