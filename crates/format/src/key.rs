//! Ordered keys and their encoding.
//!
//! A key is 24 bytes: inode (8), kind (1), offset (8), snapshot (4), three
//! bytes of zero. Keys order by inode, then kind, then offset, then snapshot,
//! so that everything of a file lies together, its inode first.

use std::fmt;

use holdfast_base::{InodeNo, SnapshotNo, TreeId};

use crate::Malformed;

/// What an item is. The numbers are on disk for ever; they also order the items of one inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
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
    /// A block group (space tree). The inode is the group, offset 0.
    Group = 16,
    /// A piece of a group's bitmap (space tree). The inode is the group, the offset the piece.
    Bitmap = 17,
    /// A setting of the volume (space tree). The inode is 0, the offset its number.
    Setting = 18,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 11] = [
        Kind::Inode,
        Kind::Inline,
        Kind::Dentry,
        Kind::Xattr,
        Kind::XattrPiece,
        Kind::Extent,
        Kind::Orphan,
        Kind::Punch,
        Kind::Group,
        Kind::Bitmap,
        Kind::Setting,
    ];

    /// The tree that items of this kind live in.
    pub fn tree(self) -> TreeId {
        if self as u8 >= Kind::Group as u8 { TreeId::Space } else { TreeId::Files }
    }

    /// The kind with this number on disk.
    pub fn from_raw(raw: u8) -> Option<Kind> {
        // A table, not a search: opening a node asks this for every record.
        const TABLE: [Option<Kind>; 19] = {
            let mut table = [None; 19];
            let mut index = 0;
            while index < Kind::ALL.len() {
                table[Kind::ALL[index] as usize] = Some(Kind::ALL[index]);
                index += 1;
            }
            table
        };
        TABLE.get(usize::from(raw)).copied().flatten()
    }
}

/// The key of an item.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The inode, or what the kind puts there.
    pub inode: InodeNo,
    /// What the item is.
    pub kind: Kind,
    /// Offset, name hash or number, as the kind says.
    pub offset: u64,
    /// Constant until snapshots are built.
    pub snapshot: SnapshotNo,
}

impl Key {
    /// Bytes of an encoded key.
    pub const SIZE: usize = 24;
    /// Not above any key.
    pub const MIN: Key =
        Key { inode: InodeNo(0), kind: Kind::Inode, offset: 0, snapshot: SnapshotNo(0) };
    /// Not below any key.
    pub const MAX: Key = Key {
        inode: InodeNo(u64::MAX),
        kind: Kind::Setting,
        offset: u64::MAX,
        snapshot: SnapshotNo(u32::MAX),
    };

    /// The key (`inode`, `kind`, `offset`) in the present.
    pub const fn new(inode: InodeNo, kind: Kind, offset: u64) -> Key {
        Key { inode, kind, offset, snapshot: SnapshotNo(0) }
    }

    /// The key of an inode.
    pub const fn inode(inode: InodeNo) -> Key {
        Key::new(inode, Kind::Inode, 0)
    }

    /// The key of an orphan.
    pub const fn orphan(inode: InodeNo) -> Key {
        Key::new(InodeNo(0), Kind::Orphan, inode.0)
    }

    /// The key of a range of a file that is being made a hole.
    pub const fn punch(inode: InodeNo) -> Key {
        Key::new(InodeNo(0), Kind::Punch, inode.0)
    }

    /// The smallest and the largest key of one kind of one inode.
    pub const fn span(inode: InodeNo, kind: Kind) -> (Key, Key) {
        (
            Key::new(inode, kind, 0),
            Key { inode, kind, offset: u64::MAX, snapshot: SnapshotNo(u32::MAX) },
        )
    }

    /// The 24 bytes on disk.
    pub fn encode(&self) -> [u8; Key::SIZE] {
        let mut bytes = [0; Key::SIZE];
        bytes[0..8].copy_from_slice(&self.inode.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.snapshot.0.to_le_bytes());
        bytes[20] = self.kind as u8;
        bytes
    }

    /// Reads a key from the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Key, Malformed> {
        let Some(bytes) = bytes.first_chunk::<{ Key::SIZE }>() else {
            return Err(Malformed::new("key", format!("{} bytes are too few", bytes.len())));
        };
        let raw = RawKey::of(bytes);
        let Some(kind) = Kind::from_raw(raw.kind()) else {
            return Err(Malformed::new("key", format!("kind {} is unknown", raw.kind())));
        };
        if bytes[21..24] != [0; 3] {
            return Err(Malformed::new("key", "its padding is not zero"));
        }
        Ok(Key {
            inode: InodeNo(raw.inode),
            kind,
            offset: raw.offset,
            snapshot: SnapshotNo(raw.snapshot()),
        })
    }

    /// The key in the form that searches compare.
    pub fn raw(&self) -> RawKey {
        RawKey {
            inode: self.inode.0,
            kind: self.kind as u8,
            offset: self.offset,
            snapshot: self.snapshot.0,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {:?} {:#x}", self.inode, self.kind, self.offset)?;
        if self.snapshot.0 != 0 {
            write!(f, " {:?}", self.snapshot)?;
        }
        f.write_str(")")
    }
}

/// A key as numbers, not judged yet: what a search compares, without a branch for damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RawKey {
    inode: u64,
    kind: u8,
    offset: u64,
    snapshot: u32,
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
        let tail = number(16);
        RawKey {
            inode: number(0),
            offset: number(8),
            snapshot: tail as u32,
            kind: (tail >> 32) as u8,
        }
    }

    /// Inode, kind, and the offset without its last byte, as one number: a key whose front is smaller is smaller.
    #[inline]
    pub fn front(&self) -> u128 {
        u128::from(self.inode) << 64 | u128::from(self.kind) << 56 | u128::from(self.offset >> 8)
    }

    fn kind(&self) -> u8 {
        self.kind
    }

    fn snapshot(&self) -> u32 {
        self.snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_round_trip_and_keep_their_order() {
        let keys = [
            Key::MIN,
            Key::new(InodeNo(1), Kind::Dentry, 9),
            Key::new(InodeNo(1), Kind::Extent, 0),
            Key::new(InodeNo(2), Kind::Inode, 0),
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
        bytes[20] = 99;
        assert!(Key::decode(&bytes).is_err());
        let mut bytes = Key::MIN.encode();
        bytes[23] = 1;
        assert!(Key::decode(&bytes).is_err());
        assert!(Key::decode(&bytes[..23]).is_err());
    }
}
