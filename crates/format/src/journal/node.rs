//! Node records: which bytes of a node a commit changed, and on what base.

use holdfast_base::{BlockNo, Epoch};

use crate::Malformed;
use crate::codec::Reader;
use crate::geometry::Geometry;
use crate::node::{NodePointer, POINTER_SIZE};

/// A node that did not exist before; its base is zeros.
pub const NODE_NEW: u8 = 1;
/// A node whose base is another node, named behind the record's head.
pub const NODE_COPY: u8 = 2;
/// A node of earlier commits.
pub const NODE_CHANGE: u8 = 3;

record! {
    /// The head of a node record; ranges and bytes follow. A range is its offset (u16) and its
    /// length less one (u16).
    pub struct NodeRecord("node record", 16 bytes) {
        /// First block of the node.
        block: u64,
        /// 1: new. 2: copied. 3: changed.
        kind: u8,
        /// Zero.
        pad: u8,
        /// Ranges.
        ranges: u16,
        /// Bytes of all ranges.
        len: u32,
    }
}

/// Bytes of a range in a node record.
pub const RANGE_SIZE: usize = 4;

/// What a node record is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Zeros.
    Zeros,
    /// The node that was copied.
    Copied(NodePointer),
    /// What earlier commits made of it.
    Changed,
}

/// A node record, judged.
#[derive(Clone, Copy, Debug)]
pub struct NodeChange<'a> {
    /// First block of the node.
    pub block: BlockNo,
    /// What it is applied to.
    pub base: Base,
    ranges: &'a [u8],
    bytes: &'a [u8],
}

impl NodeChange<'_> {
    /// Offset and bytes of each range, upwards.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = self.bytes;
        self.ranges.as_chunks::<RANGE_SIZE>().0.iter().map(move |range| {
            let (start, len) = decode_range(range);
            let (bytes, after) = rest.split_at(len);
            rest = after;
            (start, bytes)
        })
    }

    /// Bytes of all ranges.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Carries the change out on a node of the volume's node size.
    pub fn apply(&self, node: &mut [u8]) {
        for (start, bytes) in self.ranges() {
            node[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }
}

fn decode_range(range: &[u8; RANGE_SIZE]) -> (usize, usize) {
    let start = usize::from(u16::from_le_bytes([range[0], range[1]]));
    let len = usize::from(u16::from_le_bytes([range[2], range[3]])) + 1;
    (start, len)
}

/// Appends a node record: its ranges, half-open, sorted and disjoint, and their bytes out of `node`.
pub fn encode_node(
    block: BlockNo,
    base: Base,
    ranges: impl ExactSizeIterator<Item = (usize, usize)> + Clone,
    node: &[u8],
    out: &mut Vec<u8>,
) {
    let (kind, copied) = match base {
        Base::Zeros => (NODE_NEW, None),
        Base::Copied(pointer) => (NODE_COPY, Some(pointer)),
        Base::Changed => (NODE_CHANGE, None),
    };
    let len: usize = ranges.clone().map(|(start, end)| end - start).sum();
    let head =
        NodeRecord { block: block.0, kind, pad: 0, ranges: ranges.len() as u16, len: len as u32 };
    head.write(out);
    if let Some(pointer) = copied {
        out.extend_from_slice(&pointer.encode());
    }
    for (start, end) in ranges.clone() {
        out.extend_from_slice(&(start as u16).to_le_bytes());
        out.extend_from_slice(&((end - start - 1) as u16).to_le_bytes());
    }
    for (start, end) in ranges {
        out.extend_from_slice(&node[start..end]);
    }
}

/// Bytes that [`encode_node`] appends.
pub fn node_size(base: Base, ranges: usize, len: usize) -> usize {
    let copied = matches!(base, Base::Copied(_));
    let base = if copied { POINTER_SIZE } else { 0 };
    NodeRecord::SIZE + base + ranges * RANGE_SIZE + len
}

/// Takes a record from the front of `reader` and judges it.
pub(super) fn decode_node<'a>(
    reader: &mut Reader<'a>,
    epoch: Epoch,
    geometry: &Geometry,
) -> Result<NodeChange<'a>, Malformed> {
    let head = NodeRecord::read(reader)?;
    let block = BlockNo(head.block);
    if head.pad != 0 || !geometry.holds_some_node(block) {
        return NodeRecord::fail(format!("a node at block {block} cannot be"));
    }
    let base = match head.kind {
        NODE_NEW => Base::Zeros,
        NODE_COPY => {
            let pointer = NodePointer::decode(reader.bytes(POINTER_SIZE)?)?;
            if !geometry.holds_some_node(pointer.block) || pointer.epoch >= epoch {
                return NodeRecord::fail(format!("the base {pointer:?} cannot be"));
            }
            Base::Copied(pointer)
        }
        NODE_CHANGE => Base::Changed,
        kind => return NodeRecord::fail(format!("kind {kind} is unknown")),
    };
    let ranges = reader.bytes(usize::from(head.ranges) * RANGE_SIZE)?;
    let (mut at, mut sum) = (0, 0);
    for range in ranges.as_chunks::<RANGE_SIZE>().0 {
        let (start, len) = decode_range(range);
        if start < at || start + len > geometry.node_size {
            return NodeRecord::fail(format!("the range {start}+{len} is out of place"));
        }
        at = start + len;
        sum += len;
    }
    if sum != head.len as usize {
        return NodeRecord::fail(format!("{} bytes instead of {sum}", head.len));
    }
    Ok(NodeChange { block, base, ranges, bytes: reader.bytes(sum)? })
}
