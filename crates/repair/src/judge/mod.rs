//! What becomes of a files tree: edits that make it keep the rules of the format again, and what they lose.
//!
//! A tree is read twice, in the order of its keys. The first time each inode is judged with its items, the second time
//! each name. What is wrong with an item is put right where the rest of the tree says what is right, else the item goes. No byte of a
//! file becomes another one by that: where a part of a file is not known any more, reads of it fail, or the file goes to
//! `lost+found`.

mod between;
mod content;
mod inodes;
mod lost_found;
mod names;
mod names_beside;
mod older;
mod whole;
mod xattrs;

use std::collections::{BTreeMap, HashMap};

use holdfast_base::{BlockRange, Epoch, InodeNo, Timestamp};
use holdfast_check::Issue;
use holdfast_check::reading::VolumeReading;
use holdfast_format::Key;
use holdfast_format::item::{FileType, InodeItem};

use crate::blocks::Space;
use crate::error::RepairError;
use crate::names::all_paths;
use crate::older::Versions;
use crate::overlay::Overlay;
use crate::plan::Repair;
use crate::walk::{Edits, TreeWork, get};

/// What judging one tree leaves for the next ones.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The next number of an inode.
    pub(crate) inode_next: u64,
    /// The directory that was made for what has no name: the same inode in all trees, so that they go on sharing.
    lost_found: Option<InodeNo>,
    /// Blocks that stand for what is lost of a file, by inode, first block and number.
    unreadable: HashMap<(u64, u64, u64), Vec<StandIn>>,
    /// How many those are.
    stand_ins: u64,
    /// The time of the repair.
    now: Timestamp,
    /// What is known of older versions of nodes that are left out.
    pub(crate) versions: Versions,
    pub(crate) repairs: Vec<Repair>,
    /// Trees that lose their root directory, or everything: a clause that names each.
    pub(crate) given_up: Vec<String>,
}

/// Blocks that stand for what is lost of a file.
#[derive(Clone, Copy, Debug)]
struct StandIn {
    /// A tree that has them.
    tree: u64,
    blocks: BlockRange,
    /// When they became part of the first tree that has them.
    birth: Epoch,
}

impl Shared {
    pub(crate) fn new(inode_next: u64) -> Shared {
        Shared {
            inode_next,
            lost_found: None,
            unreadable: HashMap::new(),
            stand_ins: 0,
            now: Timestamp::now(),
            versions: Versions::default(),
            repairs: Vec::new(),
            given_up: Vec::new(),
        }
    }
}

/// An inode, and what was found to lead to it.
#[derive(Clone, Debug)]
struct Entry {
    number: InodeNo,
    file_type: FileType,
    /// Its item says that it has links.
    nlink: u32,
    size: u64,
    parent: InodeNo,
    parent_slot: u64,
    /// It may not have the name that leads to it, as its content is not what that promises.
    is_unnamed: bool,
    is_orphan: bool,
    names: u32,
    subdirs: u32,
    entries: u64,
    knows_name: bool,
    /// Its first name: directory and slot; 0: none.
    name: (InodeNo, u64),
}

impl Entry {
    /// An inode to which nothing is known to lead yet.
    fn of(number: InodeNo, item: &InodeItem) -> Entry {
        let InodeItem { nlink, size, parent, parent_slot, .. } = *item;
        Entry {
            number,
            file_type: item.file_type(),
            nlink,
            size,
            parent,
            parent_slot,
            is_unnamed: false,
            is_orphan: false,
            names: 0,
            subdirs: 0,
            entries: 0,
            knows_name: false,
            name: (InodeNo(0), 0),
        }
    }
}

/// What is to be changed in the item of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct Fix {
    size: Option<u64>,
    blocks: Option<u64>,
    nlink: Option<u32>,
    place: Option<(InodeNo, u64)>,
    has_xattrs: bool,
    value_next: Option<u32>,
    no_rdev: bool,
}

/// What is said of an inode; its path is looked up at the end.
#[derive(Debug)]
struct Remark {
    issue: Issue,
    inode: Option<InodeNo>,
    /// A name in the directory that `inode` is.
    name: Option<Vec<u8>>,
    what: String,
    loses: bool,
}

impl Remark {
    /// Something that is put right.
    fn of(issue: Issue, inode: Option<InodeNo>, what: impl Into<String>) -> Remark {
        Remark { issue, inode, name: None, what: what.into(), loses: false }
    }
}

/// Names that a directory has and may not have had: they must not make up for those that are lost.
#[derive(Clone, Copy, Debug, Default)]
struct Added {
    /// So many are new.
    made: u64,
    /// So many lead to what is as it was, which may have got another name since.
    older: u64,
}

/// A tree that is being judged.
struct Judge<'w, 'd> {
    reading: &'w VolumeReading<'d>,
    /// The same as a device, of which a read may fail without being missed.
    overlay: &'w Overlay<'d>,
    space: &'w mut Space,
    shared: &'w mut Shared,
    state: &'w mut TreeWork,
    /// Trees before it, which have been judged.
    before: &'w [TreeWork],
    /// Those behind it, which have not.
    behind: &'w [TreeWork],
    /// In the order of their numbers.
    entries: Vec<Entry>,
    fixes: BTreeMap<InodeNo, Fix>,
    said: Vec<Remark>,
    /// Its root directory is made anew.
    is_rootless: bool,
    /// Names that were taken from what may not have them.
    taken: BTreeMap<InodeNo, Vec<u8>>,
    /// Names that directories have and may not have had.
    added: BTreeMap<InodeNo, Added>,
}

/// Judges the tree `at`; those before it have been judged.
pub(crate) fn tree<'d>(
    (reading, overlay): (&VolumeReading<'d>, &Overlay<'d>),
    space: &mut Space,
    shared: &mut Shared,
    states: &mut [TreeWork],
    at: usize,
) -> Result<(), RepairError> {
    let (before, rest) = states.split_at_mut(at);
    let (state, behind) = rest.split_at_mut(1);
    let state = &mut state[0];
    let mut judge = Judge {
        reading,
        overlay,
        space,
        shared,
        state,
        before,
        behind,
        entries: Vec::new(),
        fixes: BTreeMap::new(),
        said: Vec::new(),
        is_rootless: false,
        taken: BTreeMap::new(),
        added: BTreeMap::new(),
    };
    judge.lost_nodes();
    judge.put_back();
    judge.older_back();
    let (broken, removed) = judge.inodes();
    judge.content(&broken);
    judge.removed(removed);
    judge.names()?;
    judge.apply();
    judge.emptied();
    judge.state.inode_count = judge.entries.len() as u64;
    judge.say();
    Ok(())
}

impl Judge<'_, '_> {
    fn note(&mut self, issue: Issue, inode: InodeNo, what: impl Into<String>) {
        self.said.push(Remark::of(issue, Some(inode), what));
    }

    fn loss(&mut self, issue: Issue, inode: Option<InodeNo>, what: impl Into<String>) {
        self.said.push(Remark { loses: true, ..Remark::of(issue, inode, what) });
    }

    fn find(&self, inode: InodeNo) -> Option<usize> {
        self.entries.binary_search_by_key(&inode, |entry| entry.number).ok()
    }

    fn value(&self, key: &Key) -> Option<Vec<u8>> {
        get(self.reading, self.state, key)
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.state.edits.insert(key, Some(value));
    }

    fn delete(&mut self, key: Key) {
        self.state.edits.insert(key, None);
    }

    fn merge(&mut self, mut edits: Edits) {
        self.state.edits.append(&mut edits);
    }

    /// What is left out, before it is known what that had.
    fn lost_nodes(&mut self) {
        for lost in self.state.lost.clone() {
            let place = lost.place;
            let range = match place.high {
                Some(high) => format!("{:?} up to {high:?}", place.low),
                None => format!("{:?} on", place.low),
            };
            let (block, level, why) = (place.pointer.block, place.level, &lost.why);
            let is_known = self.state.lost_in(&place.low, place.high.as_ref()).is_empty();
            let what = format!("node {block} of level {level} is left out");
            if is_known {
                let what = format!("{what} ({why}): all below it is there: keys from {range}");
                self.said.push(Remark::of(lost.issue, None, what));
            } else {
                let with = "with all that only it leads to";
                let what = format!("{what}, {with} ({why}): keys from {range}");
                self.loss(lost.issue, None, what);
            }
            self.found_below(lost.issue, block.0);
        }
        let zero = InodeNo(0);
        let punches = Key::span(zero, holdfast_format::ItemKind::Punch);
        if let Some(lost) = self.state.lost_with(&punches.0) {
            let issue = lost.issue;
            let what = "a hole that was being made in a file may be forgotten, and its old content be there again";
            self.loss(issue, None, what);
        }
    }

    /// A tree of which nothing comes back is given up.
    fn emptied(&mut self) {
        let is_made = |number| number == InodeNo::ROOT || Some(number) == self.shared.lost_found;
        let is_empty = self.entries.iter().all(|entry| is_made(entry.number));
        let had = self.state.root.inode_count;
        if is_empty && had > 1 && !self.state.lost.is_empty() && !self.is_rootless {
            let clause = format!("{} would lose all its files", self.state.root.name);
            self.shared.given_up.push(clause);
        }
    }

    /// Puts the items of inodes that are to be changed.
    fn apply(&mut self) {
        for (number, fix) in std::mem::take(&mut self.fixes) {
            let key = Key::inode(number);
            let Some(bytes) = self.value(&key) else { continue };
            let Ok(item) = InodeItem::decode(&bytes) else { continue };
            let mut now = item;
            now.size = fix.size.unwrap_or(now.size);
            now.blocks = fix.blocks.unwrap_or(now.blocks);
            now.nlink = fix.nlink.unwrap_or(now.nlink);
            (now.parent, now.parent_slot) = fix.place.unwrap_or((now.parent, now.parent_slot));
            now.flags |= if fix.has_xattrs { InodeItem::HAS_XATTRS } else { 0 };
            now.xattr_value_next = fix.value_next.unwrap_or(now.xattr_value_next);
            now.rdev = if fix.no_rdev { 0 } else { now.rdev };
            if now == item {
                continue;
            }
            now.change = now.change.saturating_add(1);
            let mut value = now.encode();
            value.extend_from_slice(InodeItem::tail(&bytes));
            self.put(key, value);
        }
    }

    /// Says what was done, with the paths of what it was done to.
    fn say(&mut self) {
        let tree = self.state.name();
        let lost = self.said.iter().filter(|said| said.loses && said.name.is_none());
        let lost = lost.filter_map(|said| said.inode).collect();
        let several = all_paths(self.reading, self.state, &lost);
        for said in std::mem::take(&mut self.said) {
            let Remark { issue, inode, name, what, loses } = said;
            let all = inode.and_then(|inode| several.get(&inode));
            if let Some(all) = all.filter(|_| loses && name.is_none()) {
                self.shared.repairs.extend(all.iter().map(|path| {
                    let (tree, path, what) = (tree.clone(), Some(path.clone()), what.clone());
                    Repair { issue, tree, path, what, loses }
                }));
                continue;
            }
            let mut path = inode.and_then(|inode| self.path(inode));
            if let (Some(path), Some(name)) = (&mut path, name) {
                *path =
                    format!("{}/{}", path.trim_end_matches('/'), holdfast_base::show::name(&name));
            }
            self.shared.repairs.push(Repair { issue, tree: tree.clone(), path, what, loses });
        }
    }

    fn fix(&mut self, inode: InodeNo) -> &mut Fix {
        self.fixes.entry(inode).or_default()
    }
}

/// An inode of which nothing is known but what it is.
fn made(file_type: FileType, permissions: u32, now: Timestamp) -> InodeItem {
    let blank = InodeItem::blank(file_type, now);
    let nlink = if file_type == FileType::Directory { 2 } else { 1 };
    InodeItem { mode: blank.mode | permissions, nlink, change: 1, ..blank }
}
