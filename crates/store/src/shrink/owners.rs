//! Which files have a block that has to move and does not read.

use std::collections::BTreeSet;

use holdfast_base::{BlockNo, BlockRange, InodeNo, TreeId};
use holdfast_device::DeviceError;
use holdfast_format::item::Extent;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::node::NodeView;
use holdfast_format::{ItemKind, NodePointer, Superblock};

use super::walk::{Nodes, Reached, root_of};
use crate::{Result, StoreError};

/// What a shrink ends with where a block does not read.
pub(super) fn cannot_move(
    nodes: &Nodes<'_>,
    seen: &Reached,
    superblock: &Superblock,
    block: BlockNo,
    source: DeviceError,
) -> StoreError {
    let mut search = Search { nodes, seen, block, found: BTreeSet::new() };
    match search.all(superblock) {
        Ok(()) => StoreError::CannotMove {
            block,
            owners: search.found.into_iter().collect(),
            source: Box::new(source),
        },
        Err(_) => source.into(),
    }
}

struct Search<'a> {
    nodes: &'a Nodes<'a>,
    seen: &'a Reached,
    block: BlockNo,
    found: BTreeSet<(u64, InodeNo)>,
}

impl Search<'_> {
    fn all(&mut self, superblock: &Superblock) -> Result<()> {
        self.tree(MAIN, superblock.files, superblock.files_level)?;
        for (key, value) in &self.seen.items {
            if let Some((pointer, level)) = root_of(key, value)? {
                self.tree(key.inode.0.saturating_sub(LINEAGE), pointer, level)?;
            }
        }
        Ok(())
    }

    fn tree(&mut self, tree: u64, pointer: NodePointer, level: u8) -> Result<()> {
        let block = BlockRange::new(self.block, 1);
        let reach = self.seen.nodes.get(&pointer.block.0);
        let may_have = |end, parts| end > self.block.0 && parts & self.seen.parts_of(block) != 0;
        if !reach.is_none_or(|reach| may_have(reach.end, reach.parts)) {
            return Ok(());
        }
        let wanted = self.block;
        let has =
            |of: BlockRange| of.start <= wanted && wanted.0.saturating_sub(of.start.0) < of.count;
        let bytes = self.nodes.read(pointer, TreeId::Files, level)?;
        let view = NodeView::trusted(&bytes);
        for at in 0..view.count() {
            if let Some(below) = level.checked_sub(1) {
                self.tree(tree, view.child(at), below)?;
            } else if view.key(at).kind == ItemKind::Extent
                && Extent::decode(view.value(at)).is_ok_and(|of| has(of.blocks))
            {
                self.found.insert((tree, view.key(at).inode));
            }
        }
        Ok(())
    }
}
