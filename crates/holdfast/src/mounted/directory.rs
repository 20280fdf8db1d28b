//! The calls of a directory of a mount.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use holdfast_base::InodeNo;
use holdfast_format::item::FileType;
use holdfast_posix::{Attr, NewNode, OpenFlags, RenameFlags, SetAttr, XattrFlags};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat};
use rustix::io::retry_on_intr;

use super::attributes::{self, by_descriptor, status, status_of_name, without_umask};
use super::resolve::{End, ParentAndName, one_name, target};
use super::{Directory, Mount, OpenFile, READ_DIRECTORY, errno};
use crate::options::OpenOptions;
use crate::path::Follow;

/// How often a file is looked for and made that others make and remove.
const TRIES: usize = 64;

impl Directory {
    /// The root of the volume.
    pub(crate) fn root(mount: &Arc<Mount>) -> io::Result<Directory> {
        let (place, inode) = (mount.root.try_clone()?, InodeNo(mount.root_is.1));
        Ok(Directory { mount: Arc::clone(mount), place, inode })
    }

    fn with_place(&self, place: OwnedFd) -> io::Result<Directory> {
        let inode = status(&place)?.attr.inode;
        Ok(Directory { mount: Arc::clone(&self.mount), place, inode })
    }

    pub(crate) fn open_dir(&self, path: &[u8]) -> io::Result<Directory> {
        self.with_place(self.directory(path)?)
    }

    /// The directory that `name` is here, links not followed, if its inode is `inode`.
    pub(crate) fn enter(&self, name: &[u8], inode: InodeNo) -> io::Result<Directory> {
        let entered = self.with_place(one_name(&self.place, name, OFlags::DIRECTORY)?)?;
        match entered.inode == inode {
            true => Ok(entered),
            false => Err(errno(libc::ENOENT)),
        }
    }

    /// The directory that the last name of `path` is in, that name, and the inode that it leads to.
    pub(crate) fn parent_of(
        &self,
        path: &[u8],
        special: i32,
    ) -> io::Result<(Directory, Vec<u8>, InodeNo)> {
        let ParentAndName { parent, name, .. } = self.place(path, special)?;
        let inode = status_of_name(&parent, &name)?.attr.inode;
        let parent = self.with_place(parent.as_fd().try_clone_to_owned()?)?;
        Ok((parent, name.into_owned(), inode))
    }

    pub(crate) fn open_with(&self, path: &[u8], options: &OpenOptions) -> io::Result<OpenFile> {
        let flags = options.checked_flags()?;
        if flags.contains(OpenFlags::WRITE) {
            self.mount.change()?;
        }
        if options.create || options.create_new {
            // First as a new file: of two callers one makes it.
            let place = self.place(path, libc::EISDIR)?;
            if place.slash {
                return Err(errno(libc::EISDIR));
            }
            match self.make(&place, flags, options.mode) {
                Err(error) if is(&error, libc::EEXIST) && !options.create_new => {}
                made => return made,
            }
        }
        let follow = if options.follow { Follow::Yes } else { Follow::No };
        for _ in 0..TRIES {
            let missing = match self.node(path, follow) {
                Ok(node) => return self.open_node(&node, flags),
                Err(error) if is(&error, libc::ENOENT) && options.create => error,
                Err(error) => return Err(error),
            };
            // A link that leads nowhere: the file is made where it points.
            match self.walk(path, follow)? {
                End::Missing(place) if !place.slash => {
                    match self.make(&place, flags, options.mode) {
                        Err(error) if is(&error, libc::EEXIST) => {}
                        made => return made,
                    }
                }
                End::Missing(_) => return Err(missing),
                End::Found(_) => {}
            }
        }
        Err(errno(libc::EAGAIN))
    }

    /// Makes a file that is not there.
    fn make(
        &self,
        place: &ParentAndName<'_, '_>,
        flags: OpenFlags,
        mode: u32,
    ) -> io::Result<OpenFile> {
        let how = flags_of(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let made = openat(&place.parent, &*place.name, how, Mode::from_raw_mode(mode))?;
        without_umask(&made, &place.parent, mode)?;
        self.opened(made, flags)
    }

    /// Opens what a place is of, if that is a file: never a device, and no pipe, which would wait.
    fn open_node(&self, node: &OwnedFd, flags: OpenFlags) -> io::Result<OpenFile> {
        match status(node)?.attr.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(errno(libc::EISDIR)),
            FileType::Symlink => return Err(errno(libc::ELOOP)),
            _ => return Err(errno(libc::ENXIO)),
        }
        let path = by_descriptor(node);
        let opened = retry_on_intr(|| rustix::fs::open(&path, flags_of(flags), Mode::empty()))?;
        self.opened(opened, flags)
    }

    fn opened(&self, file: OwnedFd, flags: OpenFlags) -> io::Result<OpenFile> {
        let inode = status(&file)?.attr.inode;
        Ok(OpenFile { file: file.into(), mount: Arc::clone(&self.mount), inode, flags })
    }

    pub(crate) fn tmpfile(&self, path: &[u8], options: &OpenOptions) -> io::Result<OpenFile> {
        let flags = options.checked_flags()?;
        self.mount.change()?;
        let dir = self.directory(path)?;
        let (how, mode) = (flags_of(flags) | OFlags::TMPFILE, Mode::from_raw_mode(options.mode));
        let made = openat(&dir, ".", how, mode)?;
        without_umask(&made, &dir, options.mode)?;
        self.opened(made, flags)
    }

    pub(crate) fn truncate(&self, path: &[u8], len: u64) -> io::Result<()> {
        self.mount.change()?;
        let node = self.node(path, Follow::Yes)?;
        let file = self.open_node(&node, OpenFlags::WRITE).map_err(|error| {
            match is(&error, libc::ENXIO) {
                true => errno(libc::EINVAL),
                false => error,
            }
        })?;
        file.change(SetAttr { size: Some(len), ..SetAttr::default() })
    }

    pub(crate) fn create_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let place = self.place(path, libc::EEXIST)?;
        self.mount.change()?;
        rustix::fs::mkdirat(&place.parent, &*place.name, Mode::from_raw_mode(mode))?;
        self.without_umask_of(&place, FileType::Directory, mode)
    }

    pub(crate) fn create_node(&self, path: &[u8], new: NewNode) -> io::Result<()> {
        let place = self.place(path, libc::EEXIST)?;
        if place.slash {
            return Err(errno(libc::ENOENT));
        }
        self.mount.change()?;
        let kind = rustix::fs::FileType::from_raw_mode(new.file_type.mode_bits());
        let mode = Mode::from_raw_mode(new.perm);
        rustix::fs::mknodat(&place.parent, &*place.name, kind, mode, new.rdev)?;
        self.without_umask_of(&place, new.file_type, new.perm)
    }

    /// Gives what was just made the permission bits that the umask has taken.
    fn without_umask_of(
        &self,
        place: &ParentAndName<'_, '_>,
        file_type: FileType,
        mode: u32,
    ) -> io::Result<()> {
        let made = one_name(&place.parent, &place.name, OFlags::empty())?;
        let is = status(&made)?.attr;
        // Where others may rename, something else may be there by now, which must not be opened to more users: what has content is not new.
        match is.file_type == file_type && is.size == 0 {
            true => without_umask(made, &place.parent, mode),
            false => Ok(()),
        }
    }

    pub(crate) fn symlink(&self, target: &[u8], link: &[u8]) -> io::Result<()> {
        let place = self.place(link, libc::EEXIST)?;
        if place.slash {
            return Err(errno(libc::ENOENT));
        }
        self.mount.change()?;
        Ok(rustix::fs::symlinkat(target, &place.parent, &*place.name)?)
    }

    pub(crate) fn read_link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let node = self.node(path, Follow::No)?;
        match status(&node)?.attr.file_type {
            FileType::Symlink => target(&node),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    pub(crate) fn hard_link(&self, path: &[u8], new: &[u8]) -> io::Result<()> {
        // Directories have no other names; and what ends in `/` is one, or nothing.
        let from = self.place(path, libc::EPERM)?;
        if from.slash {
            self.directory(path)?;
            return Err(errno(libc::EPERM));
        }
        status_of_name(&from.parent, &from.name)?;
        let to = self.new_name(new)?;
        self.mount.change()?;
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(&from.parent, &*from.name, &to.parent, &*to.name, flags)?)
    }

    pub(crate) fn link_file(&self, file: &OpenFile, new: &[u8]) -> io::Result<()> {
        let to = self.new_name(new)?;
        self.mount.change()?;
        let from = by_descriptor(&file.file);
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(rustix::fs::CWD, &from, &to.parent, &*to.name, flags)?)
    }

    fn new_name<'d, 'p>(&'d self, path: &'p [u8]) -> io::Result<ParentAndName<'d, 'p>> {
        let place = self.place(path, libc::EEXIST)?;
        match place.slash {
            true => Err(errno(libc::ENOENT)),
            false => Ok(place),
        }
    }

    pub(crate) fn rename(
        &self,
        from: &[u8],
        to_dir: &Directory,
        to: &[u8],
        flags: RenameFlags,
    ) -> io::Result<()> {
        let from = self.place(from, libc::EBUSY)?;
        let to = to_dir.place(to, libc::EBUSY)?;
        if (from.slash || to.slash)
            && status_of_name(&from.parent, &from.name)?.attr.file_type != FileType::Directory
        {
            return Err(errno(libc::ENOTDIR));
        }
        self.mount.change()?;
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let (from_name, to_name) = (&*from.name, &*to.name);
        Ok(rustix::fs::renameat_with(&from.parent, from_name, &to.parent, to_name, flags)?)
    }

    pub(crate) fn remove_file(&self, path: &[u8]) -> io::Result<()> {
        let place = self.place(path, libc::EISDIR)?;
        if place.slash {
            return Err(errno(libc::ENOTDIR));
        }
        self.mount.change()?;
        Ok(rustix::fs::unlinkat(&place.parent, &*place.name, AtFlags::empty())?)
    }

    pub(crate) fn remove_dir(&self, path: &[u8]) -> io::Result<()> {
        let place = self.place(path, libc::EBUSY)?;
        self.mount.change()?;
        Ok(rustix::fs::unlinkat(&place.parent, &*place.name, AtFlags::REMOVEDIR)?)
    }

    /// The names of this directory, to be read on.
    pub(crate) fn list(&self) -> io::Result<Dir> {
        Ok(Dir::new(openat(&self.place, ".", READ_DIRECTORY, Mode::empty())?)?)
    }

    /// What a name of this directory leads to, if that is still `inode`.
    pub(crate) fn attr_of(&self, name: &[u8], inode: InodeNo) -> io::Result<Attr> {
        let attr = status_of_name(&self.place, name)?.attr;
        match attr.inode == inode {
            true => Ok(attr),
            false => Err(errno(libc::ENOENT)),
        }
    }

    pub(crate) fn file_type_of(&self, name: &[u8]) -> io::Result<FileType> {
        Ok(status_of_name(&self.place, name)?.attr.file_type)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        let dir = openat(&self.place, ".", READ_DIRECTORY, Mode::empty())?;
        Ok(retry_on_intr(|| rustix::fs::fsync(&dir))?)
    }

    pub(crate) fn attr(&self, path: &[u8], follow: Follow) -> io::Result<Attr> {
        Ok(status(self.node(path, follow)?)?.attr)
    }

    /// As the kernel shows the place, below the root.
    pub(crate) fn real_path(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let node = self.node(path, Follow::Yes)?;
        let shown = |fd: &OwnedFd| std::fs::read_link(by_descriptor(fd));
        let gone = || errno(libc::ENOENT);
        let (at, root) = (shown(&node)?, shown(&self.mount.root)?);
        let inside = at.strip_prefix(&root).map_err(|_| gone())?;
        let real = std::path::Path::new("/").join(inside).into_os_string();
        let real = std::os::unix::ffi::OsStringExt::into_vec(real);
        // What has no name any more is shown with a word behind it.
        let is = status(self.node(&real, Follow::No)?)?.attr.inode;
        match is == status(&node)?.attr.inode {
            true => Ok(real),
            false => Err(gone()),
        }
    }

    pub(crate) fn change(&self, path: &[u8], follow: Follow, change: SetAttr) -> io::Result<()> {
        let node = self.node(path, follow)?;
        self.mount.change()?;
        attributes::change(node, change)
    }

    pub(crate) fn xattr(&self, path: &[u8], name: &[u8]) -> io::Result<Vec<u8>> {
        let node = self.node(path, Follow::No)?;
        attributes::get(&by_descriptor(&node), name)
    }

    pub(crate) fn xattrs(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let node = self.node(path, Follow::No)?;
        attributes::list(&by_descriptor(&node))
    }

    pub(crate) fn set_xattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> io::Result<()> {
        let node = self.node(path, Follow::No)?;
        self.mount.change()?;
        attributes::set(&by_descriptor(&node), name, value, flags)
    }

    pub(crate) fn remove_xattr(&self, path: &[u8], name: &[u8]) -> io::Result<()> {
        let node = self.node(path, Follow::No)?;
        self.mount.change()?;
        attributes::remove(&by_descriptor(&node), name)
    }
}

fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

/// For open(2).
fn flags_of(flags: OpenFlags) -> OFlags {
    let mut of = match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    let words = [
        (OpenFlags::APPEND, OFlags::APPEND),
        (OpenFlags::TRUNCATE, OFlags::TRUNC),
        (OpenFlags::SYNC, OFlags::SYNC),
        (OpenFlags::DSYNC, OFlags::DSYNC),
        (OpenFlags::NOATIME, OFlags::NOATIME),
    ];
    for (ours, theirs) in words {
        of.set(theirs, flags.contains(ours));
    }
    of | OFlags::CLOEXEC
}
