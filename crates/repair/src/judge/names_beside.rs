//! Names that are lost in a tree, and that a tree beside it has.
//!
//! An inode says where its newest name is: in which directory, and at which place there, which is a checksum of the name. If a tree beside has a
//! name of the same inode at that place, it is the one that was lost: no inode's number is given out twice, and the name gives that checksum. So the file is where
//! it was, and not in `lost+found`. A directory whose own attributes are lost is there again by that, as root's.

use std::collections::BTreeSet;

use holdfast_base::InodeNo;
use holdfast_check::Issue;
use holdfast_format::item::dentry::slot;
use holdfast_format::item::{Dentry, FileType};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::{ItemKind, Key};

use super::names::Name;
use super::{Entry, Judge};
use crate::walk::get;

/// Trees that grew out of one and are asked for a name that it has lost.
const BESIDE_MAX: usize = 4;

impl Judge<'_, '_> {
    /// The name of an inode that the trees beside this one have at the place that it knows.
    pub(super) fn name_beside(&self, entry: &Entry) -> Option<Vec<u8>> {
        let key = Key::new(entry.parent, ItemKind::Dentry, entry.parent_slot);
        let own = self.state.root.id;
        let before = self.before.iter().find(|of| of.root.id == self.state.root.parent);
        let behind = self.behind.iter().filter(|of| of.root.parent == own).take(BESIDE_MAX);
        before.into_iter().chain(behind).find_map(|of| {
            let value = get(self.reading, of, &key)?;
            let dentry = Dentry::decode(&value).ok().filter(|it| it.inode == entry.number)?;
            let place = slot(self.reading.superblock().hash_seed, dentry.name);
            (place == entry.parent_slot & !0xff).then(|| dentry.name.to_vec())
        })
    }

    /// Whether the name that an inode knows was lost with a node.
    fn has_lost_name(&self, entry: &Entry) -> bool {
        let key = Key::new(entry.parent, ItemKind::Dentry, entry.parent_slot);
        let has_place = entry.parent.0 != 0 && entry.number != InodeNo::ROOT;
        has_place && entry.nlink > 0 && !entry.is_unnamed && self.state.may_be_lost(&key)
    }

    /// Directories of which nothing is left but that names of theirs are known come back.
    pub(super) fn directories_back(&mut self) {
        let mut missing = BTreeSet::new();
        for entry in &self.entries {
            let parent = entry.parent;
            let may_be = (InodeNo::FIRST_FREE.0..COUNTER_MAX / 4).contains(&parent.0);
            if may_be
                && !missing.contains(&parent)
                && self.has_lost_name(entry)
                && self.state.may_be_lost(&Key::inode(parent))
                && self.find(parent).is_none()
                && self.name_beside(entry).is_some()
            {
                missing.insert(parent);
            }
        }
        for number in missing {
            self.make(number, 0o700);
            let issue = self.lost_at(&Key::inode(number)).unwrap_or(Issue::NodeDamaged);
            let what = format!(
                "owner, mode and times of directory {number} are lost; it is root's alone now"
            );
            self.loss(issue, Some(number), what);
        }
    }

    /// Names that are lost come back to inodes that have none.
    pub(super) fn names_back(&mut self, names: &mut Vec<Name>) {
        let mut back = Vec::new();
        for entry in &self.entries {
            let directory = self.find(entry.parent).map(|at| self.entries[at].file_type);
            if entry.names > 0
                || directory != Some(FileType::Directory)
                || !self.has_lost_name(entry)
            {
                continue;
            }
            let key = Key::new(entry.parent, ItemKind::Dentry, entry.parent_slot);
            let Some(name) = self.name_beside(entry) else { continue };
            if self.value(&key).is_none() {
                back.push((key, name, entry.number, entry.file_type));
            }
        }
        for (key, name, inode, file_type) in back {
            // Two may say that they have the same place.
            if self.value(&key).is_some() {
                continue;
            }
            self.put(key, Dentry { inode, file_type, name: &name }.encode());
            names.push(Name { directory: key.inode, slot: key.offset, child: inode });
            let shown = holdfast_base::show::name(&name);
            let issue = self.lost_at(&key).unwrap_or(Issue::NodeDamaged);
            self.note(issue, inode, format!("its name {shown} comes back: another tree has it"));
        }
    }
}
