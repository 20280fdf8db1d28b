//! A path on the host or in a volume, with what copying needs on both.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use holdfast::FileType;

use super::host;
use crate::dispatch::Conversation;
use crate::outcome::Failure;
use crate::work::files::Files;
use crate::work::files::message::{Attributes, DATA_MAX, Found, Reply, Request};

/// A path on one of the two sides.
#[derive(Clone)]
pub(super) enum Side {
    Host(PathBuf),
    Volume(Rc<Image>, PathBuf),
}

/// Files of a branch or snapshot.
pub(super) struct Image {
    /// As the user called it.
    pub(super) name: String,
    /// Tells trees apart: the files of one have numbers of their own.
    pub(super) id: u64,
    pub(super) door: RefCell<Door>,
}

/// Who opens them.
pub(super) enum Door {
    /// This process: the volume is at rest.
    Here(Box<Files>),
    /// The daemon of the volume.
    Daemon(Conversation),
}

/// What could not be done, and with which path.
pub(super) struct Failed {
    pub(super) what: Side,
    pub(super) error: io::Error,
}

/// Says which path an error is about.
pub(super) trait At<T> {
    fn at(self, side: &Side) -> Result<T, Failed>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, side: &Side) -> Result<T, Failed> {
        self.map_err(|error| Failed { what: side.clone(), error })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Host(path) => write!(f, "{}", path.display()),
            Side::Volume(image, path) => {
                write!(f, "{}:{}", image.name, path.display())
            }
        }
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// An answer that nobody gives to what was asked.
fn nonsense<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer makes no sense"))
}

impl Image {
    /// Asks, with bytes of a file in `data` behind the answer.
    fn ask(&self, request: Request, data: &mut Vec<u8>) -> io::Result<Reply> {
        match &mut *self.door.borrow_mut() {
            Door::Daemon(daemon) => daemon.ask(&request, data),
            Door::Here(files) => match files.act(request, &[], data) {
                Some(reply) => reply.read(),
                None => nonsense(),
            },
        }
    }

    /// Says what has no answer.
    fn say(&self, request: Request, data: &[u8]) -> io::Result<()> {
        match &mut *self.door.borrow_mut() {
            Door::Daemon(daemon) => daemon.say(&request, data),
            Door::Here(files) => {
                files.act(request, data, &mut Vec::new());
                Ok(())
            }
        }
    }

    fn done(&self, request: Request) -> io::Result<()> {
        match self.ask(request, &mut Vec::new())? {
            Reply::Done => Ok(()),
            _ => nonsense(),
        }
    }

    /// All that was copied is durable.
    pub(super) fn close(self) -> Result<(), Failure> {
        match self.door.into_inner() {
            Door::Here(files) => files.end(&self.name),
            Door::Daemon(daemon) => daemon.end(),
        }
    }
}

impl Side {
    pub(super) fn path(&self) -> &Path {
        match self {
            Side::Host(path) | Side::Volume(_, path) => path,
        }
    }

    pub(super) fn name(&self) -> Option<OsString> {
        self.path().file_name().map(OsStr::to_os_string)
    }

    pub(super) fn with_path(&self, path: PathBuf) -> Side {
        match self {
            Side::Host(_) => Side::Host(path),
            Side::Volume(image, _) => Side::Volume(Rc::clone(image), path),
        }
    }

    pub(super) fn join(&self, name: &OsStr) -> Side {
        self.with_path(self.path().join(name))
    }

    pub(super) fn is_dir(&self) -> bool {
        let found = self.found(true).and_then(|found| found.file_type());
        found.is_ok_and(|file_type| file_type == FileType::Directory)
    }

    /// Attributes; symbolic links followed or not.
    pub(super) fn found(&self, follow: bool) -> io::Result<Found> {
        match self {
            Side::Host(path) => host::found(path, follow),
            Side::Volume(image, path) => {
                match image.ask(Request::Found { path: bytes(path), follow }, &mut Vec::new())? {
                    Reply::Found(found) => Ok(found),
                    _ => nonsense(),
                }
            }
        }
    }

    /// What tells this file from all others.
    pub(super) fn id(&self, found: &Found) -> io::Result<(u64, u64)> {
        match self {
            Side::Host(path) => host::device(path).map(|device| (device, found.inode)),
            // Above what a host has.
            Side::Volume(image, _) => Ok((image.id, found.inode)),
        }
    }

    /// Names in a directory, in no order.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let (image, path) = match self {
            Side::Host(path) => {
                return std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect();
            }
            Side::Volume(image, path) => (image, path),
        };
        let mut all = Vec::new();
        loop {
            let more = !all.is_empty();
            match image.ask(Request::Names { path: bytes(path), more }, &mut Vec::new())? {
                Reply::Names { names, more } => {
                    // An answer that goes on without a name would go on for ever.
                    let goes_on = more && !names.is_empty();
                    all.extend(names.into_iter().map(OsString::from_vec));
                    if !goes_on {
                        return expect_names(all);
                    }
                }
                _ => return nonsense(),
            }
        }
    }

    pub(super) fn read_link(&self) -> io::Result<PathBuf> {
        match self {
            Side::Host(path) => std::fs::read_link(path),
            Side::Volume(image, path) => {
                match image.ask(Request::Target { path: bytes(path) }, &mut Vec::new())? {
                    Reply::Target(target) => Ok(OsString::from_vec(target).into()),
                    _ => nonsense(),
                }
            }
        }
    }

    /// Names and values of the extended attributes; none where the host has none.
    pub(super) fn xattrs(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            Side::Host(path) => host::xattrs(path),
            Side::Volume(image, path) => {
                match image.ask(Request::Xattrs { path: bytes(path) }, &mut Vec::new())? {
                    Reply::Xattrs(all) => Ok(all),
                    _ => nonsense(),
                }
            }
        }
    }

    pub(super) fn open(&self) -> io::Result<Reading> {
        match self {
            Side::Host(path) => std::fs::File::open(path).map(Reading::Host),
            Side::Volume(image, path) => {
                image.done(Request::Open { path: bytes(path) })?;
                Ok(Reading::Volume(Rc::clone(image)))
            }
        }
    }

    /// How far its bytes go at most. Files of /proc have some, and say that they have none.
    pub(super) fn end(&self, found: &Found) -> u64 {
        match self {
            Side::Host(_) if found.len == 0 => u64::MAX,
            Side::Host(_) | Side::Volume(..) => found.len,
        }
    }

    /// What comes out of a pipe or a device of the host, to its end.
    ///
    /// # Errors
    /// It is a socket, or lies in a volume, where nothing is behind it.
    pub(super) fn stream(&self, file_type: FileType) -> Result<std::fs::File, Failed> {
        let (what, is_readable) = match file_type {
            FileType::Fifo => ("a pipe", true),
            FileType::CharDevice | FileType::BlockDevice => ("a device", true),
            _ => ("a socket", false),
        };
        match self {
            Side::Host(path) if is_readable => std::fs::File::open(path).at(self),
            Side::Host(_) | Side::Volume(..) => {
                let why = format!("is {what} that gives no bytes; -r copies it as what it is");
                Err(io::Error::other(why)).at(self)
            }
        }
    }

    /// Begins a file that comes to this path when it is whole; on the host through a link that is there, if `follow`.
    pub(super) fn begin(&self, follow: bool) -> io::Result<Writing> {
        match self {
            Side::Host(path) => host::Writing::begin(path, follow).map(Writing::Host),
            Side::Volume(image, path) => {
                image.say(Request::Begin { path: bytes(path) }, &[])?;
                Ok(Writing::Volume(Rc::clone(image), path.clone()))
            }
        }
    }

    /// Makes a directory that its owner can fill, unless there is one; a link to one is none, unless `follow`.
    pub(super) fn create_dir(&self, follow: bool) -> io::Result<()> {
        match self {
            Side::Host(path) => match std::fs::create_dir(path) {
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists
                        && host::is_dir(path, follow) =>
                {
                    Ok(())
                }
                other => other,
            },
            Side::Volume(image, path) => {
                image.done(Request::MakeDirectory { path: bytes(path), follow })
            }
        }
    }

    /// Makes a symbolic link; what was there goes.
    pub(super) fn symlink(&self, target: &Path, attributes: Attributes) -> io::Result<()> {
        match self {
            Side::Host(path) => {
                host::make(path, &attributes, |path| std::os::unix::fs::symlink(target, path))
            }
            Side::Volume(image, path) => {
                let (path, target) = (bytes(path), bytes(target));
                image.done(Request::Symlink { path, target, attributes })
            }
        }
    }

    /// Makes a pipe, a socket or a device; what was there goes.
    pub(super) fn node(&self, found: &Found, attributes: Attributes) -> io::Result<()> {
        let (mode, rdev) = (found.mode, found.rdev);
        match self {
            Side::Host(path) => {
                host::make(path, &attributes, |path| host::make_node(path, mode, rdev))
            }
            Side::Volume(image, path) => {
                image.done(Request::Node { path: bytes(path), mode, rdev, attributes })
            }
        }
    }

    /// Gives the file at `self` the name `new` as well, on the same side; what was there goes.
    pub(super) fn hard_link(&self, new: &Side) -> io::Result<()> {
        match (self, new) {
            (Side::Host(old), Side::Host(new)) => host::link(old, new),
            (Side::Volume(image, old), Side::Volume(_, new)) => {
                image.done(Request::Link { old: bytes(old), new: bytes(new) })
            }
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    /// Sets attributes of a directory.
    pub(super) fn set_attributes(&self, attributes: Attributes) -> io::Result<()> {
        match self {
            Side::Host(path) => host::set(path, &attributes),
            Side::Volume(image, path) => {
                image.done(Request::Attributes { path: bytes(path), attributes })
            }
        }
    }
}

/// A daemon may be a stranger's: a name must not lead out of the directory that is copied into.
fn expect_names(names: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let is_name = |name: &OsString| {
        !matches!(name.as_bytes(), b"" | b"." | b"..") && !name.as_bytes().contains(&b'/')
    };
    let mut sorted: Vec<&OsString> = names.iter().collect();
    sorted.sort_unstable();
    // The second of two would go through what the first has put there.
    let are_different = sorted.windows(2).all(|two| two[0] != two[1]);
    if are_different && names.iter().all(is_name) { Ok(names) } else { nonsense() }
}

/// A file that is read. Of a volume one at a time.
pub(super) enum Reading {
    Host(std::fs::File),
    Volume(Rc<Image>),
}

impl Reading {
    /// Reads some bytes into `into`, at most as many as it has.
    pub(super) fn read_at(&self, into: &mut Vec<u8>, at: u64, len: u64) -> io::Result<()> {
        let len = len.min(DATA_MAX as u64) as usize;
        match self {
            Reading::Host(file) => {
                into.resize(len, 0);
                let read = std::os::unix::fs::FileExt::read_at(file, into, at)?;
                into.truncate(read);
                Ok(())
            }
            Reading::Volume(image) => {
                match image.ask(Request::Read { at, len: len as u32 }, into)? {
                    Reply::Done if into.len() <= len => Ok(()),
                    _ => nonsense(),
                }
            }
        }
    }

    /// The next stretch of data at or after `at`: its start and end. `None` if only a hole is left.
    pub(super) fn data_after(&self, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        match self {
            Reading::Host(file) => host::data_after(file, at, len),
            Reading::Volume(image) => match image.ask(Request::Data { at }, &mut Vec::new())? {
                Reply::Data(Some((start, end))) if start < at || end <= start => nonsense(),
                Reply::Data(found) => Ok(found),
                _ => nonsense(),
            },
        }
    }
}

/// A file that has no name yet.
pub(super) enum Writing {
    Host(host::Writing),
    Volume(Rc<Image>, PathBuf),
}

impl Writing {
    pub(super) fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self {
            Writing::Host(file) => file.write_all_at(bytes, at),
            Writing::Volume(image, _) => image.say(Request::Write { at }, bytes),
        }
    }

    /// It is whole: it gets its length, its attributes, and its name; durable, if `sync`.
    pub(super) fn end(self, len: u64, attributes: Attributes, sync: bool) -> io::Result<()> {
        match self {
            Writing::Host(file) => file.end(len, &attributes, sync),
            Writing::Volume(image, path) => {
                image.done(Request::End { path: bytes(&path), len, attributes, sync })
            }
        }
    }
}
