//! A directory, and every call that takes a path.
//!
//! Paths are relative to the directory, as for the `*at` system calls; those
//! that begin with `/` start at the root of the volume. A [`Dir`] follows its
//! directory through renames and keeps it after it was removed. Each call is
//! one step in the volume's history (P3): visible at once, durable with the
//! next sync of what it touched, or with the background commit (P11).

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_base::Receipt;
use holdfast_format::item::FileType;
use holdfast_posix::{FsError, NewNode, RenameFlags, SetAttr};

use crate::error::{Errno, Result};
use crate::file::{File, Opened};
use crate::handle::{Held, Shared};
use crate::mounted::Directory;
use crate::options::OpenOptions;
use crate::path::{Call, End, Follow};
use crate::read_dir::{DirEntry, ReadDir, bytes};

mod attributes;

/// How often a path is looked at again whose file was replaced between two looks.
const REPLACED_TRIES: u32 = 64;

/// A directory that is held open. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dir {
    held: Arc<Held>,
}

impl Dir {
    pub(crate) fn new(held: Arc<Held>) -> Dir {
        Dir { held }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn base(&self) -> InodeNo {
        self.held.inode
    }

    pub(crate) fn with<T>(&self, call: impl FnOnce(Call<'_>) -> Result<T>) -> io::Result<T> {
        self.held.shared.with(call)
    }

    fn reach<T>(
        &self,
        engine: impl FnOnce(Call<'_>) -> Result<T>,
        mounted: impl FnOnce(&Directory) -> io::Result<T>,
    ) -> io::Result<T> {
        self.held.reach(engine, mounted)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.held.shared
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.held.inode.0
    }

    /// As [`Volume::sync`](crate::Volume::sync), for callers with a directory of the volume only.
    pub fn sync_volume(&self) -> io::Result<()> {
        self.reach(|call| Ok(call.fs.sync().map(drop)?), |there| there.mount().sync())
    }

    /// Stops the volume: nothing is written any more, and what is there can be read (P7). For a caller that has found that memory
    /// cannot be trusted, as after a panic. Nothing happens if the volume is closed. One that is reached through a mount is closed here, and the
    /// daemon goes on.
    pub fn stop_volume(&self, why: &str) {
        if self.held.there.is_some() {
            return self.shared().abandon();
        }
        let _ = self.with(|call| {
            call.fs.stop(why);
            Ok(())
        });
    }

    // Files.

    /// Opens a file for reading.
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_with(path, &OpenOptions::new().read(true))
    }

    /// Opens a file for reading and writing; makes it if it is missing, empties it if not.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let options = OpenOptions::new().read(true).write(true);
        self.open_with(path, &options.create(true).truncate(true))
    }

    /// Opens a file as `options` say. See [`OpenOptions::open`].
    pub fn open_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let flags = options.checked_flags()?;
            if options.create || options.create_new {
                // First as a new file: that is one call, and the usual case.
                let place = call.place(self.base(), path, libc::EISDIR)?;
                if place.slash {
                    return Err(Errno(libc::EISDIR));
                }
                match call.fs.create(
                    call.caller,
                    place.parent,
                    &place.name,
                    options.mode,
                    flags,
                    true,
                ) {
                    Ok((_, open)) => return Ok(Opened::Engine(open)),
                    Err(FsError::Exists) if !options.create_new => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let follow = if options.follow { Follow::Yes } else { Follow::No };
            let find = || call.end(self.base(), path, follow);
            let mut found = find()?;
            let mut tries = 0;
            // What is replaced between two looks is no reason to find nothing.
            while let End::Found(attr) = &found
                && !matches!(attr.file_type, FileType::Directory | FileType::Symlink)
            {
                match call.fs.open(call.caller, attr.inode, flags) {
                    Err(FsError::NotFound) if tries < REPLACED_TRIES => found = find()?,
                    opened => return Ok(Opened::Engine(opened?)),
                }
                tries += 1;
            }
            match found {
                End::Found(attr) if attr.file_type == FileType::Directory => {
                    Err(Errno(libc::EISDIR))
                }
                End::Found(_) => Err(Errno(libc::ELOOP)),
                // A link that leads nowhere: the file is made where it points.
                End::Missing(place) if options.create && !place.slash => {
                    let (parent, name) = (place.parent, &place.name);
                    let mode = options.mode;
                    Ok(Opened::Engine(
                        call.fs.create(call.caller, parent, name, mode, flags, false)?.1,
                    ))
                }
                End::Missing(_) => Err(Errno(libc::ENOENT)),
            }
        };
        let open =
            self.reach(by_engine, |there| Ok(Opened::Mounted(there.open_with(path, options)?)))?;
        Ok(File::new(self.shared().clone(), open))
    }

    /// Opens a file without a name. See [`OpenOptions::tmpfile`].
    pub fn tmpfile(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let flags = options.checked_flags()?;
            let dir = call.directory(self.base(), path)?;
            Ok(Opened::Engine(call.fs.tmpfile(call.caller, dir.inode, options.mode, flags)?.1))
        };
        let open =
            self.reach(by_engine, |there| Ok(Opened::Mounted(there.tmpfile(path, options)?)))?;
        Ok(File::new(self.shared().clone(), open))
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open_file(path)?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// The whole content of a file that holds text.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let mut content = String::new();
        self.open_file(path)?.read_to_string(&mut content)?;
        Ok(content)
    }

    /// Makes or replaces the content of a file. Not atomic and not durable: for that, write another file,
    /// [`File::sync_all`] it and [`Dir::rename`] it here (P4).
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.create(path)?.write_all(content.as_ref())
    }

    /// Cuts or extends a file.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        let path = bytes(path.as_ref());
        let change = SetAttr { size: Some(len), ..SetAttr::default() };
        self.reach(
            |call| self.change(call, path, Follow::Yes, change),
            |there| there.truncate(path, len),
        )
    }

    // Names.

    /// Makes a directory with mode 755. EEXIST if the name is taken.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.create_dir_with_mode(path, 0o755)
    }

    /// Makes a directory with these permission bits.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (path, mode) = (bytes(path.as_ref()), mode & 0o7777);
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), path, libc::EEXIST)?;
            call.fs.mkdir(call.caller, place.parent, &place.name, mode)?;
            Ok(())
        };
        self.reach(by_engine, |there| there.create_dir(path, mode))
    }

    /// Makes a directory and the missing ones above it. Fine if it exists already.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        // Upwards to the first that can be made or exists, then down again: no recursion, any depth.
        let mut missing: Vec<&Path> = Vec::new();
        let mut at = Some(path);
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty()) {
            match self.create_dir(dir) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    if !self.metadata(dir)?.is_dir() {
                        return Err(Errno(libc::ENOTDIR).into());
                    }
                    break;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => missing.push(dir),
                Err(error) => return Err(error),
            }
            at = dir.parent();
        }
        for dir in missing.into_iter().rev() {
            match self.create_dir(dir) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes a pipe, socket or device file (or an empty regular file).
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        file_type: FileType,
        mode: u32,
        rdev: u64,
    ) -> io::Result<()> {
        let path = bytes(path.as_ref());
        let new = NewNode { file_type, perm: mode & 0o7777, rdev };
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), path, libc::EEXIST)?;
            if place.slash {
                return Err(Errno(libc::ENOENT));
            }
            call.fs.mknod(call.caller, place.parent, &place.name, new)?;
            Ok(())
        };
        self.reach(by_engine, |there| there.create_node(path, new))
    }

    /// Makes a symbolic link at `link` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        let (target, link) = (bytes(target.as_ref()), bytes(link.as_ref()));
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), link, libc::EEXIST)?;
            if place.slash {
                return Err(Errno(libc::ENOENT));
            }
            call.fs.symlink(call.caller, place.parent, &place.name, target)?;
            Ok(())
        };
        self.reach(by_engine, |there| there.symlink(target, link))
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            match attr.file_type {
                FileType::Symlink => Ok(call.fs.readlink(attr.inode)?),
                _ => Err(Errno(libc::EINVAL)),
            }
        };
        let target = self.reach(by_engine, |there| there.read_link(path))?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Gives the file at `path` one more name. A symbolic link at `path` is linked itself, not what it leads to.
    pub fn hard_link(&self, path: impl AsRef<Path>, new: impl AsRef<Path>) -> io::Result<()> {
        let (path, new) = (bytes(path.as_ref()), bytes(new.as_ref()));
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            self.link_inode(call, attr.inode, new)
        };
        self.reach(by_engine, |there| there.hard_link(path, new))
    }

    /// Gives an open file a name: its first if it was opened with [`Dir::tmpfile`].
    pub fn link_file(&self, file: &File, new: impl AsRef<Path>) -> io::Result<()> {
        self.same_volume(&file.handle.shared)?;
        let new = bytes(new.as_ref());
        match &file.handle.open {
            Opened::Engine(open) => self.with(|call| self.link_inode(call, open.inode(), new)),
            Opened::Mounted(open) => {
                self.reach(|_| Err(Errno(libc::EXDEV)), |there| there.link_file(open, new))
            }
        }
    }

    fn link_inode(&self, call: Call<'_>, inode: InodeNo, new: &[u8]) -> Result<()> {
        let place = call.place(self.base(), new, libc::EEXIST)?;
        if place.slash {
            return Err(Errno(libc::ENOENT));
        }
        call.fs.link(call.caller, inode, place.parent, &place.name)?;
        Ok(())
    }

    /// Moves `from` to `to`, replacing what is there, in one step: after a crash either all of it happened
    /// or nothing, and a file that replaces another has its data (P4).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_with(from, self, to, RenameFlags::empty())
    }

    /// Moves `from` in this directory to `to` in another, as `flags` say: refuse to replace, or swap.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> io::Result<()> {
        self.same_volume(to_dir.shared())?;
        let (from, to) = (bytes(from.as_ref()), bytes(to.as_ref()));
        let by_engine = |call: Call<'_>| {
            let from = call.place(self.base(), from, libc::EBUSY)?;
            let to = call.place(to_dir.base(), to, libc::EBUSY)?;
            if from.slash || to.slash {
                let moved = call.fs.lookup(call.caller, from.parent, &from.name)?;
                if moved.file_type != FileType::Directory {
                    return Err(Errno(libc::ENOTDIR));
                }
            }
            call.fs.rename(call.caller, from.parent, &from.name, to.parent, &to.name, flags)?;
            Ok(())
        };
        self.reach(by_engine, |there| match &to_dir.held.there {
            Some(to_dir) => there.rename(from, to_dir, to, flags),
            None => Err(Errno(libc::EXDEV).into()),
        })
    }

    /// Removes a name of anything but a directory. Works on a full volume (P8).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), path, libc::EISDIR)?;
            if place.slash {
                return Err(Errno(libc::ENOTDIR));
            }
            Ok(call.fs.unlink(call.caller, place.parent, &place.name)?)
        };
        self.reach(by_engine, |there| there.remove_file(path))
    }

    /// Removes an empty directory. Works on a full volume (P8).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let place = call.place(self.base(), path, libc::EBUSY)?;
            Ok(call.fs.rmdir(call.caller, place.parent, &place.name)?)
        };
        self.reach(by_engine, |there| there.remove_dir(path))
    }

    // Directories.

    /// Holds the directory at `path`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        let (path, shared) = (bytes(path.as_ref()), self.shared());
        if self.held.there.is_some() {
            let open = |there: &Directory| there.open_dir(path);
            let there = self.reach(|_| Err(Errno(libc::EBADF)), open)?;
            return Ok(Dir::new(Held::in_mount(shared.clone(), there)));
        }
        let attr = self.with(|call| call.directory(self.base(), path))?;
        Ok(Dir::new(Held::new(shared.clone(), attr.inode)?))
    }

    /// Holds the directory that `name` is in this one, links not followed, if its inode is `inode`. ENOENT if not.
    pub(crate) fn enter(&self, name: &OsStr, inode: InodeNo) -> io::Result<Dir> {
        if self.held.there.is_some() {
            let enter = |there: &Directory| there.enter(name.as_bytes(), inode);
            let there = self.reach(|_| Err(Errno(libc::EBADF)), enter)?;
            return Ok(Dir::new(Held::in_mount(self.shared().clone(), there)));
        }
        self.with(|call| {
            let attr = call.fs.lookup(call.caller, self.base(), name.as_bytes())?;
            match attr.file_type {
                FileType::Directory if attr.inode == inode => {}
                FileType::Directory => return Err(Errno(libc::ENOENT)),
                _ => return Err(Errno(libc::ENOTDIR)),
            }
            call.fs.remember(inode, 1);
            Ok(())
        })?;
        let dir = Dir::new(Held::remembered(self.shared().clone(), inode));
        // An inode that went just now is not held, and its number is never another's.
        self.with(|call| Ok(call.fs.getattr(inode)?))?;
        Ok(dir)
    }

    /// Holds the directory that `entry` is; ENOENT if it no longer has this name: what was moved away is not gone into, and neither is what
    /// has come in its place.
    pub(crate) fn of(entry: &DirEntry) -> io::Result<Dir> {
        let entered =
            Dir::new(entry.parent().clone()).enter(entry.file_name(), InodeNo(entry.ino()));
        entered.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTDIR) => Errno(libc::ENOENT).into(),
            _ => error,
        })
    }

    /// The entries of the directory at `path`, in no particular order, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        Ok(ReadDir::new(self.open_dir(path)?.held, path))
    }

    /// The entries of this directory.
    pub fn entries(&self) -> ReadDir {
        ReadDir::new(self.held.clone(), Path::new(""))
    }

    /// fsync of the directory: its entries are durable as they are now or as they are later (P2).
    pub fn sync_all(&self) -> io::Result<()> {
        let by_engine = |call: Call<'_>| Ok(call.fs.fsync_inode(self.base()).map(drop)?);
        self.reach(by_engine, Directory::sync)
    }

    /// As [`Dir::sync_all`], and says what it cost, and why. `Unsupported` through a mount, where `holdfast explain` says it.
    pub fn sync_all_with_receipt(&self) -> io::Result<Receipt> {
        self.shared().has_receipts()?;
        self.with(|call| Ok(call.fs.fsync_inode(self.base())?))
    }

    /// What the last sync of this directory cost, by any caller; `None` if there was none since it came into memory.
    pub fn last_receipt(&self) -> io::Result<Option<Receipt>> {
        self.shared().has_receipts()?;
        self.with(|call| Ok(call.fs.last_receipt(self.base())?))
    }

    fn same_volume(&self, other: &Arc<Shared>) -> io::Result<()> {
        match Arc::ptr_eq(self.shared(), other) {
            true => Ok(()),
            false => Err(Errno(libc::EXDEV).into()),
        }
    }
}

impl OpenOptions {
    /// Opens the file at `path` in `dir`.
    ///
    /// # Errors
    /// EINVAL for a combination that makes no sense (nothing asked; `truncate` with `append`; `create`
    /// without a way to write), EISDIR, ENOENT, EEXIST, ELOOP, and what the volume says.
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        dir.open_with(path, self)
    }

    /// Opens a new file without a name in the directory `path` (O_TMPFILE). It vanishes when it is closed,
    /// also by a crash, unless [`Dir::link_file`] gives it a name.
    pub fn tmpfile(&self, dir: &Dir, path: impl AsRef<Path>) -> io::Result<File> {
        dir.tmpfile(path, self)
    }
}
