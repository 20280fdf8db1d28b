//! A sound node without what of files lies in it.

use holdfast_format::item::dentry::{Dentry, DentryHead};
use holdfast_format::item::extent::{Extent, ExtentHead};
use holdfast_format::item::hold::HoldHead;
use holdfast_format::item::lineage::{LineageItem, RootItem, TreeHead};
use holdfast_format::item::xattr::{XattrHead, XattrValue};
use holdfast_format::item::{
    GroupItem, HoldItem, InodeItem, OriginItem, PunchItem, SharedItem, TreeItem, WalkItem, Xattr,
};
use holdfast_format::limits::BITMAP_BYTES;
use holdfast_format::node::{self, SLOT_SIZE, SLOTS_AT};
use holdfast_format::{ItemKind, Key, NodeView};

use crate::scramble::{Edits, Scrambled};

/// What stands in place of small content: a target of zeros would end before it begins.
const NO_CONTENT: u8 = b'x';

/// Makes zeros of what a sound node holds of files: small content, targets of links, values of attributes, and what lies between its
/// records. Lengths stay. With `names`, names and sums of data are replaced as well.
pub(crate) fn redact(bytes: &mut [u8], names: Option<&Scrambled>) {
    let node = NodeView::trusted(bytes);
    let is_leaf = node.level() == 0;
    let mut kept = vec![false; bytes.len()];
    kept[..SLOTS_AT + node.count() * SLOT_SIZE].fill(true);
    let mut edits: Edits = Vec::new();
    for index in 0..node.count() {
        let (start, len) = node.record(index);
        let (key, value) = (node.key(index), node.value(index));
        let stays = match names {
            _ if !is_leaf => len,
            None => Key::SIZE + content_at(&key, value),
            Some(_) => Key::SIZE + content_at(&key, value).min(names_at(&key, value)),
        };
        kept[start..start + stays].fill(true);
        if let Some(names) = names {
            names.record(start, &key, is_leaf.then_some(value), &mut edits);
            if is_leaf && key.kind == ItemKind::Inline {
                edits.push((start + Key::SIZE, vec![NO_CONTENT; value.len()]));
            }
        }
    }
    for (byte, is_kept) in bytes.iter_mut().zip(&kept) {
        if !is_kept {
            *byte = 0;
        }
    }
    for (at, new) in edits {
        bytes[at..at + new.len()].copy_from_slice(&new);
    }
    node::seal(bytes);
}

/// Where the content of a file begins in an item.
fn content_at(key: &Key, value: &[u8]) -> usize {
    match key.kind {
        ItemKind::Inline | ItemKind::XattrPiece => 0,
        ItemKind::Xattr => match Xattr::decode(value) {
            Ok(Xattr { value: XattrValue::Here(inside), .. }) => value.len() - inside.len(),
            Ok(_) => value.len(),
            Err(_) => 0,
        },
        // What a feature brought may be anything.
        kind if kind.asks().is_some() => 0,
        _ => value.len(),
    }
}

/// Where what may be of a name, or tell data, begins in an item. What no program of ours wrote may be anything.
fn names_at(key: &Key, value: &[u8]) -> usize {
    match key.kind {
        // What is one gets another name; what is none stays none without its bytes.
        ItemKind::Dentry => DentryHead::SIZE * usize::from(Dentry::decode(value).is_ok()),
        ItemKind::Xattr => XattrHead::SIZE * usize::from(Xattr::decode(value).is_ok()),
        ItemKind::Tree => match TreeItem::decode(value) {
            Ok(_) => TreeHead::SIZE,
            Err(_) => 0,
        },
        ItemKind::Hold => HoldHead::SIZE * usize::from(HoldItem::decode(value).is_ok()),
        ItemKind::Origin => value.len().min(OriginItem::SIZE),
        ItemKind::Shared => value.len().min(SharedItem::SIZE),
        // The sum of a block that is known but for some bytes says what these are.
        ItemKind::Extent if Extent::decode(value).is_ok() => ExtentHead::SIZE,
        ItemKind::Extent => 0,
        ItemKind::Inode => value.len().min(InodeItem::SIZE),
        ItemKind::Walk if WalkItem::decode(value).is_err() => 0,
        ItemKind::Orphan | ItemKind::Child | ItemKind::Setting => 0,
        ItemKind::Punch => value.len().min(PunchItem::SIZE),
        ItemKind::Group => value.len().min(GroupItem::SIZE),
        ItemKind::Lineage => value.len().min(LineageItem::SIZE),
        ItemKind::Root => value.len().min(RootItem::SIZE),
        ItemKind::Bitmap => value.len().min(BITMAP_BYTES),
        ItemKind::Name if !value.len().is_multiple_of(8) => 0,
        _ => value.len(),
    }
}
