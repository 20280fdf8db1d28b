//! The roots of branches on their way into the space tree, with each commit. `main` has its own in the commit's head.

use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::RootItem;

use crate::Inner;
use crate::apply::{Halt, Slots};
use crate::room::{keep_roots, slots_at_most};
use crate::space::alloc::Space;
use crate::space::slots::NodeSlots;
use crate::transaction::Change;
use crate::tree::{Forest, MissingSet, TreeNo};

impl Inner {
    /// Carries the roots that have moved since the last commit, and the counts beside them.
    pub(crate) fn carry_roots(
        &self,
        forest: &mut Forest,
        space: &mut Space,
    ) -> std::result::Result<(), Halt> {
        while let Some(tree) = forest.trees.moved() {
            let of = *forest.trees.get(tree);
            // One that is deleted has no root any more.
            let is_carried = of.has_moved() && !mutants::is(Mutant::RootNotCarried);
            if is_carried && forest.trees.find(of.number) == Some(tree) {
                let item = RootItem::of(of.root.pointer, of.root.level, of.inodes, of.referenced);
                let bytes = item.bytes();
                let change = Change { key: RootItem::key(of.number), value: Some(&bytes) };
                let prepared = forest.prepare_change(TreeNo::SPACE, change)?;
                space
                    .expect_slots(slots_at_most(forest, TreeNo::SPACE, 1))
                    .map_err(MissingSet::from)?;
                let slots = &mut Slots { space, promised: &mut NodeSlots::none() };
                forest.carry_out(TreeNo::SPACE, change, prepared, slots);
            }
            forest.trees.carried(tree);
        }
        keep_roots(forest, space);
        Ok(())
    }
}
