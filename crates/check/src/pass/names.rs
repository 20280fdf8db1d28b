//! Pass 11, continued: names, links and orphans, as passes 5 and 6 judge them, of a tree beside one that was judged.
//!
//! What differs says how many names an inode has more, and how many entries and subdirectories a directory has more. The
//! tree before is taken to be right in what it counts: where it is not, that has been said.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, FileType, InodeItem};
use holdfast_format::{ItemKind, Key};

use super::Context;
use crate::ascending::Ascending;
use crate::bounds::Bounds;
use crate::difference::{Difference, Pair};
use crate::issue::Issue;
use crate::text::printable;
use crate::volume::{Look, Volume};

/// What an inode has more than before.
#[derive(Clone, Copy, Debug, Default)]
struct More {
    names: i64,
    subdirs: i64,
    entries: i64,
    /// The directory of a name that is new.
    holder: InodeNo,
}

type Mores = BTreeMap<InodeNo, More>;

pub(super) fn judge(beside: &mut Context<'_>, differs: &Difference) {
    let mut mores = Mores::new();
    // Names come in the order of their keys, then inodes in that of theirs.
    let mut now = Now { differs, near: Ascending::new(beside.volume), volume: beside.volume };
    for (key, pair) in &differs.items {
        match key.kind {
            ItemKind::Dentry => name(beside, &mut now, &mut mores, key, pair),
            ItemKind::Inode if key.offset == 0 => drop(mores.entry(key.inode).or_default()),
            ItemKind::Orphan | ItemKind::Punch if key.inode.0 == 0 => {
                mores.entry(InodeNo(key.offset)).or_default();
            }
            _ => {}
        }
    }
    let mut rooted = HashSet::from([InodeNo::ROOT]);
    for (number, more) in &mores {
        let item = |value: Option<Vec<u8>>| value.map(|value| InodeItem::decode(&value).ok());
        let (was, is) = now.both(&Key::inode(*number));
        match (item(was), item(is)) {
            // What is damaged has been said of one of the two.
            (Some(None), _) | (_, Some(None)) => {}
            (was, Some(Some(item))) => {
                let judged = Inode { number: *number, was: was.flatten(), now: item, more: *more };
                judged.judge(beside, &now);
                if item.file_type() == FileType::Directory && more.holder.0 != 0 {
                    climb(beside, &now, *number, &mut rooted);
                }
            }
            (was, None) => gone(beside, *number, was.flatten(), more),
        }
    }
    lists(beside);
}

/// The tree that is judged: what differs is at hand, the rest is read.
struct Now<'a, 'd> {
    differs: &'d Difference,
    /// For what is asked for in the order of keys.
    near: Ascending<'a>,
    volume: Volume<'a>,
}

impl Now<'_, '_> {
    /// What was before and what is now, of keys that ascend.
    fn both(&mut self, key: &Key) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        if let Some(pair) = self.differs.items.get(key) {
            return (pair.before.clone(), pair.now.clone());
        }
        match self.near.look(key) {
            Look::Found(value) => (Some(value.clone()), Some(value)),
            Look::Missing | Look::Lost => (None, None),
        }
    }

    /// For what may be anywhere.
    fn look(&self, key: &Key) -> Look {
        match self.differs.items.get(key) {
            Some(pair) => pair.now.clone().map_or(Look::Missing, Look::Found),
            None => self.volume.look(key),
        }
    }
}

/// A name that is new, gone or another.
fn name(
    beside: &mut Context<'_>,
    now: &mut Now<'_, '_>,
    mores: &mut Mores,
    key: &Key,
    pair: &Pair,
) {
    let directory = key.inode;
    for (value, one) in [(&pair.before, -1), (&pair.now, 1)] {
        let Some(Ok(dentry)) = value.as_ref().map(|value| Dentry::decode(value)) else { continue };
        let of = mores.entry(directory).or_default();
        of.entries += one;
        of.subdirs += if dentry.file_type == FileType::Directory { one } else { 0 };
        let to = mores.entry(dentry.inode).or_default();
        to.names += one;
        if one > 0 {
            to.holder = directory;
            new_name(beside, now, key, &dentry);
        }
    }
}

fn new_name(beside: &mut Context<'_>, now: &mut Now<'_, '_>, key: &Key, dentry: &Dentry<'_>) {
    let (directory, child) = (key.inode, dentry.inode);
    let mut report = |issue, what: String| {
        let what = format!("{:?} in directory {directory} {what}", printable(dentry.name));
        beside.add(issue, what).inode(directory).name(dentry.name);
    };
    if slot(now.volume.superblock.hash_seed, dentry.name) != key.offset & !0xff {
        report(Issue::DentrySlot, format!("has the key offset {:#x}", key.offset));
    } else if occurs(&mut now.near, key, dentry.name) > 1 {
        report(Issue::NameTwice, "occurs twice".into());
    }
    match now.look(&Key::inode(child)) {
        Look::Found(value) => {
            let found = InodeItem::decode(&value).ok().map(|item| item.file_type());
            if let Some(found) = found.filter(|found| *found != dentry.file_type) {
                let said = dentry.file_type;
                report(Issue::DentryType, format!("says {said:?}, inode {child} is a {found:?}"));
            }
        }
        Look::Missing => report(Issue::DentryDangling, format!("leads to inode {child}")),
        Look::Lost => {}
    }
}

/// How often a name occurs in its slot: at most 256 have the same.
fn occurs(near: &mut Ascending<'_>, key: &Key, name: &[u8]) -> usize {
    let first = key.offset & !0xff;
    let low = Key { offset: first, ..*key };
    let end = slot_end(first);
    let high = end.checked_add(1).map(|offset| Key { offset, ..*key });
    let mut count = 0;
    let _ = near.items(Bounds { low, high }, &mut |_, _, value| {
        count += usize::from(Dentry::decode(value).is_ok_and(|dentry| dentry.name == name));
        ControlFlow::Continue(())
    });
    count
}

/// An inode that is not there any more, or never was.
fn gone(beside: &mut Context<'_>, number: InodeNo, was: Option<InodeItem>, more: &More) {
    let Some(was) = was else { return };
    let is_directory = was.file_type() == FileType::Directory;
    let names = if is_directory { i64::from(was.nlink > 0) } else { i64::from(was.nlink) };
    if names + more.names > more.names.max(0) {
        let what = format!("{} names lead to inode {number}", names + more.names);
        beside.add(Issue::DentryDangling, what);
    }
    let entries = if is_directory { was.size as i64 } else { 0 };
    if entries.saturating_add(more.entries) > 0 {
        let what = format!("names belong to inode {number}");
        beside.add(Issue::ItemWithoutInode, what);
    }
}

/// An inode of which something differs.
struct Inode {
    number: InodeNo,
    was: Option<InodeItem>,
    now: InodeItem,
    more: More,
}

impl Inode {
    fn judge(&self, beside: &mut Context<'_>, now: &Now<'_, '_>) {
        match self.now.file_type() {
            FileType::Directory => self.directory(beside),
            _ => self.file(beside),
        }
        self.place(beside, now);
        let is_listed = || !matches!(now.look(&Key::orphan(self.number)), Look::Missing);
        if self.now.nlink == 0 && !is_listed() {
            let what = format!("inode {} has no link and is not listed", self.number);
            self.report(beside, Issue::OrphanUnlisted, what);
        }
    }

    fn report(&self, beside: &mut Context<'_>, issue: Issue, what: String) {
        beside.add(issue, what).inode(self.number);
    }

    /// A number of what was before and what came.
    fn sum(was: u64, more: i64) -> u64 {
        was.saturating_add_signed(more)
    }

    fn file(&self, beside: &mut Context<'_>) {
        let (number, said) = (self.number, u64::from(self.now.nlink));
        let names = Inode::sum(self.was.map_or(0, |was| was.nlink.into()), self.more.names);
        if names == said {
            return;
        }
        let file_type = self.now.file_type();
        if names == 0 {
            let what = format!("no name leads to the {file_type:?} {number}");
            return self.report(beside, Issue::Unreachable, what);
        }
        let what = format!("the {file_type:?} {number} has {said} links, found were {names}");
        self.report(beside, Issue::LinkCount, what);
    }

    fn directory(&self, beside: &mut Context<'_>) {
        let Inode { number, was, now, more } = *self;
        let was = was.filter(|was| was.file_type() == FileType::Directory);
        let is_root = number == InodeNo::ROOT;
        let had = was.is_some_and(|was| was.nlink > 0 && !is_root);
        let names = Inode::sum(had.into(), more.names);
        if names > u64::from(!is_root) {
            let what = format!("{names} names lead to directory {number}");
            self.report(beside, Issue::DirectoryNames, what);
        } else if names == 0 && !is_root && now.nlink > 0 {
            let what = format!("no name leads to the Directory {number}");
            self.report(beside, Issue::Unreachable, what);
        } else if names > 0 || is_root {
            let had = was.map_or(2, |was| was.nlink.max(2)).into();
            let links = Inode::sum(had, more.subdirs);
            if links != u64::from(now.nlink) {
                let said = now.nlink;
                let what = format!("the Directory {number} has {said} links, found were {links}");
                self.report(beside, Issue::LinkCount, what);
            }
        }
        let entries = Inode::sum(was.map_or(0, |was| was.size), more.entries);
        if entries != now.size {
            let said = now.size;
            let what = format!("directory {number} has the size {said} and {entries} entries");
            self.report(beside, Issue::DirectorySize, what);
        }
        if more.holder.0 != 0 && now.parent != more.holder && names == 1 && !is_root {
            let (holder, said) = (more.holder, now.parent);
            let what = format!("directory {number} is in directory {holder} and says {said}");
            self.report(beside, Issue::ParentWrong, what);
        }
    }

    /// The name that it knows.
    fn place(&self, beside: &mut Context<'_>, tree: &Now<'_, '_>) {
        let Inode { number, now, more, .. } = *self;
        let is_elsewhere = more.holder.0 != 0
            && now.file_type() == FileType::Directory
            && now.parent != more.holder;
        if now.parent.0 == 0 || now.nlink == 0 || number == InodeNo::ROOT || is_elsewhere {
            return;
        }
        let is_there = match tree.look(&Key::new(now.parent, ItemKind::Dentry, now.parent_slot)) {
            Look::Found(value) => Dentry::decode(&value).is_ok_and(|dentry| dentry.inode == number),
            Look::Missing => false,
            Look::Lost => true,
        };
        if !is_there {
            let what = format!(
                "the {:?} {number} says that it has a name in directory {}, at {:#x}; it has none there",
                now.file_type(),
                now.parent,
                now.parent_slot
            );
            self.report(beside, Issue::NamePlace, what);
        }
    }
}

/// Follows a directory that has a new name upwards, to the root or one that was followed before.
fn climb(
    beside: &mut Context<'_>,
    now: &Now<'_, '_>,
    start: InodeNo,
    rooted: &mut HashSet<InodeNo>,
) {
    let (mut way, mut at) = (HashSet::new(), start);
    while !rooted.contains(&at) {
        if !way.insert(at) {
            let what = format!("directory {at} is its own ancestor");
            beside.add(Issue::DirectoryCycle, what).inode(at);
            break;
        }
        // Where it ends elsewhere, that has another finding.
        let Look::Found(value) = now.look(&Key::inode(at)) else { break };
        let Ok(item) = InodeItem::decode(&value) else { break };
        at = item.parent;
    }
    rooted.extend(way);
}

/// What the lists of orphans and of unfinished holes have more.
fn lists(beside: &mut Context<'_>) {
    let volume = beside.volume;
    let find = |number| match volume.look(&Key::inode(number)) {
        Look::Found(value) => Some(InodeItem::decode(&value).ok()),
        Look::Missing => None,
        Look::Lost => Some(None),
    };
    for number in std::mem::take(&mut beside.orphans) {
        match find(number) {
            None => {
                let what = format!("inode {number} is listed as an orphan and does not exist");
                beside.add(Issue::OrphanDangling, what);
            }
            Some(Some(item)) if item.nlink > 0 => {
                let links = item.nlink;
                let what = format!("inode {number} is listed as an orphan, but has {links} links");
                beside.add(Issue::OrphanNamed, what).inode(number);
            }
            Some(_) => {}
        }
    }
    for number in std::mem::take(&mut beside.punches) {
        let what = match find(number) {
            None => format!("a hole is being made in inode {number}, which does not exist"),
            Some(Some(item)) if item.file_type() != FileType::Regular => {
                format!("a hole is being made in inode {number}, a {:?}", item.file_type())
            }
            Some(_) => continue,
        };
        beside.add(Issue::PunchDangling, what).inode(number);
    }
}
