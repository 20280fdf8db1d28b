//! Goes on using a volume that may be anything: writes, makes, moves, removes.
//!
//! Branches and snapshots as well. Allocation and numbers that were handed out twice show only then. The same is
//! done on every volume; what it contains decides what that means. Everything
//! ends: the lists it works through were made before. Errors are collected.

use holdfast_base::InodeNo;
use holdfast_posix::{
    Caller, FallocateFlags, FileSystem, FileType, FsError, MountOptions, OpenFlags, RenameFlags,
    SetAttr, StoreError, WriteHow, XattrFlags,
};

use crate::walk::walk;

/// Files that are changed at most.
const FILES_MAX: usize = 12;
/// Directories in which something is made at most.
const DIRECTORIES_MAX: usize = 6;
/// Branches, and snapshots of each, that are removed at most.
const TREES_MAX: usize = 4;

/// What failed although nothing should: neither space nor a limit is a reason.
#[derive(Debug, Default)]
pub(crate) struct Errors(pub(crate) Vec<String>);

impl Errors {
    fn note<T>(&mut self, what: &str, inode: InodeNo, done: Result<T, FsError>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(
                FsError::Store(StoreError::NoSpace)
                | FsError::FileTooLarge
                | FsError::TooManyLinks
                | FsError::Exists
                // A name that there is, a snapshot that is held or has forks.
                | FsError::Store(StoreError::Lineage(_)),
            ) => None,
            Err(error) => {
                self.0.push(format!("{what} in inode {inode}: {error}"));
                None
            }
        }
    }
}

/// Uses the volume; with `empty`, removes everything in the end.
pub(crate) fn use_on(filesystem: &FileSystem, empty: bool) -> Errors {
    let mut errors = Errors::default();
    let seen = walk(filesystem);
    let directories = seen.directories.iter().map(|(.., inode)| *inode);
    let directories: Vec<_> =
        std::iter::once(InodeNo::ROOT).chain(directories).take(DIRECTORIES_MAX).collect();
    for dir in directories {
        make(filesystem, dir, &mut errors);
    }
    let mut files: Vec<_> = seen
        .others
        .iter()
        .filter(|other| other.3 == FileType::Regular)
        .map(|other| other.2)
        .collect();
    files.sort_unstable();
    files.dedup();
    for inode in files.into_iter().take(FILES_MAX) {
        change(filesystem, inode, &mut errors);
    }
    errors.note("commit", InodeNo::ROOT, filesystem.commit());
    branch_out(filesystem, &mut errors);
    if empty {
        remove_all(filesystem, &mut errors);
    }
    errors.note("sync", InodeNo::ROOT, filesystem.sync());
    errors
}

/// Makes a snapshot and a branch, removes some of those that were there, and takes the volume back to where it was.
fn branch_out(filesystem: &FileSystem, errors: &mut Errors) {
    let root = InodeNo::ROOT;
    errors.note("snapshot", root, filesystem.snapshot(b"used"));
    errors.note("fork", root, filesystem.fork(b"used-on", Some(b"used")));
    let opened = filesystem.open_branch(b"used-on", MountOptions::default());
    if let Some(branch) = errors.note("open a branch", root, opened) {
        make(&branch, root, errors);
        errors.note("snapshot of a branch", root, branch.snapshot(b"later"));
        errors.note("unmount a branch", root, branch.unmount());
    }
    make(filesystem, root, errors);
    let listed = errors.note("branches", root, filesystem.branches()).unwrap_or_default();
    for branch in listed.into_iter().take(TREES_MAX) {
        let snapshots = filesystem.snapshots_of(&branch.name);
        let snapshots = errors.note("snapshots", root, snapshots).unwrap_or_default();
        for snapshot in snapshots.into_iter().filter(|of| !of.name.is_empty()).take(TREES_MAX) {
            let gone = filesystem.delete_snapshot(&branch.name, &snapshot.name);
            errors.note("delete a snapshot", root, gone);
        }
        if !branch.is_open {
            errors.note("delete a branch", root, filesystem.delete_branch(&branch.name));
        }
    }
    errors.note("snapshot", root, filesystem.snapshot(b"used again"));
    errors.note("rollback", root, filesystem.rollback(b"used again", None));
    errors.note("go on deleting", root, filesystem.finish_deletions());
}

/// New things in a directory, made durable, moved and in part removed.
fn make(filesystem: &FileSystem, dir: InodeNo, errors: &mut Errors) {
    let root = Caller::root();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let made = filesystem.create(&root, dir, b"used-on", 0o644, flags, true);
    if let Some((attr, file)) = errors.note("create", dir, made) {
        for (offset, len) in [(0, 9000), (20_000, 100), (50, 20)] {
            let bytes = vec![offset as u8 + 1; len];
            let done = filesystem.write(&root, &file, offset, &bytes, WriteHow::default());
            errors.note("write", attr.inode, done);
        }
        errors.note("fsync", attr.inode, filesystem.fsync(&file, false));
        let set =
            filesystem.setxattr(&root, attr.inode, b"user.on", &[1; 300], XattrFlags::empty());
        errors.note("setxattr", attr.inode, set);
        errors.note("link", dir, filesystem.link(&root, attr.inode, dir, b"used-twice"));
    }
    let sub = filesystem.mkdir(&root, dir, b"used-dir", 0o755);
    if let Some(sub) = errors.note("mkdir", dir, sub) {
        let (names, none) = ((b"used-twice", b"moved"), RenameFlags::empty());
        let moved = filesystem.rename(&root, dir, names.0, sub.inode, names.1, none);
        if errors.note("rename", dir, moved).is_some() {
            errors.note("fsync of a directory", dir, filesystem.fsync_inode(sub.inode));
        }
    }
}

/// Changes a file that was there.
fn change(filesystem: &FileSystem, inode: InodeNo, errors: &mut Errors) {
    let root = Caller::root();
    let opened = filesystem.open(&root, inode, OpenFlags::READ | OpenFlags::WRITE);
    let Some(file) = errors.note("open", inode, opened) else { return };
    let size = filesystem.getattr(inode).map_or(0, |attr| attr.size);
    for (offset, len) in [(0, 3000), (size, 5000), (size / 2, 10)] {
        let done = filesystem.write(&root, &file, offset, &vec![7; len], WriteHow::default());
        errors.note("write", inode, done);
    }
    errors.note("fdatasync", inode, filesystem.fsync(&file, true));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    errors.note("punch", inode, filesystem.fallocate(&file, punch, 4096, 8192));
    errors.note("zero", inode, {
        filesystem.fallocate(&file, FallocateFlags::ZERO_RANGE, size / 2, 100)
    });
    let shorter = SetAttr { size: Some(size / 3), ..SetAttr::default() };
    errors.note("truncate", inode, filesystem.setattr(&root, inode, None, shorter));
    let set = filesystem.setxattr(&root, inode, b"user.long", &[2; 5000], XattrFlags::empty());
    errors.note("setxattr", inode, set);
}

fn remove_all(filesystem: &FileSystem, errors: &mut Errors) {
    let root = Caller::root();
    let seen = walk(filesystem);
    for (dir, name, ..) in &seen.others {
        errors.note("unlink", *dir, filesystem.unlink(&root, *dir, name));
    }
    // Those below come behind those above.
    let mut left = seen.directories;
    while let Some((dir, name, _)) = left.pop() {
        errors.note("rmdir", dir, filesystem.rmdir(&root, dir, &name));
    }
}
