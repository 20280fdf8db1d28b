//! One of two trees that are compared: its inodes, and where they are.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, FileType, InodeItem, PunchItem};
use holdfast_format::{ItemKind, Key, Malformed};
use holdfast_store::{Pin, Store, StoreError};

use crate::Result;

/// Paths of directories that are remembered, in bytes. The last one is, whatever it has.
const PATHS_BYTES: usize = 4 << 20;
/// What a directory costs that is remembered, beside its path.
const KNOWN_BYTES: usize = 64;

/// Where a name of an inode is: the directory, and the offset of its key.
pub(super) type NameSlot = (InodeNo, u64);

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) inode: InodeNo,
    pub(super) file_type: FileType,
    pub(super) name: Vec<u8>,
}

impl Name {
    pub(super) fn decode(dir: InodeNo, bytes: &[u8]) -> Result<Name> {
        let of = Dentry::decode(bytes).map_err(|source| damage(dir, source))?;
        Ok(Name { inode: of.inode, file_type: of.file_type, name: of.name.to_vec() })
    }
}

/// What is wrong with an inode, or an item of it.
pub(super) fn damage(inode: InodeNo, source: Malformed) -> StoreError {
    StoreError::Item { what: format!("inode {inode}"), source }
}

/// A tree. Its look-ups go to the store that it is pinned in.
#[derive(Debug)]
pub(super) struct ComparedTree {
    pin: Pin,
    paths: HashMap<InodeNo, DirPath>,
    paths_bytes: usize,
}

/// The path of a directory: the begin of one that leads through it. So all directories on the way to one cost as much as that.
#[derive(Clone, Debug)]
struct DirPath {
    longer: Arc<[u8]>,
    len: usize,
}

impl DirPath {
    fn bytes(&self) -> &[u8] {
        self.longer.get(..self.len).unwrap_or_default()
    }
}

impl ComparedTree {
    pub(super) fn new(pin: Pin) -> ComparedTree {
        ComparedTree { pin, paths: HashMap::new(), paths_bytes: 0 }
    }

    pub(super) fn get(&self, store: &Store, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(store.get_pinned(&self.pin, key)?)
    }

    /// An inode that has a name: orphans are not shown.
    pub(super) fn inode(&self, store: &Store, no: InodeNo) -> Result<Option<InodeItem>> {
        let Some(bytes) = self.get(store, &Key::inode(no))? else { return Ok(None) };
        let item = InodeItem::decode(&bytes).map_err(|source| damage(no, source))?;
        Ok(Some(item).filter(|item| item.nlink > 0))
    }

    /// The range of a file that is being made a hole.
    pub(super) fn punch(&self, store: &Store, no: InodeNo) -> Result<Option<PunchItem>> {
        let Some(bytes) = self.get(store, &Key::punch(no))? else { return Ok(None) };
        Ok(Some(PunchItem::decode(&bytes).map_err(|source| damage(no, source))?))
    }

    /// Whether any file is being made a hole.
    pub(super) fn has_punches(&self, store: &Store) -> Result<bool> {
        let (from, to) = Key::span(InodeNo(0), ItemKind::Punch);
        let mut any = false;
        store.scan_pinned(&self.pin, &from, &to, |_, _| {
            any = true;
            ControlFlow::Break(())
        })?;
        Ok(any)
    }

    /// The name at a place.
    pub(super) fn name(&self, store: &Store, (dir, slot): NameSlot) -> Result<Option<Name>> {
        let bytes = self.get(store, &Key::new(dir, ItemKind::Dentry, slot))?;
        bytes.map(|bytes| Name::decode(dir, &bytes)).transpose()
    }

    /// The path of an inode at a place where it has a name; of the root: nothing.
    pub(super) fn path(&mut self, store: &Store, no: InodeNo, place: NameSlot) -> Result<Vec<u8>> {
        if no == InodeNo::ROOT {
            return Ok(Vec::new());
        }
        let name = self.name_of(store, no, place)?;
        self.path_in(store, place.0, &name)
    }

    /// The path of a name in a directory.
    pub(super) fn path_in(&mut self, store: &Store, dir: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let mut path = self.dir_path(store, dir)?.bytes().to_vec();
        append(&mut path, name);
        Ok(path)
    }

    /// The name at a place, which leads to the inode.
    fn name_of(&self, store: &Store, no: InodeNo, place: NameSlot) -> Result<Vec<u8>> {
        match self.name(store, place)? {
            Some(name) if name.inode == no => Ok(name.name),
            _ => Err(wrong(no, "its name is not where it says")),
        }
    }

    /// The path of a directory.
    fn dir_path(&mut self, store: &Store, dir: InodeNo) -> Result<DirPath> {
        let mut below = Vec::new();
        let (mut at, mut mark) = (dir, dir);
        let mut path = loop {
            if at == InodeNo::ROOT {
                break Vec::new();
            }
            if let Some(known) = self.paths.get(&at) {
                if below.is_empty() {
                    return Ok(known.clone());
                }
                break known.bytes().to_vec();
            }
            let item = self.inode(store, at)?.ok_or_else(|| wrong(at, "a name leads there"))?;
            if item.file_type() != FileType::Directory {
                return Err(wrong(at, "it has names in it and is no directory"));
            }
            let name = self.name_of(store, at, (item.parent, item.parent_slot))?;
            below.push((at, name));
            at = item.parent;
            // In a circle the way comes back to a mark, however long it is.
            if at == mark {
                return Err(wrong(at, "its directories lead in a circle"));
            }
            if below.len().is_power_of_two() {
                mark = at;
            }
        };
        let mut lens = Vec::with_capacity(below.len());
        for (no, name) in below.into_iter().rev() {
            append(&mut path, &name);
            lens.push((no, path.len()));
        }
        Ok(self.remember(path.into(), lens))
    }

    /// Keeps a path, which leads through directories whose own paths have these lengths; the last is its own.
    fn remember(&mut self, path: Arc<[u8]>, lens: Vec<(InodeNo, usize)>) -> DirPath {
        if self.paths_bytes > PATHS_BYTES {
            self.paths.clear();
            self.paths_bytes = 0;
        }
        let known = lens.len().saturating_mul(KNOWN_BYTES);
        self.paths_bytes = self.paths_bytes.saturating_add(path.len()).saturating_add(known);
        for (no, len) in lens {
            self.paths.insert(no, DirPath { longer: Arc::clone(&path), len });
        }
        let len = path.len();
        DirPath { longer: path, len }
    }

    /// A place of each of these inodes, by a look at all names.
    pub(super) fn search(
        &self,
        store: &Store,
        inodes: &HashSet<InodeNo>,
    ) -> Result<HashMap<InodeNo, NameSlot>> {
        let mut found = HashMap::new();
        if inodes.is_empty() {
            return Ok(found);
        }
        let mut damaged = None;
        store.scan_pinned(&self.pin, &Key::MIN, &Key::MAX, |key, value| {
            if key.kind != ItemKind::Dentry {
                return ControlFlow::Continue(());
            }
            match Dentry::decode(value) {
                Ok(of) if inodes.contains(&of.inode) => {
                    found.entry(of.inode).or_insert((key.inode, key.offset));
                }
                Ok(_) => {}
                Err(source) => {
                    damaged = Some(damage(key.inode, source));
                    return ControlFlow::Break(());
                }
            }
            match found.len() < inodes.len() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        match damaged {
            Some(error) => Err(error.into()),
            None => Ok(found),
        }
    }
}

/// The sentence for an inode that is not what others say of it.
pub(super) fn wrong(no: InodeNo, why: &'static str) -> crate::FsError {
    damage(no, Malformed::new("inode", why)).into()
}

fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
