//! Pass 3, continued: the extended attributes of one inode.

use holdfast_base::InodeNo;
use holdfast_format::Key;
use holdfast_format::item::dentry::slot;
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{InodeItem, Xattr};
use holdfast_format::limits::value_max;

use super::Context;
use super::dirs::SlotNames;
use crate::issue::Issue;
use crate::text::printable;

/// What was found of the attributes of one inode.
#[derive(Debug, Default)]
pub(super) struct Xattrs {
    count: u64,
    /// Values in pieces: id and length.
    values: Vec<(u32, u32)>,
    /// Pieces: id, index and length. In order, as their keys are.
    pieces: Vec<(u32, u16, usize)>,
    /// Pieces whose key holds no id.
    strays: u64,
    names: SlotNames,
}

impl Xattrs {
    /// Takes an attribute; fails with what is wrong with its item.
    pub(super) fn take(
        &mut self,
        context: &mut Context<'_>,
        key: &Key,
        value: &[u8],
    ) -> Result<(), String> {
        let xattr = Xattr::decode(value).map_err(|malformed| malformed.why)?;
        self.count += 1;
        if let XattrValue::Pieces { id, len } = xattr.value {
            self.values.push((id, len));
        }
        let number = key.inode;
        let name = printable(xattr.name);
        if slot(context.volume.superblock.hash_seed, xattr.name) != key.offset & !0xff {
            let what = format!("the attribute {name:?} of inode {number} is in the wrong slot");
            context.add(Issue::XattrName, what).inode(number);
        } else if self.names.is_repeated(key.offset, xattr.name) {
            let what = format!("the attribute {name:?} of inode {number} occurs twice");
            context.add(Issue::XattrName, what).inode(number);
        }
        Ok(())
    }

    /// Takes a piece of a value.
    pub(super) fn take_piece(&mut self, key: &Key, value: &[u8]) {
        match u32::try_from(key.offset >> 16) {
            Ok(id) => self.pieces.push((id, key.offset as u16, value.len())),
            Err(_) => self.strays += 1,
        }
    }

    /// Judges the whole.
    pub(super) fn finish(mut self, context: &mut Context<'_>, number: InodeNo, item: &InodeItem) {
        if self.count > 0 && item.flags & InodeItem::HAS_XATTRS == 0 {
            let what = format!("inode {number} has {} attributes but not the flag", self.count);
            context.add(Issue::XattrFlag, what).inode(number);
        }
        self.values.sort_unstable();
        if let Some((id, _)) = self.values.last()
            && *id >= item.xattr_value_next
        {
            let what = format!(
                "inode {number} has the attribute value {id}, the next is {}",
                item.xattr_value_next
            );
            context.add(Issue::XattrFlag, what).inode(number);
        }
        let piece_max = value_max(context.volume.superblock.geometry.node_size);
        let mut wrong = Vec::new();
        let mut rest = &self.pieces[..];
        let mut strays = self.strays;
        for (id, len) in &self.values {
            let before = rest.partition_point(|piece| piece.0 < *id);
            strays += before as u64;
            rest = &rest[before..];
            let (own, others) = rest.split_at(rest.partition_point(|piece| piece.0 == *id));
            rest = others;
            if !is_whole(own, *len as usize, piece_max) {
                wrong.push(format!("the value {id} of {len} bytes is not whole"));
            }
        }
        strays += rest.len() as u64;
        if strays > 0 {
            wrong.push(format!("{strays} pieces belong to no attribute"));
        }
        for what in wrong {
            let what = format!("inode {number}: {what}");
            context.add(Issue::XattrPieces, what).inode(number);
        }
    }
}

/// Whether the pieces are all there, in order, each but the last as long as possible.
fn is_whole(pieces: &[(u32, u16, usize)], len: usize, piece_max: usize) -> bool {
    let mut left = len;
    for (expected, &(_, index, piece)) in pieces.iter().enumerate() {
        if usize::from(index) != expected || piece != left.min(piece_max) || piece == 0 {
            return false;
        }
        left -= piece;
    }
    left == 0
}
