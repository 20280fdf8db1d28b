//! What is known of a file besides its content, and what can be set.

use std::time::SystemTime;

use holdfast_base::Timestamp;
use holdfast_posix::{Attr, SetAttr, SetTime};

pub use holdfast_format::item::FileType;

/// Attributes of a file, directory or other node at one moment. Shaped like [`std::fs::Metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// Whether it is a symbolic link (only [`crate::Dir::symlink_metadata`] shows one).
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::Symlink
    }

    /// Bytes of a file; entries of a directory.
    #[expect(clippy::len_without_is_empty, reason = "shaped like std::fs::Metadata")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions { mode: self.0.perm }
    }

    /// Last change of the content.
    pub fn modified(&self) -> SystemTime {
        self.0.mtime.into()
    }

    /// Last access, as the volume's [`crate::Atime`] option keeps it.
    pub fn accessed(&self) -> SystemTime {
        self.0.atime.into()
    }

    /// Last change of content or attributes.
    pub fn changed(&self) -> SystemTime {
        self.0.ctime.into()
    }

    /// Creation.
    pub fn created(&self) -> SystemTime {
        self.0.btime.into()
    }

    /// The inode number: never given to another file in the volume's life.
    pub fn ino(&self) -> u64 {
        self.0.inode.0
    }

    /// Type and permission bits as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        self.0.file_type.mode_bits() | self.0.perm
    }

    /// Number of names.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number of a device file.
    pub fn rdev(&self) -> u64 {
        self.0.rdev
    }

    /// Units of 512 bytes in use.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
}

/// Permission bits, set-id and sticky bits: at most `0o7777`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    mode: u32,
}

impl Permissions {
    /// These bits; others than `0o7777` are dropped.
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions { mode: mode & 0o7777 }
    }

    /// The bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Sets the bits; others than `0o7777` are dropped.
    pub fn set_mode(&mut self, mode: u32) {
        *self = Permissions::from_mode(mode);
    }

    /// Whether no permission bit allows a write.
    pub fn readonly(&self) -> bool {
        self.mode & 0o222 == 0
    }

    /// Takes the right to write from all, or gives it to all.
    pub fn set_readonly(&mut self, readonly: bool) {
        match readonly {
            true => self.mode &= !0o222,
            false => self.mode |= 0o222,
        }
    }
}

/// Times to set; those not named stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
    created: Option<Timestamp>,
}

impl FileTimes {
    /// Changes nothing yet.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the last access.
    pub fn set_accessed(mut self, time: SystemTime) -> FileTimes {
        self.accessed = Some(SetTime::At(time.into()));
        self
    }

    /// Sets the last change of the content.
    pub fn set_modified(mut self, time: SystemTime) -> FileTimes {
        self.modified = Some(SetTime::At(time.into()));
        self
    }

    /// Sets the creation, which no system call can.
    pub fn set_created(mut self, time: SystemTime) -> FileTimes {
        self.created = Some(time.into());
        self
    }

    /// Sets access and change to the moment of the call, as `touch` does.
    pub fn now() -> FileTimes {
        FileTimes { accessed: Some(SetTime::Now), modified: Some(SetTime::Now), created: None }
    }

    pub(crate) fn change(&self) -> SetAttr {
        SetAttr {
            atime: self.accessed,
            mtime: self.modified,
            btime: self.created,
            ..SetAttr::default()
        }
    }
}

/// Attributes to set in one step of history; those not named stay as they are.
///
/// Times that are set together with the rest are not touched by it, and set-id bits that are set are there afterwards,
/// also with a new owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    owner: Option<(u32, u32)>,
    permissions: Option<Permissions>,
    times: FileTimes,
}

impl Attributes {
    /// Changes nothing yet.
    pub fn new() -> Attributes {
        Attributes::default()
    }

    /// Sets owner and group.
    pub fn owner(mut self, uid: u32, gid: u32) -> Attributes {
        self.owner = Some((uid, gid));
        self
    }

    /// Sets the permission bits. With an access control list they are those of its owner, mask and others.
    pub fn permissions(mut self, permissions: Permissions) -> Attributes {
        self.permissions = Some(permissions);
        self
    }

    /// Sets times.
    pub fn times(mut self, times: FileTimes) -> Attributes {
        self.times = times;
        self
    }

    pub(crate) fn change(&self) -> SetAttr {
        SetAttr {
            uid: self.owner.map(|(uid, _)| uid),
            gid: self.owner.map(|(_, gid)| gid),
            perm: self.permissions.map(|permissions| permissions.mode()),
            ..self.times.change()
        }
    }
}
