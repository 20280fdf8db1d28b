//! How many requests of each kind the kernel has sent.
//!
//! The number of messages an operation costs matters more than the cost of
//! a message, so tests pin it. Counted where a request arrives, before
//! anything is done for it.

use holdfast_base::counters::Counter;

use super::Operations;

kinds! {
    /// What the kernel asks for.
    RequestKind {
        /// A name is looked up.
        Lookup = "lookup",
        /// The references of an inode are given back. Many inodes may share one message.
        Forget = "forget",
        /// Attributes are read.
        GetAttr = "getattr",
        /// Attributes are read with the time of birth.
        StatX = "statx",
        /// Attributes are changed.
        SetAttr = "setattr",
        /// The target of a symbolic link is read.
        ReadLink = "readlink",
        /// A node other than a directory is made.
        MkNod = "mknod",
        /// A directory is made.
        MkDir = "mkdir",
        /// A name is removed.
        Unlink = "unlink",
        /// A directory is removed.
        RmDir = "rmdir",
        /// A symbolic link is made.
        Symlink = "symlink",
        /// A name moves.
        Rename = "rename",
        /// An inode gets one more name.
        Link = "link",
        /// A file is opened.
        Open = "open",
        /// A file is made and opened.
        Create = "create",
        /// A file without a name is made and opened.
        TmpFile = "tmpfile",
        /// Bytes are read.
        Read = "read",
        /// Bytes are written.
        Write = "write",
        /// A descriptor is closed.
        Flush = "flush",
        /// The last descriptor of a handle is closed.
        Release = "release",
        /// A file is made durable.
        Fsync = "fsync",
        /// A directory is opened.
        OpenDir = "opendir",
        /// Names of a directory are read.
        ReadDir = "readdir",
        /// Names of a directory are read, with attributes.
        ReadDirPlus = "readdirplus",
        /// The handle of a directory is closed.
        ReleaseDir = "releasedir",
        /// A directory is made durable.
        FsyncDir = "fsyncdir",
        /// Space is asked for.
        StatFs = "statfs",
        /// An extended attribute is set.
        SetXattr = "setxattr",
        /// An extended attribute is read.
        GetXattr = "getxattr",
        /// The names of extended attributes are read.
        ListXattr = "listxattr",
        /// An extended attribute is removed.
        RemoveXattr = "removexattr",
        /// Permissions are asked for.
        Access = "access",
        /// Space is allocated, punched or zeroed.
        Fallocate = "fallocate",
        /// Data or a hole is looked for.
        Seek = "seek",
        /// Bytes go from file to file.
        CopyRange = "copy_range",
        /// A device control call.
        Ioctl = "ioctl",
    }
}

/// The counts of one mount, and the operations that its requests became.
#[derive(Debug)]
pub struct Requests {
    counts: [Counter; RequestKind::ALL.len()],
    operations: Operations,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            counts: std::array::from_fn(|_| Counter::default()),
            operations: Operations::default(),
        }
    }
}

impl Requests {
    /// Counts one request.
    pub fn count(&self, kind: RequestKind) {
        self.counts[kind as usize].increment();
    }

    /// How many requests of this kind came so far.
    pub fn get(&self, kind: RequestKind) -> u64 {
        self.counts[kind as usize].get()
    }

    /// The operations that were served.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Every kind with its count, in the order of declaration.
    pub fn list(&self) -> Vec<(RequestKind, u64)> {
        RequestKind::ALL.iter().map(|kind| (*kind, self.get(*kind))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_count() {
        let requests = Requests::default();
        for (index, kind) in RequestKind::ALL.iter().enumerate() {
            for _ in 0..index {
                requests.count(*kind);
            }
        }
        let counts: Vec<u64> = requests.list().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, (0..RequestKind::ALL.len() as u64).collect::<Vec<_>>());
    }
}
