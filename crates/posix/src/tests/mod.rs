//! Every call against POSIX's rules, on a volume in memory.

mod atime;
mod attr;
mod content;
mod create;
mod delete;
mod flags;
mod holes;
mod limits;
mod orphans;
mod path;
mod promotions;
mod readdir;
mod rename;
mod resumed;
mod rollbacks;
mod shifts;
mod threads;
mod unlink;
mod xattr;

use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_device::MemoryDevice;
use holdfast_format::item::FileType;
use holdfast_store::Device;

use crate::*;

pub(crate) const ROOT: InodeNo = InodeNo::ROOT;

/// A volume with shorthand for its calls. Names have no slashes; directories are given by number.
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) fs: FileSystem,
}

pub(crate) fn options() -> MountOptions {
    MountOptions { commit_secs: 0, ..MountOptions::default() }
}

pub(crate) fn root() -> Caller {
    Caller::root()
}

/// A caller that has not been checked.
pub(crate) fn user(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: vec![], trusted: false }
}

/// The errno of a call that must fail.
#[track_caller]
pub(crate) fn errno<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.expect_err("the call should have failed").errno()
}

impl Volume {
    pub(crate) fn new() -> Volume {
        Volume::with(64 << 20, 4096, options())
    }

    pub(crate) fn with(bytes: u64, node_size: usize, options: MountOptions) -> Volume {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
        let mkfs = MkfsOptions {
            node_size,
            label: "test".into(),
            uuid: Some([7; 16]),
            owner: (0, 0),
            ..MkfsOptions::default()
        };
        FileSystem::mkfs(&device, &mkfs).unwrap();
        Volume { fs: FileSystem::mount(device.clone(), options).unwrap(), device }
    }

    /// Leaves the volume and mounts it again.
    pub(crate) fn remount(self) -> Volume {
        self.remount_with(options())
    }

    pub(crate) fn remount_with(self, options: MountOptions) -> Volume {
        self.fs.unmount().unwrap();
        Volume { fs: FileSystem::mount(self.device.clone(), options).unwrap(), device: self.device }
    }

    /// Makes everything durable, forgets what is in memory, and mounts again.
    pub(crate) fn crash_after_sync(self) -> Volume {
        let core = &self.fs.core;
        core.store.sync(core.store.latest(), InodeNo::ROOT).unwrap();
        drop(self.fs);
        Volume {
            fs: FileSystem::mount(self.device.clone(), options()).unwrap(),
            device: self.device,
        }
    }

    pub(crate) fn file(&self, dir: InodeNo, name: &str) -> InodeNo {
        let new = NewNode { file_type: FileType::Regular, perm: 0o644, rdev: 0 };
        let made = self.fs.mknod(&root(), dir, name.as_bytes(), new);
        made.unwrap().inode
    }

    pub(crate) fn dir(&self, dir: InodeNo, name: &str) -> InodeNo {
        let made = self.fs.mkdir(&root(), dir, name.as_bytes(), 0o755);
        made.unwrap().inode
    }

    pub(crate) fn unlink(&self, dir: InodeNo, name: &str) -> Result<()> {
        self.fs.unlink(&root(), dir, name.as_bytes())
    }

    pub(crate) fn rename(&self, from: (InodeNo, &str), to: (InodeNo, &str)) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    pub(crate) fn rename_with(
        &self,
        from: (InodeNo, &str),
        to: (InodeNo, &str),
        flags: RenameFlags,
    ) -> Result<()> {
        let (old, new) = (from.1.as_bytes(), to.1.as_bytes());
        self.fs.rename(&root(), from.0, old, to.0, new, flags)
    }

    pub(crate) fn find(&self, dir: InodeNo, name: &str) -> Result<InodeNo> {
        Ok(self.fs.lookup(&root(), dir, name.as_bytes())?.inode)
    }

    pub(crate) fn stat(&self, inode: InodeNo) -> Attr {
        self.fs.getattr(inode).unwrap()
    }

    /// The names of a directory without dots, sorted.
    pub(crate) fn ls(&self, dir: InodeNo) -> Vec<String> {
        let mut names = Vec::new();
        self.fs
            .readdir(dir, 0, &mut |entry| {
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                true
            })
            .unwrap();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }

    /// Inodes and orphans that the tree holds.
    pub(crate) fn in_tree(&self) -> (usize, usize) {
        use holdfast_format::{ItemKind, Key};
        use std::ops::ControlFlow;
        let (mut inodes, mut orphans) = (0, 0);
        let store = &self.fs.core.store;
        store
            .scan(&Key::MIN, &Key::MAX, |key, _| {
                inodes += usize::from(key.kind == ItemKind::Inode);
                orphans += usize::from(key.kind == ItemKind::Orphan);
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(inodes as u64, self.fs.statfs().inodes - self.fs.statfs().inodes_free);
        (inodes, orphans)
    }

    /// Walks the whole tree and fails unless every count agrees with what it counts.
    pub(crate) fn check(&self) {
        let mut names = std::collections::HashMap::new();
        let mut todo = vec![(ROOT, ROOT)];
        let mut dirs = 0;
        while let Some((dir, parent)) = todo.pop() {
            dirs += 1;
            let attr = self.stat(dir);
            let (mut entries, mut subdirs) = (0, 0);
            self.fs
                .readdir(dir, 0, &mut |entry| {
                    match entry.name {
                        b"." => assert_eq!(entry.inode, dir),
                        b".." => assert_eq!(entry.inode, parent),
                        _ => {
                            entries += 1;
                            if entry.file_type == FileType::Directory {
                                subdirs += 1;
                                todo.push((entry.inode, dir));
                            } else {
                                *names.entry(entry.inode).or_insert(0) += 1;
                            }
                        }
                    }
                    true
                })
                .unwrap();
            assert_eq!(attr.size, entries, "entries of directory {dir}");
            assert_eq!(attr.nlink, 2 + subdirs, "links of directory {dir}");
        }
        for (inode, count) in &names {
            assert_eq!(self.stat(*inode).nlink, *count, "links of inode {inode}");
        }
        let (inodes, orphans) = self.in_tree();
        assert_eq!(inodes, dirs + names.len() + orphans, "inodes without a name");
        self.fs.core.store.invariants();
    }
}
