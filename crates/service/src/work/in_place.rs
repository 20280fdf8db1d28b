//! A branch that work changes in place: step by step, as programs do that have it mounted, and beside them.
//!
//! A kernel that has the branch mounted hears of each step, and is waited for now and then, so that what it is to hear grows slowly
//! at most.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use holdfast::{Dir, File, FileType, NewHead, RenameFlags, Told, Volume};
use holdfast_base::{Changed, prng};

use super::Tree;
use crate::branches::answer::{Open, PART, answer};
use crate::branches::{Ask, Reply, not_forgotten};
use crate::outcome::{Context, Failure};

/// What the kernel is told before it is waited for.
const TOLD: usize = 1024;
/// How long it is waited for then: it may wait for a program that reads what has changed.
const PATIENCE: Duration = Duration::from_secs(1);
/// And in the end.
const LAST_PATIENCE: Duration = Duration::from_secs(30);
/// How often a free name is drawn.
const TRIES: usize = 16;

/// A mount of a branch, whose kernel remembers what it has read.
pub trait Remembers: Debug + Send {
    /// It forgets these. Never waits.
    fn forget(&self, changed: Vec<Changed>);
    /// Waits until all that is forgotten, but no longer than `patience`. Says whether it is.
    fn has_forgotten(&self, patience: Duration) -> bool;
}

/// The heads of branches, as the process has them that holds the volume.
pub trait Heads {
    /// The branch that this tree means.
    ///
    /// # Errors
    /// It is a snapshot, or read-only, or in use elsewhere.
    fn in_place(&self, tree: &Tree) -> Result<InPlace, Failure>;
    /// Answers what is asked of branches and snapshots.
    ///
    /// # Errors
    /// The volume is closed.
    fn answer(&self, ask: &Ask) -> Result<Reply, Failure>;
}

/// A branch that is changed.
#[derive(Debug)]
pub struct InPlace {
    pub(crate) root: Dir,
    /// It is open for this alone.
    own: Option<Volume>,
    /// The mount that has it.
    mount: Option<Box<dyn Remembers>>,
    told: Cell<usize>,
}

/// A branch of a volume at rest, of which one is open.
#[derive(Debug)]
pub struct AtRest<'a> {
    /// What is open.
    pub volume: &'a Volume,
    /// What the volume is called in messages.
    pub name: &'a str,
}

impl Heads for AtRest<'_> {
    fn in_place(&self, tree: &Tree) -> Result<InPlace, Failure> {
        tree.expect_branch(self.name)?;
        let branch = tree.branch(self.volume, self.name)?;
        match self.volume.branch_here().context(self.name)?.number() == branch.number() {
            true => Ok(InPlace::of((**self.volume).clone(), None)),
            false => Ok(InPlace::own(branch.open().context(self.name)?)),
        }
    }

    fn answer(&self, ask: &Ask) -> Result<Reply, Failure> {
        let fs = self.volume.engine().context(self.name)?;
        let give_head =
            |branch: u64, head: NewHead<'_>| Ok(head.give(&fs, branch).map(|()| Told::All)?);
        let open = Open { fs: &fs, is_mounted: false, most: PART, give_head: &give_head };
        Ok(answer(&open, ask))
    }
}

/// What a step has changed, in words of inodes.
fn steps(dir: &Dir, name: &OsStr, inode: Option<u64>) -> impl Iterator<Item = Changed> {
    let of_name = Changed::Name { dir: dir.ino(), name: name.as_bytes().into() };
    [of_name, Changed::Inode(dir.ino())].into_iter().chain(inode.map(Changed::Inode))
}

impl InPlace {
    /// A branch that others have open, by its root, and the mount that has it.
    pub fn of(root: Dir, mount: Option<Box<dyn Remembers>>) -> InPlace {
        InPlace { root, own: None, mount, told: Cell::new(0) }
    }

    /// A branch that was opened for this.
    pub fn own(volume: Volume) -> InPlace {
        InPlace { root: (*volume).clone(), own: Some(volume), mount: None, told: Cell::new(0) }
    }

    /// The kernel hears of what has changed.
    fn tell(&self, changed: impl Iterator<Item = Changed>) {
        let Some(mount) = &self.mount else { return };
        let changed: Vec<Changed> = changed.collect();
        self.told.set(self.told.get().saturating_add(changed.len()));
        mount.forget(changed);
        if self.told.get() >= TOLD {
            // A kernel that waits for a program slows this down, and does not end it.
            let has_forgotten = mount.has_forgotten(PATIENCE);
            self.told.set(if has_forgotten { 0 } else { TOLD / 2 });
        }
    }

    /// Attributes of what is at `name` change.
    pub(crate) fn attributes<T>(
        &self,
        dir: &Dir,
        name: &OsStr,
        change: impl FnOnce(&Dir, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let inode = dir.symlink_metadata(name)?.ino();
        let done = change(dir, name);
        self.tell([Changed::Inode(inode)].into_iter());
        done
    }

    /// Makes something at `name`. What was there goes in the same step, unless it is a directory.
    pub(crate) fn make(
        &self,
        dir: &Dir,
        name: &OsStr,
        make: impl Fn(&Dir, &OsStr) -> io::Result<()>,
    ) -> io::Result<()> {
        match make(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Ok(()) => {
                self.tell(steps(dir, name, None));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let old = dir.symlink_metadata(name)?;
        if old.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let temporary = self.at_free_name(dir, &make)?;
        self.rename(dir, &temporary, name, Some(old.ino()))
    }

    /// Makes something, with what it is to have, before it gets its name. What was there goes in the same step, unless it is a
    /// directory.
    pub(crate) fn make_whole<T>(
        &self,
        dir: &Dir,
        name: &OsStr,
        make: impl Fn(&Dir, &OsStr) -> io::Result<()>,
        set: impl Fn(&Dir, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let old = dir.symlink_metadata(name).ok();
        if old.is_some_and(|old| old.is_dir()) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let temporary = self.at_free_name(dir, &make)?;
        let set = set(dir, OsStr::new(&temporary)).inspect_err(|_| {
            let _ = dir.remove_file(&temporary);
            self.tell(steps(dir, OsStr::new(&temporary), None));
        })?;
        self.rename(dir, &temporary, name, old.map(|old| old.ino())).map(|()| set)
    }

    /// What has a name for a moment gets its own, in place of another file.
    fn rename(&self, dir: &Dir, temporary: &str, name: &OsStr, old: Option<u64>) -> io::Result<()> {
        let replaced = dir.rename(temporary, name);
        if replaced.is_err() {
            let _ = dir.remove_file(temporary);
        }
        self.tell(steps(dir, name, old).chain(steps(dir, OsStr::new(temporary), None)));
        replaced
    }

    /// Moves what is at `name` to another place, in one step. What was there goes, unless `flags` refuse that.
    pub(crate) fn move_to(
        &self,
        (dir, name): (&Dir, &OsStr),
        (to, new): (&Dir, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        let moved = dir.symlink_metadata(name)?.ino();
        let replaced = to.symlink_metadata(new).ok().map(|old| old.ino());
        dir.rename_with(name, to, new, flags)?;
        self.tell(steps(dir, name, Some(moved)).chain(steps(to, new, replaced)));
        Ok(())
    }

    /// Makes a directory.
    pub(crate) fn make_directory(&self, dir: &Dir, name: &OsStr, mode: u32) -> io::Result<()> {
        dir.create_dir_with_mode(name, mode)?;
        self.tell(steps(dir, name, None));
        Ok(())
    }

    /// Makes something under a free name, for a moment.
    fn at_free_name(
        &self,
        dir: &Dir,
        make: &impl Fn(&Dir, &OsStr) -> io::Result<()>,
    ) -> io::Result<String> {
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..TRIES {
            let name = format!(".holdfast-new-{:016x}", prng::entropy());
            match make(dir, OsStr::new(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                made => return made.map(|()| name),
            }
        }
        Err(last)
    }

    /// Gives a file without a name one.
    pub(crate) fn name_file(&self, file: &File, dir: &Dir, name: &OsStr) -> io::Result<()> {
        self.make(dir, name, |dir, name| dir.link_file(file, name))
    }

    /// Gives the file at `old`, a path from the root, the name `new` as well.
    pub(crate) fn link(&self, old: &Path, dir: &Dir, new: &OsStr) -> io::Result<()> {
        let of = self.root.symlink_metadata(old)?.ino();
        // A name of a file that takes the place of another name of it would leave both.
        if dir.symlink_metadata(new).is_ok_and(|there| there.ino() == of) {
            return Ok(());
        }
        self.make(dir, new, |dir, new| dir.hard_link(old, new))?;
        self.tell([Changed::Inode(of)].into_iter());
        Ok(())
    }

    /// Removes a name of anything but a directory, or an empty directory.
    pub(crate) fn remove(&self, dir: &Dir, name: &OsStr, of: FileType) -> io::Result<()> {
        let inode = match &self.mount {
            Some(_) => dir.symlink_metadata(name).ok().map(|found| found.ino()),
            None => None,
        };
        match of {
            FileType::Directory => dir.remove_dir(name)?,
            _ => dir.remove_file(name)?,
        }
        self.tell(steps(dir, name, inode));
        Ok(())
    }

    /// All is durable, and the kernel has forgotten what was.
    ///
    /// # Errors
    /// It is not, or the kernel takes long.
    pub(crate) fn end(self, volume: &str) -> Result<(), Failure> {
        if self.mount.is_some() {
            self.root.sync_volume().context(volume)?;
        }
        // What others have open at rest they close.
        if let Some(own) = self.own {
            own.close().context(volume)?;
        }
        match self.mount.is_none_or(|mount| mount.has_forgotten(LAST_PATIENCE)) {
            true => Ok(()),
            false => Err(not_forgotten("all is done")),
        }
    }
}
