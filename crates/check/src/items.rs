//! All items of a tree, as the log leaves them, and what a plain search through them answers.

use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, group};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::{ItemKind, Key, NodeView};

use crate::bounds::Bounds;
use crate::changes::Change;
use crate::runs::Runs;
use crate::volume::Volume;
use crate::walk::Step;

/// Takes an item: the block of its leaf, its key, its value; says whether to go on.
pub(crate) type VisitItem<'a> = dyn FnMut(BlockNo, Key, &[u8]) -> ControlFlow<()> + 'a;

impl Change {
    /// Visits the item that it makes of `key`, if it makes one.
    pub(crate) fn visit(&self, key: &Key, visit: &mut VisitItem<'_>) -> ControlFlow<()> {
        self.value
            .as_ref()
            .map_or(ControlFlow::Continue(()), |value| visit(self.block, *key, value))
    }
}

/// Visits the items of the leaf `node` at `block` that lie in `range`, and those of `changes` among them, in the order of their keys. What of these lies behind
/// is left.
pub(crate) fn visit_leaf<'c>(
    changes: &mut Peekable<impl Iterator<Item = (&'c Key, &'c Change)>>,
    (block, node): (BlockNo, &NodeView<'_>),
    range: &Bounds,
    visit: &mut VisitItem<'_>,
) -> ControlFlow<()> {
    let first = node.search(&range.low.raw()).unwrap_or_else(|behind| behind);
    for index in first..node.count() {
        let key = node.key(index);
        if !range.holds(&key) {
            break;
        }
        let mut is_changed = false;
        while let Some((changed, change)) = changes.next_if(|(next, _)| **next <= key) {
            is_changed = *changed == key;
            change.visit(changed, visit)?;
        }
        if !is_changed {
            visit(block, key, node.value(index))?;
        }
    }
    ControlFlow::Continue(())
}

impl<'a> Volume<'a> {
    /// What the log changes of `tree` in `range`.
    pub(crate) fn changes_between(
        &self,
        tree: TreeId,
        range: &Bounds,
    ) -> Peekable<impl Iterator<Item = (&'a Key, &'a Change)> + use<'a>> {
        let high = range.high.map_or(Bound::Unbounded, Bound::Excluded);
        let low = Bound::Included(range.low);
        let changes = self.changes_in(tree).map(|changes| changes.range((low, high)));
        changes.into_iter().flatten().peekable()
    }

    /// Visits the items of `tree` in `range` that can be read, in the order of their keys.
    /// The block is that of the leaf, or of the batch of the log.
    pub(crate) fn items(
        &self,
        tree: TreeId,
        range: Bounds,
        visit: &mut VisitItem<'_>,
    ) -> ControlFlow<()> {
        let mut changes = self.changes_between(tree, &range);
        self.walk(tree, range, &mut |step| match step {
            Step::Node { pointer, node, .. } if node.level() == 0 => {
                visit_leaf(&mut changes, (pointer.block, &node), &range, visit)
            }
            _ => ControlFlow::Continue(()),
        })?;
        changes.try_for_each(|(key, change)| change.visit(key, visit))
    }

    /// The blocks that the bitmaps mark, if all of them can be read. The log is in no bitmap.
    pub(crate) fn marks(&self) -> Option<Runs> {
        let mut marks = Runs::default();
        let mut is_whole = true;
        let groups = self.superblock.geometry.group_count();
        let _ = self.walk(TreeId::Space, Bounds::ALL, &mut |step| {
            let Step::Node { node, .. } = step else {
                is_whole = false;
                return ControlFlow::Break(());
            };
            for (key, value) in node.items_of(ItemKind::Bitmap) {
                let (group, piece) = (key.inode.0, key.offset);
                match group::decode_bitmap(value) {
                    Ok(bits) if group < groups && piece < BITMAPS_PER_GROUP => {
                        // In range: the group exists, and the geometry fits 64 bits.
                        marks.push_bits(group * GROUP_BLOCKS + piece * BITMAP_BLOCKS, bits);
                    }
                    _ => is_whole = false,
                }
            }
            ControlFlow::Continue(())
        });
        is_whole.then_some(marks)
    }

    /// The inode that `name` in `directory` leads to.
    pub(crate) fn look_up(&self, directory: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let first = slot(self.superblock.hash_seed, name);
        let low = Key::new(directory, ItemKind::Dentry, first);
        let high = Some(Key::new(directory, ItemKind::Dentry, slot_end(first) + 1));
        let mut found = None;
        let _ =
            self.items(
                TreeId::Files,
                Bounds { low, high },
                &mut |_, _, value| match Dentry::decode(value) {
                    Ok(dentry) if dentry.name == name => {
                        found = Some(dentry.inode);
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                },
            );
        found
    }
}
