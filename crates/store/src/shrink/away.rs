//! What has to become free: all behind the new end, and places before it that what is stored twice needs.

use holdfast_base::{BlockNo, BlockRange, TreeId};
use holdfast_format::limits::GROUP_BLOCKS;
use holdfast_format::{Geometry, Stored};

use super::moves::Run;
use super::walk::{Reach, Reached};
use crate::marks::Marks;
use crate::space::slots::NodeSlots;

/// Blocks in a unit: its copies lie in another one, moved as a whole.
const UNIT: u64 = 64;

/// Blocks that have to become free.
#[derive(Debug)]
pub(super) struct Away {
    /// All from here on.
    pub(super) end: u64,
    /// From here on blocks move: those of a run that goes over the end begin before it.
    pub(super) start: u64,
    /// And these.
    places: Marks,
    /// The 64ths of the volume in which these lie, with the runs of data around them.
    pub(super) parts: u64,
}

impl Away {
    /// All behind the end of a volume of this shape.
    pub(super) fn behind(seen: &Reached, new: &Geometry) -> Away {
        let end = new.far_copy().0;
        let (start, _) = seen.run_around(end);
        Away { end, start, places: Marks::default(), parts: 0 }
    }

    /// Whether any of these blocks has to become free.
    pub(super) fn touches(&self, range: BlockRange) -> bool {
        !range.fits_below(self.end) || self.places.touches(range)
    }

    /// The places before the end: their starts and ends.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.places.runs(0, self.end, true)
    }

    /// All of it in a volume that has this shape, upwards.
    pub(super) fn ranges(&self, old: &Geometry) -> impl Iterator<Item = (u64, u64)> {
        self.places().chain([(self.end, old.far_copy().0)])
    }

    /// Has more pairs become free, those first that cost least, until there are enough for `kept` and twice for all nodes that are written:
    /// they may have to be written once more. `free` are free now. Says whether there are enough.
    pub(super) fn clear_pairs(
        &mut self,
        seen: &Reached,
        new: &Geometry,
        (mut free, kept): (u64, u64),
    ) -> bool {
        let mut wanted = 2 * seen.to_write(self).twice + kept;
        for unit in units(seen, new) {
            if free >= wanted {
                break;
            }
            free += u64::from(unit.pairs);
            let parts = self.parts;
            self.clear(seen, new, &unit);
            if self.parts != parts {
                wanted = 2 * seen.to_write(self).twice + kept;
            }
        }
        free >= wanted
    }

    fn clear(&mut self, seen: &Reached, new: &Geometry, unit: &Unit) {
        let place = new.node_blocks();
        let bits = clearable(seen, new, unit.start);
        for at in (0..UNIT).step_by(place as usize).filter(|at| bits >> at & 1 == 1) {
            for start in [unit.start + at, (unit.start + at) ^ new.copy_mask] {
                let blocks = BlockRange::new(BlockNo(start), place);
                self.places.set(blocks, true);
                let ((first, _), (_, end)) =
                    (seen.run_around(start), seen.run_around(start + place - 1));
                self.parts |= seen.parts_of(BlockRange::new(BlockNo(first), end - first));
            }
        }
    }
}

/// Pairs of which one place or both are in use. A TiB in use has two million of these.
#[derive(Debug)]
struct Unit {
    start: u64,
    pairs: u8,
    /// Blocks in use.
    cost: u8,
    /// What uses them may be too long to find another place.
    is_long: bool,
}

/// All that may be cleared in front of the new end, in the order in which that is best done.
fn units(seen: &Reached, new: &Geometry) -> Vec<Unit> {
    let of_group =
        |(group, _)| (group * GROUP_BLOCKS..(group + 1) * GROUP_BLOCKS).step_by(UNIT as usize);
    let of_unit = |unit: u64| unit_at(seen, new, unit);
    // A copy lies in the same group: what is in use nowhere there is in no way.
    let mut units: Vec<Unit> = seen.used.groups().flat_map(of_group).filter_map(of_unit).collect();
    units.sort_unstable_by(|one, other| {
        let product = |cost: u8, pairs: u8| u16::from(cost) * u16::from(pairs);
        let (cost, other_cost) = (product(one.cost, other.pairs), product(other.cost, one.pairs));
        (one.is_long, cost, one.start).cmp(&(other.is_long, other_cost, other.start))
    });
    units
}

const _: () = assert!(size_of::<Unit>() <= 16);

fn unit_at(seen: &Reached, new: &Geometry, start: u64) -> Option<Unit> {
    let bits = clearable(seen, new, start);
    let both = [start, start ^ new.copy_mask];
    let cost = both.map(|at| (seen.used.word(BlockNo(at)) & bits).count_ones());
    // A whole word of one extent: no data has such ones, but what is reserved.
    let around = both.into_iter().flat_map(|at| [at.saturating_sub(UNIT), at, at + UNIT]);
    let is_long = { around }.any(|at| seen.joined.word(BlockNo(at)) == u64::MAX);
    let pairs = u64::from(bits.count_ones()) / new.node_blocks();
    // Each is 128 at most.
    let (pairs, cost) = (pairs as u8, cost.iter().sum::<u32>() as u8);
    (pairs > 0).then_some(Unit { start, pairs, cost, is_long })
}

/// The blocks of the lower places of a unit that may be cleared with their other ones.
fn clearable(seen: &Reached, new: &Geometry, start: u64) -> u64 {
    let both = [start, start ^ new.copy_mask];
    if both[1] <= start {
        return 0;
    }
    let inside = both.iter().fold(u64::MAX, |bits, at| bits & inside(new, *at));
    let [used, twice] =
        [&seen.used, &seen.twice].map(|marks| both.map(|at| marks.word(BlockNo(at))));
    let (busy, stays) = (used[0] | used[1], twice[0] | twice[1]);
    let place = new.node_blocks();
    let mask = u64::MAX >> (64 - place);
    // A node that is stored twice would take as many elsewhere.
    let can_be = |bits: &u64| inside & bits == *bits && busy & bits != 0 && stays & bits == 0;
    let places = (0..UNIT).step_by(place as usize).map(|at| mask << at).filter(can_be);
    places.fold(0, |all, bits| all | bits)
}

/// Blocks of the unit that lie in the data zone.
fn inside(new: &Geometry, unit: u64) -> u64 {
    let border = |block: BlockNo| block.0.saturating_sub(unit).min(UNIT);
    match (border(new.first_data_block()), border(new.far_copy())) {
        (first, end) if first < end => (u64::MAX << first) & (u64::MAX >> (UNIT - end)),
        _ => 0,
    }
}

impl Reached {
    /// Whether a node of a files tree, or what lies below, may have to move or change. A leaf does also where it names a part alone of
    /// what moves, in front of the end.
    pub(super) fn may_change(&self, node: u64, away: &Away) -> bool {
        self.nodes.get(&node).is_none_or(|reach| reach.may_change(away))
    }

    /// The most nodes that have to be written.
    pub(super) fn to_write(&self, away: &Away) -> NodeSlots {
        let space = self.geometry.stored(TreeId::Space, 0);
        let count = |stored| {
            let is_so = |reach: &&Reach| {
                reach.may_change(away) && self.geometry.stored(TreeId::Files, reach.level) == stored
            };
            let of_files = self.nodes.values().filter(is_so).count() as u64;
            let of_space = if space == stored { self.space_nodes.saturating_mul(2) } else { 0 };
            of_files.saturating_add(of_space)
        };
        NodeSlots { once: count(Stored::Once), twice: count(Stored::Twice) }
    }

    /// What of data has to move, upwards: extents with blocks in common are one run.
    pub(super) fn runs(&self, away: &Away) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (from, to) in away.ranges(&self.geometry) {
            let mut at = from;
            while let Some(block) = self.data.first(at, to, true) {
                let (start, end) = self.run_around(block);
                at = end;
                // It may lie in several of the ranges.
                if runs.last().is_none_or(|run| run.end <= start) {
                    let is_written = self.written.first(start, end, true).is_some();
                    runs.push(Run { start, end, is_written });
                }
            }
        }
        runs
    }
}

impl Reach {
    fn may_change(&self, away: &Away) -> bool {
        self.end > away.start || self.parts & away.parts != 0
    }
}
