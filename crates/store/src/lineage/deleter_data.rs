//! The data of a snapshot that is being deleted, beside that of what has grown out of it.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::{ControlFlow, Range};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::item::{Extent, WalkPlace};
use holdfast_format::{ItemKind, Key, Malformed};

use super::deleter_cursor::{Walk, WalkStep};
use crate::StoreError;
use crate::apply::Halt;
use crate::cache::Node;
use crate::tree::subtree::Subtree;
use crate::tree::{Bound, Forest, TreeNo};

/// An extent of a file: its first block there, and where its blocks are.
struct Piece {
    first: u64,
    extent: Extent,
}

impl Piece {
    fn of(key: &Key, value: &[u8]) -> Result<Piece, Halt> {
        let extent = Extent::decode(value).map_err(|source| damage(key, source))?;
        let first = key.offset / BLOCK_BYTES;
        match first.checked_add(extent.blocks.count) {
            Some(_) => Ok(Piece { first, extent }),
            None => Err(damage(key, Malformed::new("extent", "it has no end"))),
        }
    }

    /// Blocks of the file.
    fn range(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.extent.blocks.count)
    }

    /// Where a block of the file is, that it has.
    fn block(&self, at: u64) -> u64 {
        self.extent.blocks.start.0.saturating_add(at.saturating_sub(self.first))
    }

    /// The first place behind it.
    fn behind(&self, key: &Key) -> WalkPlace {
        let offset = self.range().end.saturating_mul(BLOCK_BYTES);
        WalkPlace::item(&Key { offset, ..*key })
    }
}

fn damage(key: &Key, source: Malformed) -> Halt {
    Halt::Failed(StoreError::Item { what: format!("the extent {key:?} of a snapshot"), source })
}

/// Adds the data of a leaf that neither the snapshot's parent nor its child has. Returns the place behind its last extent.
pub(super) fn data_of_leaf(
    walk: &Walk,
    forest: &Forest,
    leaf: &Node<'_>,
    found: &mut WalkStep,
) -> Result<Option<WalkPlace>, Halt> {
    let mut behind = None;
    for index in 0..leaf.count() {
        let key = leaf.key(index);
        if key.kind != ItemKind::Extent {
            continue;
        }
        let piece = Piece::of(&key, leaf.value(index))?;
        behind = Some(piece.behind(&key));
        if walk.above.owns_surely(piece.extent.birth) {
            let theirs = match walk.beside {
                Some(beside) => shared(forest, beside, &key, &piece)?,
                None => Vec::new(),
            };
            found.data.extend(outside(&piece, &theirs));
        }
    }
    Ok(behind)
}

/// The blocks of a piece that are in none of the ranges of the file, which go upwards.
fn outside(piece: &Piece, ranges: &[Range<u64>]) -> Vec<BlockRange> {
    let mut blocks = Vec::new();
    let mut at = piece.first;
    let end = piece.range().end;
    for next in ranges.iter().cloned().chain(std::iter::once(end..end)) {
        let count = next.start.saturating_sub(at);
        if count > 0 {
            blocks.push(BlockRange::new(BlockNo(piece.block(at)), count));
        }
        at = at.max(next.end);
    }
    blocks
}

/// The parts of a piece that another tree has: the same blocks at the same place of the same file, of the same birth.
fn shared(
    forest: &Forest,
    tree: TreeNo,
    key: &Key,
    piece: &Piece,
) -> Result<Vec<Range<u64>>, Halt> {
    let mut shared = Vec::new();
    for other in overlapping(forest, tree, key, piece)? {
        let (mine, theirs) = (piece.range(), other.range());
        let both = mine.start.max(theirs.start)..mine.end.min(theirs.end);
        if both.is_empty() || piece.block(both.start) != other.block(both.start) {
            continue;
        }
        // A second reference to them. Its count would say whether they are free, and no volume that this program writes has one.
        let births = [piece.extent.birth, other.extent.birth];
        if births[0] != births[1] {
            let why = format!("another tree has its blocks with birth {}", births[1]);
            return Err(damage(key, Malformed::new("extent", why)));
        }
        shared.push(both);
    }
    Ok(shared)
}

/// The pieces of the same file in another tree that may have blocks of its range, upwards.
fn overlapping(
    forest: &Forest,
    tree: TreeNo,
    key: &Key,
    piece: &Piece,
) -> Result<Vec<Piece>, Halt> {
    let mut found = Vec::new();
    let first = Key { offset: 0, ..*key };
    found
        .extend(last_before(forest, tree, &first, &Bound::Included(*key))?.map(|(_, piece)| piece));
    let last = Key { offset: piece.range().end.saturating_mul(BLOCK_BYTES), ..*key };
    let mut at = Some(Key { offset: key.offset.saturating_add(1), ..*key });
    let mut wrong = None;
    while let Some(from) = at {
        at = forest.scan_leaf(
            tree,
            &from,
            &last,
            &mut |key, value| match Piece::of(&key, value) {
                Ok(piece) => {
                    found.push(piece);
                    ControlFlow::Continue(())
                }
                Err(why) => {
                    wrong = Some(why);
                    ControlFlow::Break(())
                }
            },
        )?;
    }
    wrong.map_or(Ok(found), Err)
}

/// The last extent in a range of keys, with its key.
fn last_before(
    forest: &Forest,
    tree: TreeNo,
    from: &Key,
    to: &Bound,
) -> Result<Option<(Key, Piece)>, Halt> {
    let mut last = None;
    let mut at = Some(*to);
    while let Some(to) = at.filter(|_| last.is_none()) {
        let next = forest.scan_leaf_back(tree, from, &to, &mut |key, value| {
            last = Some(Piece::of(&key, value).map(|piece| (key, piece)));
            ControlFlow::Break(())
        })?;
        at = next.map(Bound::Excluded);
    }
    last.transpose()
}

/// Of neighbours that are passed as a whole: the place behind the last extent, if that reaches beyond the last of them.
pub(super) fn end_of_last_extent(
    walk: &Walk,
    forest: &Forest,
    first: &Subtree,
    last: &Subtree,
) -> Result<Option<WalkPlace>, Halt> {
    // Only a node that ends within a file can end within an extent.
    let Some(end) = last.end.and_then(|end| Key::decode(&end.encode()).ok()) else {
        return Ok(None);
    };
    if end.kind != ItemKind::Extent || end.offset == 0 {
        return Ok(None);
    }
    let low = Key::decode(&first.low.encode()).unwrap_or(Key::MIN);
    let from = low.max(Key { offset: 0, ..end });
    let extent = last_before(forest, walk.of, &from, &Bound::Excluded(end))?;
    let behind = extent.map(|(key, piece)| piece.behind(&key));
    Ok(behind.filter(|behind| *behind > WalkPlace::item(&end)))
}

#[cfg(test)]
mod tests {
    use holdfast_base::{InodeNo, Timestamp};

    use super::super::lies_tests::{made, put};
    use super::*;
    use crate::{Branch, Need, Transaction};

    /// A reference is a block at a place in a file with a birth. The same block at the same place with another birth is another one, which no
    /// count of the volume knows: to keep it for the snapshot's would leak it, to free it would give it twice.
    #[test]
    fn another_birth_is_another_reference() {
        for is_other in [false, true] {
            let (_, store) = made();
            let main = Branch::main(store.clone());
            let key = Key::new(InodeNo(21), ItemKind::Extent, 0);
            let mut room = main.reserve(Need::Grow { changes: 2, blocks: 1 }).unwrap();
            let placed = main.allocate(&mut room, 1, None).unwrap();
            let written = main.write(placed, &[1; BLOCK_BYTES as usize]).unwrap();
            let mut transaction = Transaction::new();
            let extent = transaction.publish(written);
            transaction.put(key, extent.encode());
            main.apply(transaction, &mut room).unwrap();
            drop(room);
            let first = store.snapshot(1, b"first", Timestamp::default()).unwrap();
            let mut now = Extent::decode(&main.get(&key).unwrap().unwrap()).unwrap();
            if is_other {
                now.birth = Extent::UNBORN;
            }
            put(&store, TreeNo::MAIN, &[(key, now.encode()), (Key::inode(InodeNo(20)), vec![1])]);
            store.delete_snapshot(first).unwrap();
            while store.work_off_deletions(9).unwrap() {}
            let failed = store.failed_deletions();
            assert_eq!(
                failed.iter().map(|of| of.0).collect::<Vec<_>>(),
                if is_other { vec![first] } else { vec![] }
            );
            assert!(failed.iter().all(|(_, why)| why.contains("birth")), "{failed:?}");
        }
    }
}
