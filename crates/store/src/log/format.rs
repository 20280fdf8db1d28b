//! A generation becomes the records of a batch.
//!
//! Linear in the number of records: the inode of a name is found through an
//! index (M4). Runs without any lock but the writer's own: what is formatted is
//! a copy.

use holdfast_base::switch::Batching;
use holdfast_format::Key;
use holdfast_format::journal::DataExtent;
use holdfast_format::log::{Content, Encoder, Patch};

use super::pending::Generation;
use crate::batch::{Change, TakenContent};

/// How a generation is written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
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
pub(super) fn format(generation: &Generation, how: How, out: &mut Vec<u8>) -> Written {
    let mut encoder = Encoder::default();
    let mut written = Written::default();
    let count = generation.len();
    // Which inodes came before their turn. Mostly none does: a create puts its inode first.
    let mut early: Vec<bool> = Vec::new();
    for at in 0..count {
        // The inode's content before the name that refers to it.
        let inode = generation.change(at).leads_to().and_then(|no| match how.batching {
            Batching::Indexed => generation.inode(no),
            Batching::Scan => (0..count).find(|at| generation.change(*at).key == Key::inode(no)),
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
            match value {
                Some(value) => encoder.put(&key, value, out),
                None => encoder.delete(&key, out),
            }
        }
    }
    for taken in &generation.taken {
        match &taken.content {
            TakenContent::Unwritten | TakenContent::Durable => {
                encoder.take(taken.blocks, &Content::Unwritten, out);
            }
            TakenContent::Written(sum) => {
                written.named.push(taken.extent(*sum));
                let is_told = !how.data_is_durable;
                let content = if is_told { Content::Summed(*sum) } else { Content::Unwritten };
                encoder.take(taken.blocks, &content, out);
            }
            TakenContent::Inside(blocks, _) => {
                written.data_bytes += blocks.iter().map(|b| b.changed.len() as u64).sum::<u64>();
                let patches = blocks.iter().map(|block| Patch {
                    base: block.base,
                    at: block.changed.start as u16,
                    bytes: &block.page[block.changed.clone()],
                });
                encoder.take_inside(taken.blocks, patches, out);
            }
        }
    }
    for range in &generation.freed {
        encoder.free(*range, out);
    }
    written.records = encoder.records();
    written
}
