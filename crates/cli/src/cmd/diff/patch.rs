//! How text changed, in the form that git(1) and patch(1) read.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use holdfast::{Change, ChangeKind, FileType, Volume};
use similar::TextDiff;

use super::show;
use crate::branches::Name;
use crate::outcome::{Context, Failure, printable, printed};

/// Larger files are only said to differ.
const BYTES_MAX: u64 = 4 << 20;
/// Text has no zero byte up to here, as git(1) judges it.
const LOOK_BYTES: usize = 8000;
/// After this the lines that changed are found more roughly: some texts are made to take for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// The two trees, opened.
pub(super) struct Patches<'a> {
    volume: &'a Volume,
    /// `None`: what the volume was opened at.
    old: Option<Volume>,
    new: Option<Volume>,
    is_terminal: bool,
}

impl<'a> Patches<'a> {
    pub(super) fn open(
        volume: &'a Volume,
        old: &(Name, Option<Name>),
        new: &(Name, Option<Name>),
        is_terminal: bool,
    ) -> Result<Patches<'a>, Failure> {
        let (old, new) = (opened(volume, old)?, opened(volume, new)?);
        Ok(Patches { volume, old, new, is_terminal })
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        let opened = [self.old, self.new].into_iter().flatten();
        opened.map(Volume::close).collect::<io::Result<()>>().context("closing the volume")
    }

    /// Prints how one file changed. What is neither a file nor a symbolic link has no text.
    pub(super) fn show(&self, change: &Change, out: &mut impl Write) -> Result<(), Failure> {
        if !matches!(change.file_type, FileType::Regular | FileType::Symlink) {
            return Ok(());
        }
        let path = show::path(change);
        let before = change.old_path.as_deref().unwrap_or(path);
        let kind = change.kind;
        let old = match kind {
            ChangeKind::Created => None,
            _ => {
                let was = self.where_it_was(change);
                Some(read(self.old.as_ref().unwrap_or(self.volume), was.as_deref().unwrap_or(before))?)
            }
        };
        let new = match kind {
            ChangeKind::Removed => None,
            _ => Some(read(self.new.as_ref().unwrap_or(self.volume), path)?),
        };
        let text = patch(kind, (before, &old), (path, &new)).unwrap_or_default();
        printed(match self.is_terminal {
            false => out.write_all(&text),
            true => out.write_all(&visible(&text)),
        })
    }

    /// Where a file was whose directory was renamed: it is found by its number.
    fn where_it_was(&self, change: &Change) -> Option<Vec<u8>> {
        change.old_path.clone().or_else(|| change.known_old_path.clone())
    }
}

fn opened(volume: &Volume, (branch, snapshot): &(Name, Option<Name>)) -> Result<Option<Volume>, Failure> {
    let open = || -> io::Result<Option<Volume>> {
        let branch = volume.branch(&branch.text())?;
        match snapshot {
            Some(name) => branch.snapshot_named(&name.text())?.open().map(Some),
            None => match branch.open() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
                opened => opened.map(Some),
            },
        }
    };
    open().context(branch)
}
