//! A path on the host or in a volume, with what copying needs on both.

mod file;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use holdfast::FileType;
use holdfast_base::show;
use holdfast_daemon::dispatch::Conversation;
use holdfast_service::work::files::Files;
use holdfast_service::work::files::message::{Attributes, Reply, Request};

pub(super) use self::file::{Reading, Writing};
use crate::host_tree::{self, Dir, EntryStat, HostEntry, Id, Made, NewFile, There};
use crate::outcome::Failure;

/// A path on one of the two sides.
#[derive(Clone)]
pub(super) enum Endpoint {
    Host(HostEntry),
    Volume(Rc<Image>, PathBuf),
}

/// A directory on one of them, in which names are found and made.
#[derive(Clone)]
pub(super) enum Directory {
    Host(Rc<Dir>),
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

/// The user who opens them.
pub(super) enum Door {
    /// This process: the volume is at rest.
    Here(Box<Files>),
    /// The daemon of the volume.
    Daemon(Conversation),
}

/// What could not be done, and with which path.
pub(super) struct Failed {
    pub(super) what: Endpoint,
    pub(super) error: io::Error,
}

/// Says which path an error is about.
pub(super) trait At<T> {
    fn at(self, side: &Endpoint) -> Result<T, Failed>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, side: &Endpoint) -> Result<T, Failed> {
        self.map_err(|error| Failed { what: side.clone(), error })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Host(place) => write!(f, "{place}"),
            Endpoint::Volume(image, path) => {
                write!(f, "{}:{}", image.name, path.display())
            }
        }
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// An answer that does not fit what was asked.
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

    /// Has something made or set. Returns the attributes that the volume does not take.
    fn made(&self, request: Request) -> io::Result<Vec<String>> {
        match self.ask(request, &mut Vec::new())? {
            Reply::Done => Ok(Vec::new()),
            Reply::DoneWithout(names) => Ok(names.iter().map(|name| show::name(name)).collect()),
            _ => nonsense(),
        }
    }

    /// What is at a path; symbolic links followed or not.
    fn look(&self, path: &Path, follow: bool) -> io::Result<EntryStat> {
        match self.ask(Request::Found { path: bytes(path), follow }, &mut Vec::new())? {
            Reply::Found(found) => Ok(EntryStat { found, id: (self.id, found.inode) }),
            _ => nonsense(),
        }
    }

    fn xattrs(&self, path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self.ask(Request::Xattrs { path: bytes(path) }, &mut Vec::new())? {
            Reply::Xattrs(all) => Ok(all),
            _ => nonsense(),
        }
    }

    /// Names in a directory, in no order.
    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut all = Vec::new();
        loop {
            let more = !all.is_empty();
            match self.ask(Request::Names { path: bytes(path), more }, &mut Vec::new())? {
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

    /// All that was copied is durable.
    pub(super) fn close(self) -> Result<(), Failure> {
        match self.door.into_inner() {
            Door::Here(files) => files.end(&self.name),
            Door::Daemon(daemon) => daemon.end(),
        }
    }
}

impl Endpoint {
    /// What it is called in its directory.
    pub(super) fn name(&self) -> Option<OsString> {
        match self {
            Endpoint::Host(place) => place.path().file_name().map(OsStr::to_os_string),
            Endpoint::Volume(_, path) => path.file_name().map(OsStr::to_os_string),
        }
    }

    /// It as a directory that the user has named; `None` if it is none.
    pub(super) fn directory(&self) -> Option<Directory> {
        let seen = self.look(true).ok()?;
        if seen.found.file_type().ok()? != FileType::Directory {
            return None;
        }
        self.enter(&seen, true).ok()
    }

    /// What is there; symbolic links followed or not.
    pub(super) fn look(&self, follow: bool) -> io::Result<EntryStat> {
        match self {
            Endpoint::Host(place) => place.look(follow),
            Endpoint::Volume(image, path) => image.look(path, follow),
        }
    }

    /// The directory that was found; a link to one is none, unless `follow`.
    pub(super) fn enter(&self, seen: &EntryStat, follow: bool) -> io::Result<Directory> {
        match self {
            Endpoint::Host(place) => place.enter(seen, follow).map(Directory::Host),
            Endpoint::Volume(image, path) => Ok(Directory::Volume(Rc::clone(image), path.clone())),
        }
    }

    /// Whether it is a directory, or lies below one, even where it is not there yet.
    pub(super) fn lies_in(&self, id: Id) -> bool {
        let is_it = |seen: io::Result<EntryStat>| seen.is_ok_and(|seen| seen.id == id);
        match self {
            Endpoint::Host(place) => is_it(place.look(true)) || place.lies_below(id),
            Endpoint::Volume(image, path) => {
                path.ancestors().any(|path| is_it(image.look(path, true)))
            }
        }
    }

    /// Something that was found, which is no directory, and what it is now.
    pub(super) fn open(&self, seen: &EntryStat, follow: bool) -> io::Result<(Reading, EntryStat)> {
        let is_file = seen.found.file_type()? == FileType::Regular;
        match self {
            Endpoint::Host(place) if is_file => {
                let (file, seen) = place.open(seen, follow)?;
                Ok((Reading::Host(file), seen))
            }
            Endpoint::Host(place) => {
                let (held, seen) = place.hold(seen, follow)?;
                Ok((Reading::Held(held), seen))
            }
            Endpoint::Volume(image, path) => {
                if is_file {
                    image.done(Request::Open { path: bytes(path) })?;
                }
                Ok((Reading::Volume(Rc::clone(image), path.clone()), *seen))
            }
        }
    }

    /// What comes out of a pipe or a device of the host that the user has named, to its end.
    ///
    /// # Errors
    /// It is a socket, or lies in a volume, where nothing is behind it.
    pub(super) fn stream(&self, seen: &EntryStat) -> io::Result<File> {
        let (what, is_readable) = match seen.found.file_type()? {
            FileType::Fifo => ("a pipe", true),
            FileType::CharDevice | FileType::BlockDevice => ("a device", true),
            _ => ("a socket", false),
        };
        match self {
            Endpoint::Host(place) if is_readable => Ok(place.open_waiting(seen, true)?.0),
            Endpoint::Host(_) | Endpoint::Volume(..) => Err(io::Error::other(format!(
                "is {what} that gives no bytes; -r copies it as what it is"
            ))),
        }
    }

    /// Begins a file that comes to this path when it is whole; on the host through a link that is there, if `follow`.
    pub(super) fn begin(&self, follow: bool) -> io::Result<Writing> {
        match self {
            Endpoint::Host(place) => NewFile::begin(place, follow).map(Writing::Host),
            Endpoint::Volume(image, path) => {
                image.say(Request::Begin { path: bytes(path) }, &[])?;
                Ok(Writing::Volume(Rc::clone(image), path.clone()))
            }
        }
    }

    /// Makes a directory that its owner can fill, unless there is one; a link to one is none, unless `follow`. Says whether one was there.
    pub(super) fn make_directory(&self, follow: bool) -> io::Result<(Directory, bool)> {
        let is_dir =
            |seen: &EntryStat| seen.found.file_type().is_ok_and(|it| it == FileType::Directory);
        match self {
            Endpoint::Host(place) => match place.make_dir() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let seen = place.look(follow)?;
                    if !is_dir(&seen) {
                        return Err(error);
                    }
                    Ok((self.enter(&seen, follow)?, true))
                }
                made => Ok((Directory::Host(made?), false)),
            },
            Endpoint::Volume(image, path) => {
                let was_there = image.look(path, follow).is_ok_and(|seen| is_dir(&seen));
                image.done(Request::MakeDirectory { path: bytes(path), follow })?;
                Ok((Directory::Volume(Rc::clone(image), path.clone()), was_there))
            }
        }
    }

    /// Makes a symbolic link; what was there goes.
    pub(super) fn symlink(&self, target: &Path, attributes: Attributes) -> io::Result<Copied> {
        match self {
            Endpoint::Host(place) => Ok(place.symlink(target, &attributes, There::Goes)?.into()),
            Endpoint::Volume(image, path) => {
                let (path, target) = (bytes(path), bytes(target));
                Ok(image.made(Request::Symlink { path, target, attributes })?.into())
            }
        }
    }

    /// Makes a pipe, a socket or a device; what was there goes.
    pub(super) fn node(&self, seen: &EntryStat, attributes: Attributes) -> io::Result<Copied> {
        let (mode, rdev) = (seen.found.mode, seen.found.rdev);
        match self {
            Endpoint::Host(place) => Ok(place.node((mode, rdev), &attributes, There::Goes)?.into()),
            Endpoint::Volume(image, path) => {
                Ok(image.made(Request::Node { path: bytes(path), mode, rdev, attributes })?.into())
            }
        }
    }

    /// Gives the copy at `old` this name as well, on the same side; what was there goes.
    pub(super) fn hard_link(&self, old: &(Endpoint, Option<Id>)) -> io::Result<()> {
        match (self, old) {
            (Endpoint::Host(new), (Endpoint::Host(old), Some(id))) => {
                new.link(old, *id, There::Goes)
            }
            (Endpoint::Volume(image, new), (Endpoint::Volume(_, old), _)) => {
                image.done(Request::Link { old: bytes(old), new: bytes(new) })
            }
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }
}

/// What has become of a copy.
pub(super) struct Copied {
    /// What tells it from others, on the host.
    pub(super) id: Option<Id>,
    /// Attributes that the other side does not take.
    pub(super) left_out: Vec<String>,
}

impl From<Made> for Copied {
    fn from(made: Made) -> Copied {
        Copied { id: Some(made.id), left_out: made.left_out }
    }
}

/// A copy in a volume.
impl From<Vec<String>> for Copied {
    fn from(left_out: Vec<String>) -> Copied {
        Copied { id: None, left_out }
    }
}

impl Directory {
    pub(super) fn join(&self, name: &OsStr) -> Endpoint {
        match self {
            Directory::Host(dir) => Endpoint::Host(HostEntry::of(dir, name)),
            Directory::Volume(image, path) => Endpoint::Volume(Rc::clone(image), path.join(name)),
        }
    }

    /// Names in it, in no order.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        match self {
            Directory::Host(dir) => dir.names(),
            Directory::Volume(image, path) => image.names(path),
        }
    }

    pub(super) fn xattrs(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self {
            Directory::Host(dir) => host_tree::xattrs(&*dir.fd()?),
            Directory::Volume(image, path) => image.xattrs(path),
        }
    }

    /// Fails if others have put it elsewhere meanwhile. A volume compares it each time.
    pub(super) fn expect_in_place(&self) -> io::Result<()> {
        match self {
            Directory::Host(dir) => dir.expect_in_place(),
            Directory::Volume(..) => Ok(()),
        }
    }

    /// Sets attributes. Returns those that the host does not take.
    pub(super) fn set(&self, attributes: Attributes) -> io::Result<Vec<String>> {
        match self {
            Directory::Host(dir) => {
                let (left_out, done) = host_tree::set(&*dir.fd()?, &attributes);
                done.map(|()| left_out)
            }
            Directory::Volume(image, path) => {
                image.made(Request::Attributes { path: bytes(path), attributes })
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
