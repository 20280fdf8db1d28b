//! Ids, each a type of its own.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $raw);

        impl $name {
            /// The one behind it.
            pub fn next(self) -> $name {
                $name(self.0 + 1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Number of an inode. Handed out upwards and never used twice in a volume's life.
    InodeNo(u64), "i"
);
id!(
    /// Number of a checkpoint: grows with each superblock written, and its lowest bit is the number
    /// of the slot. A node carries the epoch of the checkpoint that first writes it.
    Epoch(u64), "e"
);
id!(
    /// Log sequence number: the place of one operation in the volume's single history.
    Lsn(u64), "l"
);
id!(
    /// Number of a commit of the journal: grows by one in a volume's life, and is never used for
    /// two commits that became durable.
    CommitNo(u64), "c"
);
id!(
    /// Number of a batch of the fsync log: grows by one in a volume's life, and is never used for two
    /// batches that became durable.
    BatchNo(u64), "b"
);

impl InodeNo {
    /// The root directory. FUSE wants 1 as well, so no translation is needed.
    pub const ROOT: InodeNo = InodeNo(1);
    /// First number given to a file.
    pub const FIRST_FREE: InodeNo = InodeNo(16);
}

/// Which of the two trees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TreeId {
    /// Inodes, names, extents, xattrs, orphans.
    Files = 1,
    /// Block groups, free space and volume settings.
    Space = 2,
}

impl TreeId {
    /// The tree with this number on disk.
    pub fn from_raw(raw: u8) -> Option<TreeId> {
        match raw {
            1 => Some(TreeId::Files),
            2 => Some(TreeId::Space),
            _ => None,
        }
    }
}
