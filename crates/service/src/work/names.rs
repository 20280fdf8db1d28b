//! Names of a branch change, one after the other, while others work in it: directories and links are made, things move, and get
//! other owners or permission bits.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use holdfast::{Attributes, Descent, Dir, Order, Permissions, RenameFlags};
use serde::{Deserialize, Serialize};

use super::Ends;
use super::in_place::{Heads, InPlace};
use super::remove::same_directory;
use super::tree::Tree;
use crate::branches::Name;
use crate::mode::Mode;
use crate::outcome::{Failure, Outcome, sentence, words_of_volume};

/// What is to be done in a branch.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NamespaceChange {
    /// The branch.
    pub tree: Tree,
    /// User and group of what is made.
    pub owner: (u32, u32),
    /// The change.
    pub change: Change,
}

/// All paths begin at the root of the tree.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum Change {
    /// Make directories; with `parents` those above as well, and one that is there is no failure.
    Directories { paths: Vec<Name>, mode: u32, parents: bool },
    /// Give things another place; with `keep` nothing is replaced.
    Move { from: Vec<Name>, to: Name, means: Means, keep: bool },
    /// Give a file one more name.
    Link { old: Name, new: Name, force: bool },
    /// Make a symbolic link.
    Symlink { says: Name, new: Name, force: bool },
    /// Set permission bits or owners, also of all that is below.
    Set { paths: Vec<Name>, to: To, recursive: bool },
}

/// What the new place of a thing means.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The thing itself, also where a directory is.
    Itself,
    /// The directory that it goes into.
    Directory,
    /// That if it is a directory, and otherwise the thing itself.
    Either,
}

/// Attributes that are set; those not named stay.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct To {
    /// Permission bits.
    pub mode: Option<Mode>,
    /// The number of the user.
    pub user: Option<u32>,
    /// The number of the group.
    pub group: Option<u32>,
}

pub(super) fn run(
    heads: &dyn Heads,
    volume: &str,
    what: &NamespaceChange,
    ends: &dyn Ends,
) -> Outcome {
    let branch = heads.in_place(&what.tree)?;
    let work = Names { branch: &branch, owner: what.owner };
    if let Change::Move { to, means: Means::Directory, .. } = &what.change
        && !work.is_dir(to.path())
    {
        branch.end(volume)?;
        let to = to.path().display();
        return Err(Failure::plain(format!("{volume}:{to} is no directory, which takes several")));
    }
    let mut failures = 0_u32;
    let mut done = |path: &Path, done: io::Result<()>| {
        if let Err(error) = done {
            failures = failures.saturating_add(1);
            ends.note(&format!("{volume}:{}: {}", path.display(), words_of_volume(&error)));
        }
    };
    let mut ended = Ok(());
    match &what.change {
        Change::Directories { paths, mode, parents } => {
            for path in paths.iter().map(Name::path) {
                done(path, work.directory(path, *mode, *parents));
            }
        }
        Change::Move { from, to, means, keep } => {
            for path in from.iter().map(Name::path) {
                done(path, work.move_to(path, to.path(), *means, *keep));
            }
        }
        Change::Link { old, new, force } => {
            done(new.path(), work.link(old.path(), new.path(), *force));
        }
        Change::Symlink { says, new, force } => {
            done(new.path(), work.symlink(says.path(), new.path(), *force));
        }
        Change::Set { paths, to, recursive } => {
            for path in paths.iter().map(Name::path) {
                if ended.is_ok() {
                    ended = work.set_all(path, to, *recursive, ends, &mut done);
                }
            }
        }
    }
    let closed = branch.end(volume);
    ended.map_err(|error| Failure::plain(sentence(volume, &error)))?;
    closed?;
    Ok(u8::from(failures > 0))
}

fn refused(kind: io::ErrorKind, why: &str) -> io::Error {
    io::Error::new(kind, why)
}

/// The last name of a path, and what leads to it.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    match path.components().next_back() {
        Some(Component::Normal(name)) => Ok((path.parent().unwrap_or(Path::new("/")), name)),
        Some(Component::RootDir) | None => {
            Err(refused(io::ErrorKind::InvalidInput, "is the root of the branch"))
        }
        _ => Err(refused(io::ErrorKind::InvalidInput, "ends in . or ..")),
    }
}

struct Names<'a> {
    branch: &'a InPlace,
    owner: (u32, u32),
}

impl Names<'_> {
    fn dir_of<'a>(&self, path: &'a Path) -> io::Result<(Dir, &'a OsStr)> {
        let (parent, name) = split(path)?;
        Ok((self.branch.root.open_dir(parent)?, name))
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.branch.root.metadata(path).is_ok_and(|found| found.is_dir())
    }

    fn directory(&self, path: &Path, mode: u32, parents: bool) -> io::Result<()> {
        if !parents {
            return self.one_directory(path, mode);
        }
        let mut at = PathBuf::from("/");
        for component in path.components() {
            at.push(component);
            if matches!(component, Component::Normal(_)) && !self.is_dir(&at) {
                // Those above must let their owner go on.
                let is_last = at == path;
                self.one_directory(&at, if is_last { mode } else { mode | 0o300 })?;
            }
        }
        Ok(())
    }

    fn one_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (dir, name) = self.dir_of(path)?;
        self.branch.make_directory(&dir, name, mode)?;
        self.own(&dir, name)
    }

    /// What was made belongs to its caller. A group that a directory gives to all that is made in it stays.
    fn own(&self, dir: &Dir, name: &OsStr) -> io::Result<()> {
        const SET_GID: u32 = 0o2000;
        let (user, group) = self.owner;
        let group = if dir.metadata(".")?.mode() & SET_GID == 0 { Some(group) } else { None };
        let made = dir.symlink_metadata(name)?;
        if made.uid() == user && group.is_none_or(|group| made.gid() == group) {
            return Ok(());
        }
        self.branch.attributes(dir, name, |dir, name| dir.chown(name, Some(user), group))
    }

    fn move_to(&self, from: &Path, to: &Path, means: Means, keep: bool) -> io::Result<()> {
        let (dir, name) = self.dir_of(from)?;
        let into = match means {
            Means::Itself => None,
            Means::Directory => Some(to.join(name)),
            Means::Either => self.is_dir(to).then(|| to.join(name)),
        };
        let (to_dir, new) = self.dir_of(into.as_deref().unwrap_or(to))?;
        let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        self.branch.move_to((&dir, name), (&to_dir, new), flags)
    }

    /// Where a link goes: what was named, or its place in there. It must be free, unless what is there may go.
    fn place(&self, new: &Path, base: Option<&OsStr>, force: bool) -> io::Result<PathBuf> {
        let path = match base {
            Some(base) if self.is_dir(new) => new.join(base),
            _ => new.to_path_buf(),
        };
        match self.branch.root.symlink_metadata(&path) {
            Ok(_) if !force => Err(refused(
                io::ErrorKind::AlreadyExists,
                &format!("{} is there; -f replaces it", path.display()),
            )),
            _ => Ok(path),
        }
    }

    fn link(&self, old: &Path, new: &Path, force: bool) -> io::Result<()> {
        let (_, base) = split(old)?;
        let path = self.place(new, Some(base), force)?;
        if self.branch.root.symlink_metadata(old)?.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory, "a directory has one name"));
        }
        let (dir, name) = self.dir_of(&path)?;
        self.branch.link(old, &dir, name)
    }

    fn symlink(&self, says: &Path, new: &Path, force: bool) -> io::Result<()> {
        let path = self.place(new, says.file_name(), force)?;
        let (dir, name) = self.dir_of(&path)?;
        let make = |dir: &Dir, name: &OsStr| dir.symlink(says, name);
        self.branch.make_whole(&dir, name, make, |dir, name| self.own(dir, name))
    }

    /// Sets attributes at a path, and with `recursive` below it, where no link is followed. Fails if the work is to end; of what could
    /// not be set `done` hears.
    fn set_all(
        &self,
        path: &Path,
        to: &To,
        recursive: bool,
        ends: &dyn Ends,
        done: &mut dyn FnMut(&Path, io::Result<()>),
    ) -> io::Result<()> {
        // As chmod(1) and chown(1): a link on the command line is followed, unless all below is meant.
        let real = match recursive {
            true => Ok(path.to_path_buf()),
            false => self.branch.root.canonicalize(path),
        };
        let top = real.and_then(|real| {
            let (dir, name) = match split(&real) {
                Ok((parent, name)) => (self.branch.root.open_dir(parent)?, name),
                Err(_) if real == Path::new("/") => {
                    (self.branch.root.open_dir("/")?, OsStr::new("."))
                }
                Err(error) => return Err(error),
            };
            self.set(&dir, name, to)
        });
        let mut way = Descent::new(Order::AsTheyLie);
        match top {
            Ok(Some(dir)) if recursive => {
                if let Err(error) = way.enter(dir, path) {
                    done(path, Err(error));
                }
            }
            Ok(_) if recursive => {}
            other => done(path, other.map(drop)),
        }
        while let Some(dir) = way.dir().cloned() {
            ends.check()?;
            let Some(entry) = way.next_name() else {
                way.leave();
                continue;
            };
            match entry {
                Ok(entry) => {
                    let name = entry.file_name();
                    let below = self.set(&dir, name, to);
                    let set = below.and_then(|below| match below {
                        Some(below) => way.enter(below, name),
                        None => Ok(()),
                    });
                    if let Err(error) = set {
                        done(&way.path().join(name), Err(error));
                    }
                }
                Err(error) => done(way.path(), Err(error)),
            }
        }
        Ok(())
    }

    /// Sets attributes of one thing, which is not followed, and returns it if it is a directory.
    fn set(&self, dir: &Dir, name: &OsStr, to: &To) -> io::Result<Option<Dir>> {
        let found = dir.symlink_metadata(name)?;
        if found.is_symlink() && to.mode.is_some() {
            // It has none.
            return Ok(None);
        }
        // Opened before its bits may say otherwise.
        let below = found.is_dir().then(|| same_directory(dir, name, found.ino())).transpose()?;
        self.branch.attributes(dir, name, |dir, name| {
            if to.user.is_some() || to.group.is_some() {
                dir.chown(name, to.user, to.group)?;
            }
            match &to.mode {
                Some(mode) => {
                    let bits = mode.of(found.mode(), found.is_dir());
                    let bits = Attributes::new().permissions(Permissions::from_mode(bits));
                    dir.set_attributes(name, bits)
                }
                None => Ok(()),
            }
        })?;
        Ok(below)
    }
}
