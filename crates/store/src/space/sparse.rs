//! Space of a sparse image: what the host has not given is unbacked, until the host is asked for it.

use holdfast_base::BlockRange;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::limits::GROUP_BLOCKS;

use super::alloc::Space;
use super::group::discard::pieces;
use super::promise::{Floor, Floors, Given, Wanted};
use super::unbacked::{Next, Unbacked};

/// Two superblocks and the far copy, and the signpost. The guard is written where others may reach the device only.
const OTHER_BLOCKS: u64 = 4;

impl Space {
    /// Hides everything that is free: the host has to be asked for it first.
    pub(crate) fn hide(&mut self) {
        let (geometry, blocks) = (*self.geometry(), self.room().blocks);
        self.groups.hide();
        let has_free = |group| self.groups.unbacked_pieces(group);
        let is_used = |index| self.groups.is_used_at_all(index);
        self.unbacked = Some(Unbacked::all(&geometry, blocks, has_free, is_used));
        self.keep_for_given();
    }

    /// What is kept follows what the host has given.
    pub(super) fn keep_for_given(&mut self) {
        self.promises.floors = self.floors_with(0);
    }

    /// What would be kept if the host gave so many blocks more.
    pub(super) fn floors_with(&self, more: u64) -> Floors {
        let geometry = self.geometry();
        let given = match &self.unbacked {
            None => Given::all(geometry),
            Some(unbacked) => Given {
                groups: unbacked.given_groups() + more.div_ceil(GROUP_BLOCKS),
                blocks: self.used_blocks() + self.room().blocks + more,
            },
        };
        Floors::new(geometry, self.slots_total, given)
    }

    /// Free blocks that the host has not given yet.
    pub(crate) fn unbacked_blocks(&self) -> u64 {
        self.unbacked.as_ref().map_or(0, |unbacked| unbacked.blocks)
    }

    /// Bytes of the volume that the host is known to have given: the superblocks and the signpost, the rings, and all of the data zone that
    /// is not unbacked, on its way or waiting for a commit. What is lost counts as full, and the host may have given none of it.
    pub(crate) fn known_bytes(&self) -> u64 {
        let unknown = self.unbacked_blocks() + self.groups.lost_blocks();
        let data = self.geometry().data_blocks().saturating_sub(unknown);
        (OTHER_BLOCKS + self.ring_blocks + data).saturating_mul(BLOCK_BYTES)
    }

    /// So many blocks of the rings are in use from now on.
    pub(crate) fn rings_have(&mut self, blocks: u64) {
        self.ring_blocks = blocks;
    }

    /// The next piece that the host is to be asked for, or the next one that `is_search` may find given in parts.
    pub(crate) fn next_unbacked(&mut self, is_search: bool) -> Next {
        let geometry = *self.geometry();
        let is_away = |group| self.groups.is_away(group);
        let unbacked = self.unbacked.as_mut();
        let next =
            unbacked.map_or(Next::Nothing, |unbacked| unbacked.next(&geometry, is_search, is_away));
        if let Next::Ask(range) = &next {
            // It stays in memory until the answer, which comes without a lock.
            self.groups.pin(range.start.0 / GROUP_BLOCKS);
        }
        next
    }

    /// Whole places of a piece that the host is asked for whose blocks are free but for the host, in order: runs with any that are unbacked.
    pub(crate) fn unbacked_parts(&mut self, piece: BlockRange) -> Vec<BlockRange> {
        let (index, place) = (piece.start.0 / GROUP_BLOCKS, self.geometry().node_blocks());
        if self.groups.is_lost(index) {
            return Vec::new();
        }
        let group = self.group(index);
        let runs = group.idle_runs(pieces(group.run(piece)), place, place).into_iter();
        let unbacked = runs.filter(|run| group.free_in(*run) < run.len);
        unbacked.map(|run| group.blocks(run)).collect()
    }

    /// What the host said to that piece: the free blocks of the parts that it gave may be promised from now on. `None`: the thread that asked has
    /// died. Returns how many blocks that are.
    pub(crate) fn answered(&mut self, piece: BlockRange, given: Option<&[BlockRange]>) -> u64 {
        let shown = given.unwrap_or_default().iter().map(|part| self.show(*part)).sum();
        let has_unbacked = self.groups.has_unbacked(piece);
        self.groups.unpin(piece.start.0 / GROUP_BLOCKS);
        let geometry = *self.geometry();
        if let Some(unbacked) = &mut self.unbacked {
            unbacked.answered(piece, given, (shown, has_unbacked), &geometry);
        }
        self.keep_for_given();
        shown
    }

    /// The host may have given a part of each of these pieces, which it has refused.
    pub(crate) fn search_again(&mut self, pieces: &[BlockRange]) {
        if let Some(unbacked) = &mut self.unbacked {
            unbacked.search_again(pieces);
        }
    }

    /// Answers of the host so far behind which there may be room.
    pub(crate) fn host_gains(&self) -> u64 {
        self.unbacked.as_ref().map_or(0, Unbacked::gains)
    }

    /// Answers of the host so far, to whichever piece.
    pub(crate) fn host_answers(&self) -> u64 {
        self.unbacked.as_ref().map_or(0, Unbacked::answers)
    }

    /// Blocks that would have to be given before `wanted` can be promised above `floor`, about.
    pub(crate) fn lacking_bytes(&self, wanted: Wanted, floor: Floor) -> u64 {
        let wanted = self.promises.wanted_blocks(wanted, floor);
        wanted.saturating_sub(self.room().blocks).saturating_mul(BLOCK_BYTES)
    }
}
