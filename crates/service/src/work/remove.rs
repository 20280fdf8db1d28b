//! Files and whole directories of a branch go, one name after the other, while others work in it.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path};

use holdfast::{Descent, Dir, FileType, Order};
use serde::{Deserialize, Serialize};

use super::Ends;
use super::in_place::{Heads, InPlace};
use super::tree::Tree;
use crate::branches::Name;
use crate::outcome::{Failure, Outcome, sentence};

/// What goes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Removal {
    /// The branch.
    pub tree: Tree,
    /// From the root of the tree.
    pub paths: Vec<Name>,
    /// Directories with all that is in them.
    pub recursive: bool,
    /// What is not there is no failure.
    pub force: bool,
}

pub(super) fn run(heads: &dyn Heads, volume: &str, what: &Removal, ends: &dyn Ends) -> Outcome {
    let branch = heads.in_place(&what.tree)?;
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
    what: &Removal,
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

/// The directory of this inode number, and no other one: its name may lead elsewhere by now, by a symbolic link as well.
pub(super) fn same_directory(parent: &Dir, name: &OsStr, inode: u64) -> io::Result<Dir> {
    let dir = parent.open_dir(name)?;
    match dir.ino() == inode {
        true => Ok(dir),
        false => Err(io::ErrorKind::NotFound.into()),
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
    let mut way = Descent::new(Order::AsTheyLie);
    let top = same_directory(parent, name, inode).and_then(|top| way.enter(top, path));
    top.map_err(|error| Stopped::At(path.display().to_string(), error))?;
    // The directories from the first on in which something is still there, and that was told.
    let (mut staying, mut failures) = (0, 0_u32);
    while let Some(dir) = way.dir().cloned() {
        ends.check().map_err(Stopped::End)?;
        let removed = match way.next_name() {
            Some(Ok(entry)) => {
                let name = entry.file_name();
                let removed = match entry.file_type() {
                    FileType::Directory => same_directory(&dir, name, entry.ino())
                        .and_then(|below| way.enter(below, name)),
                    file_type => branch.remove(&dir, name, file_type),
                };
                removed.map_err(|error| (way.path().join(name), error))
            }
            Some(Err(error)) => Err((way.path().to_path_buf(), error)),
            None => {
                let (stays, at) = (staying >= way.depth(), way.path().to_path_buf());
                let Some((_, below)) = way.leave() else { break };
                staying = staying.min(way.depth());
                let above = way.dir().map_or((parent, name), |above| (above, &*below));
                let removed = match stays {
                    // What keeps it there was told.
                    true => Ok(()),
                    false => branch.remove(above.0, above.1, FileType::Directory),
                };
                removed.map_err(|error| (at, error))
            }
        };
        match removed {
            Err((path, error)) if error.kind() != io::ErrorKind::NotFound => {
                failures = failures.saturating_add(1);
                tell(&path, &error);
                staying = way.depth();
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
        assert!(same_directory(&dir, OsStr::new("x"), listed).is_ok());
        volume.rename("/a/x", "/a/y").unwrap();
        volume.symlink("/home", "/a/x").unwrap();
        let error = same_directory(&dir, OsStr::new("x"), listed).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(volume.exists("/home/kept").unwrap());
        volume.close().unwrap();
    }
}
