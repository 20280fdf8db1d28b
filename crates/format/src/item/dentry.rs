//! A directory entry: one name, keyed by the hash of the name.
//!
//! The offset of the key is `hash << 8 | probe`: 55 bits of hash and a number
//! that tells names with equal hashes apart. It is also the entry's readdir
//! cookie: it never changes while the entry lives, fits a signed 64-bit
//! offset, and is never below 256, which leaves 0 to 2 for the start, `.` and `..`.

use holdfast_base::InodeNo;

use crate::Malformed;
use crate::codec::Reader;
use crate::item::FileType;
use crate::limits::{NAME_MAX, NODE_SIZES, value_max};

record! {
    /// The head of a directory entry; the name follows.
    pub struct DentryHead("dentry", 10 bytes) {
        /// Inode named.
        inode: InodeNo,
        /// Its type.
        file_type: u8,
        /// 1 to 255.
        name_len: u8,
    }
}

const _: () = assert!(NAME_MAX + DentryHead::SIZE <= value_max(NODE_SIZES[0]));

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// The inode that the name leads to.
    pub inode: InodeNo,
    /// Type of that inode.
    pub file_type: FileType,
    /// The name: no `/`, no NUL, not `.` or `..`.
    pub name: &'a [u8],
}

impl<'a> Dentry<'a> {
    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(DentryHead::SIZE + self.name.len());
        self.write(&mut out);
        out
    }

    /// Appends them to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (file_type, name_len) = (self.file_type as u8, self.name.len() as u8);
        DentryHead { inode: self.inode, file_type, name_len }.write(out);
        out.extend_from_slice(self.name);
    }

    /// Reads and judges an entry.
    pub fn decode(bytes: &'a [u8]) -> Result<Dentry<'a>, Malformed> {
        let mut reader = Reader::new(DentryHead::TITLE, bytes);
        let head = DentryHead::read(&mut reader)?;
        let name = reader.bytes(head.name_len.into())?;
        reader.finish()?;
        let Some(file_type) = FileType::from_raw(head.file_type) else {
            return DentryHead::fail(format!("file type {} is unknown", head.file_type));
        };
        if head.inode.0 == 0 {
            return DentryHead::fail("it leads to inode 0");
        }
        if !is_valid_name(name) {
            return DentryHead::fail(format!(
                "the name {:?} is not allowed",
                String::from_utf8_lossy(name)
            ));
        }
        Ok(Dentry { inode: head.inode, file_type, name })
    }
}

/// Whether `name` may stand in a directory: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}

/// The first of the 256 key offsets of names that hash like `name`. `seed` is the volume's.
pub fn slot(seed: u64, name: &[u8]) -> u64 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(name, seed) >> 9;
    hash.max(1) << 8
}

/// The slot that a key offset is in.
pub fn slot_of(offset: u64) -> u64 {
    offset & !0xff
}

/// The last key offset of the names that share the slot `first`.
pub fn slot_end(first: u64) -> u64 {
    first | 0xff
}
