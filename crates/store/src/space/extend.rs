//! The space of a volume that becomes larger.

use holdfast_base::{BlockRange, TreeId};
use holdfast_format::Geometry;

use super::alloc::Space;
use super::groups::Groups;
use super::hidden::{Hidden, by_piece, pieces_around};
use super::promise::Floors;
use crate::resize::between;

impl Space {
    /// Which new blocks the host is asked for before the volume has them: as many as it keeps free more than now, in whole pieces,
    /// and with each piece for nodes the one that their copies lie in.
    pub(crate) fn reserve_for(&self, old: &Geometry, new: &Geometry) -> Vec<BlockRange> {
        let added = between(old, new);
        let more = floors_of(new).grow.without(self.promises.floors.grow).whole(new);
        let (mut wanted, mut slots) = (Vec::new(), 0);
        for part in by_piece(added) {
            if slots >= more {
                break;
            }
            match new
                .copy_of(part.start, new.stored(TreeId::Space, 0))
                .map(|copy| pieces_around(new, BlockRange::new(copy, 1)))
            {
                // Nodes have no place here: their copies would lie behind the end.
                Some(copy) if copy.count == 0 => continue,
                Some(copy) if copy.start > part.start => {
                    wanted.push(copy);
                    slots += part.count.min(copy.count) / new.node_blocks();
                }
                // Taken with the piece before it, or the volume had that already.
                Some(copy) if copy.end() <= Some(part.start) => continue,
                // The same piece, or there are no copies.
                _ => slots += part.count / new.slot_blocks(),
            }
            wanted.push(pieces_around(new, part));
        }
        wanted
    }

    /// The volume has the shape `geometry` from now on, which is larger. The host has given `given`; the other new blocks are free,
    /// or hidden until it gives them.
    pub(crate) fn extend(&mut self, geometry: Geometry, is_sparse: bool, given: &[BlockRange]) {
        let old = *self.geometry();
        let is_hidden = is_sparse || self.hidden.is_some();
        self.groups.extend(geometry, is_hidden);
        self.has_shape(geometry);
        self.promises.floors = floors_of(&geometry);
        if is_hidden {
            let hidden = self.hidden.get_or_insert_with(|| Hidden::none(&old));
            // What is free of the piece across the old end may be hidden, and stays so.
            let is_across_hidden = hidden.extend(&geometry, old.far_copy());
            for given in given {
                let given = new_part(*given, &old);
                let shown = self.show(given);
                if let Some(hidden) = &mut self.hidden {
                    hidden.given(given, is_across_hidden, shown);
                }
            }
        }
    }
}

/// What of a range lies behind the data zone of a shape.
fn new_part(range: BlockRange, old: &Geometry) -> BlockRange {
    let end = range.start.0 + range.count;
    let start = range.start.max(old.far_copy());
    BlockRange::new(start, end.saturating_sub(start.0))
}

/// Slots that a volume of this shape keeps for commits and for what makes room.
pub(crate) fn reserve_of(geometry: &Geometry) -> u64 {
    floors_of(geometry).grow.whole(geometry)
}

fn floors_of(geometry: &Geometry) -> Floors {
    Floors::new(geometry, Groups::slots_of(geometry))
}
