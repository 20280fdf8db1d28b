//! Files and whole directories of a branch go, one name after the other, while others work in it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};

use holdfast::{Dir, FileType, ReadDir};
use serde::{Deserialize, Serialize};

use super::Ends;
use super::in_place::{Branches, InPlace};
use super::tree::Tree;
use crate::branches::Name;
use crate::outcome::{Failure, Outcome, sentence};

/// What goes.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct What {
    pub(crate) tree: Tree,
    /// From the root of the tree.
    pub(crate) paths: Vec<Name>,
    /// Directories with all that is in them.
    pub(crate) recursive: bool,
    /// What is not there is no failure.
    pub(crate) force: bool,
}

pub(super) fn run(branches: &dyn Branches, volume: &str, what: &What, ends: &dyn Ends) -> Outcome {
    let branch = branches.in_place(&what.tree)?;
    let mut failures = 0_u32;
    for path in &what.paths {
        let removed = one(&branch, path.path(), what, ends);
        match removed {
            Err(Stopped::End(error)) => {
                // What is gone is gone, and of two failures the first is told.
                let _ = branch.end(volume);
                return Err(Failure::plain(sentence(volume, &error)));
            }
            Err(Stopped::At(at, error)) if !is_gone(&error) || !what.force => {
                failures = failures.saturating_add(1);
                ends.note(&sentence(format!("{volume}:{at}"), &error));
            }
            _ => {}
        }
    }
    branch.end(volume)?;
    Ok(u8::from(failures > 0))
}

/// Why a path is still there.
enum Stopped {
    /// The work is to end.
    End(io::Error),
    /// This path could not be removed.
    At(String, io::Error),
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn one(branch: &InPlace, path: &Path, what: &What, ends: &dyn Ends) -> Result<(), Stopped> {
    let at = |error: io::Error| Stopped::At(path.display().to_string(), error);
    let name = match path.components().next_back() {
        Some(Component::Normal(name)) => name,
        Some(Component::RootDir) | None => {
            let why = "is the root of the branch, which stays; name what is in it";
            return Err(at(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        _ => {
            let why = "ends in . or .., which is not removed";
            return Err(at(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
    };
    let dir = branch.root.open_dir(path.parent().unwrap_or(Path::new("/"))).map_err(at)?;
    let found = dir.symlink_metadata(name).map_err(at)?;
    match found.file_type() {
        FileType::Directory if !what.recursive => {
            Err(at(io::Error::new(io::ErrorKind::IsADirectory, "is a directory; -r removes it")))
        }
        FileType::Directory => below(branch, &dir, name, path, ends),
        file_type => branch.remove(&dir, name, file_type).map_err(at),
    }
}

/// A directory on the way down.
struct Level {
    dir: Dir,
    entries: ReadDir,
    name: OsString,
}

/// Removes a directory and all that is in it, without recursion. What others put there meanwhile may go as well, or be told as what
/// keeps it from being removed.
fn below(
    branch: &InPlace,
    parent: &Dir,
    name: &OsStr,
    path: &Path,
    ends: &dyn Ends,
) -> Result<(), Stopped> {
    let opened = |parent: &Dir, name: &OsStr| -> io::Result<Level> {
        let dir = parent.open_dir(name)?;
        let entries = dir.entries();
        Ok(Level { dir, entries, name: name.into() })
    };
    let mut at = path.to_path_buf();
    let mut levels = vec![opened(parent, name).map_err(|error| told(&at, error))?];
    while let Some(level) = levels.last_mut() {
        ends.check().map_err(Stopped::End)?;
        let Some(entry) = level.entries.next() else {
            let Some(done) = levels.pop() else { break };
            let above = levels.last().map_or(parent, |above| &above.dir);
            match branch.remove(above, &done.name, FileType::Directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(told(&at, error));
                }
                _ => {}
            }
            at.pop();
            continue;
        };
        let entry = entry.map_err(|error| told(&at, error))?;
        let name = entry.file_name();
        let removed = match entry.file_type() {
            FileType::Directory => opened(&level.dir, name).map(|below| {
                at.push(name);
                levels.push(below);
            }),
            file_type => branch.remove(&level.dir, name, file_type),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(told(&at.join(entry.file_name()), error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn told(at: &Path, error: io::Error) -> Stopped {
    Stopped::At(at.display().to_string(), error)
}
