//! The difference of two moments as a layer: what is new or changed as a whole, what is gone as whiteouts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use holdfast::{Change, ChangeKind, Dir, FileType, Metadata};

use crate::write::{Exported, Of, Writer, is_missing};
use crate::{Error, Form, whiteout};

type Result<T> = std::result::Result<T, Error>;

/// What an action takes, beside its paths.
const ACTION_BYTES: usize = 96;

/// What becomes of a path.
enum Action {
    Write,
    Marker(Vec<u8>),
}

/// What the layer will have, in the order in which it is written: paths with zero bytes for slashes, so that a directory
/// comes before what is in it and that before its next neighbour. Markers have an empty name in between, so they come
/// before all else of their directory.
struct Plan<'a> {
    old: &'a Dir,
    new: &'a Dir,
    actions: BTreeMap<Vec<u8>, Action>,
    /// What the actions take, and may take.
    bytes: usize,
    most: usize,
    /// Files of several names: a layer must have all of them, or the names fall apart.
    linked: BTreeSet<u64>,
}

/// Writes a layer that makes of `old` what `new` is: `changes` is the difference from the one to the other.
///
/// A file that changed is there as a whole, what was renamed is removed and there anew, and directories above what changed
/// are listed for their times. In memory are the paths of what changed, `most` bytes of them; where that includes a file of several names, all
/// names of `new` are looked at.
///
/// # Errors
/// What cannot be read or written; a name that begins with `.wh.`; [`Error::TooMuch`].
/// What `changes` fails with.
pub fn export_difference(
    old: &Dir,
    new: &Dir,
    changes: impl IntoIterator<Item = io::Result<Change>>,
    most: usize,
    to: impl Write,
) -> Result<Exported> {
    let (actions, linked) = (BTreeMap::new(), BTreeSet::new());
    let mut plan = Plan { old, new, actions, bytes: 0, most, linked };
    for change in changes {
        let change = change.map_err(|source| Error::Volume {
            what: "the difference cannot be read".into(),
            source,
        })?;
        plan.add(&change)?;
        plan.expect_room()?;
    }
    plan.add_links()?;
    let mut writer = Writer::new(to, Form::Layer, most);
    for (key, action) in plan.actions {
        match action {
            Action::Marker(path) => writer.marker(&path)?,
            Action::Write => {
                let path = key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte });
                let path: Vec<u8> = path.collect();
                writer.member(new, os(&path).as_os_str(), &path)?;
            }
        }
    }
    writer.finish()
}

pub(crate) fn os(path: &[u8]) -> &Path {
    match path.is_empty() {
        true => Path::new("."),
        false => Path::new(OsStr::from_bytes(path)),
    }
}

/// The directory of a path, and the name in it.
pub(crate) fn above(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn key(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect()
}

/// What is at a path, no link on the way followed.
fn found(tree: &Dir, path: &[u8]) -> io::Result<Option<Metadata>> {
    for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if !there(tree.symlink_metadata(os(&path[..at])))?.is_some_and(|found| found.is_dir()) {
            return Ok(None);
        }
    }
    there(tree.symlink_metadata(os(path)))
}

fn there(found: io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    match found {
        Err(error) if is_missing(&error) => Ok(None),
        found => found.map(Some),
    }
}

impl Plan<'_> {
    fn add(&mut self, change: &Change) -> Result<()> {
        let is_directory = change.file_type == FileType::Directory;
        let is_elsewhere = matches!(change.kind, ChangeKind::Removed | ChangeKind::Renamed);
        if let Some(path) = change.old_path.as_deref().filter(|_| is_elsewhere) {
            self.removed(path).of(path)?;
        }
        let Some(path) = change.new_path.as_deref().filter(|_| change.kind != ChangeKind::Removed)
        else {
            return Ok(());
        };
        self.write(path);
        if !is_directory {
            let now = self.new.symlink_metadata(os(path)).of(path)?;
            if now.nlink() > 1 {
                self.linked.insert(now.ino());
            }
            return Ok(());
        }
        let is_another = matches!(change.kind, ChangeKind::Created | ChangeKind::Renamed);
        if is_another && found(self.old, path).of(path)?.is_some_and(|before| before.is_dir()) {
            self.marker(path, whiteout::OPAQUE, b"");
        }
        if change.kind == ChangeKind::Renamed {
            self.below(path)?;
        }
        Ok(())
    }

    /// A path, and the directories above it.
    fn write(&mut self, path: &[u8]) {
        let mut path = path;
        while self.put(key(path), Action::Write) && !path.is_empty() && self.expect_room().is_ok() {
            path = above(path).0;
        }
    }

    /// Whether that is new.
    fn put(&mut self, key: Vec<u8>, action: Action) -> bool {
        let marker = if let Action::Marker(path) = &action { path.len() } else { 0 };
        let bytes = ACTION_BYTES + key.len() + marker;
        let is_new = self.actions.insert(key, action).is_none();
        self.bytes += if is_new { bytes } else { 0 };
        is_new
    }

    fn expect_room(&self) -> Result<()> {
        match self.bytes > self.most {
            true => Err(Error::TooMuch { what: "paths of what has changed", most: self.most }),
            false => Ok(()),
        }
    }

    fn marker(&mut self, dir: &[u8], name: &[u8], order: &[u8]) {
        let mut key = key(dir);
        if !dir.is_empty() {
            key.push(0);
        }
        key.push(0);
        key.extend_from_slice(order);
        self.put(key, Action::Marker(whiteout::path(dir, name)));
        self.write(dir);
    }

    /// A name that is gone needs a whiteout if its directory is still there: otherwise what became of that tells it.
    fn removed(&mut self, path: &[u8]) -> io::Result<()> {
        let (dir, name) = above(path);
        let number = |tree| Ok::<_, io::Error>(found(tree, dir)?.map(|found| found.ino()));
        let is_same = number(self.old)? == number(self.new)?;
        // A socket has no place in a layer.
        let now = found(self.new, path)?.filter(|now| now.file_type() != FileType::Socket);
        if is_same && now.is_none() {
            self.marker(dir, &[whiteout::PREFIX, name].concat(), name);
        }
        Ok(())
    }

    /// Everything below a directory that has moved: what did not change itself is told nowhere.
    fn below(&mut self, path: &[u8]) -> Result<()> {
        for entry in self.new.walk(os(path)).of(path)? {
            let entry = entry.of(path)?;
            let at = entry.path().into_os_string().into_vec();
            self.write(&at);
            self.expect_room()?;
            if entry.file_type() != FileType::Directory && entry.metadata().of(&at)?.nlink() > 1 {
                self.linked.insert(entry.ino());
            }
        }
        Ok(())
    }

    /// The other names of files that have several.
    fn add_links(&mut self) -> Result<()> {
        if self.linked.is_empty() {
            return Ok(());
        }
        for entry in self.new.walk(".").of(b"")? {
            let entry = entry.of(b"")?;
            let is_directory = entry.file_type() == FileType::Directory;
            if !is_directory && self.linked.contains(&entry.ino()) {
                let path = entry.path();
                self.write(path.strip_prefix(".").unwrap_or(&path).as_os_str().as_bytes());
                self.expect_room()?;
            }
        }
        Ok(())
    }
}
