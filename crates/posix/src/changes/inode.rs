//! What two trees have of one inode, item by item.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::ops::Range;

use holdfast_base::InodeNo;
use holdfast_format::item::xattr::{XattrHead, XattrValue, piece_offset};
use holdfast_format::item::{FileType, InodeItem, PunchItem, Xattr};
use holdfast_format::limits::XATTR_VALUE_MAX;
use holdfast_format::{ItemKind, Key, Malformed};
use holdfast_store::{Store, StoreError};

use super::Parts;
use super::compared_tree::{ComparedTree, damage, wrong};
use super::content::Content;
use crate::Result;
use crate::file::lookup;
use crate::file::map::Piece;

/// Bits of a mode that are not the type.
const PERMISSIONS: u32 = 0o7777;

/// What became of an inode, without its path.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) no: InodeNo,
    pub(super) old: Option<InodeItem>,
    pub(super) new: Option<InodeItem>,
    pub(super) parts: Parts,
    pub(super) ranges: Vec<Range<u64>>,
}

impl Fate {
    /// Whether it has, or had, several names: those are told where they are.
    pub(super) fn has_several_names(&self) -> bool {
        has_several_names(self.old.as_ref(), self.new.as_ref())
    }
}

pub(super) fn has_several_names(old: Option<&InodeItem>, new: Option<&InodeItem>) -> bool {
    let several = |item: &InodeItem| item.file_type() != FileType::Directory && item.nlink > 1;
    old.is_some_and(several) || new.is_some_and(several)
}

/// An inode of which items differ.
#[derive(Debug)]
pub(super) struct Of {
    pub(super) no: InodeNo,
    pub(super) old: Option<InodeItem>,
    pub(super) new: Option<InodeItem>,
    pub(super) names_differ: bool,
    pub(super) parts: Parts,
    pub(super) content: Content,
    /// Of the old tree, and of the new one.
    pub(super) punches: [Option<PunchItem>; 2],
}

impl Of {
    pub(super) fn extents(
        &mut self,
        store: &Store,
        key: Key,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        if self.old.is_none() || self.new.is_none() {
            return Ok(());
        }
        let geometry = store.geometry();
        let damaged = |source: Malformed| StoreError::Item {
            what: format!("an extent of inode {}", key.inode),
            source,
        };
        let piece = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| lookup::judge(&geometry, key, bytes)).transpose().map_err(damaged)
        };
        let (old, new) = (piece(old)?, piece(new)?);
        // What is about to become a hole is one. The part in front of it comes first.
        let parts = |piece: Option<Piece>, punch: &Option<PunchItem>| {
            let cut = punch.as_ref().map_or((u64::MAX, u64::MAX), |punch| (punch.first, punch.end));
            let part = |range: Range<u64>| piece.as_ref().and_then(|piece| piece.part(range));
            [part(0..cut.0), part(cut.1..u64::MAX)]
        };
        let [old_first, old_last] = parts(old, &self.punches[0]);
        let [new_first, new_last] = parts(new, &self.punches[1]);
        let mut pairs = [(old_first, None), (None, new_first), (old_last, None), (None, new_last)];
        let first = |(old, new): &(Option<_>, Option<_>)| {
            let of = |piece: &Option<Piece>| piece.as_ref().map(|it| it.first);
            of(old).or(of(new))
        };
        pairs.sort_by_key(first);
        for (old, new) in pairs {
            if !self.content.add(store, old, new) {
                let why = format!("at {} it overlaps its neighbour", key.offset);
                return Err(damaged(Malformed::new("extent", why)).into());
            }
        }
        Ok(())
    }

    /// What became of it, if it is, or was, a file with a name.
    pub(super) fn fate(self, store: &Store) -> Result<Option<Fate>> {
        let Of { no, old, new, names_differ, mut parts, content, punches } = self;
        let mut ranges = Vec::new();
        match (&old, &new) {
            (None, None) => return Ok(None),
            (Some(before), Some(after)) => {
                if before.file_type() != after.file_type() {
                    return Err(wrong(no, "it is of another type than it was"));
                }
                compare(before, after, names_differ, &mut parts);
                // The size of a directory is the number of its names.
                if before.file_type() != FileType::Directory {
                    let differ = punches[0] != punches[1];
                    let punched: Vec<PunchItem> =
                        punches.into_iter().flatten().filter(|_| differ).collect();
                    ranges = content.finish(store, (before.size, after.size), &punched);
                    parts.content = !ranges.is_empty();
                }
            }
            // Of a file of several names each is told on its own.
            _ if has_several_names(old.as_ref(), new.as_ref()) => return Ok(None),
            _ => parts = Parts::default(),
        }
        Ok(Some(Fate { no, old, new, parts, ranges }))
    }
}

/// What two versions of an inode do not have alike, but for the content.
fn compare(old: &InodeItem, new: &InodeItem, names_differ: bool, parts: &mut Parts) {
    let flags = |item: &InodeItem| (item.flags & !InodeItem::HAS_XATTRS, item.project, item.rdev);
    parts.mode = (old.mode & PERMISSIONS) != (new.mode & PERMISSIONS);
    parts.owner = (old.uid, old.gid) != (new.uid, new.gid);
    parts.times = (old.mtime != new.mtime && !names_differ) || old.btime != new.btime;
    parts.flags |= flags(old) != flags(new);
}

/// Whether two versions of an attribute have the same name and value.
pub(super) fn same_attribute(
    store: &Store,
    no: InodeNo,
    (old_side, old): (&ComparedTree, Option<&[u8]>),
    (new_side, new): (&ComparedTree, Option<&[u8]>),
) -> Result<bool> {
    let (Some(old), Some(new)) = (old, new) else { return Ok(false) };
    let decode = |bytes| Xattr::decode(bytes).map_err(|source| damage(no, source));
    let (old, new) = (decode(old)?, decode(new)?);
    Ok(old.name == new.name
        && value(store, no, old_side, &old)? == value(store, no, new_side, &new)?)
}

/// The value of an attribute.
fn value(store: &Store, no: InodeNo, side: &ComparedTree, of: &Xattr<'_>) -> Result<Vec<u8>> {
    let (id, len) = match of.value {
        XattrValue::Here(bytes) => return Ok(bytes.to_vec()),
        XattrValue::Pieces { id, len } => (id, len as usize),
    };
    let mut value = Vec::new();
    let pieces = len.min(XATTR_VALUE_MAX).div_ceil(store.value_max());
    for index in 0..pieces {
        let key = Key::new(no, ItemKind::XattrPiece, piece_offset(id, index as u16));
        match side.get(store, &key)? {
            Some(piece) => value.extend_from_slice(&piece),
            None => break,
        }
    }
    match value.len() == len {
        true => Ok(value),
        false => {
            let why = format!("its pieces have {} bytes and not {len}", value.len());
            Err(damage(no, Malformed::new(XattrHead::TITLE, why)).into())
        }
    }
}
