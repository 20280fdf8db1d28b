//! A whole tree into an archive.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;

use holdfast::{Descent, Dir, Metadata, Order};

use crate::write::{Exported, Of, Writer, is_at, is_missing};
use crate::{Error, Form};

/// Writes everything in `dir` as an archive: the directory itself as `./`, then what is in it, each directory before its
/// content, names in the order of their bytes. The same tree gives the same bytes.
///
/// Of a volume that others change, a snapshot should be given: of a file that changes meanwhile the archive has as many bytes as it had, whichever,
/// a directory that goes has nothing in it, and the error says so when the archive is whole. In memory is the way down (a [`Descent`]), and of each file
/// with several names one path, until the last was written: `most` bytes of those.
///
/// # Errors
/// What cannot be read or written; a name that a layer cannot have; [`Error::TooMuch`].
pub fn export(dir: &Dir, form: Form, most: usize, to: impl Write) -> Result<Exported, Error> {
    let mut writer = Writer::new(to, form, most);
    let (mut way, mut path) = (Descent::new(Order::ByName), Vec::new());
    below(&mut writer, &mut way, dir, OsStr::new("."), &path)?;
    while let Some(dir) = way.dir().cloned() {
        path.truncate(way.path().as_os_str().len());
        let Some(entry) = way.next_name() else {
            way.leave();
            continue;
        };
        let entry = entry.of(&path)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(entry.file_name().as_bytes());
        below(&mut writer, &mut way, &dir, entry.file_name(), &path)?;
    }
    writer.finish()
}

/// Writes a member, and if that is a directory goes into it. One that has gone by then, or is another, is left empty.
fn below(
    writer: &mut Writer<impl Write>,
    way: &mut Descent,
    dir: &Dir,
    name: &OsStr,
    path: &[u8],
) -> Result<(), Error> {
    let member = writer.member(dir, name, path)?;
    let Some(member) = member.filter(Metadata::is_dir) else { return Ok(()) };
    let mut enter = || -> io::Result<()> {
        let below = dir.open_dir(name)?;
        if below.symlink_metadata(".")?.ino() != member.ino() {
            return Err(ErrorKind::NotFound.into());
        }
        way.enter(below, if path.is_empty() { OsStr::new("") } else { name })
    };
    match enter() {
        Err(error) if !path.is_empty() && (is_missing(&error) || !is_at(dir, name, &member)) => {
            writer.has_changed(path);
            Ok(())
        }
        entered => entered.of(path),
    }
}
