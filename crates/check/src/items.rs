//! All items of a tree, as the log leaves them, and what a plain search through them answers.

use std::ops::{Bound, ControlFlow};

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, group};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::{ItemKind, Key};

use crate::bounds::Bounds;
use crate::runs::Runs;
use crate::volume::Volume;
use crate::walk::Step;

/// Takes an item: the block of its leaf, its key, its value; says whether to go on.
pub(crate) type VisitItem<'a> = dyn FnMut(BlockNo, Key, &[u8]) -> ControlFlow<()> + 'a;

impl Volume<'_> {
    /// Visits the items of `tree` in `range` that can be read, in the order of their keys.
    /// The block is that of the leaf, or of the batch of the log.
    pub(crate) fn items(
        &self,
        tree: TreeId,
        range: Bounds,
        visit: &mut VisitItem<'_>,
    ) -> ControlFlow<()> {
        let high = range.high.map_or(Bound::Unbounded, Bound::Excluded);
        let changes =
            self.changes_in(tree).map(|changes| changes.range((Bound::Included(range.low), high)));
        let mut changes = changes.into_iter().flatten().peekable();
        self.walk(tree, range, &mut |step| {
            let Step::Node { pointer, node, .. } = step else {
                return ControlFlow::Continue(());
            };
            if node.level() > 0 {
                return ControlFlow::Continue(());
            }
            for index in 0..node.count() {
                let key = node.key(index);
                if !range.holds(&key) {
                    continue;
                }
                let mut is_changed = false;
                while let Some((changed, change)) = changes.next_if(|(next, _)| **next <= key) {
                    is_changed = *changed == key;
                    if let Some(value) = &change.value {
                        visit(change.block, *changed, value)?;
                    }
                }
                if !is_changed {
                    visit(pointer.block, key, node.value(index))?;
                }
            }
            ControlFlow::Continue(())
        })?;
        for (key, change) in changes {
            if let Some(value) = &change.value {
                visit(change.block, *key, value)?;
            }
        }
        ControlFlow::Continue(())
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
            let leaf = if node.level() == 0 { node.count() } else { 0 };
            for index in 0..leaf {
                let key = node.key(index);
                if key.kind != ItemKind::Bitmap {
                    continue;
                }
                let (group, piece) = (key.inode.0, key.offset);
                match group::decode_bitmap(node.value(index)) {
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
