//! All names of files that have several.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::InodeNo;
use holdfast_check::reading::{VolumeReading, climb, own_name};
use holdfast_format::item::{Dentry, FileType, InodeItem};
use holdfast_format::{ItemKind, Key};

use crate::walk::{TreeWork, get, items};

/// The paths of those of these inodes that have several names, of each all that lead to it from a directory whose path is known. Reads all names
/// of the tree, if there is one.
pub(crate) fn all_paths(
    reading: &VolumeReading<'_>,
    state: &TreeWork,
    inodes: &BTreeSet<InodeNo>,
) -> BTreeMap<InodeNo, Vec<String>> {
    let item = |inode: &InodeNo| InodeItem::decode(&get(reading, state, &Key::inode(*inode))?).ok();
    let is_one = |item: InodeItem| item.nlink > 1 && item.file_type() != FileType::Directory;
    let several: BTreeSet<InodeNo> =
        inodes.iter().copied().filter(|inode| item(inode).is_some_and(is_one)).collect();
    let mut names: Vec<(InodeNo, InodeNo, String)> = Vec::new();
    if !several.is_empty() {
        items(reading, state, (Key::MIN, None), &mut |_, key, value| {
            if let (ItemKind::Dentry, Ok(dentry)) = (key.kind, Dentry::decode(value))
                && several.contains(&dentry.inode)
            {
                names.push((dentry.inode, key.inode, holdfast_base::show::name(dentry.name)));
            }
        });
    }
    let value = |key: &Key| get(reading, state, key);
    let mut paths: BTreeMap<InodeNo, Vec<String>> = BTreeMap::new();
    for (inode, directory, name) in names {
        if let Some(of) = climb(directory, &mut |at| own_name(&value, at), &value) {
            let path = format!("{}/{name}", of.trim_end_matches('/'));
            paths.entry(inode).or_default().push(path);
        }
    }
    paths
}
