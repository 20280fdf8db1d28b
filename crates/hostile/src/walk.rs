//! Looks at everything that a mounted volume shows, and ends whatever it shows.
//!
//! Always true: each inode is visited once, and there are limits for names, bytes
//! and steps, so that circles, forests of shared directories and files of exabytes
//! end. Errors are collected, never judged here.

use std::collections::HashSet;

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileSystem, FileType, FsError, OpenFlags, Seek};

/// Inodes that are visited at most.
const INODES_MAX: usize = 2000;
/// Entries of one directory at most.
const NAMES_MAX: usize = 5000;
/// Pieces of data of one file at most.
const PIECES_MAX: usize = 64;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Directories, without the root: the parent's inode, the name, their own; parents first.
    pub(crate) directories: Vec<(InodeNo, Vec<u8>, InodeNo)>,
    /// Everything else, one line for each name.
    pub(crate) others: Vec<(InodeNo, Vec<u8>, InodeNo, FileType)>,
    /// What failed, and why.
    pub(crate) errors: Vec<String>,
}

/// Walks through the volume.
pub(crate) fn walk(filesystem: &FileSystem) -> Walked {
    let mut seen = Walked::default();
    let mut known = HashSet::from([InodeNo::ROOT]);
    let mut next = vec![InodeNo::ROOT];
    let _ = filesystem.statfs();
    while let Some(dir) = next.pop() {
        let mut entries = Vec::new();
        let listed = filesystem.readdir(dir, 0, &mut |entry| {
            if ![&b"."[..], b".."].contains(&entry.name) {
                entries.push((entry.name.to_vec(), entry.inode));
            }
            entries.len() < NAMES_MAX
        });
        seen.note(dir, "readdir", listed);
        for (name, inode) in entries {
            let found = filesystem.lookup(&Caller::root(), dir, &name);
            let Some(attr) = seen.note(inode, "lookup", found) else { continue };
            if attr.inode != inode {
                seen.errors.push(format!("lookup leads to {}, readdir to {inode}", attr.inode));
            }
            match attr.file_type {
                FileType::Directory => seen.directories.push((dir, name, attr.inode)),
                file_type => seen.others.push((dir, name, attr.inode, file_type)),
            }
            if known.len() < INODES_MAX && known.insert(attr.inode) {
                seen.inode(filesystem, attr.inode, attr.file_type);
                if attr.file_type == FileType::Directory {
                    next.push(attr.inode);
                }
            }
        }
    }
    seen
}

impl Walked {
    fn note<T>(&mut self, inode: InodeNo, call: &str, done: Result<T, FsError>) -> Option<T> {
        done.map_err(|error| self.errors.push(format!("{call} of inode {inode}: {error}"))).ok()
    }

    /// Attributes and content.
    fn inode(&mut self, filesystem: &FileSystem, inode: InodeNo, file_type: FileType) {
        let caller = Caller::root();
        self.note(inode, "getattr", filesystem.getattr(inode));
        let names = filesystem.listxattr(&caller, inode);
        for name in self.note(inode, "listxattr", names).unwrap_or_default() {
            self.note(inode, "getxattr", filesystem.getxattr(&caller, inode, &name));
        }
        match file_type {
            FileType::Symlink => {
                self.note(inode, "readlink", filesystem.readlink(inode));
            }
            FileType::Regular => self.content(filesystem, inode),
            _ => {}
        }
    }

    /// The data of a file, hole by hole, as far as the limits go; then its end.
    fn content(&mut self, filesystem: &FileSystem, inode: InodeNo) {
        let opened = filesystem.open(&Caller::root(), inode, OpenFlags::READ);
        let Some(file) = self.note(inode, "open", opened) else { return };
        let mut buffer = vec![0; 64 << 10];
        let mut at = 0;
        for _ in 0..PIECES_MAX {
            let data = match filesystem.seek(&file, at, Seek::Data) {
                Err(FsError::NoSuchPosition) => break,
                data => data,
            };
            let Some(data) = self.note(inode, "seek", data) else { break };
            let read = filesystem.read(&file, data, &mut buffer);
            let got = self.note(inode, "read", read).unwrap_or(0);
            // What does not read is passed over.
            let passed = data.saturating_add(if got > 0 { got as u64 } else { 4096 });
            if passed <= at {
                self.errors.push(format!("seek of inode {inode} from {at} goes back to {data}"));
                break;
            }
            at = passed;
        }
        if let Ok(attr) = filesystem.getattr(inode) {
            let last = attr.size.saturating_sub(100);
            let read = filesystem.read(&file, last, &mut buffer);
            self.note(inode, "read of the end", read);
        }
    }
}
