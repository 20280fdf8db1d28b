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
use parking_lot::Mutex;

use crate::handle::Held;
use crate::metadata::{FileType, Metadata};
use crate::mounted::Directory;

/// Entries fetched at once: enough to make the call's cost vanish, little enough to keep memory flat.
const BATCH: usize = 256;

/// Iterator over the entries of a directory, from [`crate::Dir::read_dir`].
#[derive(Debug)]
pub struct ReadDir {
    pub(crate) held: Arc<Held>,
    pub(crate) path: PathBuf,
    batch: VecDeque<Ahead>,
    /// Behind the last entry of the batch.
    cookie: u64,
    /// Behind the last entry that was given.
    given: u64,
    done: bool,
    /// Of a directory of a mount: where its listing is.
    listing: Mutex<Option<Listing>>,
}

/// An entry that was read and is given later.
#[derive(Debug)]
struct Ahead {
    name: OsString,
    inode: InodeNo,
    file_type: FileType,
    /// Behind it.
    cookie: u64,
}

/// Only to be moved: the lock makes of it what may be shared.
struct Listing(rustix::fs::Dir);

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listing")
    }
}

impl ReadDir {
    pub(crate) fn new(held: Arc<Held>, path: &Path) -> ReadDir {
        let (path, batch) = (path.to_path_buf(), VecDeque::new());
        ReadDir { held, path, batch, cookie: 0, given: 0, done: false, listing: Mutex::default() }
    }

    /// Bytes of what was read ahead.
    pub(crate) fn ahead_bytes(&self) -> usize {
        let names: usize = self.batch.iter().map(|ahead| ahead.name.len()).sum();
        self.batch.capacity() * size_of::<Ahead>() + names
    }

    /// Forgets what was read ahead, to read it again when it is wanted. Of a directory of a mount it is kept.
    pub(crate) fn let_go(&mut self) {
        if self.held.there.is_none() {
            self.done &= self.batch.is_empty();
            (self.batch, self.cookie) = (VecDeque::new(), self.given);
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let held = Arc::clone(&self.held);
        if let Some(there) = &held.there {
            // EBADF when the volume is closed.
            held.shared.mount()?;
            return self.fill_from_mount(there);
        }
        let (batch, cookie) = (&mut self.batch, &mut self.cookie);
        let mut full = false;
        self.held.shared.with(|call| {
            Ok(call.fs.readdir(self.held.inode, *cookie, &mut |entry| {
                *cookie = entry.cookie;
                if entry.name != b"." && entry.name != b".." {
                    let name = OsString::from_vec(entry.name.to_vec());
                    let (inode, file_type, cookie) = (entry.inode, entry.file_type, entry.cookie);
                    batch.push_back(Ahead { name, inode, file_type, cookie });
                }
                full = batch.len() >= BATCH;
                !full
            })?)
        })?;
        self.done = !full;
        Ok(())
    }

    fn fill_from_mount(&mut self, there: &Directory) -> io::Result<()> {
        let listing = match self.listing.get_mut() {
            Some(listing) => listing,
            none => none.insert(Listing(there.list()?)),
        };
        while self.batch.len() < BATCH {
            let Some(entry) = listing.0.next() else {
                self.done = true;
                break;
            };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let file_type = match FileType::from_mode(entry.file_type().as_raw_mode()) {
                Some(file_type) => file_type,
                None => there.file_type_of(name)?,
            };
            let (name, inode) = (OsString::from_vec(name.to_vec()), InodeNo(entry.ino()));
            self.batch.push_back(Ahead { name, inode, file_type, cookie: 0 });
        }
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
        let Ahead { name, inode, file_type, cookie } = self.batch.pop_front()?;
        self.given = cookie;
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

    /// An entry of the directory `parent`, whose path is its name.
    pub(crate) fn of(
        parent: &Arc<Held>,
        name: OsString,
        inode: InodeNo,
        file_type: FileType,
    ) -> DirEntry {
        let (parent, path) = (Arc::clone(parent), PathBuf::from(&name));
        DirEntry { parent, path, name, inode, file_type }
    }

    /// The same, with its path from elsewhere: `dir` is where it is.
    pub(crate) fn below(self, dir: &Path) -> DirEntry {
        DirEntry { path: dir.join(&self.name), ..self }
    }

    /// What it was when the directory was read; costs nothing.
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.inode.0
    }

    /// Its attributes, symbolic links not followed. ENOENT if it is gone; through a mount also if it has no longer this name.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.parent
            .reach(
                |call| Ok(call.fs.getattr(self.inode)?),
                |there| there.attr_of(self.name.as_bytes(), self.inode),
            )
            .map(Metadata)
    }
}

/// The bytes of a path.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
