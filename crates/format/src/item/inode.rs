//! An inode: everything of a file but its names, content and attributes.

use holdfast_base::{InodeNo, Timestamp};

use crate::codec::{Fixed, Reader};
use crate::feature::Carried;
use crate::{ItemKind, Malformed};

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

    /// Whether it is a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::Regular
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }

    /// Whether it is a named pipe.
    pub fn is_fifo(self) -> bool {
        self == FileType::Fifo
    }

    /// Whether it is a socket.
    pub fn is_socket(self) -> bool {
        self == FileType::Socket
    }

    /// Whether it is a character device.
    pub fn is_char_device(self) -> bool {
        self == FileType::CharDevice
    }

    /// Whether it is a block device.
    pub fn is_block_device(self) -> bool {
        self == FileType::BlockDevice
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
    pub struct InodeItem("inode", 128 bytes) {
        /// As `st_mode`.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Names; of a directory 2, and 1 for each subdirectory; 0: orphan.
        nlink: u32,
        /// Bytes of content or target; entries of a directory.
        size: u64,
        /// Blocks in its extents.
        blocks: u64,
        /// As `st_rdev`, of devices; else 0.
        rdev: u64,
        /// Directory of its newest name; of the root itself; 0: not known.
        parent: InodeNo,
        /// Key offset of that name; 0: not known, or the root.
        parent_slot: u64,
        /// Last access.
        atime: Timestamp,
        /// Last change of the content.
        mtime: Timestamp,
        /// Last change of the inode.
        ctime: Timestamp,
        /// Creation.
        btime: Timestamp,
        /// [`InodeItem::HAS_XATTRS`] and others.
        flags: u32,
        /// Next `value_id`; only grows.
        xattr_value_next: u32,
        /// Grows with each item put for the inode.
        change: u64,
        /// Project whose limits count it; 0 so far.
        project: u32,
        /// Zero.
        reserved: [u8; 4],
    }
}

impl InodeItem {
    /// Flag: the inode may have extended attributes.
    pub const HAS_XATTRS: u32 = 1;
    /// Flag: nothing of the file or directory may change.
    pub const IMMUTABLE: u32 = 1 << 1;
    /// Flag: the file or directory may only grow.
    pub const APPEND_ONLY: u32 = 1 << 2;
    /// Set aside: programs that make backups pass the file over. Kept, without a meaning yet.
    pub const NO_DUMP: u32 = 1 << 3;
    /// Set aside: the file is not compressed. Kept, without a meaning yet.
    pub const NO_COMPRESSION: u32 = 1 << 4;
    /// The flags of this version.
    pub const FLAGS_KNOWN: u32 = 0x1f;
    /// Flags that a compat feature may bring.
    pub const FLAGS_COMPAT: u32 = 0x00ff_0000;
    /// Flags that an ro_compat feature may bring.
    pub const FLAGS_RO_COMPAT: u32 = 0xff00_0000;
    /// Longest item, with what a feature has put behind the fields.
    pub const SIZE_MAX: usize = 512;

    /// The type in its mode. Decoding has made sure that there is one.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).expect("decode and the makers of inodes check the type")
    }

    /// Whether a file of its type has items of `kind`.
    pub fn may_have(&self, kind: ItemKind) -> bool {
        match kind {
            ItemKind::Dentry => self.file_type().is_dir(),
            ItemKind::Inline | ItemKind::Extent => {
                matches!(self.file_type(), FileType::Regular | FileType::Symlink)
            }
            _ => true,
        }
    }

    /// A new one without owner, names and rights.
    pub fn blank(file_type: FileType, now: Timestamp) -> InodeItem {
        InodeItem {
            mode: file_type.mode_bits(),
            uid: 0,
            gid: 0,
            nlink: 0,
            size: 0,
            blocks: 0,
            rdev: 0,
            parent: InodeNo(0),
            parent_slot: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: 0,
            xattr_value_next: 0,
            change: 0,
            project: 0,
            reserved: [0; 4],
        }
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Fails if the item has bytes or flags that no feature of the volume brought.
    pub fn check_carried(&self, bytes: &[u8], carried: Carried) -> Result<(), Malformed> {
        let flags = [
            (InodeItem::FLAGS_COMPAT, carried.compat),
            (InodeItem::FLAGS_RO_COMPAT, carried.ro_compat),
        ];
        let unknown = flags.iter().any(|(flags, may_be)| self.flags & flags != 0 && !may_be);
        if unknown || bytes.len() > InodeItem::SIZE && !carried.is_any() {
            let why = "it has flags or bytes of a feature that the volume has not";
            return InodeItem::fail(why);
        }
        Ok(())
    }

    /// What a feature has put behind the fields of an item that was decoded.
    pub fn tail(bytes: &[u8]) -> &[u8] {
        bytes.get(InodeItem::SIZE..).unwrap_or_default()
    }

    /// Reads and judges an inode. What a feature has put behind its fields is [`InodeItem::tail`].
    pub fn decode(bytes: &[u8]) -> Result<InodeItem, Malformed> {
        let mut reader = Reader::new(InodeItem::TITLE, bytes);
        let item = InodeItem::read(&mut reader)?;
        if bytes.len() > InodeItem::SIZE_MAX {
            return InodeItem::fail(format!("{} bytes are too many", bytes.len()));
        }
        if item.mode > 0xffff || FileType::from_mode(item.mode).is_none() {
            return InodeItem::fail(format!("mode {:#o} has no file type", item.mode));
        }
        if item.size > crate::limits::FILE_SIZE_MAX {
            return InodeItem::fail(format!("size {} is above the largest file", item.size));
        }
        if item.nlink > crate::limits::LINK_MAX {
            return InodeItem::fail(format!("{} links are too many", item.nlink));
        }
        for time in [item.atime, item.mtime, item.ctime, item.btime] {
            if time.nanos >= 1_000_000_000 {
                return InodeItem::fail(format!(
                    "{} nanoseconds make more than a second",
                    time.nanos
                ));
            }
        }
        let flags = InodeItem::FLAGS_KNOWN | InodeItem::FLAGS_COMPAT | InodeItem::FLAGS_RO_COMPAT;
        if item.flags & !flags != 0 || item.reserved != [0; 4] {
            return InodeItem::fail("unknown flags or reserved bytes are set");
        }
        if item.parent.0 == 0 && item.parent_slot != 0 {
            return InodeItem::fail("it has the slot of a name and no directory");
        }
        Ok(item)
    }
}
