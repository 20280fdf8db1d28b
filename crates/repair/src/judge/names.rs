//! The second reading: every name, where it leads, and what that makes of inodes. What no name leads to goes to `lost+found`.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::InodeNo;
use holdfast_check::Issue;
use holdfast_check::reading::climb;
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, FileType, InodeItem};
use holdfast_format::{ItemKind, Key};

use super::{Entry, Judge, Remark, made};
use crate::error::RepairError;
use crate::walk::{Edits, items};

/// A name that stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub(super) directory: InodeNo,
    pub(super) slot: u64,
    pub(super) child: InodeNo,
}

/// A name that is put elsewhere.
struct Moved {
    directory: InodeNo,
    name: Vec<u8>,
    child: InodeNo,
}

/// What is decided of one name.
enum Fate {
    Stays,
    /// With the type of the inode.
    Typed(FileType),
    Moves,
    Goes(Issue, String),
}

impl Judge<'_, '_> {
    pub(super) fn names(&mut self) -> Result<(), RepairError> {
        self.root()?;
        self.directories_back();
        let (mut names, moved) = self.read_names();
        for Moved { directory, name, child } in moved {
            let file_type = self.find(child).map(|at| self.entries[at].file_type);
            let Some(file_type) = file_type else { continue };
            match self.insert(directory, &name, child, file_type) {
                Some(slot) => names.push(Name { directory, slot, child }),
                None => {
                    let what = format!("the name {} is removed: its slot is full", shown(&name));
                    self.loss_of(Issue::DentrySlot, directory, name, what);
                }
            }
        }
        self.one_name_each(&mut names);
        self.count(&names);
        self.names_back(&mut names);
        self.cut_cycles(&mut names);
        self.count(&names);
        self.nameless(&mut names)?;
        self.count(&names);
        self.compare();
        Ok(())
    }

    /// There is a root directory.
    fn root(&mut self) -> Result<(), RepairError> {
        let at = self.find(InodeNo::ROOT);
        if at.is_some_and(|at| self.entries[at].file_type == FileType::Directory) {
            return Ok(());
        }
        let mut gone = Vec::new();
        let range = (Key::inode(InodeNo::ROOT), Some(Key::inode(InodeNo(2))));
        items(self.reading, self.state, range, &mut |_, key, _| gone.push(key));
        gone.into_iter().for_each(|key| self.delete(key));
        if let Some(at) = at {
            self.entries.remove(at);
            self.fixes.remove(&InodeNo::ROOT);
        }
        self.make(InodeNo::ROOT, 0o755);
        self.is_rootless = true;
        let clause = format!("{} would be without its root directory", self.state.root.name);
        self.shared.given_up.push(clause);
        self.loss(
            Issue::RootMissing,
            Some(InodeNo::ROOT),
            "the root directory is made anew, and is root's",
        );
        Ok(())
    }

    /// Makes an empty directory.
    pub(super) fn make(&mut self, number: InodeNo, permissions: u32) {
        let item = InodeItem {
            parent: InodeNo::ROOT,
            ..made(FileType::Directory, permissions, self.shared.now)
        };
        self.put(Key::inode(number), item.encode());
        let behind = self.entries.partition_point(|entry| entry.number < number);
        self.entries.insert(behind, Entry::of(number, &item));
    }

    /// Reads all names, and decides of each.
    fn read_names(&mut self) -> (Vec<Name>, Vec<Moved>) {
        let (mut names, mut moved, mut edits) = (Vec::new(), Vec::new(), Edits::new());
        let (mut said, mut taken) = (Vec::new(), BTreeMap::new());
        let mut of_slot: (InodeNo, u64, Vec<Vec<u8>>) = (InodeNo(0), 0, Vec::new());
        let this = &*self;
        items(self.reading, self.state, (Key::MIN, None), &mut |_, key, value| {
            if key.kind != ItemKind::Dentry {
                return;
            }
            let Ok(dentry) = Dentry::decode(value) else { return };
            let (directory, child) = (key.inode, dentry.inode);
            if (of_slot.0, of_slot.1) != (directory, key.offset >> 8) {
                of_slot = (directory, key.offset >> 8, Vec::new());
            }
            let fate = this.judge_name(&key, &dentry, &of_slot.2);
            let name = Name { directory, slot: key.offset, child };
            let mut say = |issue, what: String, loses| {
                let what = format!("the name {} {what}", shown(dentry.name));
                let name = Some(dentry.name.to_vec());
                said.push(Remark { name, loses, ..Remark::of(issue, Some(directory), what) });
            };
            match fate {
                Fate::Stays => names.push(name),
                Fate::Typed(file_type) => {
                    edits.insert(key, Some(Dentry { file_type, ..dentry }.encode()));
                    say(Issue::DentryType, format!("says {file_type:?}, as its inode does"), false);
                    names.push(name);
                }
                Fate::Moves => {
                    edits.insert(key, None);
                    let name = dentry.name.to_vec();
                    moved.push(Moved { directory, name, child });
                    return say(Issue::DentrySlot, "is put where it is found".into(), false);
                }
                Fate::Goes(issue, why) => {
                    edits.insert(key, None);
                    taken.entry(child).or_insert_with(|| dentry.name.to_vec());
                    return say(issue, why, true);
                }
            }
            of_slot.2.push(dentry.name.to_vec());
        });
        self.merge(edits);
        self.said.append(&mut said);
        self.taken = taken;
        (names, moved)
    }

    fn judge_name(&self, key: &Key, dentry: &Dentry<'_>, before: &[Vec<u8>]) -> Fate {
        let child = dentry.inode;
        let Some(at) = self.find(child) else {
            let lost = self.state.lost_with(&Key::inode(child));
            let issue = lost.map_or(Issue::DentryDangling, |lost| lost.issue);
            return Fate::Goes(issue, format!("is removed: inode {child} is not there"));
        };
        let entry = &self.entries[at];
        if child == InodeNo::ROOT {
            return Fate::Goes(
                Issue::DirectoryNames,
                "is removed: it leads to the root directory".into(),
            );
        }
        if entry.is_unnamed {
            return Fate::Goes(
                Issue::NodeDamaged,
                format!("is taken from inode {child}, of which not all is known"),
            );
        }
        if before.iter().any(|other| other == dentry.name) {
            return Fate::Goes(Issue::NameTwice, "that comes second is removed".into());
        }
        if slot(self.reading.superblock().hash_seed, dentry.name) != key.offset & !0xff {
            return Fate::Moves;
        }
        if entry.file_type != dentry.file_type {
            return Fate::Typed(entry.file_type);
        }
        Fate::Stays
    }

    /// Puts a name into a directory, at the first free place of its slot.
    pub(super) fn insert(
        &mut self,
        directory: InodeNo,
        name: &[u8],
        inode: InodeNo,
        file_type: FileType,
    ) -> Option<u64> {
        let first = slot(self.reading.superblock().hash_seed, name);
        for offset in first..=slot_end(first) {
            let key = Key::new(directory, ItemKind::Dentry, offset);
            match self.value(&key) {
                None => {
                    self.put(key, Dentry { inode, file_type, name }.encode());
                    return Some(offset);
                }
                Some(value) if Dentry::decode(&value).is_ok_and(|of| of.name == name) => {
                    return None;
                }
                Some(_) => {}
            }
        }
        None
    }

    /// A directory has one name: the one that it knows, or else the first.
    fn one_name_each(&mut self, names: &mut Vec<Name>) {
        let mut chosen: BTreeMap<InodeNo, (InodeNo, u64)> = BTreeMap::new();
        let mut twice = BTreeSet::new();
        for name in names.iter() {
            let Some(at) = self.find(name.child) else { continue };
            let entry = &self.entries[at];
            if entry.file_type != FileType::Directory {
                continue;
            }
            let place = (name.directory, name.slot);
            let is_known = place == (entry.parent, entry.parent_slot);
            if chosen.contains_key(&name.child) {
                twice.insert(name.child);
            }
            if is_known || !chosen.contains_key(&name.child) {
                chosen.insert(name.child, place);
            }
        }
        let is_extra = |name: &Name| {
            twice.contains(&name.child)
                && chosen.get(&name.child) != Some(&(name.directory, name.slot))
        };
        let extra: Vec<Name> = names.iter().copied().filter(|name| is_extra(name)).collect();
        names.retain(|name| !is_extra(name));
        for name in extra {
            self.take_name(&name, Issue::DirectoryNames, "as it has another one");
        }
    }

    /// Something is lost of a name in a directory.
    fn loss_of(&mut self, issue: Issue, directory: InodeNo, name: Vec<u8>, what: String) {
        self.said.push(Remark {
            name: Some(name),
            loses: true,
            ..Remark::of(issue, Some(directory), what)
        });
    }

    fn take_name(&mut self, name: &Name, issue: Issue, why: &str) {
        let key = Key::new(name.directory, ItemKind::Dentry, name.slot);
        let value = self.value(&key).unwrap_or_default();
        let text = Dentry::decode(&value).map_or(Vec::new(), |dentry| dentry.name.to_vec());
        self.delete(key);
        let what =
            format!("the name {} is taken from directory {}, {why}", shown(&text), name.child);
        self.taken.entry(name.child).or_insert_with(|| text.clone());
        self.loss_of(issue, name.directory, text, what);
    }

    /// A directory that is its own ancestor loses its name.
    fn cut_cycles(&mut self, names: &mut Vec<Name>) {
        let is_directory = |name: &Name| {
            self.find(name.child)
                .is_some_and(|at| self.entries[at].file_type == FileType::Directory)
        };
        let up: BTreeMap<InodeNo, InodeNo> = names
            .iter()
            .filter(|name| is_directory(name))
            .map(|name| (name.child, name.directory))
            .collect();
        let (mut done, mut cut) = (BTreeSet::new(), BTreeSet::new());
        for start in up.keys() {
            let (mut way, mut at) = (BTreeSet::new(), *start);
            let mut order = Vec::new();
            while !done.contains(&at) && way.insert(at) {
                order.push(at);
                let Some(next) = up.get(&at) else { break };
                at = *next;
            }
            // It came back to one of its own way: the smallest of the circle is cut out.
            if !done.contains(&at)
                && up.contains_key(&at)
                && order.last().is_some_and(|last| up.get(last) == Some(&at))
            {
                let circle = order.iter().skip_while(|one| **one != at);
                cut.extend(circle.min().copied());
            }
            done.append(&mut way);
        }
        let cut_out: Vec<Name> =
            names.iter().copied().filter(|name| cut.contains(&name.child)).collect();
        names.retain(|name| !cut.contains(&name.child));
        for name in cut_out {
            self.take_name(&name, Issue::DirectoryCycle, "which is its own ancestor");
        }
    }

    /// What each inode has of names, and each directory of entries.
    fn count(&mut self, names: &[Name]) {
        for entry in &mut self.entries {
            (entry.names, entry.subdirs, entry.entries) = (0, 0, 0);
            (entry.knows_name, entry.name) = (false, (InodeNo(0), 0));
        }
        for name in names {
            let child = self.find(name.child);
            let is_directory =
                child.is_some_and(|at| self.entries[at].file_type == FileType::Directory);
            if let Some(at) = self.find(name.directory) {
                let holder = &mut self.entries[at];
                holder.entries += 1;
                holder.subdirs += u32::from(is_directory);
            }
            if let Some(at) = child {
                let entry = &mut self.entries[at];
                entry.names = entry.names.saturating_add(1);
                let place = (name.directory, name.slot);
                entry.knows_name |= place == (entry.parent, entry.parent_slot);
                if entry.name.0.0 == 0 {
                    entry.name = place;
                }
            }
        }
    }

    /// What each inode says of its names becomes what was found.
    fn compare(&mut self) {
        for at in 0..self.entries.len() {
            let entry = self.entries[at].clone();
            let number = entry.number;
            let is_root = number == InodeNo::ROOT;
            if entry.names == 0 && !is_root {
                // An orphan has none.
                continue;
            }
            let is_directory = entry.file_type == FileType::Directory;
            let (first, last) = Key::span(number, ItemKind::Dentry);
            let added = self.added.get(&number).copied().unwrap_or_default();
            let had = entry.entries.saturating_sub(added.made + added.older);
            if is_directory
                && entry.size > had
                && let Some(lost) = self.state.lost_in(&first, Some(&last)).first()
            {
                let (issue, count) = (lost.issue, entry.size - had);
                let up_to = if added.older > 0 { "up to " } else { "" };
                let what = format!(
                    "{up_to}{count} names in it are lost; what else is known of what they led to is in lost+found"
                );
                self.loss(issue, Some(number), what);
            }
            if is_directory && entry.size != entry.entries {
                self.fix(number).size = Some(entry.entries);
                let what = format!("its size is {}, as it has so many entries", entry.entries);
                self.note(Issue::DirectorySize, number, what);
            }
            let links = if is_directory { entry.subdirs.saturating_add(2) } else { entry.names };
            if links != entry.nlink {
                self.fix(number).nlink = Some(links);
                self.note(Issue::LinkCount, number, format!("it has {links} links"));
            }
            let place = match (is_root, is_directory) {
                (true, _) => (InodeNo::ROOT, 0),
                (false, true) => entry.name,
                (false, false) if entry.knows_name || entry.parent.0 == 0 => continue,
                (false, false) => entry.name,
            };
            if (entry.parent, entry.parent_slot) != place {
                self.fix(number).place = Some(place);
                let issue = match entry.parent != place.0 && is_directory {
                    true => Issue::ParentWrong,
                    false => Issue::NamePlace,
                };
                self.note(issue, number, format!("its name is in directory {}", place.0));
            }
        }
    }

    /// An absolute path that leads to an inode.
    pub(super) fn path(&self, inode: InodeNo) -> Option<String> {
        let mut up = |at| {
            let (directory, slot) = self.entries[self.find(at)?].name;
            Some(Key::new(directory, ItemKind::Dentry, slot))
        };
        climb(inode, &mut up, &|key| self.value(key))
    }
}

fn shown(name: &[u8]) -> String {
    holdfast_base::show::name(name)
}
