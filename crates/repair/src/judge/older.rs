//! What comes back from older versions of nodes that are left out.
//!
//! An item of an older version is taken only where something tells that it is right, or where a whole file is taken as it was, and said to be:
//!
//! - a name, if the inode that it leads to says that its newest name is at that place: the place is a checksum of the name, and no inode's
//!   number is given out twice. It does not matter how old the version is that has it;
//! - an extent of a file that is there, if the file has not changed since: its inode is the same as it was at or before that version. Its data
//!   must be what its checksums say, in blocks that the bitmaps call in use and no tree reaches. So nothing old is put between what is new;
//! - an inode with what it had at that time: as it was, and its changes since are lost. All of it must stand in leaves of one epoch and nothing
//!   in the tree as it is, its extents must be as many as it counts, and its own newest name must be one that leads to it; else it may be of two
//!   times, or another's with the same number, and is not taken. What of its data is not there any more does not read. As a node does not tell of
//!   which branch it is, only where there never was another than `main`; or if the snapshot that the tree grew out of has it: then it is as of that.
//!
//! Holes that were being made, and lists of orphans, are not taken: both are done with by now.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{Epoch, InodeNo};
use holdfast_check::Issue;
use holdfast_format::item::dentry::slot;
use holdfast_format::item::{Dentry, Extent, FileType, InodeItem};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::{ItemKind, Key};

use super::{Judge, Remark};
use crate::walk::{Older, find, items};

/// What older versions have of one inode.
type OfInode = Vec<(Key, Older)>;

/// The places of names, and what they say that they lead to, by inode.
type Named = BTreeMap<InodeNo, Vec<(Key, FileType)>>;

/// Whether an inode as it was is the one that names lead to now: its own newest name is among them, or they are all lost and it stands in a leaf
/// of the same epoch. A number may have been given out before for what a power cut took back; that had another name.
fn has_own_name(
    inode: InodeNo,
    item: &InodeItem,
    epoch: u64,
    names: &OfInode,
    named: &Named,
) -> bool {
    let own = Key::new(item.parent, ItemKind::Dentry, item.parent_slot);
    match named.get(&inode) {
        Some(places) => places.iter().any(|place| *place == (own, item.file_type())),
        None => {
            let leads = |value: &[u8]| Dentry::decode(value).is_ok_and(|it| it.inode == inode);
            let is_there = |(key, older): &(Key, Older)| {
                *key == own && older.epoch == epoch && leads(&older.value)
            };
            inode == InodeNo::ROOT || names.iter().any(is_there)
        }
    }
}

impl Judge<'_, '_> {
    /// Says what was found in place of a node that is left out.
    pub(super) fn found_below(&mut self, issue: Issue, lost: u64) {
        let of_lost: Vec<_> =
            self.state.sources.iter().filter(|source| source.lost == lost).copied().collect();
        let (current, older): (Vec<_>, Vec<_>) =
            of_lost.into_iter().partition(|source| source.is_current);
        let items: u64 = current.iter().map(|source| source.items).sum();
        if !current.is_empty() {
            let what = format!(
                "{} leaves below node {lost} are found without it, {items} items: the bitmaps call them in use",
                current.len()
            );
            self.said.push(Remark::of(issue, None, what));
        }
        let epochs = older.iter().map(|source| source.leaf.epoch.0);
        let (Some(first), Some(last)) = (epochs.clone().min(), epochs.max()) else { return };
        let now = self.reading.superblock().epoch;
        let which = match &older[..] {
            [one] => format!(
                "an older version of node {lost}, of epoch {last}, is at block {}",
                one.leaf.block
            ),
            _ => format!(
                "older versions of {} leaves below node {lost} are there, of epochs {first} to {last}",
                older.len()
            ),
        };
        let what = format!("{which} (now is {now}): what comes back from there is named");
        self.said.push(Remark::of(issue, None, what));
    }

    /// Takes what is right of older versions.
    pub(super) fn older_back(&mut self) {
        let mut of_inodes: BTreeMap<InodeNo, OfInode> = BTreeMap::new();
        for (key, older) in std::mem::take(&mut self.state.older) {
            if key.inode.0 != 0 && self.state.may_be_lost(&key) && self.value(&key).is_none() {
                of_inodes.entry(key.inode).or_default().push((key, older));
            }
        }
        let mut names = Vec::new();
        let mut lost: Vec<(InodeNo, OfInode)> = Vec::new();
        for (inode, mut of_inode) in of_inodes {
            names.extend(of_inode.extract_if(.., |(key, _)| key.kind == ItemKind::Dentry));
            match self.value(&Key::inode(inode)) {
                Some(item) => self.extents_back(inode, &item, &of_inode),
                None => {
                    of_inode.retain(|(_, older)| older.is_own || self.shared.versions.is_alone);
                    lost.push((inode, of_inode));
                }
            }
        }
        let named = self.names_of(&lost);
        let mut as_of: BTreeMap<InodeNo, u64> = BTreeMap::new();
        for (inode, of_inode) in lost {
            if let Some(epoch) = self.inode_back(inode, &of_inode, &names, &named) {
                as_of.insert(inode, epoch);
            }
        }
        self.older_names(names, &named, &as_of);
        let now = self.reading.superblock().epoch;
        for (inode, epoch) in as_of {
            let issue = self.state.lost_with(&Key::inode(inode)).map(|lost| lost.issue);
            let what = format!(
                "it is as of epoch {epoch}, from an older version of a node (now is {now}): what was changed since is lost"
            );
            self.loss(issue.unwrap_or(Issue::NodeDamaged), Some(inode), what);
        }
    }

    /// The places of the names that lead to some inodes that are lost.
    fn names_of(&self, lost: &[(InodeNo, OfInode)]) -> Named {
        let mut named = Named::new();
        if !lost.is_empty() {
            items(self.reading, self.state, (Key::MIN, None), &mut |_, key, value| {
                if let (ItemKind::Dentry, Ok(dentry)) = (key.kind, Dentry::decode(value))
                    && lost.binary_search_by_key(&dentry.inode, |(inode, _)| *inode).is_ok()
                {
                    named.entry(dentry.inode).or_default().push((key, dentry.file_type));
                }
            });
        }
        named
    }

    /// An inode that is lost, as it was, if all of it is of one moment. Returns the epoch that it is of.
    fn inode_back(
        &mut self,
        inode: InodeNo,
        of_inode: &OfInode,
        names: &OfInode,
        named: &Named,
    ) -> Option<u64> {
        let key = Key::inode(inode);
        let (_, older) = of_inode.iter().find(|(of, _)| *of == key)?;
        let epoch = older.epoch;
        let item = InodeItem::decode(&older.value).ok()?;
        let carried = self.reading.superblock().carried();
        item.check_carried(&older.value, carried).ok()?;
        let is_given = inode == InodeNo::ROOT || inode >= InodeNo::FIRST_FREE;
        let may_be = is_given && inode.0 < self.shared.inode_next && inode.0 < COUNTER_MAX / 4;
        if !may_be || item.nlink == 0 || !has_own_name(inode, &item, epoch, names, named) {
            return None;
        }
        let has_content = matches!(item.file_type(), FileType::Regular | FileType::Symlink);
        if has_content && !self.is_of_one_time(inode, &item, epoch, of_inode) {
            return None;
        }
        self.put(key, older.value.clone());
        for (key, of) in of_inode.iter().filter(|(of, older)| *of != key && older.epoch == epoch) {
            match (key.kind, Extent::decode(&of.value)) {
                (ItemKind::Extent, Ok(extent)) => {
                    self.extent_back(key, &extent);
                }
                (ItemKind::Inline, _) if of.value.len() as u64 == item.size => {
                    self.put(*key, of.value.clone());
                }
                (ItemKind::Xattr | ItemKind::XattrPiece, _) => {
                    self.put(*key, of.value.clone());
                }
                _ => {}
            }
        }
        Some(epoch)
    }

    /// Whether a file is as it was in an epoch: nothing of it stands elsewhere than in leaves of that, and its extents do not meet, and are as
    /// many as its inode counts. Births would not tell: data that goes to reserved blocks, and ranges that move, leave them as they were.
    fn is_of_one_time(
        &self,
        inode: InodeNo,
        item: &InodeItem,
        epoch: u64,
        of_inode: &OfInode,
    ) -> bool {
        let next = inode.0.checked_add(1).map(|next| Key::inode(InodeNo(next)));
        let mut is_elsewhere = of_inode.iter().any(|(_, older)| older.epoch != epoch);
        let whole = (Key::inode(inode), next);
        items(self.reading, self.state, whole, &mut |_, _, _| is_elsewhere = true);
        if is_elsewhere {
            return false;
        }
        // Without blocks it has content in a leaf; where that is not found, it is no hole for that.
        let is_inline = |(key, older): &(Key, Older)| {
            key.kind == ItemKind::Inline && older.value.len() as u64 == item.size
        };
        if item.size > 0 && item.blocks == 0 && !of_inode.iter().any(is_inline) {
            return false;
        }
        let (mut blocks, mut end) = (0u64, 0);
        for (key, older) in of_inode.iter().filter(|(key, _)| key.kind == ItemKind::Extent) {
            let Ok(extent) = Extent::decode(&older.value) else { return false };
            if key.offset < end || !(Epoch(1)..=Epoch(epoch)).contains(&extent.birth) {
                return false;
            }
            end = key.offset.saturating_add(extent.blocks.count.saturating_mul(BLOCK_BYTES));
            blocks = blocks.saturating_add(extent.blocks.count);
        }
        blocks == item.blocks
    }

    /// Extents of a file that is there, where it has not changed since.
    fn extents_back(&mut self, inode: InodeNo, item: &[u8], of_inode: &OfInode) {
        let Ok(item) = InodeItem::decode(item) else { return };
        if item.nlink == 0 || item.blocks == 0 {
            return;
        }
        let (known, _) = self.known(inode);
        let mut back: BTreeMap<u64, u64> = BTreeMap::new();
        for (key, older) in of_inode {
            let (ItemKind::Extent, Ok(extent)) = (key.kind, Extent::decode(&older.value)) else {
                continue;
            };
            let start = key.offset / BLOCK_BYTES;
            let end = start.saturating_add(extent.blocks.count);
            let is_free = known.iter().all(|(from, to)| *to <= start || end <= *from);
            let is_right = is_free
                && extent.is_written()
                && self.shared.versions.claims.is_missed(&extent)
                && self.is_alone_lost(key)
                && self.is_unchanged(inode, older.epoch);
            if is_right {
                *back.entry(older.epoch).or_default() += self.extent_back(key, &extent);
            }
        }
        for (epoch, blocks) in back.into_iter().filter(|(_, blocks)| *blocks > 0) {
            let what = format!(
                "{blocks} blocks of it come back from a version of epoch {epoch}, since which it has not changed"
            );
            let (first, _) = Key::span(inode, ItemKind::Extent);
            let issue = self.state.lost_in(&first, None).first().map(|lost| lost.issue);
            self.note(issue.unwrap_or(Issue::NodeDamaged), inode, what);
        }
    }

    /// Whether the node that had a key is the only one that any tree has lost of those that may have had it.
    fn is_alone_lost(&self, key: &Key) -> bool {
        let block = |lost: Option<&crate::walk::Lost>| lost.map(|lost| lost.place.pointer);
        let own = block(self.state.lost_with(key));
        let others = self.before.iter().chain(self.behind);
        own.is_some() && { others }
            .all(|of| block(of.lost_with(key)).is_none_or(|of| Some(of) == own))
    }

    /// Whether an inode is as it was in an epoch: each change of it, and of what it has, counts in its item.
    fn is_unchanged(&self, inode: InodeNo, epoch: u64) -> bool {
        let key = Key::inode(inode);
        let Some((of, now)) = find(self.reading, self.state, &key) else { return false };
        let is_as_old = of.is_some_and(|of| of <= epoch);
        is_as_old
            || self.shared.versions.before(self.reading, &key, epoch).is_some_and(|was| was == now)
    }

    /// Puts what is there of an extent. Returns how many blocks.
    fn extent_back(&mut self, key: &Key, extent: &Extent) -> u64 {
        let claims = &mut self.shared.versions.claims;
        let parts = claims.take(self.reading, self.overlay, key, extent);
        let blocks = parts.iter().map(|(_, part)| part.blocks.count).sum();
        parts.into_iter().for_each(|(key, part)| self.put(key, part.encode()));
        blocks
    }

    /// Names whose inodes say that they are theirs. An inode as it was does not know a name that it got since: none is added to what it has.
    fn older_names(&mut self, names: OfInode, named: &Named, as_of: &BTreeMap<InodeNo, u64>) {
        let seed = self.reading.superblock().hash_seed;
        for (key, older) in names {
            let Ok(dentry) = Dentry::decode(&older.value) else { continue };
            let child = dentry.inode;
            let is_directory = match self.value(&Key::inode(key.inode)) {
                Some(item) => InodeItem::decode(&item)
                    .is_ok_and(|item| item.file_type() == FileType::Directory),
                // A directory is made for names whose own is lost.
                None => self.state.may_be_lost(&Key::inode(key.inode)) && self.may_be(key.inode),
            };
            let item = self.value(&Key::inode(child));
            let Some(item) = item.and_then(|item| InodeItem::decode(&item).ok()) else { continue };
            let is_right = is_directory
                && child != InodeNo::ROOT
                && item.nlink > 0
                && (item.parent, item.parent_slot) == (key.inode, key.offset)
                && slot(seed, dentry.name) == key.offset & !0xff
                && dentry.file_type == item.file_type()
                && !named.contains_key(&child);
            if !is_right {
                continue;
            }
            let shown = holdfast_base::show::name(dentry.name);
            let what =
                format!("its name {shown} comes back from a version of epoch {}", older.epoch);
            let issue = self.lost_at(&key).unwrap_or(Issue::NodeDamaged);
            self.put(key, older.value.clone());
            if as_of.contains_key(&child) {
                self.added.entry(key.inode).or_default().older += 1;
            }
            self.note(issue, child, what);
        }
    }

    /// Whether a number can be that of a directory.
    fn may_be(&self, inode: InodeNo) -> bool {
        inode == InodeNo::ROOT
            || (InodeNo::FIRST_FREE.0..self.shared.inode_next.min(COUNTER_MAX / 4))
                .contains(&inode.0)
    }
}
