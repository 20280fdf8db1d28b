//! The first reading: every inode with its items.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo, TreeId};
use holdfast_check::Issue;
use holdfast_format::codec::Reader;
use holdfast_format::item::{Dentry, Extent, FileType, InodeItem, PunchItem, orphan};
use holdfast_format::limits::{COUNTER_MAX, EXTENT_BLOCKS_MAX, FILE_SIZE_MAX, LINK_MAX};
use holdfast_format::{ItemKind, Key};

use super::xattrs::Xattrs;
use super::{Entry, Judge, Remark};
use crate::walk::{Edits, items};

/// A file of which a part may be lost with a node that is left out.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) inode: InodeNo,
    pub(super) size: u64,
    /// Blocks that its item counts.
    pub(super) said: u64,
    /// Its content may have lain inside the tree.
    pub(super) inline: bool,
}

/// What the first reading finds.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) edits: Edits,
    pub(super) entries: Vec<Entry>,
    pub(super) fixes: Vec<(InodeNo, super::Fix)>,
    pub(super) said: Vec<Remark>,
    orphans: Vec<InodeNo>,
    punches: Vec<InodeNo>,
    pub(super) broken: Vec<Broken>,
    /// Extents that are removed: first block of the file, and number.
    pub(super) removed: Vec<(InodeNo, u64, u64)>,
    pub(super) inode_next: u64,
}

/// The inode whose items are being read.
#[derive(Default)]
pub(super) struct Current {
    pub(super) number: InodeNo,
    pub(super) item: Option<InodeItem>,
    /// Nothing of it stays.
    pub(super) is_refused: bool,
    pub(super) inline: Option<u64>,
    pub(super) blocks: u64,
    pub(super) end: u64,
    pub(super) unbroken: bool,
    pub(super) names: u64,
    pub(super) xattrs: Xattrs,
    /// Its other items, if it has none of its own.
    pub(super) keys: Vec<Key>,
}

impl Current {
    fn new(number: InodeNo) -> Current {
        Current { number, unbroken: true, ..Current::default() }
    }
}

impl Judge<'_, '_> {
    /// Judges each inode. Returns the files of which a part may be lost, and the extents that are removed.
    pub(super) fn inodes(&mut self) -> (Vec<Broken>, Vec<(InodeNo, u64, u64)>) {
        let mut found = Draft { inode_next: self.shared.inode_next, ..Draft::default() };
        let mut current: Option<Current> = None;
        let this = &*self;
        items(self.reading, self.state, (Key::MIN, None), &mut |epoch, key, value| {
            if key.kind.asks().is_some() && key.kind.tree() == TreeId::Files {
                return;
            }
            if key.kind.tree() != TreeId::Files {
                found.edits.insert(key, None);
                found.say(
                    Issue::ItemMisplaced,
                    None,
                    format!("the item {key:?} is removed"),
                    false,
                );
                return;
            }
            if matches!(key.kind, ItemKind::Orphan | ItemKind::Punch) {
                return found.listed(&key, value);
            }
            if current.as_ref().is_none_or(|current| current.number != key.inode) {
                let done = current.replace(Current::new(key.inode));
                done.into_iter().for_each(|done| this.finish(&mut found, done));
            }
            if let Some(current) = &mut current {
                this.take(&mut found, current, epoch, &key, value);
            }
        });
        current.into_iter().for_each(|done| this.finish(&mut found, done));
        let (broken, removed) =
            (std::mem::take(&mut found.broken), std::mem::take(&mut found.removed));
        let Draft { edits, mut entries, fixes, said, orphans, punches, inode_next, .. } = found;
        let at = |entries: &[Entry], inode: InodeNo| {
            entries.binary_search_by_key(&inode, |entry| entry.number).ok()
        };
        self.merge(edits);
        self.said.extend(said);
        for inode in orphans {
            match at(&entries, inode) {
                Some(at) => entries[at].is_orphan = true,
                None => {
                    self.delete(Key::orphan(inode));
                    let what = format!("inode {inode} does not exist, and is listed no more");
                    self.said.push(Remark::of(Issue::OrphanDangling, None, what));
                }
            }
        }
        for inode in punches {
            if at(&entries, inode).is_none_or(|at| entries[at].file_type != FileType::Regular) {
                self.delete(Key::punch(inode));
                let what =
                    format!("no hole is made in inode {inode} any more, which is no regular file");
                self.said.push(Remark::of(Issue::PunchDangling, None, what));
            }
        }
        self.entries = entries;
        for (inode, fix) in fixes {
            self.fixes.insert(inode, fix);
        }
        self.shared.inode_next = inode_next;
        (broken, removed)
    }

    fn take(
        &self,
        found: &mut Draft,
        current: &mut Current,
        epoch: Option<u64>,
        key: &Key,
        value: &[u8],
    ) {
        if key.kind == ItemKind::Inode {
            return self.take_inode(found, current, key, value);
        }
        if current.is_refused {
            found.edits.insert(*key, None);
            return;
        }
        if current.item.as_ref().is_some_and(|item| !item.may_have(key.kind)) {
            found.edits.insert(*key, None);
            let (number, kind) = (key.inode, key.kind);
            let what = format!("its item {key:?} is removed, as no such inode has {kind:?} items");
            return found.say(Issue::KindMisfit, Some(number), what, true);
        }
        let damage = match key.kind {
            ItemKind::Inline if key.offset != 0 => Some("its offset is not 0".to_string()),
            ItemKind::Inline => {
                current.inline = Some(value.len() as u64);
                None
            }
            ItemKind::Dentry => match Dentry::decode(value) {
                Ok(_) => {
                    current.names += 1;
                    None
                }
                Err(malformed) => Some(malformed.why),
            },
            ItemKind::Xattr => current.xattrs.take(key, value).err(),
            ItemKind::XattrPiece => {
                current.xattrs.take_piece(key, value.len());
                None
            }
            ItemKind::Extent => match Extent::decode(value) {
                Ok(extent) => return self.take_extent(found, current, epoch, key, extent),
                Err(malformed) => {
                    found.gone(key, Extent::blocks_in(value));
                    Some(malformed.why)
                }
            },
            _ => None,
        };
        if let Some(why) = damage {
            found.edits.insert(*key, None);
            let what = format!("the item {key:?} is removed: {why}");
            return found.say(Issue::ItemDamaged, Some(key.inode), what, true);
        }
        if current.item.is_none() {
            current.keys.push(*key);
        }
    }

    fn take_inode(&self, found: &mut Draft, current: &mut Current, key: &Key, value: &[u8]) {
        let number = key.inode;
        if key.offset != 0 {
            found.edits.insert(*key, None);
            let what = format!("the item {key:?} is removed");
            return found.say(Issue::InodeNumber, Some(number), what, true);
        }
        let is_given = number == InodeNo::ROOT || number >= InodeNo::FIRST_FREE;
        if !is_given || number.0 >= COUNTER_MAX / 4 {
            found.edits.insert(*key, None);
            current.is_refused = true;
            let what = format!("inode {number} is removed, which cannot be");
            return found.say(Issue::InodeNumber, Some(number), what, true);
        }
        if number.0 >= found.inode_next {
            found.inode_next = number.0 + 1;
            let what = format!("the next inode is {}", found.inode_next);
            found.say(Issue::InodeNumber, Some(number), what, false);
        }
        let carried = self.reading.superblock().carried();
        match InodeItem::decode(value) {
            Ok(item) if item.check_carried(value, carried).is_ok() => current.item = Some(item),
            _ => {
                // What its fields say counts as far as it can be.
                current.item = mended(value);
                let what = match &current.item {
                    Some(item) => {
                        found.edits.insert(*key, Some(item.encode()));
                        "what breaks a rule in its attributes is taken back"
                    }
                    None => {
                        found.edits.insert(*key, None);
                        "its attributes say nothing"
                    }
                };
                found.say(Issue::ItemDamaged, Some(number), what.into(), true);
            }
        }
    }

    fn take_extent(
        &self,
        found: &mut Draft,
        current: &mut Current,
        epoch: Option<u64>,
        key: &Key,
        extent: Extent,
    ) {
        let count = extent.blocks.count;
        let end = count.checked_mul(BLOCK_BYTES).and_then(|bytes| key.offset.checked_add(bytes));
        let end = end.filter(|end| key.offset.is_multiple_of(BLOCK_BYTES) && *end <= FILE_SIZE_MAX);
        let geometry = &self.reading.superblock().geometry;
        let wrong = match end {
            None => Some((Issue::ExtentUnaligned, "which cannot be")),
            Some(_) if !geometry.holds_data(extent.blocks) => {
                Some((Issue::ExtentOutside, "which lies outside the data zone"))
            }
            Some(_) if key.offset < current.end => {
                Some((Issue::ExtentsOverlap, "which begins before the one before it ends"))
            }
            Some(_) => None,
        };
        if let Some((issue, why)) = wrong {
            found.gone(key, count);
            found.edits.insert(*key, None);
            let what =
                format!("the extent of {count} blocks at byte {} is removed, {why}", key.offset);
            return found.say(issue, Some(key.inode), what, true);
        }
        // No extent is younger than its leaf, nor than the epoch that comes next.
        let next = self.reading.superblock().epoch.next();
        let youngest = epoch.map_or(next, |epoch| Epoch(epoch).min(next));
        if !(Epoch(1)..=youngest).contains(&extent.birth) {
            let issue = match extent.birth > next || extent.birth.0 == 0 {
                true => Issue::ExtentBirth,
                false => Issue::ExtentYounger,
            };
            let what = format!("the extent at byte {} is born in epoch {youngest}", key.offset);
            let extent = Extent { birth: youngest, ..extent.clone() };
            found.edits.insert(*key, Some(extent.encode()));
            found.say(issue, Some(key.inode), what, false);
        }
        current.blocks = current.blocks.saturating_add(count);
        current.unbroken &= key.offset == current.end && extent.is_written();
        current.end = end.unwrap_or(current.end);
        if current.item.is_none() {
            current.keys.push(*key);
        }
    }
}

impl Draft {
    /// An extent of a file goes.
    fn gone(&mut self, key: &Key, count: u64) {
        let count = count.clamp(1, EXTENT_BLOCKS_MAX);
        self.removed.push((key.inode, key.offset / BLOCK_BYTES, count));
    }

    pub(super) fn say(&mut self, issue: Issue, inode: Option<InodeNo>, what: String, loses: bool) {
        self.said.push(Remark { loses, ..Remark::of(issue, inode, what) });
    }

    /// An orphan, or a hole that is being made.
    fn listed(&mut self, key: &Key, value: &[u8]) {
        let is_orphan = key.kind == ItemKind::Orphan;
        let (misplaced, list) = match is_orphan {
            true => (Issue::OrphanKey, &mut self.orphans),
            false => (Issue::PunchKey, &mut self.punches),
        };
        if key.inode.0 != 0 {
            self.edits.insert(*key, None);
            return self.say(misplaced, None, format!("the item {key:?} is removed"), false);
        }
        list.push(InodeNo(key.offset));
        if is_orphan && orphan::decode(value).is_err() {
            self.edits.insert(*key, Some(Vec::new()));
            self.say(Issue::ItemDamaged, None, format!("the item {key:?} has no value"), false);
        } else if !is_orphan && PunchItem::decode(value).is_err() {
            self.edits.insert(*key, None);
            self.punches.pop();
            self.say(Issue::ItemDamaged, None, format!("the item {key:?} is removed"), true);
        }
    }
}

/// The fields of an inode that breaks a rule, as far as they can be; `None` if not even its type is known.
fn mended(value: &[u8]) -> Option<InodeItem> {
    let mut item = InodeItem::read(&mut Reader::new(InodeItem::TITLE, value)).ok()?;
    item.mode &= 0xffff;
    FileType::from_mode(item.mode)?;
    item.size = item.size.min(FILE_SIZE_MAX);
    item.nlink = item.nlink.min(LINK_MAX);
    item.flags &= InodeItem::FLAGS_KNOWN;
    item.reserved = [0; 4];
    for time in [&mut item.atime, &mut item.mtime, &mut item.ctime, &mut item.btime] {
        time.nanos = time.nanos.min(999_999_999);
    }
    if item.parent.0 == 0 {
        item.parent_slot = 0;
    }
    Some(item)
}
