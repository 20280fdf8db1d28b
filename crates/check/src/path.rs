//! The path of an inode in a branch or snapshot, by what each inode says of its newest name. No list of all names is
//! needed: what is wrong in one of ten thousand trees costs the names above it.

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, InodeItem};
use holdfast_format::{ItemKind, Key};

use crate::text::printable;
use crate::volume::Volume;

/// Steps from a file to the root that a path may have.
const DEPTH_MAX: usize = 4096;
/// Longest path that is put together, in bytes.
const PATH_MAX: usize = 1 << 16;

/// An absolute path that leads to `inode`, if the inodes on the way know their names. Each name takes one from `budget`; when
/// nothing is left, no path is put together any more.
pub(crate) fn in_tree(volume: &Volume<'_>, inode: InodeNo, budget: &mut usize) -> Option<String> {
    let (mut names, mut len) = (Vec::new(), 0);
    let mut at = inode;
    while at != InodeNo::ROOT {
        if names.len() >= DEPTH_MAX || len >= PATH_MAX {
            return None;
        }
        *budget = budget.checked_sub(1)?;
        let item = InodeItem::decode(&volume.get(&Key::inode(at))?).ok()?;
        let value = volume.get(&Key::new(item.parent, ItemKind::Dentry, item.parent_slot))?;
        let entry = Dentry::decode(&value).ok()?;
        // A name that leads elsewhere is none of this file.
        if entry.inode != at {
            return None;
        }
        let name = printable(entry.name);
        len += name.len() + 1;
        names.push(name);
        at = item.parent;
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}
