//! What is known of one file beside its extents: its inode, its attributes, and the content of a small one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::ItemKind;
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{FileType, InodeItem, Xattr};

use crate::items::{Event, Items, Origin};
use crate::point::{Point, ends_behind};
use crate::report::Provenance;

/// Bytes of attributes of one file that are kept; more than any filesystem of a host takes.
const XATTR_BYTES_MAX: usize = 1 << 20;

/// Names and values of extended attributes.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What there is of a file beside its content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// `None`: it is lost.
    pub(crate) inode: Option<InodeItem>,
    /// A small file, or the target of a link.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) xattrs: Xattrs,
    /// Some attributes are, or may be, missing.
    pub(crate) lacks_xattrs: bool,
    /// It has extents.
    pub(crate) has_extents: bool,
    /// Of the key of the inode nothing is known; without an inode, and if this is not so, there is none.
    pub(crate) is_unknown: bool,
    /// Of the key of small content nothing is known.
    pub(crate) is_inline_unknown: bool,
    /// Where the inode comes from.
    pub(crate) origin: Option<Origin>,
    pub(crate) provenance: Provenance,
}

/// Reads everything of a file but its extents.
pub(crate) fn known(items: &mut Items<'_, '_>, number: InodeNo) -> Known {
    let mut known = Known::default();
    let mut pieces: BTreeMap<(u32, u16), Vec<u8>> = BTreeMap::new();
    let mut long: Vec<(Vec<u8>, u32, u32)> = Vec::new();
    let mut bytes = 0;
    let (low, end) =
        (Point::first(number, ItemKind::Inode), Point::first(number, ItemKind::Orphan));
    let dentries = Point::first(number, ItemKind::Dentry);
    let _ = items.visit(low, Some(dentries), &mut |event| {
        known.take_head(event);
        ControlFlow::Continue(())
    });
    // Names are the business of the walk.
    let _ = items.visit(Point::first(number, ItemKind::Xattr), Some(end), &mut |event| {
        let (key, value, origin) = match event {
            Event::Item { key, value, origin, .. } => (key, value, origin),
            Event::Gap(from, _) => {
                known.lacks_xattrs |= from.kind <= ItemKind::XattrPiece.number();
                return ControlFlow::Continue(());
            }
        };
        if key.kind == ItemKind::Extent {
            known.has_extents = true;
            return ControlFlow::Break(());
        }
        known.provenance.add(origin);
        bytes += value.len();
        if bytes > XATTR_BYTES_MAX {
            known.lacks_xattrs = true;
            return ControlFlow::Continue(());
        }
        match (key.kind, Xattr::decode(value)) {
            (ItemKind::Xattr, Ok(xattr)) => match xattr.value {
                XattrValue::Here(value) => known.xattrs.push((xattr.name.to_vec(), value.to_vec())),
                XattrValue::Pieces { id, len } => long.push((xattr.name.to_vec(), id, len)),
            },
            (ItemKind::Xattr, Err(_)) => known.lacks_xattrs = true,
            (ItemKind::XattrPiece, _) => {
                let (id, index) = ((key.offset >> 16) as u32, key.offset as u16);
                pieces.insert((id, index), value.to_vec());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    // What an older leaf does not have may be in the one that is lost: small content, an attribute, an extent.
    if !items.is_proven(low, Some(Point::first(number, ItemKind::Orphan))) {
        known.provenance.doubt();
    }
    let head = Point::first(number, ItemKind::Inode);
    known.is_unknown |= known.inode.is_none() && !items.is_proven(head, head.after());
    for (name, id, len) in long {
        let value: Vec<u8> =
            pieces.range((id, 0)..=(id, u16::MAX)).flat_map(|(_, piece)| piece).copied().collect();
        match value.len() == len as usize {
            true => known.xattrs.push((name, value)),
            false => known.lacks_xattrs = true,
        }
    }
    let may_have = known.inode.is_none_or(|inode| inode.flags & InodeItem::HAS_XATTRS != 0);
    known.lacks_xattrs &= may_have;
    known
}

impl Known {
    fn take_head(&mut self, event: Event<'_>) {
        match event {
            Event::Gap(from, end) => {
                self.is_unknown |= from.kind <= ItemKind::Inode.number() && from.offset == 0;
                let behind = Point { offset: 0, kind: ItemKind::Inline.number(), ..from };
                self.is_inline_unknown |= ends_behind(end, behind);
            }
            Event::Item { key, value, origin, .. } => {
                self.provenance.add(origin);
                match key.kind {
                    ItemKind::Inode => {
                        self.inode = InodeItem::decode(value).ok();
                        self.is_unknown |= self.inode.is_none();
                        self.origin = Some(origin);
                    }
                    ItemKind::Inline => self.inline = Some(value.to_vec()),
                    _ => {}
                }
            }
        }
    }

    /// What it is, by its inode, or by what there is of it.
    pub(crate) fn file_type(&self) -> Option<FileType> {
        let by_content =
            || (self.has_extents || self.inline.is_some()).then_some(FileType::Regular);
        self.inode.map(|inode| inode.file_type()).or_else(by_content)
    }
}
