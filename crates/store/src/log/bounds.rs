//! More bytes than the records of the log can have, before they are formatted.

use holdfast_format::{ItemKind, Key};

use crate::transaction::{Changes, Taken, TakenContent};

/// No record is longer than this without its value, data and patches.
pub(super) const RECORD_BYTES: usize = 32;
/// No record is longer than this that says of which branch the next ones are.
pub(super) const BRANCH_BYTES: usize = 24;
/// No records are longer than these of blocks that a branch drops.
pub(super) const DROPPED_BYTES: usize = 2 * RECORD_BYTES + BRANCH_BYTES;
/// No inode is longer than this.
pub(super) const INODE_BYTES: usize = 192;
/// No patch is longer than this without its bytes.
const PATCH_BYTES: usize = 16;

/// More bytes than the record of a key can have, with a value of so many.
pub(super) fn bound_of_change(key: &Key, value: Option<usize>) -> usize {
    match (key.kind, value) {
        (_, None) => RECORD_BYTES,
        (ItemKind::Inode, _) => RECORD_BYTES + INODE_BYTES,
        (_, Some(len)) => RECORD_BYTES + len,
    }
}

/// More bytes than the record of blocks can have that were taken, with the data that it holds.
pub(super) fn bound_of_taken(taken: &Taken) -> usize {
    let TakenContent::Inside(blocks, _) = &taken.content else { return RECORD_BYTES };
    let bytes = blocks.iter().map(|block| block.changed.len() + PATCH_BYTES);
    RECORD_BYTES + bytes.sum::<usize>()
}

/// More bytes than the records of an operation can have.
pub(super) fn bound_of(changes: &Changes, taken: &[Taken], freed: usize, dropped: usize) -> usize {
    let changes = changes.iter().map(|of| bound_of_change(&of.key, of.value.map(<[u8]>::len)));
    let taken = taken.iter().map(bound_of_taken);
    let extents = freed * RECORD_BYTES + dropped * DROPPED_BYTES;
    changes.sum::<usize>() + taken.sum::<usize>() + extents + BRANCH_BYTES
}
