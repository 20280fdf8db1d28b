//! A B-tree node: header, slots from the front, records from the back.
//!
//! ```text
//!  0        64                                               node size
//!  | header | slot 0 | slot 1 | ... free ... | record 1 | record 0 |
//! ```
//!
//! A slot is four bytes: offset (u16) and length (u16) of its record. A
//! record is a key (24 bytes) and a value. Slots are in the order of their
//! keys, records in no order. An insert moves slots only. In a leaf (level 0)
//! the value is the item; above, it is the address and epoch of a child, and
//! the key is the smallest that the child may hold. Removed records leave
//! holes, counted in `garbage`, until the heap is packed again.
//!
//! [`NodeView::open`] judges a whole node once; afterwards every accessor is
//! safe. Searching lives here because it needs nothing but the bytes; changing
//! a node belongs to `store`.

mod maker;

pub use maker::{empty, filled};

use std::ops::Range;

use holdfast_base::{BlockNo, BlockRange, Epoch, TreeId};

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::feature::Carried;
use crate::geometry::{Geometry, Stored};
use crate::key::{ItemKind, Key, RawKey};
use crate::limits::{TREE_LEVELS_MAX, value_max};

/// First four bytes of a node.
pub const MAGIC: [u8; 4] = *b"hfNd";
/// Where the slots begin.
pub const SLOTS_AT: usize = NodeHeader::SIZE;
/// Bytes of a slot.
pub const SLOT_SIZE: usize = 4;
/// Where the checksum is.
pub const SUM_AT: usize = 8;
/// Where the number of slots is.
pub const COUNT_AT: usize = 6;
/// Where the node's own address is.
pub const ADDRESS_AT: usize = 16;
/// Where the epoch is.
pub const EPOCH_AT: usize = 24;
/// Where the offset of the lowest record is.
pub const HEAP_START_AT: usize = 40;
/// Where the bytes of holes are counted.
pub const GARBAGE_AT: usize = 44;
/// Bytes of a child's address in a node above the leaves.
pub const POINTER_SIZE: usize = 16;

record! {
    /// The head of a node.
    pub struct NodeHeader("node", 64 bytes) {
        /// `hfNd`.
        magic: [u8; 4],
        /// 0: a leaf.
        level: u8,
        /// 1: files, 2: space.
        tree: u8,
        /// Slots.
        count: u16,
        /// Of the node.
        sum: u64,
        /// First block of the node.
        address: u64,
        /// Checkpoint that first wrote it here.
        epoch: u64,
        /// The superblock's `node_tag`.
        volume: [u8; 8],
        /// Offset of the lowest record, or the node size.
        heap_start: u32,
        /// Bytes in holes between records.
        garbage: u32,
        /// Zero.
        reserved: [u8; 16],
    }
}

/// Where a node is, and when it was first written there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodePointer {
    /// First block of the node.
    pub block: BlockNo,
    /// The epoch in its head.
    pub epoch: Epoch,
}

impl NodePointer {
    /// The 16 bytes in a parent.
    pub fn encode(&self) -> [u8; POINTER_SIZE] {
        let mut bytes = [0; POINTER_SIZE];
        bytes[..8].copy_from_slice(&self.block.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes
    }

    /// Reads the value of a record above the leaves.
    pub fn decode(bytes: &[u8]) -> Result<NodePointer, Malformed> {
        let mut reader = Reader::new("node pointer", bytes);
        let block = BlockNo(u64::from_le_bytes(reader.array()?));
        let epoch = Epoch(u64::from_le_bytes(reader.array()?));
        reader.finish()?;
        check_device(block).map_err(|why| Malformed::new("node pointer", why))?;
        Ok(NodePointer { block, epoch })
    }
}

/// The upper eight bits of a block's number say on which device it lies. There is one device, of number 0.
pub const DEVICE_SHIFT: u32 = 56;

/// Fails if the block lies on another device than the first.
pub(crate) fn check_device(block: BlockNo) -> Result<(), String> {
    match block.0 >> DEVICE_SHIFT {
        0 => Ok(()),
        device => Err(format!("block {block} lies on device {device}, and there is only one")),
    }
}

/// What a node must say of itself to be the one that was looked for.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Where it was read, and the epoch that its parent names.
    pub pointer: NodePointer,
    /// Its tree.
    pub tree: TreeId,
    /// Its level.
    pub level: u8,
    /// Its volume.
    pub volume: OfVolume,
}

impl Expected {
    /// How often such a node is stored.
    pub fn stored(&self, geometry: &Geometry) -> Stored {
        geometry.stored(self.tree, self.level)
    }

    /// Its own place, and that of its copy.
    pub fn places(&self, geometry: &Geometry) -> impl Iterator<Item = BlockRange> + use<> {
        geometry.places_of_node(self.pointer.block, self.stored(geometry))
    }

    /// Whether it may live where the pointer says.
    pub fn can_be(&self, geometry: &Geometry) -> bool {
        geometry.holds_node(self.pointer.block, self.stored(geometry))
    }
}

/// How often a node with these bytes is stored, as its head says.
pub fn stored(bytes: &[u8], geometry: &Geometry) -> Stored {
    let tree = bytes.get(5).and_then(|tree| TreeId::from_raw(*tree)).unwrap_or(TreeId::Files);
    geometry.stored(tree, bytes.get(4).copied().unwrap_or(0))
}

/// What all nodes of a volume have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfVolume {
    /// The superblock's `node_tag`.
    pub tag: [u8; 8],
    /// Which unknown kinds they may hold.
    pub carried: Carried,
}

impl OfVolume {
    /// Nodes with this tag, that hold nothing unknown.
    pub const fn tagged(tag: [u8; 8]) -> OfVolume {
        OfVolume { tag, carried: Carried::NOTHING }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The bytes of a node that has been judged, or was built by this program.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    bytes: &'a [u8],
}

impl<'a> NodeView<'a> {
    /// Judges everything: checksum, head, every slot, the order of the keys, that records do not
    /// overlap, that garbage adds up.
    pub fn open(bytes: &'a [u8], expected: &Expected) -> Result<NodeView<'a>, Malformed> {
        let fail = |why: String| Err(Malformed::new("node", why));
        let header = NodeHeader::read(&mut Reader::new("node", bytes))?;
        if header.magic != MAGIC {
            return fail("the magic is missing".into());
        }
        if crc64_with_hole(bytes, SUM_AT) != header.sum {
            return fail("its checksum does not match".into());
        }
        if header.address != expected.pointer.block.0 {
            return fail(format!("it belongs to block {}", header.address));
        }
        if header.epoch != expected.pointer.epoch.0 {
            return fail(format!(
                "it is of epoch {}, expected {}",
                header.epoch, expected.pointer.epoch.0
            ));
        }
        if header.volume != expected.volume.tag {
            return fail("it belongs to another volume".into());
        }
        if header.tree != expected.tree as u8 {
            return fail(format!("it belongs to tree {}", header.tree));
        }
        if header.level != expected.level || header.level >= TREE_LEVELS_MAX {
            return fail(format!("it is of level {}, expected {}", header.level, expected.level));
        }
        if header.reserved != [0; 16] {
            return fail("reserved bytes are set".into());
        }
        let view = NodeView { bytes };
        view.check_body(&header, expected.volume.carried)?;
        Ok(view)
    }

    /// Takes bytes that this program built and keeps valid.
    pub fn trusted(bytes: &'a [u8]) -> NodeView<'a> {
        NodeView { bytes }
    }

    /// Fails unless slots, records and keys obey the rules of a node with this `header`, in a volume that has these
    /// unknown things.
    pub fn check_body(&self, header: &NodeHeader, carried: Carried) -> Result<(), Malformed> {
        let fail = |why: String| Err(Malformed::new("node", why));
        let size = self.bytes.len();
        let count = usize::from(header.count);
        let slots_end = SLOTS_AT + count * SLOT_SIZE;
        let heap_start = header.heap_start as usize;
        if slots_end > heap_start || heap_start > size {
            return fail(format!("{count} slots meet the heap at {heap_start}"));
        }
        let mut used = 0;
        let mut records = Vec::with_capacity(count);
        let mut previous: Option<Key> = None;
        for index in 0..count {
            let at = SLOTS_AT + index * SLOT_SIZE;
            let offset = usize::from(u16_at(self.bytes, at));
            let len = usize::from(u16_at(self.bytes, at + 2));
            let value_len = len.checked_sub(Key::SIZE);
            if offset < heap_start || offset + len > size || value_len.is_none() {
                return fail(format!("record {index} at {offset}+{len} is out of place"));
            }
            let value_len = value_len.unwrap_or(0);
            if header.level > 0 && value_len != POINTER_SIZE || value_len > value_max(size) {
                return fail(format!("record {index} has {value_len} bytes of value"));
            }
            let key = Key::decode(&self.bytes[offset..])?;
            if !key.kind.may_be(carried) {
                return fail(format!("{key:?} belongs to a feature that the volume has not"));
            }
            if header.level > 0 {
                NodePointer::decode(&self.bytes[offset + Key::SIZE..offset + len])?;
            }
            if previous.is_some_and(|previous| previous >= key) {
                return fail(format!("key {key:?} of record {index} is out of order"));
            }
            previous = Some(key);
            used += len;
            records.push((offset, len));
        }
        records.sort_unstable();
        if records.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return fail("two records overlap".into());
        }
        if used + header.garbage as usize != size - heap_start {
            return fail(format!(
                "{used} bytes of records and {} of garbage do not fill the heap from {heap_start}",
                header.garbage
            ));
        }
        if header.level > 0 && count == 0 {
            return fail("it has no child".into());
        }
        Ok(())
    }

    /// The bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Levels above the leaves.
    #[inline]
    pub fn level(&self) -> u8 {
        self.bytes[4]
    }

    /// Number of the tree.
    #[inline]
    pub fn tree(&self) -> u8 {
        self.bytes[5]
    }

    /// Number of items or children.
    #[inline]
    pub fn count(&self) -> usize {
        usize::from(u16_at(self.bytes, COUNT_AT))
    }

    /// Offset of the lowest record.
    #[inline]
    pub fn heap_start(&self) -> usize {
        self.u32_at(HEAP_START_AT) as usize
    }

    /// Bytes of holes.
    #[inline]
    pub fn garbage(&self) -> usize {
        self.u32_at(GARBAGE_AT) as usize
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from(u16_at(self.bytes, at)) | u32::from(u16_at(self.bytes, at + 2)) << 16
    }

    /// Bytes between the slots and the heap.
    pub fn gap(&self) -> usize {
        self.heap_start() - (SLOTS_AT + self.count() * SLOT_SIZE)
    }

    /// Bytes that an insert can use, after packing if need be.
    pub fn free(&self) -> usize {
        self.gap() + self.garbage()
    }

    /// Bytes of slots and records.
    pub fn used(&self) -> usize {
        self.bytes.len() - SLOTS_AT - self.free()
    }

    /// Offset and length of record `index`, which must be below [`NodeView::count`].
    #[inline]
    pub fn record(&self, index: usize) -> (usize, usize) {
        let at = SLOTS_AT + index * SLOT_SIZE;
        (usize::from(u16_at(self.bytes, at)), usize::from(u16_at(self.bytes, at + 2)))
    }

    /// Key of record `index` in the form that searches compare.
    #[inline]
    pub fn raw_key(&self, index: usize) -> RawKey {
        let (offset, _) = self.record(index);
        let mut key = [0; Key::SIZE];
        key.copy_from_slice(&self.bytes[offset..offset + Key::SIZE]);
        RawKey::of(&key)
    }

    /// Key of record `index`.
    pub fn key(&self, index: usize) -> Key {
        let (offset, _) = self.record(index);
        Key::decode(&self.bytes[offset..]).expect("every key was decoded when the node was opened")
    }

    /// Value of record `index`.
    #[inline]
    pub fn value(&self, index: usize) -> &'a [u8] {
        let (offset, len) = self.record(index);
        &self.bytes[offset + Key::SIZE..offset + len]
    }

    /// The items, in the order of their keys.
    pub fn items(&self) -> impl Iterator<Item = (Key, &'a [u8])> + use<'a> {
        let node = *self;
        (0..node.count()).map(move |index| (node.key(index), node.value(index)))
    }

    /// Of a leaf the items of one kind. An inner node has none.
    pub fn items_of(&self, kind: ItemKind) -> impl Iterator<Item = (Key, &'a [u8])> + use<'a> {
        let count = if self.level() == 0 { self.count() } else { 0 };
        self.items().take(count).filter(move |(key, _)| key.kind == kind)
    }

    /// Child `index` of a node above the leaves.
    #[inline]
    pub fn child(&self, index: usize) -> NodePointer {
        NodePointer::decode(self.value(index))
            .expect("every pointer was decoded when the node was opened")
    }

    /// The index of `key`: `Ok` where it is, `Err` where it belongs.
    #[inline]
    pub fn search(&self, key: &RawKey) -> Result<usize, usize> {
        self.search_within(0..self.count(), key)
    }

    /// The same for a caller that knows that all records before `range` have smaller keys, and all behind it greater.
    #[inline]
    pub fn search_within(&self, range: Range<usize>, key: &RawKey) -> Result<usize, usize> {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = (low + high) / 2;
            match self.raw_key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The child that covers `key`: the last whose key is not above it, or the first.
    #[inline]
    pub fn child_index(&self, key: &RawKey) -> usize {
        covering(self.search(key))
    }
}

/// The child that covers a key, by what a search for the key among the children found.
#[inline]
pub fn covering(found: Result<usize, usize>) -> usize {
    found.unwrap_or_else(|behind| behind.saturating_sub(1))
}

/// Writes the checksum into a finished node.
pub fn seal(bytes: &mut [u8]) {
    let sum = crc64_with_hole(bytes, SUM_AT);
    bytes[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_offsets_are_those_of_the_header() {
        let at = |name: &str| {
            let field = NodeHeader::fields().into_iter().find(|field| field.name == name);
            field.expect("the header has this field").offset
        };
        assert_eq!(at("count"), COUNT_AT);
        assert_eq!(at("sum"), SUM_AT);
        assert_eq!(at("address"), ADDRESS_AT);
        assert_eq!(at("epoch"), EPOCH_AT);
        assert_eq!(at("heap_start"), HEAP_START_AT);
        assert_eq!(at("garbage"), GARBAGE_AT);
    }
}
