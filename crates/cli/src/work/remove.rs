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
        let tell = |at: &Path, error: &io::Error| {
            ends.note(&sentence(format!("{volume}:{}", at.display()), error));
        };
        let removed = one(&branch, path.path(), what, &tell, ends);
        match removed {
            Err(Stopped::End(error)) => {
                // What is gone is gone, and of two failures the first is told.
                let _ = branch.end(volume);
                return Err(Failure::plain(sentence(volume, &error)));
            }
            Ok(some) => failures = failures.saturating_add(some),
            Err(Stopped::At(at, error)) if !is_gone(&error) || !what.force => {
                failures = failures.saturating_add(1);
                ends.note(&sentence(format!("{volume}:{at}"), &error));
            }
            Err(Stopped::At(..)) => {}
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

fn one(
    branch: &InPlace,
    path: &Path,
    what: &What,
    tell: &dyn Fn(&Path, &io::Error),
    ends: &dyn Ends,
) -> Result<u32, Stopped> {
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
        FileType::Directory => below(branch, &dir, (name, found.ino()), path, tell, ends),
        file_type => branch.remove(&dir, name, file_type).map(|()| 0).map_err(at),
    }
}

/// A directory on the way down.
struct Level {
    dir: Dir,
    entries: ReadDir,
    name: OsString,
    /// Something in it is still there, and that was told.
    stays: bool,
}

/// The directory of this inode number, and no other one: its name may lead elsewhere by now, by a symbolic link as well.
pub(super) fn same_directory(parent: &Dir, name: &OsStr, inode: u64) -> io::Result<Dir> {
    let dir = parent.open_dir(name)?;
    match dir.ino() == inode {
        true => Ok(dir),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

impl Level {
    fn of(parent: &Dir, name: &OsStr, inode: u64) -> io::Result<Level> {
        let dir = same_directory(parent, name, inode)?;
        let entries = dir.entries();
        Ok(Level { dir, entries, name: name.into(), stays: false })
    }
}

/// Removes a directory and all that is in it, without recursion, and returns how much of it could not be removed, which is told.
/// What others put there meanwhile may go as well, or be told as what keeps it there.
fn below(
    branch: &InPlace,
    parent: &Dir,
    (name, inode): (&OsStr, u64),
    path: &Path,
    tell: &dyn Fn(&Path, &io::Error),
    ends: &dyn Ends,
) -> Result<u32, Stopped> {
    let top = Level::of(parent, name, inode);
    let top = top.map_err(|error| Stopped::At(path.display().to_string(), error))?;
    let (mut at, mut levels, mut failures) = (path.to_path_buf(), vec![top], 0_u32);
    while let Some(level) = levels.last_mut() {
        ends.check().map_err(Stopped::End)?;
        let removed = match level.entries.next() {
            Some(Ok(entry)) => {
                let name = entry.file_name();
                let removed = match entry.file_type() {
                    FileType::Directory => Level::of(&level.dir, name, entry.ino()).map(|below| {
                        at.push(name);
                        levels.push(below);
                    }),
                    file_type => branch.remove(&level.dir, name, file_type),
                };
                removed.map_err(|error| (at.join(entry.file_name()), error))
            }
            Some(Err(error)) => Err((at.clone(), error)),
            None => {
                let Some(done) = levels.pop() else { break };
                let removed = match done.stays {
                    // What keeps it there was told.
                    true => Ok(()),
                    false => {
                        let above = levels.last().map_or(parent, |above| &above.dir);
                        branch.remove(above, &done.name, FileType::Directory)
                    }
                };
                let removed = removed.map_err(|error| (at.clone(), error));
                at.pop();
                if let (true, Some(above)) = (done.stays, levels.last_mut()) {
                    above.stays = true;
                }
                removed
            }
        };
        match removed {
            Err((path, error)) if error.kind() != io::ErrorKind::NotFound => {
                failures = failures.saturating_add(1);
                tell(&path, &error);
                if let Some(level) = levels.last_mut() {
                    level.stays = true;
                }
            }
            _ => {}
        }
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use holdfast::Volume;

    use super::*;

    /// Another process puts a link in the place of a directory that is about to be emptied.
    #[test]
    fn what_a_name_leads_to_by_now_is_not_emptied() {
        let volume = Volume::in_memory(64 << 20).unwrap();
        volume.create_dir_all("/a/x").unwrap();
        volume.create_dir_all("/home/kept").unwrap();
        let listed = volume.symlink_metadata("/a/x").unwrap().ino();
        let dir = volume.open_dir("/a").unwrap();
        assert!(Level::of(&dir, OsStr::new("x"), listed).is_ok());
        volume.rename("/a/x", "/a/y").unwrap();
        volume.symlink("/home", "/a/x").unwrap();
        let error = Level::of(&dir, OsStr::new("x"), listed).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(volume.exists("/home/kept").unwrap());
        volume.close().unwrap();
    }
}
