//! The first reading: every inode with its items.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo, TreeId};
use holdfast_check::Issue;
use holdfast_format::codec::Reader;
use holdfast_format::item::{Dentry, Extent, FileType, InodeItem, PunchItem, orphan};
use holdfast_format::limits::{COUNTER_MAX, FILE_SIZE_MAX, LINK_MAX, SYMLINK_MAX};
use holdfast_format::{ItemKind, Key};

use super::xattrs::Xattrs;
use super::{Entry, Judge, Said, made};
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
struct Found {
    edits: Edits,
    entries: Vec<Entry>,
    fixes: Vec<(InodeNo, super::Fix)>,
    said: Vec<Said>,
    orphans: Vec<InodeNo>,
    punches: Vec<InodeNo>,
    broken: Vec<Broken>,
    inode_next: u64,
}

/// The inode whose items are being read.
struct Current {
    number: InodeNo,
    item: Option<InodeItem>,
    /// Nothing of it stays.
    is_refused: bool,
    inline: Option<u64>,
    blocks: u64,
    end: u64,
    unbroken: bool,
    names: u64,
    xattrs: Xattrs,
    /// Its other items, if it has none of its own.
    keys: Vec<Key>,
}

impl Current {
    fn new(number: InodeNo) -> Current {
        Current {
            number,
            item: None,
            is_refused: false,
            inline: None,
            blocks: 0,
            end: 0,
            unbroken: true,
            names: 0,
            xattrs: Xattrs::default(),
            keys: Vec::new(),
        }
    }

    fn fits(&self, kind: ItemKind) -> bool {
        let Some(item) = &self.item else { return true };
        match kind {
            ItemKind::Dentry => item.file_type() == FileType::Directory,
            ItemKind::Inline | ItemKind::Extent => {
                matches!(item.file_type(), FileType::Regular | FileType::Symlink)
            }
            _ => true,
        }
    }
}

impl Judge<'_, '_> {
    /// Judges each inode. Returns the files of which a part may be lost.
    pub(super) fn inodes(&mut self) -> Vec<Broken> {
        let mut found = Found { inode_next: self.shared.inode_next, ..Found::default() };
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
        let Found { edits, mut entries, fixes, said, orphans, punches, broken, inode_next } = found;
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
                    self.said.push(Said::of(Issue::OrphanDangling, None, what));
                }
            }
        }
        for inode in punches {
            if at(&entries, inode).is_none_or(|at| entries[at].file_type != FileType::Regular) {
                self.delete(Key::punch(inode));
                let what =
                    format!("no hole is made in inode {inode} any more, which is no regular file");
                self.said.push(Said::of(Issue::PunchDangling, None, what));
            }
        }
        self.entries = entries;
        for (inode, fix) in fixes {
            self.fixes.insert(inode, fix);
        }
        self.shared.inode_next = inode_next;
        broken
    }

    fn take(
        &self,
        found: &mut Found,
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
        if !current.fits(key.kind) {
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
                Err(malformed) => Some(malformed.why),
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

    fn take_inode(&self, found: &mut Found, current: &mut Current, key: &Key, value: &[u8]) {
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
        found: &mut Found,
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

    /// An inode of which all items were read.
    fn finish(&self, found: &mut Found, current: Current) {
        if current.is_refused {
            return;
        }
        let number = current.number;
        let mut is_unnamed = false;
        let item = match current.item {
            Some(item) => item,
            None => match self.without_item(found, &current) {
                Some(item) => {
                    is_unnamed = item.file_type() != FileType::Directory;
                    item
                }
                None => return,
            },
        };
        let mut fix = super::Fix::default();
        if !self.content_is_known(found, &current, &item, &mut fix) {
            return;
        }
        let (first, last) =
            (Key::span(number, ItemKind::Xattr).0, Key::span(number, ItemKind::XattrPiece).1);
        if item.nlink > 0
            && item.flags & InodeItem::HAS_XATTRS != 0
            && let Some(lost) = self.state.lost_in(&first, Some(&last)).first()
        {
            let what = "attributes of it (access lists are among these) may be lost".into();
            found.say(lost.issue, Some(number), what, true);
        }
        if item.nlink > 0 {
            current.xattrs.finish(
                &self.view(),
                number,
                &item,
                &mut fix,
                &mut |key, value| {
                    found.edits.insert(key, value);
                },
                &mut found.said,
            );
        }
        self.fields(found, number, &item, &mut fix);
        found.fixes.push((number, fix));
        found.entries.push(Entry { is_unnamed, ..Entry::of(number, &item) });
    }

    /// An item for an inode that has none. What it was is seen by what it has.
    fn without_item(&self, found: &mut Found, current: &Current) -> Option<InodeItem> {
        let number = current.number;
        let is_given = number == InodeNo::ROOT || number >= InodeNo::FIRST_FREE;
        let is_known = is_given && number.0 < COUNTER_MAX / 4;
        let has_data = current.blocks > 0 || current.inline.is_some();
        let issue = match self.state.lost_with(&Key::inode(number)) {
            Some(lost) => lost.issue,
            None => Issue::ItemWithoutInode,
        };
        let now = self.shared.now;
        let item = match (current.names > 0, has_data) {
            _ if !is_known => None,
            (true, _) => Some(made(FileType::Directory, 0o700, now)),
            (false, true) => {
                let size = current.inline.unwrap_or(current.end).min(FILE_SIZE_MAX);
                let blocks = current.blocks;
                Some(InodeItem { size, blocks, ..made(FileType::Regular, 0o600, now) })
            }
            (false, false) => None,
        };
        let Some(item) = item else {
            for key in &current.keys {
                found.edits.insert(*key, None);
            }
            if !current.keys.is_empty() {
                let count = current.keys.len();
                let what =
                    format!("{count} items of inode {number} are removed, which does not exist");
                found.say(issue, None, what, true);
            }
            return None;
        };
        let is_directory = item.file_type() == FileType::Directory;
        for key in current.keys.iter().filter(|_| is_directory) {
            if matches!(key.kind, ItemKind::Inline | ItemKind::Extent) {
                found.edits.insert(*key, None);
            }
        }
        let what = match is_directory {
            true => format!(
                "owner, mode and times of directory {number} are lost; it is root's alone now"
            ),
            false => format!(
                "owner, mode, times and length of inode {number} are lost; it loses its names and is root's alone now"
            ),
        };
        found.edits.insert(Key::inode(number), Some(item.encode()));
        found.inode_next = found.inode_next.max(number.0 + 1);
        found.say(issue, Some(number), what, true);
        Some(item)
    }

    /// Compares content with attributes. `false`: the inode goes.
    fn content_is_known(
        &self,
        found: &mut Found,
        current: &Current,
        item: &InodeItem,
        fix: &mut super::Fix,
    ) -> bool {
        let number = current.number;
        let file_type = item.file_type();
        if item.nlink == 0 || !matches!(file_type, FileType::Regular | FileType::Symlink) {
            return true;
        }
        let inline = Key::new(number, ItemKind::Inline, 0);
        let (first, last) = Key::span(number, ItemKind::Extent);
        let lacks_inline = current.inline.is_none()
            && current.blocks == 0
            && item.blocks == 0
            && self.state.may_be_lost(&inline);
        let lacks_extents = item.blocks > current.blocks && self.state.may_lack(&first, &last);
        if file_type == FileType::Symlink {
            let target = current.inline.unwrap_or_else(|| {
                let ends = item.size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
                if current.unbroken && current.end == ends { item.size } else { 0 }
            });
            if !(1..=SYMLINK_MAX as u64).contains(&target) {
                self.remove(found, current);
                let issue = match self.lost_at(&inline).or(self.lost_at(&first)) {
                    Some(issue) => issue,
                    None => Issue::ContentWrong,
                };
                let what =
                    format!("the symbolic link {number} is removed: its target is not there");
                found.say(issue, None, what, true);
                return false;
            }
            if target != item.size {
                fix.size = Some(target);
                let what = format!("its target has {target} bytes");
                found.say(Issue::ContentWrong, Some(number), what, false);
            }
        } else if lacks_inline || lacks_extents {
            found.broken.push(Broken {
                inode: number,
                size: item.size,
                said: item.blocks,
                inline: lacks_inline,
            });
        }
        match current.inline {
            Some(_) if current.blocks > 0 => {
                found.edits.insert(inline, None);
                let what = "its content inside the tree is removed; its extents stay";
                found.say(Issue::ContentTwice, Some(number), what.into(), true);
            }
            Some(len) if len != item.size && file_type == FileType::Regular => {
                fix.size = Some(len);
                let what = format!("its size is {len} bytes");
                found.say(Issue::ContentWrong, Some(number), what, false);
            }
            _ => {}
        }
        if current.blocks != item.blocks {
            fix.blocks = Some(current.blocks);
            let what = format!("it counts {} blocks", current.blocks);
            found.say(Issue::BlocksWrong, Some(number), what, false);
        }
        true
    }

    /// The finding of the node that may have had a key.
    fn lost_at(&self, key: &Key) -> Option<Issue> {
        self.state.lost_with(key).map(|lost| lost.issue)
    }

    /// Removes all items of an inode that was read.
    fn remove(&self, found: &mut Found, current: &Current) {
        let range = (Key::inode(current.number), Some(Key::inode(InodeNo(current.number.0 + 1))));
        items(self.reading, self.state, range, &mut |_, key, _| {
            found.edits.insert(key, None);
        });
    }

    fn fields(&self, found: &mut Found, number: InodeNo, item: &InodeItem, fix: &mut super::Fix) {
        let file_type = item.file_type();
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let is_special = is_device || matches!(file_type, FileType::Fifo | FileType::Socket);
        let mut wrong = Vec::new();
        if item.rdev != 0 && !is_device {
            fix.no_rdev = true;
            wrong.push("device number");
        }
        if is_special && item.size != 0 {
            fix.size = Some(0);
            wrong.push("size");
        }
        if item.blocks != 0 && (is_special || file_type == FileType::Directory) {
            fix.blocks = Some(0);
            wrong.push("blocks");
        }
        if !wrong.is_empty() {
            let what =
                format!("it has no {} any more, as it is a {file_type:?}", wrong.join(" and "));
            found.say(Issue::InodeFields, Some(number), what, false);
        }
    }
}

impl Found {
    fn say(&mut self, issue: Issue, inode: Option<InodeNo>, what: String, loses: bool) {
        self.said.push(Said { loses, ..Said::of(issue, inode, what) });
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
