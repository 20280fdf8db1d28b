//! Files of a tree, for a command that copies: at rest in the process of the command, otherwise in the daemon, asked through its
//! socket. Files of the host are no matter of the daemon's: their bytes come with the requests.

pub mod message;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use holdfast::{
    Dir, File, FileTimes, FileType, OpenOptions, Permissions, ReadDir, Volume, XattrFlags,
};
use holdfast_base::attribute::is_not_taken;
use serde::{Deserialize, Serialize};

use self::message::{Attributes, Bytes, DATA_MAX, FileStat, NAMES, Reply, Request, moment};
use super::in_place::{Heads, InPlace};
use super::{Ends, In, Out, Tree};
use crate::outcome::{Context, Failure, Outcome};

/// Which files.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FileAccess {
    /// The tree that they are in.
    pub tree: Tree,
    /// They are changed. Otherwise they are those of one moment.
    pub writes: bool,
}

/// Answers a command until it asks no more.
pub(super) fn run(
    door: &Volume,
    heads: &dyn Heads,
    volume: &str,
    what: &FileAccess,
    ends: &dyn Ends,
) -> Outcome {
    let mut files = Files::of(door, heads, volume, what)?;
    let answered = answer(&mut files, ends);
    let ended = files.end(volume);
    answered.context(volume)?;
    ended.map(|()| 0)
}

fn answer(files: &mut Files, ends: &dyn Ends) -> io::Result<()> {
    use std::io::Write;
    let (mut data, mut found) = (Vec::new(), Vec::new());
    while let Some(request) = message::read::<Request>(&mut In(ends, 0), &mut data)? {
        found.clear();
        if let Some(reply) = files.act(request, &data, &mut found) {
            Out(ends).write_all(&message::written(&reply, &found)?)?;
        }
    }
    Ok(())
}

/// Files of a tree.
#[derive(Debug)]
pub struct Files {
    to: InPlace,
    /// The directory that was used last.
    dir: Option<(PathBuf, Dir)>,
    /// The inode numbers of directories that were made, or were there.
    made: HashMap<PathBuf, u64>,
    names: Option<ReadDir>,
    reading: Option<File>,
    writing: Option<Writing>,
}

/// A file without a name yet.
#[derive(Debug)]
struct Writing {
    file: File,
    /// What it has met.
    failed: Option<io::Error>,
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Files {
    /// Those of a tree of the volume that `door` leads to.
    ///
    /// # Errors
    /// There is no such tree, or it is to be written and cannot be.
    pub fn of(
        door: &Volume,
        heads: &dyn Heads,
        volume: &str,
        what: &FileAccess,
    ) -> Result<Files, Failure> {
        let to = match what.writes {
            true => heads.in_place(&what.tree)?,
            false => InPlace::own(what.tree.view(door, volume)?),
        };
        let (made, names) = (HashMap::new(), None);
        Ok(Files { to, dir: None, made, names, reading: None, writing: None })
    }

    /// All is durable. A file without a name is gone.
    ///
    /// # Errors
    /// It is not, or the kernel has not forgotten all that was.
    pub fn end(self, volume: &str) -> Result<(), Failure> {
        let Files { to, dir, names, reading, writing, .. } = self;
        drop((dir, names, reading, writing));
        to.end(volume)
    }

    /// Carries a request out. `data` came with it, and `found` goes with the answer.
    pub fn act(&mut self, request: Request, data: &[u8], found: &mut Vec<u8>) -> Option<Reply> {
        let done = match request {
            Request::Begin { path: at } => {
                let begun = self.begin(path(&at));
                self.writing = match begun {
                    Ok(file) => Some(Writing { file, failed: None }),
                    // `End` begins anew, and meets the same.
                    Err(_) => None,
                };
                return None;
            }
            Request::Write { at } => {
                if let Some(writing) = self.writing.as_mut().filter(|it| it.failed.is_none()) {
                    writing.failed = writing.file.write_all_at(data, at).err();
                }
                return None;
            }
            request => self.answer(request, found),
        };
        Some(done.unwrap_or_else(|error| Reply::failed(&error)))
    }

    fn answer(&mut self, request: Request, found: &mut Vec<u8>) -> io::Result<Reply> {
        let root = &self.to.root;
        match request {
            Request::Found { path: at, follow } => {
                let of = match follow {
                    true => root.metadata(path(&at))?,
                    false => root.symlink_metadata(path(&at))?,
                };
                Ok(Reply::Found(FileStat::of(&of)))
            }
            Request::Names { path: at, more } => self.names(path(&at), more),
            Request::Target { path: at } => {
                Ok(Reply::Target(root.read_link(path(&at))?.into_os_string().into_vec()))
            }
            Request::Xattrs { path: at } => {
                let at = path(&at);
                let names = root.xattrs(at)?.into_iter();
                let all = names.map(|name| Ok((name.clone().into_vec(), root.xattr(at, &name)?)));
                Ok(Reply::Xattrs(all.collect::<io::Result<_>>()?))
            }
            Request::Open { path: at } => {
                self.reading = None;
                self.reading = Some(root.open_file(path(&at))?);
                Ok(Reply::Done)
            }
            Request::Data { at } => {
                let file = self.reading.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let Some(start) = file.seek_data(at)? else { return Ok(Reply::Data(None)) };
                Ok(Reply::Data(Some((start, file.seek_hole(start)?))))
            }
            Request::Read { at, len } => {
                let file = self.reading.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                found.resize(DATA_MAX.min(len as usize), 0);
                let len = file.read_at(found, at)?;
                found.truncate(len);
                Ok(Reply::Done)
            }
            Request::End { path: at, len, attributes, sync } => {
                self.finish(path(&at), len, &attributes, sync).map(done_without)
            }
            Request::MakeDirectory { path: at, follow } => self.make_directory(path(&at), follow),
            Request::Symlink { path: at, target, attributes } => {
                self.make(path(&at), &attributes, |dir, name| dir.symlink(path(&target), name))
            }
            Request::Node { path: at, mode, rdev, attributes } => {
                let kind = FileType::from_mode(mode).ok_or(io::ErrorKind::InvalidInput)?;
                self.make(path(&at), &attributes, |dir, name| {
                    dir.create_node(name, kind, 0o600, rdev)
                })
            }
            Request::Link { old, new } => {
                let (dir, name) = self.place(path(&new))?;
                self.to.link(path(&old), &dir, &name)?;
                Ok(Reply::Done)
            }
            Request::Attributes { path: at, attributes } => {
                // The root has no name in any directory.
                let (dir, name) = match self.place(path(&at)) {
                    Ok(place) => place,
                    Err(_) => (self.to.root.clone(), ".".into()),
                };
                let set = self.to.attributes(&dir, &name, |dir, name| set(dir, name, &attributes));
                set.map(done_without)
            }
            Request::Begin { .. } | Request::Write { .. } => {
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }

    fn names(&mut self, at: &Path, more: bool) -> io::Result<Reply> {
        if !more {
            self.names = Some(self.to.root.read_dir(at)?);
        }
        let entries = self.names.as_mut().ok_or(io::ErrorKind::InvalidInput)?;
        let some = entries.take(NAMES).map(|entry| Ok(entry?.file_name().as_bytes().to_vec()));
        let names = some.collect::<io::Result<Vec<Bytes>>>()?;
        let more = names.len() == NAMES;
        Ok(Reply::Names { names, more })
    }

    /// The directory and the name of a path.
    fn place(&mut self, at: &Path) -> io::Result<(Dir, std::ffi::OsString)> {
        let Some(Component::Normal(name)) = at.components().next_back() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let above = at.parent().unwrap_or(Path::new("/"));
        if let Some((path, dir)) = &self.dir
            && path == above
        {
            return Ok((dir.clone(), name.into()));
        }
        let dir = self.to.root.open_dir(above)?;
        // What this copy has made, or entered: another process may have put a link in its place.
        if self.made.get(above).is_some_and(|inode| *inode != dir.ino()) {
            return Err(io::Error::other("its directory is another one by now"));
        }
        self.dir = Some((above.into(), dir.clone()));
        Ok((dir, name.into()))
    }

    fn begin(&mut self, at: &Path) -> io::Result<File> {
        let (dir, _) = self.place(at)?;
        OpenOptions::new().write(true).mode(0o600).tmpfile(&dir, ".")
    }

    fn finish(
        &mut self,
        at: &Path,
        len: u64,
        attributes: &Attributes,
        sync: bool,
    ) -> io::Result<Vec<Bytes>> {
        let Some(Writing { file, failed }) = self.writing.take() else {
            return self.begin(at).and(Err(io::ErrorKind::InvalidInput.into()));
        };
        if let Some(error) = failed {
            return Err(error);
        }
        if file.metadata()?.len() != len {
            file.set_len(len)?;
        }
        let left_out = xattrs(attributes, |name, value| file.set_xattr(name, value))?;
        file.set_attributes(wanted(attributes))?;
        let (dir, name) = self.place(at)?;
        // A power cut must not find the name without the bytes.
        if sync {
            file.sync_all()?;
        }
        self.to.name_file(&file, &dir, &name)?;
        if sync {
            file.sync_all()?;
        }
        Ok(left_out)
    }

    fn make_directory(&mut self, at: &Path, follow: bool) -> io::Result<Reply> {
        let found = match follow {
            true => self.to.root.metadata(at),
            false => self.to.root.symlink_metadata(at),
        };
        let inode = match found {
            Ok(found) if found.is_dir() => found.ino(),
            _ => {
                let (dir, name) = self.place(at)?;
                // Its owner alone can use it, until all is in it.
                self.to.make_directory(&dir, &name, 0o700)?;
                dir.symlink_metadata(&name)?.ino()
            }
        };
        self.made.insert(at.into(), inode);
        Ok(Reply::Done)
    }

    fn make(
        &mut self,
        at: &Path,
        attributes: &Attributes,
        make: impl Fn(&Dir, &OsStr) -> io::Result<()>,
    ) -> io::Result<Reply> {
        let (dir, name) = self.place(at)?;
        let set = |dir: &Dir, name: &OsStr| set(dir, name, attributes);
        self.to.make_whole(&dir, &name, make, set).map(done_without)
    }
}

fn wanted(of: &Attributes) -> holdfast::Attributes {
    let mut wanted = holdfast::Attributes::new();
    if let Some((uid, gid)) = of.owner {
        wanted = wanted.owner(uid, gid);
    }
    if let Some(mode) = of.mode {
        wanted = wanted.permissions(Permissions::from_mode(mode));
    }
    if let Some((accessed, modified)) = of.times {
        let times = FileTimes::new().set_accessed(moment(accessed).into());
        wanted = wanted.times(times.set_modified(moment(modified).into()));
    }
    wanted
}

/// Sets attributes of what is at `name`. Returns those that are left out.
fn set(dir: &Dir, name: &OsStr, attributes: &Attributes) -> io::Result<Vec<Bytes>> {
    let none = XattrFlags::empty();
    let left_out = xattrs(attributes, |of, value| dir.set_xattr(name, of, value, none))?;
    dir.set_attributes(name, wanted(attributes)).map(|()| left_out)
}

/// Sets extended attributes. What a volume does not have, or is not for us to set, is left out, and returned.
fn xattrs(
    attributes: &Attributes,
    set: impl Fn(&OsStr, &[u8]) -> io::Result<()>,
) -> io::Result<Vec<Bytes>> {
    let mut left_out = Vec::new();
    for (name, value) in &attributes.xattrs {
        match set(OsStr::from_bytes(name), value) {
            Err(error) if is_not_taken(&error) => left_out.push(name.clone()),
            set => set?,
        }
    }
    Ok(left_out)
}

fn done_without(names: Vec<Bytes>) -> Reply {
    if names.is_empty() { Reply::Done } else { Reply::DoneWithout(names) }
}
