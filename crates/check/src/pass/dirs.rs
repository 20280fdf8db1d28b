//! Pass 5: every name, where it leads, and what that makes of inodes.

use std::ops::ControlFlow;

use holdfast_base::{InodeNo, TreeId};
use holdfast_format::item::dentry::slot;
use holdfast_format::item::{Dentry, FileType};
use holdfast_format::{ItemKind, Key};

use super::Context;
use crate::bounds::Bounds;
use crate::inodes::Inodes;
use crate::issue::Issue;
use crate::text::printable;

/// Names between two reports of progress.
const STRIDE: u64 = 4096;

/// Names of one hash slot, to find one that occurs twice. Keys come in order, at most 256 to a slot.
#[derive(Debug, Default)]
pub(super) struct SlotNames {
    slot: u64,
    names: Vec<Vec<u8>>,
}

impl SlotNames {
    /// Whether `name` at key offset `offset` was there before.
    pub(super) fn is_repeated(&mut self, offset: u64, name: &[u8]) -> bool {
        if self.slot != offset >> 8 {
            self.slot = offset >> 8;
            self.names.clear();
        }
        let repeated = self.names.iter().any(|other| other == name);
        self.names.push(name.to_vec());
        repeated
    }
}

pub(super) fn run(context: &mut Context<'_>) {
    let volume = context.volume;
    let mut directory = InodeNo(0);
    let mut names = SlotNames::default();
    let mut done = 0;
    let _ = volume.items(TreeId::Files, Bounds::ALL, &mut |_, key, value| {
        if key.kind != ItemKind::Dentry {
            return ControlFlow::Continue(());
        }
        if key.inode != directory {
            directory = key.inode;
            names = SlotNames::default();
        }
        done += 1;
        if done % STRIDE == 0 {
            context.progress(done, context.facts.dentries);
        }
        // A damaged entry has had its finding in the pass over inodes.
        if let Ok(dentry) = Dentry::decode(value) {
            follow(context, &mut names, &key, &dentry);
        }
        ControlFlow::Continue(())
    });
    check_root(context);
    find_rooted(context);
    judge(context);
}

fn follow(context: &mut Context<'_>, names: &mut SlotNames, key: &Key, dentry: &Dentry<'_>) {
    let directory = key.inode;
    let mut report = |issue, what: String| {
        let what = format!("{:?} in directory {directory} {what}", printable(dentry.name));
        context.findings.add(issue, what).inode(directory).name(dentry.name);
    };
    if slot(context.volume.superblock.hash_seed, dentry.name) != key.offset & !0xff {
        report(Issue::DentrySlot, format!("has the key offset {:#x}", key.offset));
    } else if names.is_repeated(key.offset, dentry.name) {
        report(Issue::NameTwice, "occurs twice".into());
    }
    let child = dentry.inode;
    let found = context.inodes.find(child);
    if found.is_none() && !context.files_lost.holds(&Key::inode(child)) {
        report(Issue::DentryDangling, format!("leads to inode {child}"));
    }
    let file_type = found.and_then(|at| context.inodes.0[at].file_type);
    if let Some(file_type) = file_type
        && file_type != dentry.file_type
    {
        let said = dentry.file_type;
        report(Issue::DentryType, format!("says {said:?}, inode {child} is a {file_type:?}"));
    }
    if let Some(at) = context.inodes.find(directory) {
        let entry = &mut context.inodes.0[at];
        entry.entries += 1;
        let is_directory = file_type.unwrap_or(dentry.file_type) == FileType::Directory;
        entry.subdirs = entry.subdirs.saturating_add(u32::from(is_directory));
    }
    if let Some(at) = found {
        let entry = &mut context.inodes.0[at];
        entry.names = entry.names.saturating_add(1);
        entry.knows_name |= (entry.parent, entry.parent_slot) == (directory, key.offset);
        if entry.name_dir.0 == 0 {
            entry.name_dir = directory;
            entry.name_at = key.offset;
        }
    }
}

fn check_root(context: &mut Context<'_>) {
    let Some(at) = context.inodes.find(InodeNo::ROOT) else {
        if !context.may_be_lost(&Key::inode(InodeNo::ROOT)) {
            context.findings.add(Issue::RootMissing, "there is no inode 1");
        }
        return;
    };
    let root = &mut context.inodes.0[at];
    root.rooted = true;
    if root.file_type.is_some() && !root.is_directory() {
        context.findings.add(Issue::RootMissing, "inode 1 is not a directory");
    } else if root.names > 0 {
        let what = "a name leads to the root directory";
        context.findings.add(Issue::DirectoryNames, what).inode(InodeNo::ROOT);
    }
}

/// Follows each directory upwards until the root, a directory already judged, or itself.
fn find_rooted(context: &mut Context<'_>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnTheWay,
        Done,
    }
    let inodes: &mut Inodes = &mut context.inodes;
    let mut states = vec![Mark::New; inodes.0.len()];
    let mut way = Vec::new();
    for start in 0..inodes.0.len() {
        let mut next = inodes.0[start].is_directory().then_some(start);
        let mut rooted = false;
        while let Some(at) = next {
            match states[at] {
                Mark::Done => {
                    rooted = inodes.0[at].rooted;
                    break;
                }
                Mark::OnTheWay => {
                    let number = inodes.0[at].number;
                    let what = format!("directory {number} is its own ancestor");
                    context.findings.add(Issue::DirectoryCycle, what).inode(number);
                    break;
                }
                Mark::New => {}
            }
            states[at] = Mark::OnTheWay;
            way.push(at);
            let entry = &inodes.0[at];
            rooted = entry.number == InodeNo::ROOT;
            let up = (!rooted && entry.name_dir.0 != 0).then_some(entry.name_dir);
            next = up.and_then(|up| inodes.find(up));
        }
        for at in way.drain(..) {
            states[at] = Mark::Done;
            inodes.0[at].rooted |= rooted;
        }
    }
}

/// Compares what each inode says with what was found.
fn judge(context: &mut Context<'_>) {
    let whole = context.files_lost.is_empty();
    for at in 0..context.inodes.0.len() {
        let entry = context.inodes.0[at].clone();
        let Some(file_type) = entry.file_type else { continue };
        let number = entry.number;
        let is_root = number == InodeNo::ROOT;
        let mut report = |issue, what: String| {
            context.findings.add(issue, what).inode(number);
        };
        if entry.is_directory() {
            // Its own names may be lost, or names in it.
            if entry.entries != entry.size && !context.files_lost.meets(&Bounds::inode(number)) {
                let (said, found) = (entry.size, entry.entries);
                report(
                    Issue::DirectorySize,
                    format!("directory {number} has the size {said} and {found} entries"),
                );
            }
            if entry.names > 1 && !is_root {
                let names = entry.names;
                report(Issue::DirectoryNames, format!("{names} names lead to directory {number}"));
            }
            let holder = if is_root { number } else { entry.name_dir };
            if holder.0 != 0 && entry.parent != holder {
                let said = entry.parent;
                report(
                    Issue::ParentWrong,
                    format!("directory {number} is in directory {holder} and says {said}"),
                );
            }
        }
        // The directory that holds the name may have lost a part.
        let is_elsewhere = entry.is_directory() && entry.parent != entry.name_dir;
        let is_known = entry.knows_name || entry.parent.0 == 0 || entry.nlink == 0 || is_root;
        let place = Key::new(entry.parent, ItemKind::Dentry, entry.parent_slot);
        if !is_known && !is_elsewhere && !context.files_lost.holds(&place) {
            let (said, slot) = (entry.parent, entry.parent_slot);
            report(
                Issue::NamePlace,
                format!(
                    "the {file_type:?} {number} says that it has a name in directory {said}, at {slot:#x}; it has none there"
                ),
            );
        }
        if !whole {
            continue;
        }
        let expected =
            if entry.is_directory() { entry.subdirs.saturating_add(2) } else { entry.names };
        let (said, names) = (entry.nlink, entry.names);
        match (names, is_root) {
            // Without link and name: the pass over orphans.
            (0, false) if said == 0 || entry.orphan => {}
            (0, false) => {
                report(Issue::Unreachable, format!("no name leads to the {file_type:?} {number}"));
            }
            _ if said != expected => {
                report(
                    Issue::LinkCount,
                    format!("the {file_type:?} {number} has {said} links, found were {expected}"),
                );
            }
            _ => {}
        }
    }
}
