//! Members onto a volume, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;

use holdfast::{
    Attributes, Dir, File, FileSystem, FileTimes, FileType, OpenOptions, Permissions, Volume,
    XattrFlags,
};
use holdfast_base::InodeNo;
use holdfast_base::attribute::is_not_taken;

use crate::difference::{above, os};
use crate::read::{Kind, Member, Members};
use crate::whiteout::Kept;
use crate::write::is_missing;
use crate::{Error, Form, acl, whiteout};

type Result<T> = std::result::Result<T, Error>;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Members of the archive.
    pub members: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Extended attributes that the volume has no place for, and that were left out: of systems that are not Linux, and
    /// `user.` ones of links and devices.
    pub xattrs_left_out: u64,
}

/// Hears of each member of which extended attributes were left out: its name, and theirs.
pub type LeftOut<'a> = dyn FnMut(&[u8], &[Vec<u8>]) + 'a;

/// Where members go.
pub(crate) struct Target<'a> {
    volume: &'a Volume,
    root: &'a Dir,
    form: Form,
    /// Inodes from this number on were made by this archive.
    first: u64,
    /// The directory of the last member.
    parent: Option<Parent>,
    /// Directories among the members, by inode number: their attributes come last, since what is put into them would
    /// change their times, and would inherit their default list.
    directories: BTreeMap<u64, Directory>,
    /// Names that this archive has given to files that were there: the directory and the name.
    linked: BTreeSet<(u64, Vec<u8>)>,
    /// Directories from which whiteouts have removed all that is older: nothing old comes there any more.
    cleaned: BTreeSet<u64>,
    imported: Imported,
    /// Extended attributes of the last member.
    left_out: Vec<Vec<u8>>,
}

/// The most directories that lie in one another.
const DEPTH_MAX: usize = 1 << 20;

/// A directory that members are put into.
#[derive(Clone)]
struct Parent {
    path: Vec<u8>,
    dir: Dir,
    number: u64,
    /// It has a default list, which new files inherit.
    has_default: bool,
}

/// What a directory gets in the end.
struct Directory {
    attributes: Attributes,
    default: Option<Vec<u8>>,
}

/// Says which member an error is about.
trait Of<T> {
    fn of(self, member: &Member) -> Result<T>;
}

impl<T> Of<T> for io::Result<T> {
    fn of(self, member: &Member) -> Result<T> {
        let (offset, name) = (member.offset, member.name.clone());
        self.map_err(|source| Error::Refused { offset, name, source })
    }
}

fn malformed(member: &Member, why: &'static str) -> Error {
    Error::Malformed { offset: member.offset, name: member.name.clone(), why }
}

/// A path without slashes at its ends, double ones and dots; empty for the root.
fn plain_path(member: &Member, path: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(malformed(member, "a name with `..` leads out of the archive")),
            _ if part.contains(&0) => return Err(malformed(member, "a name has a zero byte")),
            _ => {}
        }
        if !plain.is_empty() {
            plain.push(b'/');
        }
        plain.extend_from_slice(part);
    }
    Ok(plain)
}

impl<'a> Target<'a> {
    pub(crate) fn new(volume: &'a Volume, form: Form) -> io::Result<Target<'a>> {
        // A number is never given twice, and a later one is higher.
        let how = OpenOptions::new().write(true);
        let first = volume.tmpfile(".", &how)?.metadata()?.ino();
        Ok(Target {
            volume,
            root: volume,
            form,
            first,
            parent: None,
            directories: BTreeMap::new(),
            linked: BTreeSet::new(),
            cleaned: BTreeSet::new(),
            imported: Imported::default(),
            left_out: Vec::new(),
        })
    }

    /// Puts a member where its name says, and says what of it is left out; its bytes are taken from `members`.
    pub(crate) fn put(
        &mut self,
        member: &Member,
        members: &mut Members<impl Read>,
        left_out: &mut LeftOut<'_>,
    ) -> Result<()> {
        self.put_whole(member, members)?;
        if !self.left_out.is_empty() {
            left_out(&member.name, &std::mem::take(&mut self.left_out));
        }
        Ok(())
    }

    fn put_whole(&mut self, member: &Member, members: &mut Members<impl Read>) -> Result<()> {
        self.imported.members += 1;
        let path = plain_path(member, &member.name)?;
        if path.is_empty() {
            return match member.kind {
                Kind::Directory => self.directory_at(member, self.root.clone()),
                _ => Err(malformed(member, "only a directory can be the root")),
            };
        }
        let (above, name) = above(&path);
        let name = OsStr::from_bytes(name);
        if self.form == Form::Layer && name.as_bytes().starts_with(whiteout::PREFIX) {
            return self.remove(member, above, name);
        }
        let parent = self.parent(member, above)?;
        match &member.kind {
            Kind::File => self.file(member, &parent, name, members)?,
            Kind::Directory => {
                if !self.make_room(&parent.dir, name, true).of(member)? {
                    parent.dir.create_dir_with_mode(name, 0o700).of(member)?;
                    inherits_nothing(&parent, name).of(member)?;
                }
                let dir = parent.dir.open_dir(name).of(member)?;
                self.directory_at(member, dir)?;
            }
            Kind::HardLink(target) => self.hard_link(member, &parent, name, target, &path)?,
            Kind::Symlink(target) => {
                self.make_room(&parent.dir, name, false).of(member)?;
                parent.dir.symlink(OsStr::from_bytes(target), name).of(member)?;
                self.attributes(member, &parent.dir, name)?;
            }
            Kind::CharDevice => self.node(member, &parent, name, FileType::CharDevice)?,
            Kind::BlockDevice => self.node(member, &parent, name, FileType::BlockDevice)?,
            Kind::Fifo => self.node(member, &parent, name, FileType::Fifo)?,
        }
        Ok(())
    }

    fn node(&mut self, member: &Member, parent: &Parent, name: &OsStr, of: FileType) -> Result<()> {
        self.make_room(&parent.dir, name, false).of(member)?;
        let rdev = rustix::fs::makedev(member.device.0, member.device.1);
        parent.dir.create_node(name, of, 0o600, rdev).of(member)?;
        inherits_nothing(parent, name).of(member)?;
        self.attributes(member, &parent.dir, name)
    }

    /// The directory that a member is put into; what is missing of it is made.
    fn parent(&mut self, member: &Member, path: &[u8]) -> Result<Parent> {
        if let Some(parent) = self.parent.as_ref().filter(|parent| parent.path == path) {
            return Ok(parent.clone());
        }
        let dir = match self.root.open_dir(os(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut dir = self.root.clone();
                for part in path.split(|byte| *byte == b'/').map(OsStr::from_bytes) {
                    let below = match dir.open_dir(part) {
                        Err(error) if error.kind() == ErrorKind::NotFound => {
                            dir.create_dir(part).of(member)?;
                            dir.open_dir(part)
                        }
                        found => found,
                    };
                    dir = below.of(member)?;
                }
                Ok(dir)
            }
            found => found,
        };
        self.found_parent(dir.of(member)?, path).of(member)
    }

    fn found_parent(&mut self, dir: Dir, path: &[u8]) -> io::Result<Parent> {
        let number = dir.symlink_metadata(".")?.ino();
        let has_default = dir.xattrs(".")?.iter().any(|name| name.as_bytes() == acl::DEFAULT);
        let parent = Parent { path: path.to_vec(), dir, number, has_default };
        self.parent = Some(parent.clone());
        Ok(parent)
    }

    /// Removes what has the name of a member, unless both are directories: then the answer is true.
    fn make_room(&mut self, dir: &Dir, name: &OsStr, for_directory: bool) -> io::Result<bool> {
        let found = match dir.symlink_metadata(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        if found.is_dir() && for_directory {
            return Ok(true);
        }
        if !found.is_file() {
            // The way to the last member may have led through it.
            self.parent = None;
        }
        match (found.is_dir(), self.form) {
            (false, _) => dir.remove_file(name)?,
            (true, Form::Tar) => dir.remove_dir(name)?,
            (true, Form::Layer) => dir.remove_dir_all(name)?,
        }
        Ok(false)
    }

    fn file(
        &mut self,
        member: &Member,
        parent: &Parent,
        name: &OsStr,
        members: &mut Members<impl Read>,
    ) -> Result<()> {
        let how = OpenOptions::new().write(true).create_new(true).follow(false).mode(member.mode);
        let file = match parent.dir.open_with(name, &how) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.make_room(&parent.dir, name, false).of(member)?;
                parent.dir.open_with(name, &how)
            }
            made => made,
        };
        let file = file.of(member)?;
        inherits_nothing(parent, name).of(member)?;
        let whole = [(0, member.len)];
        let mut end = 0;
        for (offset, len) in member.segments.as_deref().unwrap_or(&whole) {
            self.copy(member, &file, *offset, *len, members)?;
            if *len > 0 {
                end = offset + len;
            }
        }
        if end < member.len {
            file.set_len(member.len).of(member)?;
        }
        for (name, value) in &member.xattrs {
            self.take_xattr(name, || file.set_xattr(OsStr::from_bytes(name), value)).of(member)?;
        }
        file.set_attributes(attributes(member)).of(member)
    }

    fn copy(
        &mut self,
        member: &Member,
        file: &File,
        mut at: u64,
        mut left: u64,
        members: &mut Members<impl Read>,
    ) -> Result<()> {
        while left > 0 {
            let bytes = members.bytes(left)?;
            let len = bytes.len();
            file.write_all_at(bytes, at).of(member)?;
            members.take(len);
            at += len as u64;
            left -= len as u64;
            self.imported.bytes += len as u64;
        }
        Ok(())
    }

    /// An attribute that the volume has no place for is left out.
    fn take_xattr(&mut self, name: &[u8], set: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match set() {
            Err(error) if is_not_taken(&error) => {
                self.imported.xattrs_left_out += 1;
                self.left_out.push(name.to_vec());
                Ok(())
            }
            other => other,
        }
    }

    fn xattrs(&mut self, member: &Member, dir: &Dir, name: &OsStr) -> Result<()> {
        for (key, value) in &member.xattrs {
            if member.kind == Kind::Directory && key == acl::DEFAULT {
                continue;
            }
            let set = || dir.set_xattr(name, OsStr::from_bytes(key), value, XattrFlags::empty());
            self.take_xattr(key, set).of(member)?;
        }
        Ok(())
    }

    /// Of anything but files and directories.
    fn attributes(&mut self, member: &Member, dir: &Dir, name: &OsStr) -> Result<()> {
        self.xattrs(member, dir, name)?;
        let attributes = match member.kind {
            // The bits of a link mean nothing, and are always the same.
            Kind::Symlink(_) => owner_and_times(member),
            _ => attributes(member),
        };
        dir.set_attributes(name, attributes).of(member)
    }

    fn directory_at(&mut self, member: &Member, dir: Dir) -> Result<()> {
        let here = OsStr::new(".");
        if self.form == Form::Layer {
            // A layer says all of its directories.
            for name in dir.xattrs(here).of(member)? {
                if !member.xattrs.contains_key(name.as_bytes()) {
                    dir.remove_xattr(here, &name).of(member)?;
                }
            }
            self.parent = None;
        }
        self.xattrs(member, &dir, here)?;
        let number = dir.symlink_metadata(here).of(member)?.ino();
        let default = member.xattrs.get(acl::DEFAULT).cloned();
        let attributes = attributes(member);
        self.directories.insert(number, Directory { attributes, default });
        Ok(())
    }

    fn hard_link(
        &mut self,
        member: &Member,
        parent: &Parent,
        name: &OsStr,
        target: &[u8],
        path: &[u8],
    ) -> Result<()> {
        let target = plain_path(member, target)?;
        let found = self.root.symlink_metadata(os(&target)).of(member)?;
        if found.is_dir() {
            return Err(malformed(member, "it is one more name of a directory"));
        }
        let there = parent.dir.symlink_metadata(name);
        if there.is_ok_and(|there| there.ino() == found.ino()) {
            return Ok(());
        }
        self.make_room(&parent.dir, name, false).of(member)?;
        self.root.hard_link(os(&target), os(path)).of(member)?;
        if found.ino() < self.first && self.form == Form::Layer {
            self.linked.insert((parent.number, name.as_bytes().to_vec()));
        }
        Ok(())
    }

    /// What a whiteout asks for.
    fn remove(&mut self, member: &Member, above: &[u8], name: &OsStr) -> Result<()> {
        let dir = match self.root.open_dir(os(above)) {
            Err(error) if is_missing(&error) => return Ok(()),
            found => found.of(member)?,
        };
        let removes = whiteout::of(name.as_bytes()).map_err(|why| malformed(member, why))?;
        self.parent = None;
        let is_new = |number: u64, dir: u64, name: &OsStr| {
            number >= self.first || self.linked.contains(&(dir, name.as_bytes().to_vec()))
        };
        let is_listed = |number: u64| self.directories.contains_key(&number);
        let kept = &mut Kept {
            is_new: &is_new,
            is_listed: &is_listed,
            cleaned: std::mem::take(&mut self.cleaned),
        };
        let removed = whiteout::remove(&dir, removes, kept);
        self.cleaned = std::mem::take(&mut kept.cleaned);
        removed.of(member)
    }

    /// Gives directories their attributes. They are found by their numbers: the way by which a member was put there may
    /// have led through a link that is another one by now.
    pub(crate) fn finish(self) -> Result<Imported> {
        let failed = |source| Error::Volume { what: "the directories".into(), source };
        let fs = self.volume.engine().map_err(failed)?;
        for (number, Directory { attributes, default }) in self.directories {
            // A later member may have taken its place.
            let Some(path) = path_of(&fs, number).map_err(failed)? else { continue };
            let path = os(&path);
            let set = default.map_or(Ok(()), |value| {
                let name = OsStr::from_bytes(acl::DEFAULT);
                self.root.set_xattr(path, name, &value, XattrFlags::empty())
            });
            let set = set.and_then(|()| self.root.set_attributes(path, attributes));
            set.map_err(|source| Error::File { path: path.as_os_str().as_bytes().into(), source })?;
        }
        Ok(self.imported)
    }
}

/// Where a directory is; `None`: it is gone.
fn path_of(fs: &FileSystem, number: u64) -> io::Result<Option<Vec<u8>>> {
    let mut names = Vec::new();
    let mut at = InodeNo(number);
    while at != InodeNo::ROOT {
        // On a damaged volume directories may lie in one another.
        if names.len() > DEPTH_MAX {
            return Err(io::Error::other(format!("directory {number} lies too deep")));
        }
        match fs.place_of(at) {
            Ok(Some((above, name))) => {
                names.push(name);
                at = above;
            }
            Ok(None) => return Ok(None),
            Err(error) => {
                let kind = io::Error::from_raw_os_error(error.errno()).kind();
                return match kind {
                    ErrorKind::NotFound => Ok(None),
                    kind => Err(io::Error::new(kind, error.to_string())),
                };
            }
        }
    }
    names.reverse();
    Ok(Some(names.join(&b'/')))
}

/// Takes from a new file what it has of its directory's default list.
fn inherits_nothing(parent: &Parent, name: &OsStr) -> io::Result<()> {
    if parent.has_default {
        for inherited in parent.dir.xattrs(name)? {
            parent.dir.remove_xattr(name, &inherited)?;
        }
    }
    Ok(())
}

fn owner_and_times(member: &Member) -> Attributes {
    let times = FileTimes::new().set_modified(member.mtime.into());
    let accessed = member.atime.unwrap_or(member.mtime);
    Attributes::new().owner(member.uid, member.gid).times(times.set_accessed(accessed.into()))
}

fn attributes(member: &Member) -> Attributes {
    owner_and_times(member).permissions(Permissions::from_mode(member.mode))
}
