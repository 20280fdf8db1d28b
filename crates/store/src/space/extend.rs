//! The space of a volume that becomes larger.

use holdfast_base::BlockNo;
use holdfast_format::Geometry;
use holdfast_format::limits::GROUP_BLOCKS;

use super::alloc::Space;
use super::groups::Groups;
use super::promise::{Floors, Given};
use super::slots::NodeSlots;
use super::unbacked::Unbacked;

impl Space {
    /// The volume has the shape `geometry` from now on, which is larger. The new blocks are free, or unbacked until the host gives them.
    pub(crate) fn extend(&mut self, geometry: Geometry, is_sparse: bool) {
        let old = *self.geometry();
        let is_unbacked = is_sparse || self.unbacked.is_some();
        self.groups.extend(geometry, is_unbacked);
        self.has_shape(geometry);
        if is_unbacked {
            let unbacked = self.unbacked.get_or_insert_with(|| Unbacked::none(&old));
            let last = old.group_count().saturating_sub(1);
            // Of a group that is lost nothing is free, so the host is not asked for its new part either.
            let behind = match self.groups.is_lost(last) {
                true => BlockNo(last.saturating_add(1).saturating_mul(GROUP_BLOCKS)),
                false => old.far_copy(),
            };
            unbacked.extend(&geometry, behind);
        }
        self.keep_for_given();
    }
}

/// Slots that a volume of this shape keeps for commits and for what makes room (P8).
pub(crate) fn reserve_of(geometry: &Geometry) -> NodeSlots {
    Floors::new(geometry, Groups::slots_of(geometry), Given::all(geometry)).grow
}
