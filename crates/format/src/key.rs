//! Ordered keys and their encoding.
//!
//! A key is 24 bytes: inode (8), offset (8), four bytes of zero, kind (1), three
//! bytes of zero. Keys order by inode, then kind, then offset, so that everything
//! of a file lies together, its inode first.

use std::fmt;
use std::ops::RangeInclusive;

use holdfast_base::{InodeNo, TreeId};

use crate::Malformed;
use crate::feature::{Asks, Carried};

/// What an item is. The numbers are on disk for ever; they also order the items of one inode.
///
/// A number, not an enum: there are kinds that this program does not know and carries along (see [`ItemKind::asks`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKind(u8);

/// Says the kinds once, with their numbers and names.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        // They read as what they are, names of kinds; so do the matches on them.
        #[allow(non_upper_case_globals)]
        impl ItemKind {
            $($(#[doc = $doc])* pub const $name: ItemKind = ItemKind($number);)*

            /// Every kind that this program knows.
            pub const ALL: [ItemKind; [$($number),*].len()] = [$(ItemKind::$name),*];
        }

        impl fmt::Debug for ItemKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($name)),)*
                    number => write!(f, "ItemKind{number}"),
                }
            }
        }
    };
}

kinds! {
    /// An inode. Offset 0.
    Inode = 1,
    /// A file's whole content, when it is small. Offset 0.
    Inline = 2,
    /// Entries of a directory by name hash. Offset [`crate::item::dentry::slot`].
    Dentry = 3,
    /// Extended attributes by name hash. Offset like `Dentry`.
    Xattr = 4,
    /// A piece of a long attribute value. Offset `value id << 16 | piece`.
    XattrPiece = 5,
    /// Blocks of a file. Offset in bytes, a multiple of the block size.
    Extent = 6,
    /// An inode without a name, to be collected. The inode is 0, the offset the number of the orphan.
    Orphan = 7,
    /// A range of a file that is being made a hole. The inode is 0, the offset the number of the file.
    Punch = 8,
    /// A block group (space tree). The inode is 0, the offset the group.
    Group = 16,
    /// A piece of a group's bitmap (space tree). The inode is the group, the offset the piece.
    Bitmap = 17,
    /// A setting of the volume (space tree). The inode is 0, the offset its number.
    Setting = 18,
    /// What branches and snapshots share (space tree). See [`crate::item::lineage`] for the keys of all of these.
    Lineage = 19,
    /// Branches and snapshots by the hashes of their names (space tree). The offset is the hash.
    Name = 20,
    /// The deletion of a snapshot (space tree). The offset is its number.
    Walk = 21,
    /// A branch or snapshot (space tree). Offset 0.
    Tree = 22,
    /// The root of a branch (space tree). Offset 0.
    Root = 23,
    /// What grew out of a snapshot (space tree). The offset is its number.
    Child = 24,
    /// A hold of a snapshot (space tree). The offset is the hash of its tag.
    Hold = 25,
    /// What a snapshot is a copy of (space tree). The offset counts them.
    Origin = 26,
    /// Blocks with more than one reference (space tree). The inode is the group, the offset the first block in it.
    Shared = 27,
}

impl ItemKind {
    /// Kinds of the files tree that a compat feature may bring.
    pub const FILES_COMPAT: RangeInclusive<u8> = 64..=95;
    /// Kinds of the files tree that an ro_compat feature may bring.
    pub const FILES_RO_COMPAT: RangeInclusive<u8> = 96..=127;
    /// Kinds of the space tree that a compat feature may bring.
    pub const SPACE_COMPAT: RangeInclusive<u8> = 128..=159;
    /// Kinds of the space tree that an ro_compat feature may bring.
    pub const SPACE_RO_COMPAT: RangeInclusive<u8> = 160..=191;
    /// No kind is larger.
    const LAST: ItemKind = ItemKind(191);

    /// The number on disk.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The tree that items of this kind live in.
    pub fn tree(self) -> TreeId {
        match self.0 {
            16..64 | 128.. => TreeId::Space,
            _ => TreeId::Files,
        }
    }

    /// The kind with this number on disk, known or in a range set aside.
    pub fn from_raw(raw: u8) -> Option<ItemKind> {
        matches!(raw, 1..=8 | 16..=27 | 64..=191).then_some(ItemKind(raw))
    }

    /// Whether items of this kind tell of branches and snapshots.
    pub fn is_lineage(self) -> bool {
        (ItemKind::Lineage..=ItemKind::Origin).contains(&self)
    }

    /// What a kind that this program does not know asks of it. `None` if it knows it.
    pub fn asks(self) -> Option<Asks> {
        match self.0 {
            64..=95 | 128..=159 => Some(Asks::Nothing),
            96..=127 | 160..=191 => Some(Asks::NotToWrite),
            _ => None,
        }
    }

    /// Whether a volume that carries this may have items of the kind.
    #[inline]
    pub fn may_be(self, carried: Carried) -> bool {
        self.asks().is_none_or(|asks| carried.allows(asks))
    }
}

/// The key of an item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The inode, or what the kind puts there.
    pub inode: InodeNo,
    /// What the item is.
    pub kind: ItemKind,
    /// Offset, name hash or number, as the kind says.
    pub offset: u64,
}

/// Where the kind stands in an encoded key.
const KIND_AT: usize = 20;

impl Key {
    /// Bytes of an encoded key.
    pub const SIZE: usize = 24;
    /// Not above any key.
    pub const MIN: Key = Key { inode: InodeNo(0), kind: ItemKind::Inode, offset: 0 };
    /// Not below any key.
    pub const MAX: Key = Key { inode: InodeNo(u64::MAX), kind: ItemKind::LAST, offset: u64::MAX };

    /// The key (`inode`, `kind`, `offset`).
    pub const fn new(inode: InodeNo, kind: ItemKind, offset: u64) -> Key {
        Key { inode, kind, offset }
    }

    /// The key of an inode.
    pub const fn inode(inode: InodeNo) -> Key {
        Key::new(inode, ItemKind::Inode, 0)
    }

    /// The key of an orphan.
    pub const fn orphan(inode: InodeNo) -> Key {
        Key::new(InodeNo(0), ItemKind::Orphan, inode.0)
    }

    /// The key of a range of a file that is being made a hole.
    pub const fn punch(inode: InodeNo) -> Key {
        Key::new(InodeNo(0), ItemKind::Punch, inode.0)
    }

    /// The smallest and the largest key of one kind of one inode.
    pub const fn span(inode: InodeNo, kind: ItemKind) -> (Key, Key) {
        (Key::new(inode, kind, 0), Key::new(inode, kind, u64::MAX))
    }

    /// The 24 bytes on disk.
    pub fn encode(&self) -> [u8; Key::SIZE] {
        let mut bytes = [0; Key::SIZE];
        bytes[0..8].copy_from_slice(&self.inode.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[KIND_AT] = self.kind.0;
        bytes
    }

    /// Reads a key from the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Key, Malformed> {
        let Some(bytes) = bytes.first_chunk::<{ Key::SIZE }>() else {
            return Err(Malformed::new("key", format!("{} bytes are too few", bytes.len())));
        };
        let raw = RawKey::of(bytes);
        let Some(kind) = ItemKind::from_raw(raw.kind) else {
            return Err(Malformed::new("key", format!("kind {} is unknown", raw.kind)));
        };
        if bytes[16..KIND_AT] != [0; 4] || bytes[KIND_AT + 1..] != [0; 3] {
            return Err(Malformed::new("key", "its reserved bytes are set"));
        }
        Ok(Key { inode: InodeNo(raw.inode), kind, offset: raw.offset })
    }

    /// The key in the form that searches compare.
    pub fn raw(&self) -> RawKey {
        RawKey { inode: self.inode.0, kind: self.kind.0, offset: self.offset }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {:?} {:#x})", self.inode, self.kind, self.offset)
    }
}

/// A key as numbers, not judged yet: what a search compares, without a branch for damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RawKey {
    inode: u64,
    kind: u8,
    offset: u64,
}

impl RawKey {
    /// Takes 24 bytes apart.
    #[inline]
    pub fn of(bytes: &[u8; Key::SIZE]) -> RawKey {
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        RawKey { inode: number(0), offset: number(8), kind: bytes[KIND_AT] }
    }

    /// The 24 bytes on disk.
    pub fn encode(&self) -> [u8; Key::SIZE] {
        Key { inode: InodeNo(self.inode), kind: ItemKind(self.kind), offset: self.offset }.encode()
    }

    /// The inode that an item of this key is of.
    pub fn inode(&self) -> InodeNo {
        InodeNo(self.inode)
    }

    /// Inode, kind, and the offset without its last byte, as one number: a key whose front is smaller is smaller.
    #[inline]
    pub fn front(&self) -> u128 {
        u128::from(self.inode) << 64 | u128::from(self.kind) << 56 | u128::from(self.offset >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_round_trip_and_keep_their_order() {
        let keys = [
            Key::MIN,
            Key::new(InodeNo(1), ItemKind::Dentry, 9),
            Key::new(InodeNo(1), ItemKind::Extent, 0),
            Key::new(InodeNo(2), ItemKind::Inode, 0),
            Key::MAX,
        ];
        for pair in keys.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].raw() < pair[1].raw());
        }
        for key in keys {
            assert_eq!(Key::decode(&key.encode()), Ok(key));
        }
    }

    #[test]
    fn an_unknown_kind_and_padding_are_refused() {
        let mut bytes = Key::MIN.encode();
        bytes[20] = 40;
        assert!(Key::decode(&bytes).is_err());
        let mut bytes = Key::MIN.encode();
        bytes[23] = 1;
        assert!(Key::decode(&bytes).is_err());
        assert!(Key::decode(&bytes[..23]).is_err());
        let mut bytes = Key::MIN.encode();
        bytes[16] = 1;
        assert!(Key::decode(&bytes).is_err(), "once the number of a snapshot");
    }

    #[test]
    fn kinds_of_the_ranges_set_aside_belong_to_features() {
        for raw in 0..=u8::MAX {
            let Some(kind) = ItemKind::from_raw(raw) else { continue };
            let ranges = [
                (ItemKind::FILES_COMPAT, TreeId::Files, Asks::Nothing),
                (ItemKind::FILES_RO_COMPAT, TreeId::Files, Asks::NotToWrite),
                (ItemKind::SPACE_COMPAT, TreeId::Space, Asks::Nothing),
                (ItemKind::SPACE_RO_COMPAT, TreeId::Space, Asks::NotToWrite),
            ];
            let range = ranges.into_iter().find(|(range, ..)| range.contains(&raw));
            assert_eq!(ItemKind::ALL.contains(&kind), range.is_none());
            assert_eq!(kind.asks(), range.as_ref().map(|(.., asks)| *asks));
            assert!(range.is_none_or(|(_, tree, _)| kind.tree() == tree), "{kind:?}");
            assert_eq!(kind.may_be(Carried::NOTHING), kind.asks().is_none());
        }
    }
}
