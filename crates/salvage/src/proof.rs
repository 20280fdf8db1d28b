//! What roots prove by what they reach: which space tree belongs to a state that there was, and which files tree is all there.

use holdfast_base::TreeId;
use holdfast_check::reading::{Rings, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_format::Superblock;

use crate::error::SalvageError;
use crate::index::Index;
use crate::scan::FoundNode;
use crate::tolerant::Tolerant;

/// Of those that look like the newest root of a space tree so many are looked at.
const SPACE_ROOTS_MAX: usize = 64;

/// The bitmaps that a root of a space tree leads to.
pub(crate) struct Bitmaps {
    pub(crate) root: FoundNode,
    /// Blocks in use, each run as its start and end, upwards.
    marked: Runs,
}

impl Bitmaps {
    pub(crate) fn read(
        device: &Tolerant<'_>,
        made: &Superblock,
        root: &FoundNode,
    ) -> Result<Bitmaps, SalvageError> {
        let made = Superblock { space: root.pointer(), space_level: root.level, ..made.clone() };
        let reading = VolumeReading::with_superblock(device, made, Rings::Ignored)?;
        Ok(Bitmaps { root: *root, marked: reading.marked() })
    }

    /// The newest epoch of a node of a tree that is in use and not younger than they are.
    pub(crate) fn newest_in_use(&self, index: &Index, tree: TreeId) -> Option<u64> {
        let is_of = |node: &&FoundNode| {
            node.tree == tree as u8 && node.epoch <= self.root.epoch && self.has(node.block)
        };
        index.nodes.iter().filter(is_of).map(|node| node.epoch).max()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.marked.total() == 0
    }

    pub(crate) fn has(&self, block: u64) -> bool {
        self.marked.end_at(block).is_some()
    }
}

/// The newest of `roots`, newest first, that marks itself as in use and is what `is_proof` wants. A node alone proves nothing: a forger
/// with the tag of the volume can give it any epoch.
pub(crate) fn proven_bitmaps(
    device: &Tolerant<'_>,
    made: &Superblock,
    roots: impl Iterator<Item = FoundNode>,
    is_proof: impl Fn(&Bitmaps) -> bool,
) -> Result<Option<Bitmaps>, SalvageError> {
    for root in roots.take(SPACE_ROOTS_MAX) {
        let bitmaps = Bitmaps::read(device, made, &root)?;
        if bitmaps.has(root.block) && is_proof(&bitmaps) {
            return Ok(Some(bitmaps));
        }
    }
    Ok(None)
}

/// Whether all nodes of a files tree are there, and one of them was in use before: a tree that is copied on write shares what did not
/// change with the one before it.
pub(crate) fn grew_out_of(
    reading: &VolumeReading<'_>,
    index: &Index,
    root: &FoundNode,
    before: &Bitmaps,
) -> bool {
    let mut is_seen = vec![false; index.nodes.len()];
    let mut to_read = vec![*root];
    let mut shares = false;
    let mut buffer = Vec::new();
    while let Some(node) = to_read.pop() {
        shares |= before.has(node.block);
        if node.level == 0 {
            continue;
        }
        // An inner node begins where its parent says, the root of a tree with its first key.
        let place = node.place();
        let Ok(view) = reading.node(TreeId::Files, &place, None, &mut buffer) else { return false };
        for child in 0..view.count() {
            let Some(at) = index.position(view.child(child)) else { return false };
            let found = index.nodes[at];
            if found.tree != node.tree || found.level + 1 != node.level {
                return false;
            }
            if !std::mem::replace(&mut is_seen[at], true) {
                to_read.push(found);
            }
        }
    }
    shares
}
