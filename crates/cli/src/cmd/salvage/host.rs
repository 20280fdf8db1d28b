//! Salvaged files in a directory of the host.
//!
//! The volume may be hostile, and others may look on. Everything is made relative to a directory that is held open, under a name that
//! must be free, and no link is followed; the directory itself is closed to others until all is in it. So nothing outside it is
//! ever touched.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use holdfast_base::{Timestamp, show};
use holdfast_salvage::{Attributes, Destination, FileNote};
use holdfast_service::work::files::message;
use rustix::fs::{FileType, Mode};

use crate::host_tree::{self, Dir, HostEntry, There};

/// Bits with which a program runs as the owner or group of its file.
const SET_ID: u32 = 0o6000;

/// A tree that is made in a directory.
pub(super) struct HostTree<'r> {
    root: Rc<Dir>,
    /// The directories that were entered.
    entered: Vec<Rc<Dir>>,
    file: Option<File>,
    /// Attributes of what was made, ended or left last that the host did not take.
    not_set: Vec<String>,
    report: &'r mut dyn FnMut(&FileNote) -> io::Result<()>,
}

/// Fails unless a directory can be made here, or is an empty one of this user.
pub(super) fn expect_place(place: &HostEntry) -> io::Result<()> {
    let dir = match place.look(false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        seen => place.enter(&seen?, false)?,
    };
    if !dir.names()?.is_empty() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    expect_own(&*dir.fd()?)
}

/// Makes a directory that no other user enters, or has an empty one become that.
pub(super) fn make_own(place: &HostEntry) -> io::Result<Rc<Dir>> {
    let dir = match place.make_dir() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            place.enter(&place.look(false)?, false)?
        }
        made => made?,
    };
    let fd = dir.fd()?;
    expect_own(&fd)?;
    if !dir.names()?.is_empty() {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    rustix::fs::fchmod(&*fd, Mode::from_raw_mode(0o700))?;
    Ok(dir)
}

/// Its owner could put other things in the place of what is made.
fn expect_own(dir: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fstat(dir)?.st_uid == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::other(
            "it belongs to another user: name a directory that does not exist",
        )),
    }
}

impl<'r> HostTree<'r> {
    /// Fills a directory that is made, or is empty.
    pub(super) fn new(
        place: &HostEntry,
        report: &'r mut dyn FnMut(&FileNote) -> io::Result<()>,
    ) -> io::Result<HostTree<'r>> {
        let root = make_own(place)?;
        Ok(HostTree { root, entered: Vec::new(), file: None, not_set: Vec::new(), report })
    }

    /// The directory that was entered last.
    fn here(&self) -> &Rc<Dir> {
        self.entered.last().unwrap_or(&self.root)
    }

    fn place(&self, name: &[u8]) -> HostEntry {
        HostEntry::of(self.here(), OsStr::from_bytes(name))
    }

    /// What was just made has all that it is to have, but for what the host does not take.
    fn expect_set(
        &mut self,
        attributes: &Attributes,
        (not_set, done): (Vec<String>, io::Result<()>),
    ) -> io::Result<()> {
        self.not_set = not_set;
        done?;
        expect_all_set(attributes)
    }
}

impl Destination for HostTree<'_> {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        let made = self.here().make(OsStr::from_bytes(name))?;
        self.entered.push(made);
        Ok(())
    }

    fn leave(&mut self, attributes: &Attributes) -> io::Result<()> {
        let dir = Rc::clone(self.here());
        self.entered.pop();
        let set = host_tree::set(&*dir.fd()?, &taken(attributes));
        self.expect_set(attributes, set)?;
        dir.expect_in_place()
    }

    fn begin(&mut self, name: &[u8]) -> io::Result<()> {
        self.file = Some(self.place(name).create()?);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file.as_ref().expect("a file is begun before it is written");
        file.write_all_at(bytes, at)
    }

    fn end(&mut self, len: u64, attributes: &Attributes) -> io::Result<()> {
        let file = self.file.take().expect("a file is begun before it ends");
        // What is missing of it is worse than what it may not do.
        let longer = file.set_len(len);
        let set = host_tree::set(&file, &taken(attributes));
        let set = self.expect_set(attributes, set);
        longer.and(set)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> io::Result<()> {
        // A link has no mode.
        let taken = message::Attributes { mode: None, ..taken(attributes) };
        let target = Path::new(OsStr::from_bytes(target));
        let made = self.place(name).symlink(target, &taken, There::Stays)?;
        self.expect_set(attributes, (made.left_out, Ok(())))
    }

    fn node(&mut self, name: &[u8], rdev: u64, attributes: &Attributes) -> io::Result<()> {
        let mode = attributes.mode.unwrap_or(0);
        let kind = FileType::from_raw_mode(mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return Err(io::Error::other(format!("a device node ({rdev:#x}) is not made")));
        }
        let made = self.place(name).node((mode, rdev), &taken(attributes), There::Stays)?;
        self.expect_set(attributes, (made.left_out, Ok(())))
    }

    fn link(&mut self, name: &[u8], old: &[Vec<u8>]) -> io::Result<()> {
        let Some((last, above)) = old.split_last() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut dir = Rc::clone(&self.root);
        for name in above {
            dir = dir.enter(OsStr::from_bytes(name), None)?;
        }
        let old = HostEntry::of(&dir, OsStr::from_bytes(last));
        self.place(name).link(&old, old.look(false)?.id, There::Stays)
    }

    fn take_not_set(&mut self) -> Vec<String> {
        std::mem::take(&mut self.not_set)
    }

    fn report(&mut self, found: &FileNote) -> io::Result<()> {
        (self.report)(found)
    }
}

/// What of them is set: nothing that gives rights.
fn taken(of: &Attributes) -> message::Attributes {
    let time = |time: Timestamp| (time.secs, time.nanos);
    let plain = of.xattrs.iter().filter(|(name, _)| !gives_rights(name));
    message::Attributes {
        mode: of.mode.map(|mode| mode & 0o7777 & !SET_ID),
        owner: of.owner,
        times: of.times.map(|(accessed, modified)| (time(accessed), time(modified))),
        xattrs: plain.cloned().collect(),
    }
}

fn gives_rights(xattr: &[u8]) -> bool {
    xattr.starts_with(b"security.") || xattr.starts_with(b"trusted.")
}

/// Fails if something was left out that the host would believe: the volume may be a stranger's, or its bytes be of any maker.
fn expect_all_set(attributes: &Attributes) -> io::Result<()> {
    if let Some((name, _)) = attributes.xattrs.iter().find(|(name, _)| gives_rights(name)) {
        return Err(io::Error::other(format!("the attribute {} is not set", show::name(name))));
    }
    match attributes.mode {
        Some(mode) if mode & SET_ID != 0 => Err(io::Error::other("its set-id bits are not set")),
        _ => Ok(()),
    }
}
