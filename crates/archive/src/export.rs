//! A whole tree into an archive.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;

use holdfast::{Dir, Metadata};

use crate::listing::names;
use crate::write::{Exported, Of, Writer, is_at, is_missing};
use crate::{Error, Form};

/// Writes everything in `dir` as an archive: the directory itself as `./`, then what is in it, each directory before its
/// content, names in the order of their bytes. The same tree gives the same bytes.
///
/// Of a volume that others change, a snapshot should be given: of a file that changes meanwhile the archive has as many bytes as it had, whichever,
/// a directory that goes has nothing in it, and the error says so when the archive is whole. In memory is one directory of each level, and of each file
/// with several names one, until the last was written.
///
/// # Errors
/// What cannot be read or written; a name that a layer cannot have.
pub fn export(dir: &Dir, form: Form, to: impl Write) -> Result<Exported, Error> {
    let mut writer = Writer::new(to, form);
    tree(&mut writer, dir, OsStr::new("."), Vec::new())?;
    writer.finish()
}

/// Writes what is called `name` in `dir`, as `path`, and everything below.
pub(crate) fn tree(
    writer: &mut Writer<impl Write>,
    dir: &Dir,
    name: &OsStr,
    path: Vec<u8>,
) -> Result<(), Error> {
    let mut path = path;
    // The directories on the way down: what is left of each, and how long its path is.
    let mut levels: Vec<Level> = below(writer, dir, name, &path)?.into_iter().collect();
    while let Some((dir, names, len)) = levels.last_mut() {
        path.truncate(*len);
        let Some(name) = names.next() else {
            levels.pop();
            continue;
        };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let below = below(writer, dir, &name, &path)?;
        levels.extend(below);
    }
    Ok(())
}

/// Writes a member, and if that is a directory shows what is in it. One that has gone by then, or is another, is left empty.
fn below(
    writer: &mut Writer<impl Write>,
    dir: &Dir,
    name: &OsStr,
    path: &[u8],
) -> Result<Option<Level>, Error> {
    let member = writer.member(dir, name, path)?;
    let Some(member) = member.filter(Metadata::is_dir) else { return Ok(None) };
    let open = || -> io::Result<_> {
        let below = dir.open_dir(name)?;
        match below.symlink_metadata(".")?.ino() == member.ino() {
            true => Ok((names(&below)?, below)),
            false => Err(ErrorKind::NotFound.into()),
        }
    };
    match open() {
        Err(error) if !path.is_empty() && (is_missing(&error) || !is_at(dir, name, &member)) => {
            writer.has_changed(path);
            Ok(None)
        }
        opened => {
            let (names, below) = opened.of(path)?;
            Ok(Some((below, names.into_iter(), path.len())))
        }
    }
}

type Level = (Dir, std::vec::IntoIter<OsString>, usize);
