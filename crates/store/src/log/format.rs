//! A generation becomes the records of a batch.
//!
//! Linear in the number of records: the inode of a name is found through an
//! index (M4). Runs without any lock but the writer's own: what is formatted is
//! a copy.

#[cfg(feature = "before")]
mod before;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::switch::Batching;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{Content, Encoder, Patch};

use super::generation::Generation;
use crate::transaction::{Change, TakenContent};

/// How a generation is written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFormat {
    pub(super) batching: Batching,
    /// Its data is durable already: nothing is said of it.
    pub(super) data_is_durable: bool,
}

/// What was written down.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) records: u32,
    /// Bytes of file data inside the batch.
    pub(super) data_bytes: u64,
    /// Data that the batch's flush makes durable.
    pub(super) named: Vec<DataExtent>,
}

/// Appends the records of `generation` to `out`.
pub(super) fn format(generation: &Generation, how: BatchFormat, out: &mut Vec<u8>) -> Written {
    let mut encoder = Encoder::default();
    let mut written = Written::default();
    let count = generation.len();
    // Which inodes came before their turn. Mostly none does: a create puts its inode first.
    let mut early: Vec<bool> = Vec::new();
    let mut branch = MAIN;
    for at in 0..count {
        // The inode's content before the name that refers to it.
        let inode = generation.change(at).leads_to().and_then(|no| match how.batching {
            Batching::Indexed => generation.inode(generation.branch(at), no),
            #[cfg(feature = "before")]
            Batching::Scan => before::inode(generation, generation.branch(at), no),
        });
        for now in inode.filter(|inode| *inode > at).into_iter().chain([at]) {
            if early.get(now) == Some(&true) {
                continue;
            }
            if now > at {
                early.resize(count, false);
                early[now] = true;
            }
            let Change { key, value } = generation.change(now);
            turn_to(&mut branch, generation.branch(now), generation, &mut encoder, out);
            match value {
                Some(value) => encoder.put(&key, value, out),
                None => encoder.delete(&key, out),
            }
        }
    }
    for taken in &generation.taken {
        let content = match &taken.content {
            TakenContent::Unwritten | TakenContent::Durable => Content::Unwritten,
            TakenContent::Written(sum) => {
                written.named.push(taken.extent(*sum));
                if how.data_is_durable { Content::Unwritten } else { Content::Summed(*sum) }
            }
            TakenContent::Inside(blocks, _) => {
                written.data_bytes += blocks.iter().map(|b| b.changed.len() as u64).sum::<u64>();
                let patches = blocks.iter().map(|block| Patch {
                    base: block.base,
                    at: block.changed.start as u16,
                    bytes: &block.page[block.changed.clone()],
                });
                encoder.take_inside(taken.blocks, patches, out);
                continue;
            }
        };
        encoder.take(taken.blocks, &content, out);
    }
    for range in &generation.freed {
        encoder.free(*range, out);
    }
    for (of, dropped) in &generation.dropped {
        turn_to(&mut branch, *of, generation, &mut encoder, out);
        encoder.drop_blocks(dropped, out);
    }
    written.records = encoder.records();
    written
}

/// What follows is of branch `to`. Keys of the lineage are of none.
fn turn_to(
    branch: &mut u64,
    to: u64,
    generation: &Generation,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) {
    if mutants::is(Mutant::BranchNotLogged) {
        return;
    }
    if to != 0 && std::mem::replace(branch, to) != to {
        encoder.branch(to, generation.inodes_in(to), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropped_extents::{Counts, DroppedExtents};
    use crate::log::pending::Pending;
    use crate::log::position::LogPosition;
    use crate::transaction::Changes;
    use holdfast_base::{InodeNo, Lsn};
    use holdfast_format::item::{Dentry, FileType};
    use holdfast_format::log::{Decoder, LogMark, Record};
    use holdfast_format::{Carried, Geometry, ItemKind, Key};

    /// The keys of the batch that `changes` become.
    fn order(changes: &Changes, batching: Batching) -> Vec<Key> {
        let mut pending = Pending::new(Lsn(0), LogPosition::at(LogMark::START));
        pending.arrive(
            Lsn(1),
            Counts { branch: MAIN, inodes: 1, main: 1 },
            changes,
            Vec::new(),
            DroppedExtents::default(),
        );
        let mut out = Vec::new();
        let how = BatchFormat { batching, data_is_durable: false };
        let written = format(&pending.take()[0], how, &mut out);
        let geometry = Geometry::for_device(1 << 30, 16384).unwrap();
        let records = Decoder::new(&out, written.records, &geometry, Carried::NOTHING);
        let key = |record| match record {
            Ok(Record::Put(key, _) | Record::Delete(key)) => key,
            other => panic!("{other:?}"),
        };
        records.map(key).collect()
    }

    #[test]
    fn an_inode_comes_once_and_before_every_name_of_it() {
        let inode = |no: u64| Key::inode(InodeNo(no));
        let name = |offset: u64| Key::new(InodeNo(1), ItemKind::Dentry, offset);
        let mut changes = Changes::default();
        let put_name = |changes: &mut Changes, offset: u64, to: u64| {
            let inode = InodeNo(to);
            let dentry = Dentry { inode, file_type: FileType::Regular, name: b"name" };
            changes.put(name(offset), &dentry.encode());
        };
        put_name(&mut changes, 10, 20);
        put_name(&mut changes, 11, 21);
        changes.delete(name(12));
        put_name(&mut changes, 13, 20);
        changes.put(inode(20), &[20]);
        changes.put(inode(1), &[1]);
        changes.put(inode(21), &[21]);
        put_name(&mut changes, 14, 21);
        // Of this one there is nothing but its name.
        put_name(&mut changes, 15, 22);
        let expected = [
            inode(20),
            name(10),
            inode(21),
            name(11),
            name(12),
            name(13),
            inode(1),
            name(14),
            name(15),
        ];
        for &batching in Batching::ALL {
            assert_eq!(order(&changes, batching), expected, "{batching:?}");
        }
    }
}
