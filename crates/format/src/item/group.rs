//! A block group: what `space` must know of 128 MiB before it looks at their bitmaps.
//!
//! The records of all groups are one run of keys, a few MB for the largest volume, without the bitmaps between them. A group
//! without a record is empty. A bitmap item covers 4,096 blocks, the
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

/// The group that the key of a record or of a piece of a bitmap names; `None` of any other key. Whether the volume has that group is
/// the caller's to check.
pub fn group_of(key: &Key) -> Option<u64> {
    match key.kind {
        ItemKind::Group => (key.inode.0 == 0).then_some(key.offset),
        ItemKind::Bitmap => (key.offset < BITMAPS_PER_GROUP).then_some(key.inode.0),
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
        /// Zero.
        reserved: [u8; 8],
    }
}

impl GroupItem {
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
        if item.reserved != [0; 8] {
            return Err(Malformed::new(GroupItem::TITLE, "reserved bytes are set"));
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
