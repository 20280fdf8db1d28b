//! A file gets the name of an object, in one step of history, and becomes durable with it.
//!
//! ```text
//!  create:   file without a name ── link ─────────────────────────────▶ its name, if that is free
//!  replace:  file without a name ── link ─▶ .holdfast-object-store/N ── rename ─▶ its name
//! ```
//!
//! Directories are made before and removed behind, under one lock, so that none goes away under a name that is about to come.

use std::io::{self, ErrorKind};
use std::path::{Path as FilePath, PathBuf};

use holdfast::{Dir, File, RenameFlags};
use object_store::path::Path;
use object_store::{CopyMode, Error, PutMode, PutResult, RenameTargetMode, Result, UpdateVersion};

use crate::error::{of_new_object, of_object};
use crate::inner::Inner;
use crate::object::{STAGING, e_tag, file_path};

/// How often directories are made again that others remove at the same moment.
const TRIES: usize = 64;

/// What may be there already.
pub(crate) enum Target {
    /// Anything: it is replaced.
    Any,
    /// Nothing.
    None,
    /// An object of this version: it is replaced.
    Version(UpdateVersion),
}

impl From<PutMode> for Target {
    fn from(mode: PutMode) -> Target {
        match mode {
            PutMode::Overwrite => Target::Any,
            PutMode::Create => Target::None,
            PutMode::Update(version) => Target::Version(version),
        }
    }
}

impl From<CopyMode> for Target {
    fn from(mode: CopyMode) -> Target {
        match mode {
            CopyMode::Overwrite => Target::Any,
            CopyMode::Create => Target::None,
        }
    }
}

impl From<RenameTargetMode> for Target {
    fn from(mode: RenameTargetMode) -> Target {
        match mode {
            RenameTargetMode::Overwrite => Target::Any,
            RenameTargetMode::Create => Target::None,
        }
    }
}

impl Inner {
    /// Gives a file that has no name yet that of an object. It is durable when this returns.
    pub(crate) fn publish(
        &self,
        file: &File,
        location: &Path,
        target: Target,
    ) -> Result<PutResult> {
        let path = file_path(location)?;
        {
            let _one = self.changes.lock();
            self.expect(location, &target)?;
            let named = match target {
                Target::None => self.below_parents(path, || self.root.link_file(file, path)),
                Target::Any | Target::Version(_) => self.replace(file, path),
            };
            named.map_err(|error| of_new_object(location, error))?;
        }
        let made = || {
            if self.durable {
                // The file, its names, and the directories that they are in (P1).
                file.sync_all()?;
            }
            file.metadata()
        };
        let found = made().map_err(|error| of_object(location, error))?;
        Ok(PutResult { e_tag: Some(e_tag(&found)), version: None, extensions: Default::default() })
    }

    /// Does what gives a path to an object, and makes the directories above it where they are missing. Others that use the volume may remove
    /// them meanwhile, and then they are made again. A failure leaves those that were there before, and no others.
    fn below_parents(&self, path: &FilePath, act: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut made = Vec::new();
        let mut done = act();
        for _ in 0..TRIES {
            match &done {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                _ => break,
            }
            done = make_parents(&self.root, path, &mut made).and_then(|()| act());
        }
        if done.is_err() {
            for dir in made.iter().rev() {
                let _ = self.root.remove_dir(dir);
            }
        }
        done
    }

    fn replace(&self, file: &File, path: &FilePath) -> io::Result<()> {
        // Once: a file whose name is removed again gets no other.
        let staged = self.stage(file)?;
        self.below_parents(path, || self.root.rename(&staged, path)).inspect_err(|_| {
            let _ = self.root.remove_file(&staged);
        })
    }

    /// Gives a file a name that is no object's.
    fn stage(&self, file: &File) -> io::Result<PathBuf> {
        let mut tries = 0;
        loop {
            let staged = FilePath::new(STAGING).join(self.next_staged());
            let error = match self.root.link_file(file, &staged) {
                Ok(()) => return Ok(staged),
                Err(error) => error,
            };
            match error.kind() {
                _ if tries == TRIES => return Err(error),
                // Another process has it, or one that crashed.
                ErrorKind::AlreadyExists => {}
                ErrorKind::NotFound => self.root.create_dir_all(STAGING)?,
                _ => return Err(error),
            }
            tries += 1;
        }
    }

    /// Fails unless the object is what may be replaced. Under the lock of changes.
    fn expect(&self, location: &Path, target: &Target) -> Result<()> {
        let Target::Version(wanted) = target else { return Ok(()) };
        let refused = |why: &str| {
            let path = location.to_string();
            Err(Error::Precondition { path, source: why.into() })
        };
        let found = match self.root.symlink_metadata(file_path(location)?) {
            Ok(found) if found.is_file() => found,
            Ok(_) => return refused("there is no such object"),
            Err(error) => match of_object(location, error) {
                Error::NotFound { .. } => return refused("there is no such object"),
                error => return Err(error),
            },
        };
        match &wanted.e_tag {
            Some(tag) if *tag == e_tag(&found) => Ok(()),
            Some(_) => refused("it was replaced meanwhile"),
            None => refused("an update needs the e_tag of what it replaces"),
        }
    }

    /// Moves an object, and makes that durable.
    pub(crate) fn rename(&self, from: &Path, to: &Path, target: Target) -> Result<()> {
        let (old, new) = (file_path(from)?, file_path(to)?);
        let flags = match target {
            Target::None => RenameFlags::NOREPLACE,
            Target::Any | Target::Version(_) => RenameFlags::empty(),
        };
        {
            let _one = self.changes.lock();
            // A directory would be moved with all objects in it.
            let found = self.root.symlink_metadata(old).map_err(|error| of_object(from, error))?;
            if !found.is_file() {
                return Err(of_object(from, ErrorKind::IsADirectory.into()));
            }
            let moved =
                self.below_parents(new, || self.root.rename_with(old, &self.root, new, flags));
            moved.map_err(|error| of_new_object(to, error))?;
            remove_empty_parents(&self.root, old);
        }
        let durable = || match self.durable {
            true => self.root.open_file(new)?.sync_all(),
            false => Ok(()),
        };
        match durable() {
            // Moved or deleted again meanwhile, which was made durable.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done.map_err(|error| of_object(to, error)),
        }
    }

    /// Deletes an object, and makes that durable.
    pub(crate) fn delete(&self, location: &Path) -> Result<()> {
        let path = file_path(location)?;
        let deleted = || {
            let above = {
                let _one = self.changes.lock();
                if !self.root.symlink_metadata(path)?.is_file() {
                    return Err(ErrorKind::NotFound.into());
                }
                self.root.remove_file(path)?;
                remove_empty_parents(&self.root, path)
            };
            if self.durable {
                match self.root.open_dir(above) {
                    Ok(above) => above.sync_all()?,
                    // Removed meanwhile, as the last object in it went.
                    Err(_) => self.root.sync_volume()?,
                }
            }
            Ok(())
        };
        deleted().map_err(|error| of_object(location, error))
    }
}

/// Makes the directories above a path that are missing, and adds them to `made`.
fn make_parents<'a>(
    root: &Dir,
    path: &'a FilePath,
    made: &mut Vec<&'a FilePath>,
) -> io::Result<()> {
    let above: Vec<_> =
        path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()).collect();
    for dir in above.into_iter().rev() {
        match root.create_dir(dir) {
            Ok(()) => made.push(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the directories above a path that are empty, and returns the first that is not.
fn remove_empty_parents<'a>(root: &Dir, path: &'a FilePath) -> &'a FilePath {
    let mut above = path.parent().unwrap_or(FilePath::new(""));
    while !above.as_os_str().is_empty() && root.remove_dir(above).is_ok() {
        above = above.parent().unwrap_or(FilePath::new(""));
    }
    match above.as_os_str().is_empty() {
        true => FilePath::new("."),
        false => above,
    }
}
