//! Paths that are put together from the file upwards, by what leads to each inode. No list of all names is needed: what is wrong in one of ten
//! thousand trees costs the names above it.

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, InodeItem};
use holdfast_format::{ItemKind, Key};

use crate::text::printable;
use crate::volume::Volume;

/// Steps from a file to the root that a path may have.
const DEPTH_MAX: usize = 4096;
/// Longest path that is put together, in bytes.
const PATH_MAX: usize = 1 << 16;

/// An absolute path that leads to `inode`. `up` says of an inode that is not the root the key of its name, and `value` what stands there; without one of
/// them there is no path.
pub fn climb(
    inode: InodeNo,
    up: &mut dyn FnMut(InodeNo) -> Option<Key>,
    value: &dyn Fn(&Key) -> Option<Vec<u8>>,
) -> Option<String> {
    let (mut names, mut len, mut at) = (Vec::new(), 0, inode);
    while at != InodeNo::ROOT {
        if names.len() >= DEPTH_MAX || len >= PATH_MAX {
            return None;
        }
        let key = up(at)?;
        let value = value(&key)?;
        // A name that leads elsewhere is none of this file.
        let name = Dentry::decode(&value).ok().filter(|dentry| dentry.inode == at)?.name;
        names.push(printable(name));
        len += names.last().map_or(0, String::len) + 1;
        at = key.inode;
    }
    names.reverse();
    Some(format!("/{}", names.join("/")))
}

/// The key of the newest name of an inode, as its item says.
pub fn own_name(value: &dyn Fn(&Key) -> Option<Vec<u8>>, inode: InodeNo) -> Option<Key> {
    let item = InodeItem::decode(&value(&Key::inode(inode))?).ok()?;
    Some(Key::new(item.parent, ItemKind::Dentry, item.parent_slot))
}

impl Volume<'_> {
    /// An absolute path that leads to `inode`, if the inodes on the way know their names. Each name takes one from `budget`; when nothing is left, no path
    /// is put together any more.
    pub(crate) fn path(&self, inode: InodeNo, budget: &mut usize) -> Option<String> {
        let value = |key: &Key| self.get(key);
        let mut up = |at| {
            *budget = budget.checked_sub(1)?;
            own_name(&value, at)
        };
        climb(inode, &mut up, &value)
    }
}
