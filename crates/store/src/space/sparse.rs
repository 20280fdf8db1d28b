//! Space of a sparse image: what the host has not given is hidden, until the host is asked for it.

use holdfast_base::BlockRange;
use holdfast_base::units::BLOCK_BYTES;

use super::alloc::Space;
use super::hidden::{Hidden, Next};
use super::promise::Wanted;

impl Space {
    /// Hides everything that is free: the host has to be asked for it first.
    pub(crate) fn hide(&mut self) {
        let (geometry, blocks) = (*self.geometry(), self.room().blocks);
        self.groups.hide();
        let has_free = |group| self.groups.hidden_pieces(group);
        self.hidden = Some(Hidden::all(&geometry, blocks, has_free));
    }

    /// Free blocks that the host has not given yet.
    pub(crate) fn hidden_blocks(&self) -> u64 {
        self.hidden.as_ref().map_or(0, |hidden| hidden.blocks)
    }

    /// Bytes of the volume that the host is known to have given: the rings, what is in use, and what is free and shown.
    pub(crate) fn known_bytes(&self) -> u64 {
        let blocks = self.geometry().first_data_block().0 + self.used_blocks() + self.room().blocks;
        blocks.saturating_mul(BLOCK_BYTES)
    }

    /// The next piece that the host is to be asked for.
    pub(crate) fn next_hidden(&mut self) -> Next {
        let geometry = *self.geometry();
        let is_away = |group| self.groups.is_away(group);
        self.hidden.as_mut().map_or(Next::Nothing, |hidden| hidden.next(&geometry, is_away))
    }

    /// What the host said to that piece: its free blocks may be promised from now on, or it is asked again later.
    pub(crate) fn answered(&mut self, range: BlockRange, is_given: bool) {
        let shown = if is_given { self.show(range) } else { 0 };
        let geometry = *self.geometry();
        if let Some(hidden) = &mut self.hidden {
            hidden.answered(range, is_given, shown, &geometry);
        }
    }

    /// Answers of the host so far, to whichever piece.
    pub(crate) fn host_answers(&self) -> u64 {
        self.hidden.as_ref().map_or(0, Hidden::answers)
    }

    /// Blocks that would have to be given before `wanted` can be promised above `floor`, about.
    pub(crate) fn lacking_bytes(&self, wanted: Wanted, floor: u64) -> u64 {
        let wanted = self.promises.wanted_blocks(wanted, floor);
        wanted.saturating_sub(self.room().blocks).saturating_mul(BLOCK_BYTES)
    }
}
