//! Where data is put: near its goal, and where it breaks no room for nodes that is still wanted.

use holdfast_base::{BlockNo, BlockRange};
use holdfast_format::limits::GROUP_BLOCKS;

use super::Space;
use crate::space::group::{Run, Whole};
use crate::space::groups::Wants;
use crate::space::having::Round;
use crate::space::promise::Floor;
use crate::space::slots::{NodeSlots, Room};

/// Where something can be put.
type Found = Result<Option<(u64, Run)>, Wants>;

/// A run of 1 MiB is as good as any.
const GOOD_RUN: u64 = 256;

impl Space {
    /// Takes 1 to `want` blocks for data that were promised, near `goal`. `None` only if nodes
    /// took what was promised to data, which their own promises prevent, or a bitmap was lost.
    ///
    /// # Errors
    /// The bitmap of a group is wanted first.
    pub(crate) fn take_data(
        &mut self,
        want: u64,
        goal: Option<BlockNo>,
    ) -> Result<Option<BlockRange>, Wants> {
        let goal = goal.unwrap_or(self.data_next);
        let goal = if self.geometry.holds_data(BlockRange::new(goal, 1)) {
            goal
        } else {
            self.geometry.first_data_block()
        };
        let spare = self.promises.spare_slots(self.room(), Floor::Grow);
        // A run of n blocks touches at most n / place + 2 places, each of another slot or of the same.
        let place_blocks = self.geometry.node_blocks();
        let touches = |most: u64| match place_blocks {
            1 => most,
            _ => most.saturating_sub(2) * place_blocks,
        };
        let of_places = match self.geometry.leaf_copies {
            true => u64::MAX,
            false => touches(spare.places),
        };
        // Where nodes have copies, one run may break as many slots as it has blocks: it is looked at again before that becomes many.
        let of_slots = match self.geometry.copy_mask {
            0 => of_places,
            _ => touches(spare.pairs.div_ceil(4)).min(of_places),
        };
        let range = if of_slots > 0 {
            match self.loose_data(want.min(of_places), goal, spare)? {
                None => self.find_data(want.min(of_slots), goal, Whole::Nothing)?,
                loose => loose,
            }
        } else {
            self.broken_data(want, of_places, goal)?
        };
        let Some((index, run)) = range else { return Ok(None) };
        self.promises.forget(NodeSlots::none(), run.len);
        let range = self.groups.change(index, |group| {
            group.take(run);
            group.blocks(run)
        });
        self.data_next = BlockNo(range.start.0 + range.count);
        Ok(Some(range))
    }

    /// A place for data where no node with its copy could be, while more blocks are such than there are in slots that data may break: on
    /// a small volume data would else leave no slot for nodes, long before it is full.
    fn loose_data(&mut self, want: u64, goal: BlockNo, spare: Room) -> Found {
        let (room, slot_blocks) = (self.room(), self.geometry.slot_blocks());
        let loose = room.blocks.saturating_sub(room.pairs * slot_blocks);
        if self.geometry.copy_mask == 0 || loose < spare.pairs * slot_blocks {
            return Ok(None);
        }
        // Not at the price of many pieces.
        let found = self.find_data(want, goal, Whole::Slots)?;
        Ok(found.filter(|(_, run)| run.len >= want.min(GOOD_RUN)))
    }

    /// Few whole slots are left: a place in those that are broken, else in one that may be broken.
    fn broken_data(&mut self, want: u64, of_places: u64, goal: BlockNo) -> Found {
        let single = (want.min(of_places), Whole::Slots);
        let ways = [single, (want, Whole::Places), (1, Whole::Slots), (1, Whole::Nothing)];
        for (want, whole) in ways.into_iter().filter(|(want, _)| *want > 0) {
            if let Some(found) = self.find_data(want, goal, whole)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The place for `want` blocks: the group of `goal` first, then the next ones around the volume.
    fn find_data(&mut self, want: u64, goal: BlockNo, whole: Whole) -> Found {
        let first = goal.0 / GROUP_BLOCKS % self.groups.count();
        let mut round = Round::from(first);
        let mut best: Option<(u64, Run)> = None;
        // A search that ends for want of a bitmap begins anew, and must find the same: it leaves nothing.
        let (mut looked, mut known) = (0, Vec::new());
        while let Some(index) = self.groups.next_with_blocks(&mut round) {
            // The first group is looked at twice: from the goal on, and from its start at the end.
            let is_goal = index == first && !round.has_wrapped;
            let from = if is_goal { goal.0 % GROUP_BLOCKS } else { 0 };
            if self.groups.run_max(index) <= best.map_or(0, |(_, best)| best.len) {
                continue;
            }
            if self.groups.is_away(index) {
                return Err(Wants(index));
            }
            let run = self.groups.get_mut(index).find_run(from, want, whole);
            let longest = run.map_or(0, |run| run.len);
            if from == 0 && whole == Whole::Nothing && longest < want {
                // The whole group was looked at.
                known.push((index, longest));
            }
            if longest > best.map_or(0, |(_, best)| best.len) {
                best = run.map(|run| (index, run));
            }
            looked += 1;
            // And no search walks the whole volume for a better one.
            let good_enough = if looked < 4 { want.min(GOOD_RUN) } else { 1 };
            if best.is_some_and(|(_, best)| best.len >= good_enough) {
                break;
            }
        }
        for (index, run_max) in known {
            self.groups.get_mut(index).believe_run_max(run_max);
        }
        Ok(best)
    }
}
