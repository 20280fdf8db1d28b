//! An inode: everything of a file but its names, content and attributes.

use holdfast_base::{InodeNo, Timestamp};

use crate::Malformed;
use crate::codec::{Fixed, Reader};

/// What a file is. The numbers are those of `d_type` and of the upper bits of a mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// The type with this number on disk.
    pub fn from_raw(raw: u8) -> Option<FileType> {
        Some(match raw {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            _ => return None,
        })
    }

    /// The type in the upper bits of `mode`.
    pub fn from_mode(mode: u32) -> Option<FileType> {
        FileType::from_raw(((mode >> 12) & 0xf) as u8)
    }

    /// The bits for a mode.
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

impl Fixed for Timestamp {
    const SIZE: usize = 12;
    const NAME: &'static str = "time";
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Timestamp { secs: i64::read(reader)?, nanos: u32::read(reader)? })
    }
    fn put(&self, place: &mut [u8]) {
        let (secs, nanos) = place.split_at_mut(i64::SIZE);
        self.secs.put(secs);
        self.nanos.put(nanos);
    }
}

impl Fixed for InodeNo {
    const SIZE: usize = 8;
    const NAME: &'static str = "inode";
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(InodeNo(u64::read(reader)?))
    }
    fn put(&self, place: &mut [u8]) {
        self.0.put(place);
    }
}

record! {
    /// An inode. Times are stored as seconds (i64) and nanoseconds (u32).
    #[derive(Copy)]
    pub struct InodeItem("inode", 120 bytes) {
        /// Type and permissions as in `st_mode`.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Names of the file. A directory has 2 and one more for each subdirectory. 0: an orphan.
        nlink: u32,
        /// Bytes of a file, length of a symlink's target, number of a directory's entries.
        size: u64,
        /// Blocks of 4 KiB in the extents of the file.
        blocks: u64,
        /// Device number of a device file, encoded as in `st_rdev`; otherwise 0.
        rdev: u64,
        /// The directory that holds a directory (the root holds itself); otherwise 0.
        parent: InodeNo,
        /// Last access.
        atime: Timestamp,
        /// Last change of the content.
        mtime: Timestamp,
        /// Last change of the inode.
        ctime: Timestamp,
        /// Creation.
        btime: Timestamp,
        /// [`InodeItem::HAS_XATTRS`]; the other bits are 0.
        flags: u32,
        /// Next id for a long attribute value of this inode. Grows only.
        xattr_value_next: u32,
        /// Zero.
        reserved: [u8; 16],
    }
}

impl InodeItem {
    /// Flag: the inode may have extended attributes.
    pub const HAS_XATTRS: u32 = 1;

    /// The type in its mode. Decoding has made sure that there is one.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).expect("decode and the makers of inodes check the type")
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Reads and judges an inode.
    pub fn decode(bytes: &[u8]) -> Result<InodeItem, Malformed> {
        let mut reader = Reader::new(InodeItem::TITLE, bytes);
        let item = InodeItem::read(&mut reader)?;
        reader.finish()?;
        let fail = |why: String| Err(Malformed::new(InodeItem::TITLE, why));
        if item.mode > 0xffff || FileType::from_mode(item.mode).is_none() {
            return fail(format!("mode {:#o} has no file type", item.mode));
        }
        if item.size > crate::limits::FILE_SIZE_MAX {
            return fail(format!("size {} is above the largest file", item.size));
        }
        if item.nlink > crate::limits::LINK_MAX {
            return fail(format!("{} links are too many", item.nlink));
        }
        for time in [item.atime, item.mtime, item.ctime, item.btime] {
            if time.nanos >= 1_000_000_000 {
                return fail(format!("{} nanoseconds make more than a second", time.nanos));
            }
        }
        if item.flags & !InodeItem::HAS_XATTRS != 0 || item.reserved != [0; 16] {
            return fail("unknown flags or reserved bytes are set".into());
        }
        Ok(item)
    }
}
