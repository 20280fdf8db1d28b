//! The second reading, continued: what no name leads to goes to `lost+found`.

use holdfast_base::InodeNo;
use holdfast_check::Issue;
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, FileType};
use holdfast_format::{ItemKind, Key};

use super::names::Name;
use super::{Entry, Judge};
use crate::error::RepairError;

/// Where files go that no name leads to.
const LOST_FOUND: &[u8] = b"lost+found";
/// Bytes of a last known name that one in `lost+found` keeps behind the number.
const NAME_KEPT: usize = 200;

impl Judge<'_, '_> {
    /// What has no name and no place in the list of orphans gets one of the two.
    pub(super) fn nameless(&mut self, names: &mut Vec<Name>) -> Result<(), RepairError> {
        let mut found = Vec::new();
        for at in 0..self.entries.len() {
            let Entry { number, nlink, names, is_orphan, file_type, .. } = self.entries[at];
            if number == InodeNo::ROOT {
                continue;
            }
            let orphan = Key::orphan(number);
            match (names, nlink, is_orphan) {
                (0, 0, true) => {}
                (0, 0, false) => {
                    self.put(orphan, Vec::new());
                    self.note(Issue::OrphanUnlisted, number, format!("inode {number}, which has no link, is listed as an orphan and will be collected"));
                }
                (0, _, _) => {
                    if is_orphan {
                        self.delete(orphan);
                    }
                    found.push((number, file_type, is_orphan));
                }
                (_, _, true) => {
                    self.delete(orphan);
                    self.note(Issue::OrphanNamed, number, "it is listed as an orphan no more");
                }
                _ => {}
            }
        }
        let directory = match found.is_empty() {
            true => return Ok(()),
            false => self.lost_found(names)?,
        };
        for (number, file_type, was_orphan) in found {
            let issue = if was_orphan { Issue::OrphanNamed } else { Issue::Unreachable };
            let mut name = format!("#{number}").into_bytes();
            if let Some(known) = self.last_name(number) {
                name.push(b'-');
                name.extend(known.into_iter().take(NAME_KEPT));
            }
            let slot = (0..).find_map(|more: u32| {
                let mut name = name.clone();
                if more > 0 {
                    name.extend(format!(".{more}").bytes());
                }
                self.insert(directory, &name, number, file_type)
            });
            let slot = slot.expect("some number is free");
            names.push(Name { directory, slot, child: number });
            let what = format!("no name leads to the {file_type:?} {number}: it is in lost+found");
            self.note(issue, number, what);
        }
        Ok(())
    }

    /// A name that an inode had: one that was taken from it, or that the trees beside this one have at the place that it knows.
    fn last_name(&self, number: InodeNo) -> Option<Vec<u8>> {
        if let Some(name) = self.taken.get(&number) {
            return Some(name.clone());
        }
        self.name_beside(&self.entries[self.find(number)?])
    }

    /// The directory for what has no name. It is made if it is not there.
    fn lost_found(&mut self, names: &mut Vec<Name>) -> Result<InodeNo, RepairError> {
        let first = slot(self.reading.superblock().hash_seed, LOST_FOUND);
        for offset in first..=slot_end(first) {
            let key = Key::new(InodeNo::ROOT, ItemKind::Dentry, offset);
            let Some(value) = self.value(&key) else { continue };
            let Ok(dentry) = Dentry::decode(&value) else { continue };
            let at = self.find(dentry.inode);
            if dentry.name == LOST_FOUND
                && at.is_some_and(|at| self.entries[at].file_type == FileType::Directory)
            {
                return Ok(dentry.inode);
            }
        }
        let number = match self.shared.lost_found.filter(|number| self.find(*number).is_none()) {
            Some(number) => number,
            None => {
                let number = InodeNo(self.shared.inode_next);
                self.shared.inode_next += 1;
                self.shared.lost_found = Some(number);
                number
            }
        };
        self.make(number, 0o700);
        let slot = (0..).find_map(|more: u32| {
            let name = String::from_utf8_lossy(LOST_FOUND).into_owned();
            let name = if more == 0 { name } else { format!("{name}.{more}") };
            self.insert(InodeNo::ROOT, name.as_bytes(), number, FileType::Directory)
        });
        let slot = slot.expect("some number is free");
        names.push(Name { directory: InodeNo::ROOT, slot, child: number });
        self.added.entry(InodeNo::ROOT).or_default().made += 1;
        Ok(number)
    }
}
