//! The first reading, continued: the attributes of one inode.

use std::collections::BTreeSet;

use holdfast_base::InodeNo;
use holdfast_check::Issue;
use holdfast_format::Key;
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{InodeItem, Xattr};
use holdfast_format::limits::value_max;

use super::{Fix, Judge, Remark};

/// What the judgement of attributes needs to know of the volume.
pub(super) struct View {
    hash_seed: u64,
    piece_max: usize,
}

impl Judge<'_, '_> {
    pub(super) fn view(&self) -> View {
        let superblock = self.reading.superblock();
        let piece_max = value_max(superblock.geometry.node_size);
        View { hash_seed: superblock.hash_seed, piece_max }
    }
}

/// Takes a key, and the value that it gets.
type Edit<'e> = dyn FnMut(Key, Option<Vec<u8>>) + 'e;

/// What was found of the attributes of one inode.
#[derive(Debug, Default)]
pub(super) struct Xattrs {
    /// Keys, names, and whole items.
    found: Vec<(Key, Vec<u8>, Vec<u8>)>,
    /// Keys and lengths.
    pieces: Vec<(Key, usize)>,
}

impl Xattrs {
    pub(super) fn take(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let xattr = Xattr::decode(value).map_err(|malformed| malformed.why)?;
        self.found.push((*key, xattr.name.to_vec(), value.to_vec()));
        Ok(())
    }

    pub(super) fn take_piece(&mut self, key: &Key, len: usize) {
        self.pieces.push((*key, len));
    }

    /// Whether the pieces of a value are all there and of no other. Then they are its own.
    fn take_pieces(&self, id: u32, len: u32, view: &View, used: &mut [bool]) -> bool {
        // They were read in the order of their keys.
        let before = |id: u64| self.pieces.partition_point(|(key, _)| key.offset >> 16 < id);
        let own = before(id.into())..before(u64::from(id) + 1);
        let is_whole = is_whole(&self.pieces[own.clone()], len as usize, view.piece_max);
        let is_taken = used[own.clone()].iter().any(|used| *used);
        if id == u32::MAX || !is_whole || is_taken {
            return false;
        }
        used[own].fill(true);
        true
    }

    /// Judges the whole.
    pub(super) fn finish(
        self,
        view: &View,
        number: InodeNo,
        item: &InodeItem,
        fix: &mut Fix,
        edit: &mut Edit<'_>,
        said: &mut Vec<Remark>,
    ) {
        let mut say = |issue, what: String, loses| {
            said.push(Remark { loses, ..Remark::of(issue, Some(number), what) });
        };
        let mut taken: BTreeSet<u64> = self.found.iter().map(|(key, ..)| key.offset).collect();
        let (mut kept, mut names) = (0, BTreeSet::new());
        let mut used_pieces = vec![false; self.pieces.len()];
        let mut next = item.xattr_value_next;
        for (key, name, value) in &self.found {
            let shown = holdfast_base::show::name(name);
            if names.contains(name) {
                edit(*key, None);
                say(
                    Issue::XattrName,
                    format!("the attribute {shown} that comes second is removed"),
                    true,
                );
                continue;
            }
            if let Ok(Xattr { value: XattrValue::Pieces { id, len }, .. }) = Xattr::decode(value) {
                if !self.take_pieces(id, len, view, &mut used_pieces) {
                    edit(*key, None);
                    let what = format!("the attribute {shown} is removed: its value is not whole");
                    say(Issue::XattrPieces, what, true);
                    continue;
                }
                next = next.max(id.saturating_add(1));
            }
            names.insert(name);
            kept += 1;
            let first = slot(view.hash_seed, name);
            if key.offset & !0xff != first {
                edit(*key, None);
                let place = (first..=slot_end(first)).find(|offset| !taken.contains(offset));
                if let Some(offset) = place {
                    taken.insert(offset);
                    edit(Key { offset, ..*key }, Some(value.clone()));
                }
                say(
                    Issue::XattrName,
                    format!("the attribute {shown} is put where it is found"),
                    place.is_none(),
                );
            }
        }
        let strays = self.pieces.iter().zip(&used_pieces).filter(|(_, used)| !**used);
        let strays: Vec<Key> = strays.map(|((key, _), _)| *key).collect();
        if !strays.is_empty() {
            let what = format!(
                "{} pieces of values that belong to no attribute are removed",
                strays.len()
            );
            say(Issue::XattrPieces, what, false);
        }
        strays.into_iter().for_each(|key| edit(key, None));
        if kept > 0 && item.flags & InodeItem::HAS_XATTRS == 0 {
            fix.has_xattrs = true;
            say(Issue::XattrFlag, "its flag says that it has attributes".into(), false);
        }
        if next != item.xattr_value_next {
            fix.value_next = Some(next);
            say(Issue::XattrFlag, format!("its next attribute value is {next}"), false);
        }
    }
}

/// Whether the pieces are all there, in order, each but the last as long as possible.
fn is_whole(pieces: &[(Key, usize)], len: usize, piece_max: usize) -> bool {
    let mut left = len;
    for (expected, (key, piece)) in (0..).zip(pieces) {
        let index = key.offset & 0xffff;
        if index != expected || *piece == 0 || *piece != left.min(piece_max) {
            return false;
        }
        left -= piece;
    }
    left == 0
}
