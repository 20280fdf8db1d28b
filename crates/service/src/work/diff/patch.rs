//! How the files of two trees changed, in the form that git(1) and patch(1) read.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use holdfast::{Change, ChangeKind, FileType, Volume};

use super::text::{Version, visible, write_patch};
use crate::outcome::{Context, Failure, printed};

/// Larger files are only said to differ.
const BYTES_MAX: u64 = 4 << 20;

/// The two trees.
pub(super) struct Patches<'a> {
    old: &'a Volume,
    new: &'a Volume,
    is_terminal: bool,
    /// Files of several names of which the patch has not all.
    links: u64,
}

impl<'a> Patches<'a> {
    pub(super) fn of(old: &'a Volume, new: &'a Volume, is_terminal: bool) -> Patches<'a> {
        Patches { old, new, is_terminal, links: 0 }
    }

    /// What the patch does not have, if there is anything.
    pub(super) fn left_out(&self) -> Option<String> {
        let (files, patch) = (self.links, "a patch knows no hard links");
        (files > 0).then(|| format!("{patch}: of {files} files with several names one is patched"))
    }

    /// Prints all changes, which are in the order of their paths, as one patch.
    pub(super) fn show(&mut self, all: &[Change], out: &mut impl Write) -> Result<(), Failure> {
        let told: BTreeSet<&[u8]> =
            all.iter().filter_map(|change| change.new_path.as_deref()).collect();
        let mut rest = all;
        while let Some((change, behind)) = rest.split_first() {
            rest = behind;
            if change.kind == ChangeKind::Renamed && change.file_type == FileType::Directory {
                self.show_moved(change, &told, out)?;
                continue;
            }
            let replaced = behind.first().filter(|next| replaces(change, next));
            if let Some(next) = replaced {
                // Another file has the name: what it was, and what it is.
                rest = &behind[1..];
                self.one(change.old_path.as_deref(), next.new_path.as_deref(), out)?;
                continue;
            }
            if !has_text(change.file_type) {
                continue;
            }
            let (old, new) = (change.old_path.as_deref(), change.new_path.as_deref());
            match change.kind {
                ChangeKind::Created => self.one(None, new, out)?,
                ChangeKind::Removed => self.one(old, None, out)?,
                _ if change.is_link => {
                    self.links += 1;
                    // Where it was is not always known, and a name that is new is told as one.
                    if old == new {
                        self.one(old, new, out)?;
                    }
                }
                _ => self.one(old, new, out)?,
            }
        }
        Ok(())
    }

    /// Prints that files are elsewhere since a directory above them is, but for those that are told themselves.
    fn show_moved(
        &self,
        change: &Change,
        told: &BTreeSet<&[u8]>,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let (Some(old), Some(new)) = (&change.old_path, &change.new_path) else { return Ok(()) };
        let mut walk = self.new.walk(inside(new)).context(inside(new).display())?;
        while let Some(entry) = walk.next() {
            let entry = entry.context(inside(new).display())?;
            // A slash is in front of it there.
            let now = entry.path().into_os_string().into_vec().split_off(1);
            let was = [&old[..], &now[new.len()..]].concat();
            let is_told = told.contains(&now[..]);
            match entry.file_type() {
                // What was made or moved tells itself of what is below.
                FileType::Directory if is_told && !self.was_at(&was, &now)? => {
                    walk.skip_directory()
                }
                kind if has_text(kind) && !is_told => self.one(Some(&was), Some(&now), out)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the directory that is at `new` was at `old`.
    fn was_at(&self, old: &[u8], new: &[u8]) -> Result<bool, Failure> {
        let (old, new) = (inside(old), inside(new));
        let now = self.new.symlink_metadata(&new).context(new.display())?;
        let was = self.old.symlink_metadata(&old);
        Ok(was.is_ok_and(|was| was.ino() == now.ino()))
    }

    /// Prints one file of a patch.
    fn one(
        &self,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let Some(known) = new.or(old) else { return Ok(()) };
        let was = old.map(|path| read(self.old, path)).transpose()?;
        let is = new.map(|path| read(self.new, path)).transpose()?;
        let old = old.unwrap_or(known);
        let mut text = Vec::new();
        match (&was, &is) {
            // A patch does not make a link of a file: one goes, the other comes.
            (Some(before), Some(after)) if before.is_link() != after.is_link() => {
                printed(write_patch((old, was.as_ref()), (old, None), &mut text))?;
                printed(write_patch((known, None), (known, is.as_ref()), &mut text))?;
            }
            _ => printed(write_patch((old, was.as_ref()), (known, is.as_ref()), &mut text))?,
        }
        printed(match self.is_terminal {
            false => out.write_all(&text),
            true => out.write_all(&visible(&text)),
        })
    }
}

/// Whether a name that one file has lost is that of another now.
fn replaces(removed: &Change, created: &Change) -> bool {
    removed.kind == ChangeKind::Removed
        && created.kind == ChangeKind::Created
        && removed.old_path == created.new_path
        && has_text(removed.file_type)
        && has_text(created.file_type)
}

/// What is neither a file nor a symbolic link has no text.
fn has_text(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Symlink)
}

fn inside(path: &[u8]) -> std::path::PathBuf {
    Path::new("/").join(OsStr::from_bytes(path))
}

/// What a file is in one of the trees.
fn read(volume: &Volume, path: &[u8]) -> Result<Version, Failure> {
    let path = inside(path);
    let read = || -> io::Result<Version> {
        let found = volume.symlink_metadata(&path)?;
        let bytes = match found.file_type() {
            FileType::Symlink => Some(volume.read_link(&path)?.into_os_string().into_vec()),
            _ if found.len() > BYTES_MAX => None,
            _ => Some(volume.read(&path)?),
        };
        Ok(Version { mode: found.mode(), bytes })
    };
    read().context(path.display())
}
