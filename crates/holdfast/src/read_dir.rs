//! The names of a directory, a batch at a time.
//!
//! An entry that exists all the time is given exactly once, however the
//! directory changes meanwhile; entries that come or go may be given or not.
//! `.` and `..` are left out.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::InodeNo;

use crate::held::Held;
use crate::metadata::{FileType, Metadata};

/// Entries fetched at once: enough to make the call's cost vanish, little enough to keep memory flat.
const BATCH: usize = 256;

/// Iterator over the entries of a directory, from [`crate::Dir::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    pub(crate) held: Arc<Held>,
    pub(crate) path: PathBuf,
    batch: VecDeque<(OsString, InodeNo, FileType)>,
    cookie: u64,
    done: bool,
}

impl ReadDir {
    pub(crate) fn new(held: Arc<Held>, path: &Path) -> ReadDir {
        ReadDir { held, path: path.to_path_buf(), batch: VecDeque::new(), cookie: 0, done: false }
    }

    /// With an entry that leads to `above`, the directory above this one: what only a damaged volume has.
    #[cfg(test)]
    pub(crate) fn leading_up_to(mut self, above: InodeNo) -> ReadDir {
        self.batch.push_back(("..".into(), above, FileType::Directory));
        self
    }

    fn fill(&mut self) -> io::Result<()> {
        let (batch, cookie) = (&mut self.batch, &mut self.cookie);
        let mut full = false;
        self.held.shared.with(|call| {
            Ok(call.fs.readdir(self.held.inode, *cookie, &mut |entry| {
                *cookie = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    let name = OsString::from_vec(entry.name.to_vec());
                    batch.push_back((name, entry.inode, entry.file_type));
                }
                full = batch.len() >= BATCH;
                !full
            })?)
        })?;
        self.done = !full;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.batch.is_empty()
            && !self.done
            && let Err(error) = self.fill()
        {
            self.done = true;
            return Some(Err(error));
        }
        let (name, inode, file_type) = self.batch.pop_front()?;
        Some(Ok(DirEntry {
            parent: self.held.clone(),
            path: self.path.join(&name),
            name,
            inode,
            file_type,
        }))
    }
}

/// One name of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    parent: Arc<Held>,
    path: PathBuf,
    name: OsString,
    inode: InodeNo,
    file_type: FileType,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The path given to `read_dir`, with the name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The directory that it is in.
    pub(crate) fn parent(&self) -> &Arc<Held> {
        &self.parent
    }

    /// What it was when the directory was read; costs nothing.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.inode.0
    }

    /// Its attributes, symbolic links not followed. ENOENT if it is gone.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let attr = self.parent.shared.with(|call| Ok(call.fs.getattr(self.inode)?))?;
        Ok(Metadata(attr))
    }
}

/// The bytes of a path.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
