//! Extents from the tree, validated before use.
//!
//! Invariant of pieces from here: they lie inside the volume's data zone and inside the largest file, do not overlap,
//! and come in ascending order. Anything else on disk is an error that names the inode (P10). Two look-ups are two
//! moments: callers either hold the map still ([`crate::file_data::FileData`]) or check that it did not change meanwhile.

use std::ops::{ControlFlow, Range};

use holdfast_base::InodeNo;
use holdfast_base::units::{BLOCK_BYTES, blocks_for};
use holdfast_format::item::Extent;
use holdfast_format::limits::FILE_SIZE_MAX;
use holdfast_format::{Geometry, ItemKind, Key, Malformed};
use holdfast_store::StoreError;

use super::map::{MapEdit, Piece, extent_key};
use crate::core::Core;
use crate::error::damaged_item;

/// The first block that no file has.
pub(crate) const FILE_BLOCKS_MAX: u64 = blocks_for(FILE_SIZE_MAX);

/// The pieces of `inode` that have blocks in `range`.
pub(crate) fn pieces(
    core: &Core,
    inode: InodeNo,
    range: Range<u64>,
) -> Result<Vec<Piece>, StoreError> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    // Backwards, since an extent that begins before the range may reach into it, and only the last one can.
    let to = extent_key(inode, range.end - 1);
    Ok(pieces_back(core, inode, &to, range.start, usize::MAX)?.0)
}

/// Adds pieces of another look-up to those of one; they may be the same, but must not overlap.
pub(crate) fn merge(
    inode: InodeNo,
    known: &mut Vec<Piece>,
    others: Vec<Piece>,
) -> Result<(), StoreError> {
    if known.is_empty() {
        // Those of one look-up are in order and do not overlap.
        *known = others;
        return Ok(());
    }
    for piece in others {
        let at = known.partition_point(|known| known.first < piece.first);
        if known.get(at) == Some(&piece) {
            continue;
        }
        let covered = piece.first..piece.end();
        let mut near = known[at.saturating_sub(1)..].iter().take(2);
        if near.any(|known| known.overlaps(&covered)) {
            return Err(StoreError::Item {
                what: format!("an extent of inode {inode}"),
                source: overlap(piece.key(inode)),
            });
        }
        known.insert(at, piece);
    }
    Ok(())
}

fn overlap(key: Key) -> Malformed {
    Malformed::new("extent", format!("at {} it overlaps its neighbour", key.offset))
}

fn refused(core: &Core, inode: InodeNo, source: Malformed) -> StoreError {
    damaged_item(&core.store, format!("an extent of {}", core.called(inode)), source)
}

/// The last piece that begins before `block`.
pub(crate) fn piece_before(
    core: &Core,
    inode: InodeNo,
    block: u64,
) -> Result<Option<Piece>, StoreError> {
    let mut found = PieceScan::new(core, inode);
    if let Some(before) = block.checked_sub(1) {
        let from = extent_key(inode, 0);
        let to = extent_key(inode, before);
        core.store.scan_back(&from, &to, |key, value| {
            let _ = found.add(key, value);
            ControlFlow::Break(())
        })?;
    }
    Ok(found.finish(core)?.pop())
}

/// The last `count_max` pieces that have blocks at or after `start`, in ascending order, and whether there are more.
pub(crate) fn last_pieces(
    core: &Core,
    inode: InodeNo,
    start: u64,
    count_max: usize,
) -> Result<(Vec<Piece>, bool), StoreError> {
    let (_, to) = Key::span(inode, ItemKind::Extent);
    pieces_back(core, inode, &to, start, count_max)
}

/// The last `count_max` pieces that begin at `to` or before and have blocks at or after `start`, in ascending order, and
/// whether there are more.
fn pieces_back(
    core: &Core,
    inode: InodeNo,
    to: &Key,
    start: u64,
    count_max: usize,
) -> Result<(Vec<Piece>, bool), StoreError> {
    let mut found = PieceScan::new(core, inode);
    let mut more = false;
    core.store.scan_back(&extent_key(inode, 0), to, |key, value| {
        let flow = found.add(key, value);
        let is_before = found.pieces.last().is_some_and(|last| last.end() <= start);
        more = !is_before && found.pieces.len() > count_max;
        if is_before || more {
            found.pieces.pop();
            return ControlFlow::Break(());
        }
        // Nothing in front of a piece that covers `start` can reach behind it.
        match found.pieces.last() {
            Some(last) if last.first < start => ControlFlow::Break(()),
            _ => flow,
        }
    })?;
    found.pieces.reverse();
    Ok((found.finish(core)?, more))
}

/// Calls `visit` for the pieces from the one that covers `start` on, until it breaks.
pub(crate) fn each_piece(
    core: &Core,
    inode: InodeNo,
    start: u64,
    mut visit: impl FnMut(&Piece) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut found = PieceScan::new(core, inode);
    if let Some(before) = piece_before(core, inode, start)? {
        if before.end() > start && visit(&before).is_break() {
            return Ok(());
        }
        found.pieces.push(before);
    }
    let (_, to) = Key::span(inode, ItemKind::Extent);
    core.store.scan(&extent_key(inode, start), &to, |key, value| {
        if found.add(key, value).is_break() {
            return ControlFlow::Break(());
        }
        // One is kept, so that the next can be compared with it.
        if found.pieces.len() > 1 {
            found.pieces.remove(0);
        }
        let last = found.pieces.last().expect("added just now");
        visit(last)
    })?;
    found.finish(core).map(|_| ())
}

/// Judges what a scan finds.
struct PieceScan {
    inode: InodeNo,
    geometry: Geometry,
    pieces: Vec<Piece>,
    wrong: Option<Malformed>,
}

impl PieceScan {
    fn new(core: &Core, inode: InodeNo) -> PieceScan {
        PieceScan { inode, geometry: core.store.geometry(), pieces: Vec::new(), wrong: None }
    }

    fn add(&mut self, key: Key, value: &[u8]) -> ControlFlow<()> {
        let judged = judge(&self.geometry, key, value).and_then(|piece| match self.pieces.last() {
            Some(near) if near.overlaps(&(piece.first..piece.end())) => Err(overlap(key)),
            _ => Ok(piece),
        });
        match judged {
            Ok(piece) => {
                self.pieces.push(piece);
                ControlFlow::Continue(())
            }
            Err(wrong) => {
                self.wrong = Some(wrong);
                ControlFlow::Break(())
            }
        }
    }

    fn finish(self, core: &Core) -> Result<Vec<Piece>, StoreError> {
        match self.wrong {
            None => Ok(self.pieces),
            Some(source) => Err(refused(core, self.inode, source)),
        }
    }
}

/// Makes a piece of an item, or says what is wrong with it.
pub(crate) fn judge(geometry: &Geometry, key: Key, value: &[u8]) -> Result<Piece, Malformed> {
    let wrong = |why: String| Err(Malformed::new("extent", why));
    if !key.offset.is_multiple_of(BLOCK_BYTES) {
        return wrong(format!("its offset {} is not a multiple of 4096", key.offset));
    }
    let extent = Extent::decode(value)?;
    if !geometry.holds_data(extent.blocks) {
        return wrong(format!("its blocks {:?} are not all in the data zone", extent.blocks));
    }
    let first = key.offset / BLOCK_BYTES;
    if first.checked_add(extent.blocks.count).is_none_or(|end| end > FILE_BLOCKS_MAX) {
        return wrong(format!("at {} it reaches beyond the largest file", key.offset));
    }
    Ok(Piece { first, extent })
}

impl Core {
    /// Begins a change of a file's map, whose `pieces` these are. The caller is inside the gate.
    pub(crate) fn edit(&self, pieces: Vec<Piece>) -> MapEdit {
        MapEdit::new(pieces, self.store.parent_epoch())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{BlockNo, BlockRange};

    use super::*;

    fn geometry() -> Geometry {
        Geometry::for_device(64 << 20, 16384).expect("a valid shape")
    }

    fn extent(start: u64, count: u64) -> Extent {
        Extent::new(BlockRange::new(BlockNo(start), count), vec![1; count as usize])
    }

    #[test]
    fn an_extent_outside_the_volume_or_off_the_grid_is_refused() {
        let geometry = geometry();
        let at = geometry.first_data_block().0;
        let key = |offset| Key::new(InodeNo(20), ItemKind::Extent, offset);
        let ok = extent(at, 3).encode();
        assert_eq!(judge(&geometry, key(8192), &ok).map(|piece| piece.first), Ok(2));
        assert!(judge(&geometry, key(8193), &ok).is_err(), "off the grid");
        let far = align(u64::MAX);
        assert!(judge(&geometry, key(far), &ok).is_err(), "beyond the largest file");
        for bad in [extent(at - 1, 1), extent(geometry.volume_blocks - 1, 2), extent(0, 1)] {
            assert!(judge(&geometry, key(0), &bad.encode()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn pieces_of_two_look_ups_are_merged_unless_they_overlap() {
        let piece = |first, start, count| Piece { first, extent: extent(start, count) };
        let of = InodeNo(20);
        let mut known = vec![piece(4, 104, 2), piece(8, 108, 2)];
        let others = vec![piece(0, 100, 4), piece(4, 104, 2), piece(6, 206, 2), piece(20, 300, 1)];
        merge(of, &mut known, others).unwrap();
        let firsts: Vec<u64> = known.iter().map(|piece| piece.first).collect();
        assert_eq!(firsts, [0, 4, 6, 8, 20]);
        // Each of two look-ups may find nothing wrong with a tree that is.
        for (first, count) in [(3, 1), (4, 1), (5, 1), (9, 2), (10, 11), (0, 30)] {
            let error = merge(of, &mut known, vec![piece(first, 400, count)]).unwrap_err();
            assert!(error.to_string().contains("overlaps"), "{first}: {error}");
        }
        assert_eq!(known.len(), 5);
    }

    fn align(bytes: u64) -> u64 {
        holdfast_base::units::align_down(bytes)
    }
}
