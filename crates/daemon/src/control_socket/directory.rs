//! Directories in which daemons listen, and the sockets in them.
//!
//! Another user may mount a filesystem with an own server over a directory of theirs, and put links into it, at any moment: a walk there
//! waits as long as that server likes. So root holds each step of theirs by a descriptor that opens nothing, and leaves out what the
//! kernel says a server answers for.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::{IN_HOME, is_safe};
use crate::mounts;

/// A directory in which only `owner` makes names.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) owner: u32,
    path: PathBuf,
    held: Option<OwnedFd>,
}

/// A socket, as long as this is kept.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    _held: Option<OwnedFd>,
}

impl Directory {
    /// Of this user or of root.
    pub(super) fn trusted(path: PathBuf, owner: u32) -> Option<Directory> {
        is_safe(&path, owner).then_some(Directory { owner, path, held: None })
    }

    /// Where root finds those of another user, unless that user has chosen other ones.
    pub(super) fn of_stranger(user: u32) -> Vec<Directory> {
        let mut places: Vec<(PathBuf, Vec<OsString>)> = vec![
            ("/run/user".into(), vec![user.to_string().into(), "holdfast".into()]),
            ("/tmp".into(), vec![format!("holdfast-{user}").into()]),
        ];
        // As that user's own daemons do where another user has taken these names.
        let home = User::from_uid(Uid::from_raw(user)).ok().flatten().map(|it| it.dir);
        if let Some((parent, name)) = home.as_deref().and_then(|it| it.parent().zip(it.file_name()))
        {
            places.push((parent.into(), vec![name.into(), IN_HOME.into()]));
        }
        let found = places
            .into_iter()
            .filter_map(|(root, steps)| Directory::held(&root, &steps, user).ok());
        found.collect()
    }

    /// What lies below `root`, which is not the user's, in directories in which no other user makes names.
    fn held(root: &Path, steps: &[OsString], owner: u32) -> io::Result<Directory> {
        let mut held = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        for step in steps {
            held = hold(&held, step)?;
            let found = fstat(&held)?;
            let is_theirs = found.st_uid == owner && found.st_mode & 0o022 == 0;
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory || !is_theirs {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        Ok(Directory { owner, path: itself(&held), held: Some(held) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of sockets, at most so many names.
    pub(super) fn sockets(&self, most: usize) -> Vec<OsString> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten().take(most);
        // The directory says what they are.
        let sockets = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_socket()));
        sockets.map(|entry| entry.file_name()).collect()
    }

    /// To connect to.
    pub(super) fn socket(&self, name: &OsStr) -> io::Result<Socket> {
        let Some(dir) = &self.held else {
            return Ok(Socket { path: self.path.join(name), _held: None });
        };
        let held = hold(dir, name)?;
        if FileType::from_raw_mode(fstat(&held)?.st_mode) != FileType::Socket {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Socket { path: itself(&held), _held: Some(held) })
    }
}

/// What has this name, if no server answers for it.
fn hold(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(dir, name, how, Mode::empty())?;
    match mounts::is_of_a_server(&held)? {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(held),
    }
}

fn itself(held: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", held.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_reached_without_links_and_through_directories_of_its_owner_alone() {
        let place = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let at = |name: &str| place.path().join(name);
        for (dir, mode) in [("own", 0o700), ("open", 0o777)] {
            fs::create_dir(at(dir)).unwrap();
            fs::set_permissions(at(dir), fs::Permissions::from_mode(mode)).unwrap();
        }
        let _listens = UnixListener::bind(at("own/one.sock")).unwrap();
        symlink("one.sock", at("own/link.sock")).unwrap();
        symlink("own", at("link")).unwrap();
        fs::write(at("own/file.sock"), "").unwrap();
        let held = |name: &str, owner| Directory::held(place.path(), &[name.into()], owner);
        for (name, owner) in [("open", me), ("link", me), ("none", me), ("own", me + 1)] {
            assert!(held(name, owner).is_err(), "{name}");
        }
        let own = held("own", me).unwrap();
        assert_eq!(own.sockets(99), ["one.sock"]);
        let socket = own.socket("one.sock".as_ref()).unwrap();
        assert!(UnixStream::connect(&socket.path).is_ok());
        for other in ["link.sock", "file.sock", "none.sock"] {
            assert!(own.socket(other.as_ref()).is_err(), "{other}");
        }
        let own = Directory::trusted(at("own"), me).unwrap();
        assert_eq!(own.sockets(99), ["one.sock"]);
        assert!(Directory::trusted(at("open"), me).is_none());
    }
}
