//! Prints branches and snapshots: what each grew out of, its root, and how far a deletion has come.

use std::io::Write;

use holdfast_format::item::lineage::MAIN;

use crate::CheckError;
use crate::lineage::{Lineage, TreeRoot};
use crate::recovered::Recovered;
use crate::text;
use crate::volume::Volume;

/// Every tree, then every item as it is.
pub(super) fn print(
    volume: &Volume<'_>,
    recovered: &Recovered,
    out: &mut dyn Write,
) -> Result<(), CheckError> {
    let lineage = Lineage::read(volume);
    for tree in lineage.trees(volume, &|id| recovered.log.inodes_in(id)) {
        let TreeRoot { id, name, root, level, parent, inode_count, referenced_blocks, .. } = &tree;
        write!(
            out,
            "tree={id} name={name:?} parent={parent} block={} epoch={} level={level} inode_count={inode_count} referenced_blocks={referenced_blocks}",
            root.block, root.epoch
        )?;
        if let Some(cursor) = &tree.cursor {
            write!(out, " deleted_before={}", text::place(cursor))?;
        }
        writeln!(out)?;
    }
    for (key, value) in &lineage.0 {
        writeln!(out, "item {}", text::item(key, value))?;
    }
    Ok(())
}

/// The branch or snapshot of this number.
pub(super) fn find(
    volume: &Volume<'_>,
    recovered: &Recovered,
    id: u64,
) -> Result<TreeRoot, CheckError> {
    let trees = Lineage::read(volume).trees(volume, &|id| recovered.log.inodes_in(id));
    let found = trees.into_iter().find(|tree| tree.id == id);
    found.ok_or_else(|| CheckError::Missing(format!("there is no branch or snapshot {id}")))
}

/// The branch or snapshot of this name. Without a branch, `main` is meant, whatever it is called.
pub(super) fn named(
    volume: &Volume<'_>,
    recovered: &Recovered,
    branch: Option<&[u8]>,
    snapshot: Option<&[u8]>,
) -> Result<TreeRoot, CheckError> {
    let lineage = Lineage::read(volume);
    let mut wanted = branch.map_or_else(|| lineage.name(MAIN), text::printable);
    if let Some(snapshot) = snapshot {
        wanted = format!("{wanted}@{}", text::printable(snapshot));
    }
    let trees = lineage.trees(volume, &|id| recovered.log.inodes_in(id));
    let found = trees.into_iter().find(|tree| tree.name == wanted);
    found.ok_or_else(|| CheckError::Missing(format!("there is no `{wanted}`")))
}
