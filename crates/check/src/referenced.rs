//! What branches and snapshots refer to, counted by a walk through their trees: what finding [210] compares, and what is right
//! instead.

use std::ops::ControlFlow;

use holdfast_base::TreeId;
use holdfast_device::Device;

use crate::CheckError;
use crate::lineage::{Lineage, TreeRoot};
use crate::met_nodes::MetNodes;
use crate::recovered::Recovered;
use crate::superblocks::Slots;
use crate::walk::{Step, WalkPart};

/// What a branch or snapshot says that it refers to, and what it does, in blocks: those of its nodes, and those that its extents
/// have on the device, whichever trees have them too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referenced {
    /// Its number.
    pub id: u64,
    /// As messages name it.
    pub name: String,
    /// What superblock or item say.
    pub said: u64,
    /// What there is.
    pub counted: u64,
}

impl Referenced {
    /// What a walk through all of a tree has met. `None` of one that is being deleted: what its deletion has passed is not its own, and
    /// what is left is not counted.
    pub(crate) fn of(tree: &TreeRoot, counted: u64) -> Option<Referenced> {
        let said = tree.referenced_blocks;
        let name = || tree.name.clone();
        tree.cursor.is_none().then(|| Referenced { id: tree.id, name: name(), said, counted })
    }

    /// Whether it says what there is.
    pub fn is_right(&self) -> bool {
        self.said == self.counted
    }
}

/// Counts what each branch and snapshot of the volume on `device` refers to, `main` first; those that are being deleted are left
/// out. Reads each node once, whatever trees have it, and nothing of files.
///
/// Counts are those of the nodes that the journal leaves, as those are which they are compared with: what the log changes counts
/// when it is carried out, by a recovery or by a rewrite of what it says.
///
/// # Errors
///
/// If there is no volume, or if its journal, its log or a node does not read or cannot be: then nothing is known of any tree, as what is lost
/// may belong to each, or tell of one.
pub fn referenced(device: &dyn Device) -> Result<Vec<Referenced>, CheckError> {
    let superblock = Slots::read(device)?.into_newest()?;
    let mut recovered = Recovered::read(device, &superblock);
    if let Some(error) = recovered.journal_error.take().or(recovered.log_error.take()) {
        return Err(error);
    }
    let volume = recovered.volume(device);
    if let Some(what) = Lineage::lost(&volume) {
        return Err(CheckError::Missing(what));
    }
    let lineage = Lineage::read(&volume);
    let (mut seen, mut all) = (MetNodes::default(), Vec::new());
    for tree in lineage.trees(&volume, &|_| None) {
        let way = WalkPart { of: tree.id, cursor: tree.cursor, ..WalkPart::default() };
        let mut lost = None;
        let of = recovered.volume_of(device, &tree);
        let _ = of.walk_unseen(TreeId::Files, way, &mut seen, &mut |step| match step {
            Step::Node { .. } => ControlFlow::Continue(()),
            Step::Lost { pointer, problem, .. } => {
                lost = Some(format!("node {} of {}: {problem}", pointer.block, tree.name));
                ControlFlow::Break(())
            }
        });
        if let Some(what) = lost {
            return Err(CheckError::Missing(what));
        }
        all.extend(Referenced::of(&tree, seen.referenced()));
    }
    Ok(all)
}
