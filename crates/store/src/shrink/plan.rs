//! Where everything goes when a volume becomes smaller, judged before anything is written; and to which size it can.

use holdfast_base::BlockNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::{Geometry, Stored};

use super::away::Away;
use super::free::Free;
use super::moves::Moves;
use super::walk::Seen;
use crate::space::reserve_of;

const MIB: u64 = 1 << 20;

/// What has to become free, and where it goes.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) away: Away,
    pub(super) moves: Moves,
    pub(super) places: Places,
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

impl Plan {
    /// For a volume in which that was seen, and that is to have this shape; `None` if it cannot, or would not keep what is kept for commits
    /// and removals (P8).
    pub(super) fn of(seen: &Seen, new: &Geometry) -> Option<Plan> {
        if new.check().is_err() || !new.has_places_for_copies() {
            return None;
        }
        let (first, end) = (new.first_data_block().0, new.far_copy().0);
        let kept = reserve_of(new);
        let mut away = Away::behind(seen, new);
        let mut free = Free::of(seen.used.runs(first, end, false), new);
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
        let has_single = free.places() >= passes * written.once + kept.once;
        let places = Places { single: free, pairs, beyond };
        has_single.then_some(Plan { away, moves, places, is_last: missing == 0 })
    }
}

/// Takes so many pairs of which one place or both lie behind the new end.
fn beyond(seen: &Seen, end: u64, before: &mut Free, count: u64) -> Option<Free> {
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
pub(super) fn smallest(seen: &Seen, refused: &Geometry) -> Option<u64> {
    let can_be = |mib: u64| {
        let volume_blocks = mib * MIB / BLOCK_BYTES;
        Plan::of(seen, &Geometry { volume_blocks, ..seen.geometry }).is_some()
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
