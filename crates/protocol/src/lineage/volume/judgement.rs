//! What must hold after each transaction and after each crash.

use super::*;

impl Volume {
    /// P13 and P14: each branch and each snapshot holds what it must, and S9: a block is in use if, and only if, a
    /// tree reaches it.
    pub(in crate::lineage) fn judge(&mut self, device: &Device) {
        let mut reached = 0;
        for at in 0..BRANCHES {
            if let Some(Branch { root, truth, parent }) = self.branches[at] {
                if parent.is_some_and(|at| self.snapshots[at].is_none()) {
                    self.fail("S4: a branch has a parent that is gone");
                }
                self.judge_tree(
                    root,
                    truth,
                    device,
                    "P14: a branch holds what was not written to it",
                );
                reached |= self.reached(root, 0);
            }
        }
        for at in 0..SNAPSHOTS {
            let Some(of) = self.snapshots[at] else { continue };
            if of.parent.is_some_and(|at| self.snapshots[at].is_none()) {
                self.fail("S4: a snapshot has a parent that is gone");
            }
            match of.cursor {
                None => self.judge_tree(of.root, of.truth, device, "P13: a snapshot has changed"),
                Some(cursor) if cursor <= NODE && self.node(of.root).is_none() => {
                    self.fail("S4: a walk needs a node that was freed");
                }
                Some(_) => {}
            }
            reached |= self.reached(of.root, of.cursor.unwrap_or(0));
        }
        if self.used & !reached != 0 {
            self.fail("S9: a block is in use and no tree reaches it");
        }
        if reached & !self.used != 0 {
            self.fail("S9: a tree reaches a block that is free");
        }
    }

    fn judge_tree(&mut self, root: Pointer, truth: Contents, device: &Device, why: Violation) {
        let is_there = |at: Pointer, tag: Tag| device[at.block as usize] == tag;
        let is_right = self.node(root).is_some_and(|node| {
            let items = node.items.iter().zip(truth).all(|(item, truth)| match item {
                Some(Extent { at, content: Some(tag) }) => *tag == truth && is_there(*at, *tag),
                Some(Extent { content: None, .. }) | None => truth == 0,
            });
            items && is_there(root, node.tag)
        });
        if !is_right {
            self.fail(why);
        }
    }

    /// Blocks that a tree reaches from a place of the walk's order on.
    fn reached(&self, root: Pointer, from: usize) -> u16 {
        let Some(node) = self.node(root).filter(|_| from <= NODE) else {
            return 0;
        };
        let items = node.items.iter().skip(from).flatten();
        items.fold(bit(root.block), |reached, extent| reached | bit(extent.at.block))
    }
}
