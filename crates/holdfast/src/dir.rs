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
use holdfast_posix::{FsError, NewNode, RenameFlags, SetAttr, XattrFlags};

use crate::error::{Errno, Result};
use crate::file::File;
use crate::held::{Held, Shared};
use crate::metadata::{Attributes, FileTimes, Metadata, Permissions};
use crate::options::OpenOptions;
use crate::path::{Call, End, Follow};
use crate::read_dir::{DirEntry, ReadDir, bytes};

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

    fn shared(&self) -> &Arc<Shared> {
        &self.held.shared
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.held.inode.0
    }

    /// As [`Volume::sync`](crate::Volume::sync), for who has a directory of the volume only.
    pub fn sync_volume(&self) -> io::Result<()> {
        self.with(|call| Ok(call.fs.sync().map(drop)?))
    }

    /// Stops the volume: nothing is written any more, and what is there can be read (P7). For a caller that has found that memory
    /// cannot be trusted, as after a panic. Nothing happens if the volume is closed.
    pub fn stop_volume(&self, why: &str) {
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
        let open = self.with(|call| {
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
                    Ok((_, open)) => return Ok(open),
                    Err(FsError::Exists) if !options.create_new => {}
                    Err(error) => return Err(error.into()),
                }
            }
            let follow = if options.follow { Follow::Yes } else { Follow::No };
            match call.end(self.base(), path, follow)? {
                End::Found(attr) => match attr.file_type {
                    FileType::Directory => Err(Errno(libc::EISDIR)),
                    FileType::Symlink => Err(Errno(libc::ELOOP)),
                    _ => Ok(call.fs.open(call.caller, attr.inode, flags)?),
                },
                // A link that leads nowhere: the file is made where it points.
                End::Missing(place) if options.create && !place.slash => Ok(call
                    .fs
                    .create(call.caller, place.parent, &place.name, options.mode, flags, false)?
                    .1),
                End::Missing(_) => Err(Errno(libc::ENOENT)),
            }
        })?;
        Ok(File::new(self.shared().clone(), open))
    }

    /// Opens a file without a name. See [`OpenOptions::tmpfile`].
    pub fn tmpfile(&self, path: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        let open = self.with(|call| {
            let flags = options.checked_flags()?;
            let dir = call.directory(self.base(), bytes(path.as_ref()))?;
            Ok(call.fs.tmpfile(call.caller, dir.inode, options.mode, flags)?.1)
        })?;
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
        self.set_attr(path, Follow::Yes, SetAttr { size: Some(len), ..SetAttr::default() })
    }

    // Names.

    /// Makes a directory with mode 755. EEXIST if the name is taken.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.create_dir_with_mode(path, 0o755)
    }

    /// Makes a directory with these permission bits.
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        self.with(|call| {
            let place = call.place(self.base(), bytes(path.as_ref()), libc::EEXIST)?;
            let mode = mode & 0o7777;
            call.fs.mkdir(call.caller, place.parent, &place.name, mode)?;
            Ok(())
        })
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
        self.with(|call| {
            let place = call.place(self.base(), bytes(path.as_ref()), libc::EEXIST)?;
            if place.slash {
                return Err(Errno(libc::ENOENT));
            }
            let new = NewNode { file_type, perm: mode & 0o7777, rdev };
            call.fs.mknod(call.caller, place.parent, &place.name, new)?;
            Ok(())
        })
    }

    /// Makes a symbolic link at `link` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
        self.with(|call| {
            let place = call.place(self.base(), bytes(link.as_ref()), libc::EEXIST)?;
            if place.slash {
                return Err(Errno(libc::ENOENT));
            }
            let target = bytes(target.as_ref());
            call.fs.symlink(call.caller, place.parent, &place.name, target)?;
            Ok(())
        })
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let target = self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            match attr.file_type {
                FileType::Symlink => Ok(call.fs.readlink(attr.inode)?),
                _ => Err(Errno(libc::EINVAL)),
            }
        })?;
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    /// Gives the file at `path` one more name. A symbolic link at `path` is linked itself, not what it leads to.
    pub fn hard_link(&self, path: impl AsRef<Path>, new: impl AsRef<Path>) -> io::Result<()> {
        self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            self.link_inode(call, attr.inode, new.as_ref())
        })
    }

    /// Gives an open file a name: its first if it was opened with [`Dir::tmpfile`].
    pub fn link_file(&self, file: &File, new: impl AsRef<Path>) -> io::Result<()> {
        self.same_volume(&file.handle.shared)?;
        self.with(|call| self.link_inode(call, file.handle.open.inode(), new.as_ref()))
    }

    fn link_inode(&self, call: Call<'_>, inode: InodeNo, new: &Path) -> Result<()> {
        let place = call.place(self.base(), bytes(new), libc::EEXIST)?;
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
        self.with(|call| {
            let from = call.place(self.base(), bytes(from.as_ref()), libc::EBUSY)?;
            let to = call.place(to_dir.base(), bytes(to.as_ref()), libc::EBUSY)?;
            if from.slash || to.slash {
                let moved = call.fs.lookup(call.caller, from.parent, &from.name)?;
                if moved.file_type != FileType::Directory {
                    return Err(Errno(libc::ENOTDIR));
                }
            }
            call.fs.rename(call.caller, from.parent, &from.name, to.parent, &to.name, flags)?;
            Ok(())
        })
    }

    /// Removes a name of anything but a directory. Works on a full volume (P8).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.with(|call| {
            let place = call.place(self.base(), bytes(path.as_ref()), libc::EISDIR)?;
            if place.slash {
                return Err(Errno(libc::ENOTDIR));
            }
            Ok(call.fs.unlink(call.caller, place.parent, &place.name)?)
        })
    }

    /// Removes an empty directory. Works on a full volume (P8).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.with(|call| {
            let place = call.place(self.base(), bytes(path.as_ref()), libc::EBUSY)?;
            Ok(call.fs.rmdir(call.caller, place.parent, &place.name)?)
        })
    }

    // Directories.

    /// Holds the directory at `path`.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        let attr = self.with(|call| call.directory(self.base(), bytes(path.as_ref())))?;
        Ok(Dir::new(Held::new(self.shared().clone(), attr.inode)?))
    }

    /// Holds the directory that `name` is in this one, links not followed, if its inode is `inode`. ENOENT if not.
    pub(crate) fn enter(&self, name: &OsStr, inode: InodeNo) -> io::Result<Dir> {
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
        let dir = Dir::new(Arc::new(Held { shared: self.shared().clone(), inode }));
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
        self.sync_all_with_receipt().map(drop)
    }

    /// As [`Dir::sync_all`], and says what it cost, and why.
    pub fn sync_all_with_receipt(&self) -> io::Result<Receipt> {
        self.with(|call| Ok(call.fs.fsync_inode(self.base())?))
    }

    /// What the last sync of this directory cost, by any caller; `None` if there was none since it came into memory.
    pub fn last_receipt(&self) -> io::Result<Option<Receipt>> {
        self.with(|call| Ok(call.fs.last_receipt(self.base())?))
    }

    // Attributes.

    /// Attributes of what is at `path`, symbolic links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.with(|call| call.node(self.base(), bytes(path.as_ref()), Follow::Yes)).map(Metadata)
    }

    /// Attributes of what is at `path`, symbolic links shown themselves.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.with(|call| call.node(self.base(), bytes(path.as_ref()), Follow::No)).map(Metadata)
    }

    /// Where `path` leads, from the root of the volume, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// ENOENT if nothing is there, or if this directory has been removed.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        self.with(|call| call.real_path(self.base(), bytes(path.as_ref())))
            .map(|path| OsString::from_vec(path).into())
    }

    /// Whether something is at `path`, symbolic links followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn set_attr(&self, path: impl AsRef<Path>, follow: Follow, change: SetAttr) -> io::Result<()> {
        self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), follow)?;
            call.fs.setattr(call.caller, attr.inode, None, change)?;
            Ok(())
        })
    }

    /// Sets permission bits, symbolic links followed.
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> io::Result<()> {
        self.set_attr(
            path,
            Follow::Yes,
            SetAttr { perm: Some(permissions.mode()), ..SetAttr::default() },
        )
    }

    /// Sets times; of a symbolic link itself.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> io::Result<()> {
        self.set_attr(path, Follow::No, times.change())
    }

    /// Sets owner and group; of a symbolic link itself.
    pub fn chown(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> io::Result<()> {
        self.set_attr(path, Follow::No, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets owner, permission bits and times in one step; of a symbolic link itself.
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: Attributes) -> io::Result<()> {
        self.set_attr(path, Follow::No, attributes.change())
    }

    /// The value of an extended attribute, symbolic links not followed; ENODATA if there is none.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<Vec<u8>> {
        self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            Ok(call.fs.getxattr(call.caller, attr.inode, name.as_ref().as_bytes())?)
        })
    }

    /// The names of all extended attributes, symbolic links not followed.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let names = self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            Ok(call.fs.listxattr(call.caller, attr.inode)?)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Sets an extended attribute as `flags` say, symbolic links not followed.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        flags: XattrFlags,
    ) -> io::Result<()> {
        self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            Ok(call.fs.setxattr(call.caller, attr.inode, name.as_ref().as_bytes(), value, flags)?)
        })
    }

    /// Removes an extended attribute, symbolic links not followed; ENODATA if there is none.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.with(|call| {
            let attr = call.node(self.base(), bytes(path.as_ref()), Follow::No)?;
            Ok(call.fs.removexattr(call.caller, attr.inode, name.as_ref().as_bytes())?)
        })
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
