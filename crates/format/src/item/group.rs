//! A block group: what `space` must know of 128 MiB before it looks at their bitmaps.
//!
//! A group without a record is empty. A bitmap item covers 4,096 blocks, the
//! lowest bit of the first byte the first block; a set bit is a block in use.
//! A bitmap without an item is all zero.

use crate::Malformed;
use crate::codec::Reader;
use crate::limits::{BITMAP_BYTES, GROUP_BLOCKS};

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
