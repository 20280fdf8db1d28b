//! Attributes of what is at a path: those of stat, times, owners, modes, and extended ones.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use holdfast_posix::{Attr, SetAttr, XattrFlags};

use super::Dir;
use crate::error::Result;
use crate::metadata::{Attributes, FileTimes, Metadata, Permissions};
use crate::path::{Call, Follow};
use crate::read_dir::bytes;

impl Dir {
    /// Attributes of what is at `path`, symbolic links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.attr(bytes(path.as_ref()), Follow::Yes).map(Metadata)
    }

    /// Attributes of what is at `path`, symbolic links shown themselves.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.attr(bytes(path.as_ref()), Follow::No).map(Metadata)
    }

    /// Where `path` leads, from the root of the volume, without symbolic links, `.` and `..`.
    ///
    /// # Errors
    /// ENOENT if nothing is there, or if this directory has been removed.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = bytes(path.as_ref());
        self.reach(|call| call.real_path(self.base(), path), |there| there.real_path(path))
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

    fn attr(&self, path: &[u8], follow: Follow) -> io::Result<Attr> {
        self.reach(|call| call.node(self.base(), path, follow), |there| there.attr(path, follow))
    }

    fn set_attr(&self, path: impl AsRef<Path>, follow: Follow, change: SetAttr) -> io::Result<()> {
        let path = bytes(path.as_ref());
        self.reach(
            |call| self.change(call, path, follow, change),
            |there| there.change(path, follow, change),
        )
    }

    pub(super) fn change(
        &self,
        call: Call<'_>,
        path: &[u8],
        follow: Follow,
        change: SetAttr,
    ) -> Result<()> {
        let attr = call.node(self.base(), path, follow)?;
        call.fs.setattr(call.caller, attr.inode, None, change)?;
        Ok(())
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
        let (path, name) = (bytes(path.as_ref()), name.as_ref().as_bytes());
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            Ok(call.fs.getxattr(call.caller, attr.inode, name)?)
        };
        self.reach(by_engine, |there| there.xattr(path, name))
    }

    /// The names of all extended attributes, symbolic links not followed.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let path = bytes(path.as_ref());
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            Ok(call.fs.listxattr(call.caller, attr.inode)?)
        };
        let names = self.reach(by_engine, |there| there.xattrs(path))?;
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
        let (path, name) = (bytes(path.as_ref()), name.as_ref().as_bytes());
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            Ok(call.fs.setxattr(call.caller, attr.inode, name, value, flags)?)
        };
        self.reach(by_engine, |there| there.set_xattr(path, name, value, flags))
    }

    /// Removes an extended attribute, symbolic links not followed; ENODATA if there is none.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> io::Result<()> {
        let (path, name) = (bytes(path.as_ref()), name.as_ref().as_bytes());
        let by_engine = |call: Call<'_>| {
            let attr = call.node(self.base(), path, Follow::No)?;
            Ok(call.fs.removexattr(call.caller, attr.inode, name)?)
        };
        self.reach(by_engine, |there| there.remove_xattr(path, name))
    }
}
