//! From items that differ to what became of each inode.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashSet, VecDeque};

use holdfast_base::InodeNo;
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{Difference, Differing, Pin, Store};

use super::compared_tree::{ComparedTree, Name, NameSlot, wrong};
use super::content::Content;
use super::inode::{Fate, Of, has_several_names, same_attribute};
use super::{Change, ChangeKind, Parts};
use crate::Result;

/// Files whose names are looked for in one pass.
const WAITING_MAX: usize = 1 << 14;

/// A comparison of two trees that goes on. See [`crate::FileSystem::changes`].
#[derive(Debug)]
pub struct Changes {
    walk: Difference,
    old: ComparedTree,
    new: ComparedTree,
    ranges: bool,
    /// Whether any file of either tree is being made a hole; it is not known before the first item.
    punches: Option<bool>,
    /// The inode whose items come.
    of: Option<Of>,
    ready: VecDeque<Change>,
    /// Files that do not know where their names are.
    waiting: Vec<Fate>,
    /// Those whose names were looked for and are told next, the last one first. They have no paths before: those could be long.
    found: Vec<(Fate, Option<NameSlot>, Option<NameSlot>)>,
    is_over: bool,
}

/// Where an inode says that its newest name is.
fn place(item: &InodeItem) -> Option<NameSlot> {
    (item.parent.0 != 0).then_some((item.parent, item.parent_slot))
}

impl Changes {
    pub(crate) fn new(old: Pin, new: Pin, ranges: bool) -> Changes {
        Changes {
            walk: Difference::new(old.clone(), new.clone()),
            old: ComparedTree::new(old),
            new: ComparedTree::new(new),
            ranges,
            punches: None,
            of: None,
            ready: VecDeque::new(),
            waiting: Vec::new(),
            found: Vec::new(),
            is_over: false,
        }
    }

    pub(super) fn next(&mut self, store: &Store) -> Result<Option<Change>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(Some(change));
            }
            let done = match self.found.pop() {
                Some((fate, before, after)) => self.tell(store, fate, before, after),
                None if self.is_over => return Ok(None),
                None => self.step(store).map(|more| self.is_over = !more),
            };
            if let Err(error) = done {
                self.is_over = true;
                self.ready.clear();
                self.found.clear();
                return Err(error);
            }
        }
    }

    /// Takes the next item up. Returns whether there was one.
    fn step(&mut self, store: &Store) -> Result<bool> {
        if self.punches.is_none() {
            self.punches = Some(self.old.has_punches(store)? || self.new.has_punches(store)?);
        }
        let Some(item) = self.walk.next(store)? else {
            self.finish(store)?;
            self.look_for_names(store)?;
            return Ok(false);
        };
        let no = item.key.inode;
        if self.of.as_ref().is_none_or(|of| of.no != no) {
            self.finish(store)?;
            if self.waiting.len() >= WAITING_MAX {
                self.look_for_names(store)?;
            }
            self.of = Some(self.begin(store, no)?);
        }
        // Orphans and holes that are being made are no files.
        if no.0 != 0 {
            self.take(store, item)?;
        }
        Ok(true)
    }

    fn begin(&self, store: &Store, no: InodeNo) -> Result<Of> {
        let punches = match self.punches {
            Some(true) => [self.old.punch(store, no)?, self.new.punch(store, no)?],
            _ => [None, None],
        };
        let (old, new) = (self.old.inode(store, no)?, self.new.inode(store, no)?);
        let size = |item: &Option<InodeItem>| item.as_ref().map_or(0, |item| item.size);
        let common = size(&old).min(size(&new));
        Ok(Of {
            no,
            old,
            new,
            names_differ: false,
            parts: Parts::default(),
            content: Content::new(self.ranges, common),
            punches,
        })
    }

    fn take(&mut self, store: &Store, item: Differing) -> Result<()> {
        let Differing { key, old, new } = item;
        if key.kind == ItemKind::Dentry {
            if let Some(of) = &mut self.of {
                of.names_differ = true;
            }
            return self.names(store, key, old.as_deref(), new.as_deref());
        }
        let Some(of) = &mut self.of else { return Ok(()) };
        match key.kind {
            // Inodes were looked up; pieces belong to attributes, which name others with each value.
            ItemKind::Inode | ItemKind::XattrPiece => {}
            ItemKind::Inline => {
                (of.content.old_inline, of.content.new_inline) = (old, new);
            }
            ItemKind::Extent => return of.extents(store, key, old.as_deref(), new.as_deref()),
            ItemKind::Xattr => {
                of.parts.xattrs |= !same_attribute(
                    store,
                    key.inode,
                    (&self.old, old.as_deref()),
                    (&self.new, new.as_deref()),
                )?;
            }
            _ => of.parts.flags = true,
        }
        Ok(())
    }

    /// Names of a directory, of files that have several. Others are told with their inodes.
    fn names(
        &mut self,
        store: &Store,
        key: Key,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        let dir = key.inode;
        let name = |bytes: Option<&[u8]>| bytes.map(|bytes| Name::decode(dir, bytes)).transpose();
        let (old, new) = (name(old)?, name(new)?);
        let is_same = old.is_some() && old == new;
        let sides = [(old, ChangeKind::Removed), (new, ChangeKind::Created)];
        for (name, kind) in sides.into_iter().filter(|_| !is_same) {
            let Some(Name { inode, file_type, name }) = name else { continue };
            if file_type == FileType::Directory {
                continue;
            }
            let (before, after) = (self.old.inode(store, inode)?, self.new.inode(store, inode)?);
            if !has_several_names(before.as_ref(), after.as_ref()) {
                continue;
            }
            let (side, is_there) = match kind {
                ChangeKind::Removed => (&mut self.old, before.is_some()),
                _ => (&mut self.new, after.is_some()),
            };
            if !is_there {
                return Err(wrong(inode, "a name leads there, and it is not there"));
            }
            let path = Some(side.path_in(store, dir, &name)?);
            let (old_path, new_path) = match kind {
                ChangeKind::Removed => (path, None),
                _ => (None, path),
            };
            self.ready.push_back(Change {
                kind,
                inode,
                file_type,
                old_path,
                new_path,
                is_link: true,
                parts: Parts::default(),
                old_size: before.map(|item| item.size),
                new_size: after.map(|item| item.size),
                ranges: Vec::new(),
            });
        }
        Ok(())
    }

    /// All items of an inode have come.
    fn finish(&mut self, store: &Store) -> Result<()> {
        let Some(of) = self.of.take() else { return Ok(()) };
        let Some(fate) = of.fate(store)? else { return Ok(()) };
        match self.places(store, &fate)? {
            Some((old, new)) => self.tell(store, fate, old, new)?,
            None => self.waiting.push(fate),
        }
        Ok(())
    }

    /// Where an inode is in both trees; `None`: not known without a search.
    fn places(
        &self,
        store: &Store,
        fate: &Fate,
    ) -> Result<Option<(Option<NameSlot>, Option<NameSlot>)>> {
        let (old, new) = (fate.old.as_ref(), fate.new.as_ref());
        let (mut before, mut after) = (old.and_then(place), new.and_then(place));
        let leads = |side: &ComparedTree, at: Option<NameSlot>| -> Result<Option<NameSlot>> {
            let Some(at) = at else { return Ok(None) };
            let name = side.name(store, at)?;
            Ok(name.is_some_and(|name| name.inode == fate.no).then_some(at))
        };
        // A name that one tree knows may be in the other as well.
        if old.is_some() && before.is_none() {
            before = leads(&self.old, after)?;
        }
        if new.is_some() && after.is_none() {
            after = leads(&self.new, before)?;
        }
        let is_known = old.is_some() == before.is_some() && new.is_some() == after.is_some();
        // What is told under its new name alone needs no other.
        let is_enough = fate.has_several_names() && new.is_some() && after.is_some();
        Ok((is_known || is_enough).then_some((before, after)))
    }

    /// Looks for the names of those that were waiting, to tell of them.
    fn look_for_names(&mut self, store: &Store) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let unknown = |item: fn(&Fate) -> Option<&InodeItem>| -> HashSet<InodeNo> {
            let unknown =
                waiting.iter().filter(|fate| item(fate).is_some_and(|item| place(item).is_none()));
            unknown.map(|fate| fate.no).collect()
        };
        let old = self.old.search(store, &unknown(|fate| fate.old.as_ref()))?;
        let new = self.new.search(store, &unknown(|fate| fate.new.as_ref()))?;
        self.found.extend(waiting.into_iter().rev().map(|fate| {
            let before = fate.old.as_ref().and_then(place).or(old.get(&fate.no).copied());
            let after = fate.new.as_ref().and_then(place).or(new.get(&fate.no).copied());
            (fate, before, after)
        }));
        Ok(())
    }

    /// Makes a change of what became of an inode, if that is one.
    fn tell(
        &mut self,
        store: &Store,
        fate: Fate,
        before: Option<NameSlot>,
        after: Option<NameSlot>,
    ) -> Result<()> {
        let (no, is_link) = (fate.no, fate.has_several_names());
        let known = |place: Option<NameSlot>| place.ok_or_else(|| wrong(no, "no name leads there"));
        let Some(item) = fate.new.as_ref().or(fate.old.as_ref()) else { return Ok(()) };
        let (mut old_path, mut new_path) = (None, None);
        let kind = match (&fate.old, &fate.new) {
            (None, _) => ChangeKind::Created,
            (_, None) => ChangeKind::Removed,
            (Some(_), Some(_)) => {
                let moved = !is_link && self.has_moved(store, no, known(before)?, known(after)?)?;
                match fate.parts {
                    _ if moved => ChangeKind::Renamed,
                    Parts { content: true, .. } => ChangeKind::Changed,
                    parts if parts.is_empty() => return Ok(()),
                    _ => ChangeKind::Attributes,
                }
            }
        };
        if matches!(kind, ChangeKind::Removed | ChangeKind::Renamed) {
            known(before)?;
        }
        if let (Some(_), Some(before)) = (&fate.old, before) {
            old_path = Some(self.old.path(store, no, before)?);
        }
        if kind != ChangeKind::Removed {
            new_path = Some(self.new.path(store, no, known(after)?)?);
        }
        self.ready.push_back(Change {
            kind,
            inode: no,
            file_type: item.file_type(),
            old_path,
            new_path,
            is_link,
            parts: fate.parts,
            old_size: fate.old.as_ref().map(|item| item.size),
            new_size: fate.new.as_ref().map(|item| item.size),
            ranges: fate.ranges,
        });
        Ok(())
    }

    /// Whether an inode of one name is in another directory, or has another name there. Where its directory is does not count.
    fn has_moved(
        &self,
        store: &Store,
        no: InodeNo,
        before: NameSlot,
        after: NameSlot,
    ) -> Result<bool> {
        if no == InodeNo::ROOT {
            return Ok(false);
        }
        if before.0 != after.0 {
            return Ok(true);
        }
        let name = |side: &ComparedTree, place: NameSlot| -> Result<Option<Vec<u8>>> {
            Ok(side.name(store, place)?.map(|name| name.name))
        };
        Ok(name(&self.old, before)? != name(&self.new, after)?)
    }
}
