//! Where everything goes when a volume becomes smaller, judged before anything is written; and to which size it can.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::{Geometry, Stored};

use super::away::Away;
use super::free::Free;
use super::moves::Moves;
use super::walk::Reached;
use crate::space::reserve_of;
use crate::space::slots::NodeSlots;

const MIB: u64 = 1 << 20;

/// What has to become free, and where it goes.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) away: Away,
    pub(super) moves: Moves,
    pub(super) places: Places,
    /// The most nodes that are written.
    written: NodeSlots,
    /// All lies in front of the new end then. Otherwise what is stored twice finds room there only when that much has become free.
    pub(super) is_last: bool,
}

/// Places for nodes.
#[derive(Debug)]
pub(super) struct Places {
    /// For what is stored once.
    single: Free,
    /// For what is stored twice.
    pairs: Free,
    /// The same, of which a place lies behind the new end. They are taken when there are no others.
    beyond: Free,
}

impl Places {
    /// Takes a place for a node, and one for its copy if there is to be one.
    pub(super) fn node(&mut self, stored: Stored) -> Option<BlockNo> {
        match stored {
            Stored::Once => self.single.place(),
            Stored::Twice => self.pairs.pair().or_else(|| self.beyond.pair()),
        }
    }
}

impl Reached {
    /// What is free in the volume as it is.
    pub(super) fn free(&self) -> Free {
        let (first, end) = (self.geometry.first_data_block().0, self.geometry.far_copy().0);
        Free::of(self.used.runs(first, end, false), &self.geometry)
    }
}

impl Plan {
    /// For a volume in which that was seen and is free, and that is to have this shape; `None` if it cannot, or would not keep what is kept
    /// for commits and removals (P8).
    pub(super) fn of(seen: &Reached, free: &Free, new: &Geometry) -> Option<Plan> {
        if new.check().is_err() || !new.has_places_for_copies() {
            return None;
        }
        let end = new.far_copy().0;
        let kept = reserve_of(new);
        let mut away = Away::behind(seen, new);
        let mut free = free.before(end);
        let mut written = seen.to_write(&away);
        let (pairs, count) = free.split_pairs(written.twice + kept.twice);
        let mut passes = 1;
        if count < written.twice + kept.twice {
            if !away.clear_pairs(seen, new, (count, kept.twice)) {
                return None;
            }
            away.places().for_each(|place| free.remove(place));
            written = seen.to_write(&away);
            passes = 2;
        }
        let moves = Moves::into(seen.runs(&away), &mut free)?;
        let missing = written.twice.saturating_sub(count);
        let beyond = beyond(seen, end, &mut free, missing)?;
        let once = passes * written.once + kept.once;
        if free.places() < once {
            return None;
        }
        let places = Places { single: free.split_places(once), pairs, beyond };
        Some(Plan { away, moves, places, written, is_last: missing == 0 })
    }

    /// All that is going to be written, upwards: the starts and ends of runs of blocks.
    pub(super) fn destinations(&self) -> Vec<(u64, u64)> {
        let Places { single, pairs, beyond } = &self.places;
        let data = self.moves.all().map(|(_, count, to)| (to, to + count));
        let nodes = single.first_places(self.written.once);
        let nodes = nodes.chain(pairs.first_pairs(self.written.twice)).chain(beyond.runs());
        let mut runs: Vec<(u64, u64)> = data.chain(nodes).collect();
        runs.sort_unstable();
        runs.dedup_by(|next, last| {
            let is_one = last.1 == next.0;
            last.1 = if is_one { next.1 } else { last.1 };
            is_one
        });
        runs
    }
}

/// Takes so many pairs of which one place or both lie behind the new end.
fn beyond(seen: &Reached, end: u64, before: &mut Free, count: u64) -> Option<Free> {
    let old = &seen.geometry;
    if count == 0 {
        return Some(Free::of([], old));
    }
    let behind = seen.used.runs(end, old.far_copy().0, false);
    let mut both = Free::of(before.runs().chain(behind), old);
    // What is left of pairs before the end is not enough, or there are none.
    let (pairs, found) = both.split_pairs(count);
    pairs.runs().for_each(|place| before.remove(place));
    (found == count).then_some(pairs)
}

/// About the smallest size that the volume can have, in MiB: one that is larger than `refused`.
pub(super) fn smallest(seen: &Reached, free: &Free, refused: &Geometry) -> Option<u64> {
    let can_be = |mib: u64| {
        let volume_blocks = mib * MIB / BLOCK_BYTES;
        Plan::of(seen, free, &Geometry { volume_blocks, ..seen.geometry }).is_some()
    };
    let mut cannot = refused.volume_blocks * BLOCK_BYTES / MIB;
    let mut can = (seen.geometry.volume_blocks * BLOCK_BYTES).div_ceil(MIB) - 1;
    if can <= cannot || !can_be(can) {
        return None;
    }
    while can - cannot > 1 {
        let between = cannot.midpoint(can);
        match can_be(between) {
            true => can = between,
            false => cannot = between,
        }
    }
    Some(can)
}
