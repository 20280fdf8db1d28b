//! The records of a node or a batch as a list, to be edited and written back.
//!
//! A list that is written back is valid as far as a structure goes: records in
//! order, nothing overlaps, counts are right. What the records say is as edited.
//! A list that does not fit is not written.

use holdfast_base::{BlockNo, BlockRange, Epoch};
use holdfast_format::codec::Reader;
use holdfast_format::log::{Content, Decoder, Dropped, Encoder, LogHeader, Patch, Record};
use holdfast_format::node::{NodeHeader, NodeView, SLOT_SIZE, SLOTS_AT};
use holdfast_format::{Carried, Geometry, ItemKind, Key};

/// A record of a node: key and value.
pub type Item = (Key, Vec<u8>);

/// The records of a node that was valid.
pub fn of_node(bytes: &[u8]) -> Vec<Item> {
    let view = NodeView::trusted(bytes);
    view.items().map(|(key, value)| (key, value.to_vec())).collect()
}

/// The node with the head of `bytes` and these records, in the order of their keys; of equal keys the
/// last one stays. `None` if they do not fit.
pub fn to_node(bytes: &[u8], items: &[Item]) -> Option<Vec<u8>> {
    let items: std::collections::BTreeMap<_, _> =
        items.iter().map(|(key, value)| (*key, value)).collect();
    let mut header = NodeHeader::read(&mut Reader::new("node", bytes)).ok()?;
    let mut node = vec![0; bytes.len()];
    let (mut slot, mut heap) = (SLOTS_AT, node.len());
    for (key, value) in &items {
        let len = Key::SIZE + value.len();
        heap = heap.checked_sub(len).filter(|heap| slot + SLOT_SIZE <= *heap)?;
        node[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        node[heap + Key::SIZE..heap + len].copy_from_slice(value);
        node[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        node[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
        slot += SLOT_SIZE;
    }
    header.count = items.len() as u16;
    header.heap_start = heap as u32;
    header.garbage = 0;
    let mut head = Vec::new();
    header.write(&mut head);
    node[..head.len()].copy_from_slice(&head);
    Some(node)
}

/// What the blocks of a [`Logged::Take`] hold.
#[derive(Clone, Debug)]
pub enum Holds {
    /// Nothing that is known.
    Nothing,
    /// Data with this sum.
    Sum(u64),
    /// Data inside: base, offset, bytes.
    Inside(Vec<(u64, u16, Vec<u8>)>),
}

/// A record of a batch.
#[derive(Clone, Debug)]
pub enum Logged {
    /// A key has a value.
    Put(Key, Vec<u8>),
    /// A key has none.
    Delete(Key),
    /// Blocks are used: first, count, content.
    Take(u64, u64, Holds),
    /// Blocks are free: first, count.
    Free(u64, u64),
    /// What follows is of this branch, which has so many inodes.
    Branch(u64, u64),
    /// A branch gives up blocks: first, count, birth, and their place in a file.
    Drop(u64, u64, u64, Key),
}

/// The records of a batch that was valid.
pub fn of_batch(bytes: &[u8], geometry: &Geometry) -> Vec<Logged> {
    let Ok(header) = LogHeader::decode(bytes) else { return Vec::new() };
    let Some(records) = bytes.get(LogHeader::SIZE..LogHeader::SIZE + header.len as usize) else {
        return Vec::new();
    };
    let own = |record| match record {
        Record::Put(key, value) => Logged::Put(key, value.to_vec()),
        Record::Inode(inode, item) => Logged::Put(Key::inode(inode), item.encode()),
        Record::Delete(key) => Logged::Delete(key),
        Record::Take(blocks, content) => {
            let holds = match content {
                Content::Unwritten => Holds::Nothing,
                Content::Summed(sum) => Holds::Sum(sum),
                Content::Inside(patches) => Holds::Inside(
                    patches
                        .iter()
                        .map(|patch| {
                            (patch.base.map_or(0, |base| base.0), patch.at, patch.bytes.to_vec())
                        })
                        .collect(),
                ),
            };
            Logged::Take(blocks.start.0, blocks.count, holds)
        }
        Record::Free(blocks) => Logged::Free(blocks.start.0, blocks.count),
        Record::Branch { id, inode_count } => Logged::Branch(id, inode_count),
        Record::Drop(Dropped { blocks, birth, at }) => {
            Logged::Drop(blocks.start.0, blocks.count, birth.0, at)
        }
    };
    Decoder::new(records, header.records, geometry, Carried::NOTHING)
        .map_while(Result::ok)
        .map(own)
        .collect()
}

/// The batch with the head of `bytes` and these records, as long as it was. `None` if they do not fit.
pub fn to_batch(bytes: &[u8], records: &[Logged]) -> Option<Vec<u8>> {
    let mut header = LogHeader::decode(bytes).ok()?;
    let mut out = Vec::new();
    LogHeader::reserve(&mut out);
    let mut encoder = Encoder::default();
    for record in records {
        match record {
            Logged::Put(key, value) => encoder.put(key, value, &mut out),
            Logged::Delete(key) => encoder.delete(key, &mut out),
            Logged::Take(start, count, holds) => {
                let blocks = BlockRange::new(BlockNo(*start), *count);
                let content = match holds {
                    Holds::Nothing => Content::Unwritten,
                    Holds::Sum(sum) => Content::Summed(*sum),
                    Holds::Inside(patches) => Content::Inside(
                        patches
                            .iter()
                            .map(|(base, at, bytes)| Patch {
                                base: Some(BlockNo(*base)).filter(|base| base.0 != 0),
                                at: *at,
                                bytes,
                            })
                            .collect(),
                    ),
                };
                let is_whole = match &content {
                    Content::Inside(patches) => patches.len() as u64 == *count,
                    _ => true,
                };
                // The encoder trusts its caller in this; a raw edit of the bytes can still make it.
                if is_whole {
                    encoder.take(blocks, &content, &mut out);
                }
            }
            Logged::Free(start, count) => {
                encoder.free(BlockRange::new(BlockNo(*start), *count), &mut out);
            }
            Logged::Branch(id, inodes) => encoder.branch(*id, *inodes, &mut out),
            Logged::Drop(start, count, birth, at) => {
                let blocks = BlockRange::new(BlockNo(*start), *count);
                let dropped = Dropped { blocks, birth: Epoch(*birth), at: *at };
                encoder.drop_blocks(&dropped, &mut out);
            }
        }
        // The batch behind it must stay where it is.
        if out.len() > bytes.len() {
            return None;
        }
    }
    header.records = encoder.records();
    header.len = (out.len() - LogHeader::SIZE) as u32;
    out.resize(bytes.len(), 0);
    let mut head = Vec::new();
    header.write(&mut head);
    out[..head.len()].copy_from_slice(&head);
    Some(out)
}

/// Keys that a log can hold.
pub fn is_loggable(key: &Key) -> bool {
    key.kind.tree() == ItemKind::Inode.tree() || key.kind.is_lineage()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{COUNT, golden};
    use crate::image::Sort;

    #[test]
    fn what_is_written_back_says_the_same() {
        let (mut nodes, mut batches) = (0, 0);
        for image in (0..COUNT).map(golden) {
            for structure in &image.structures {
                match structure.sort {
                    Sort::Node => {
                        let items = of_node(&structure.bytes);
                        let node = to_node(&structure.bytes, &items).expect("it fitted before");
                        assert_eq!(of_node(&node), items);
                        nodes += 1;
                    }
                    Sort::Batch => {
                        let records = of_batch(&structure.bytes, &image.superblock.geometry);
                        let batch = to_batch(&structure.bytes, &records).expect("it fitted before");
                        // Sums are repaired elsewhere.
                        assert_eq!(batch[16..], structure.bytes[16..]);
                        batches += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(nodes > 20 && batches > 5, "{nodes} nodes, {batches} batches");
    }
}
