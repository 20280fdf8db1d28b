//! A whole tree into an archive.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use holdfast::{Dir, FileType};

use crate::listing::names;
use crate::write::{Exported, Of, Writer};
use crate::{Error, Form};

/// Writes everything in `dir` as an archive: the directory itself as `./`, then what is in it, each directory before its
/// content, names in the order of their bytes. The same tree gives the same bytes.
///
/// Of a volume that others change, a snapshot should be given: of a file that changes meanwhile the archive has as many bytes as it had, whichever,
/// and the error says so when the archive is whole. In memory is one directory of each level, and of each file
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
    if writer.member(dir, name, &path)? != Some(FileType::Directory) {
        return Ok(());
    }
    let mut path = path;
    // The directories on the way down: what is left of each, and how long its path is.
    let mut levels = vec![level(dir.open_dir(name).of(&path)?, &path)?];
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
        if writer.member(dir, &name, &path)? == Some(FileType::Directory) {
            let below = dir.open_dir(&name).of(&path)?;
            levels.push(level(below, &path)?);
        }
    }
    Ok(())
}

type Level = (Dir, std::vec::IntoIter<OsString>, usize);

fn level(dir: Dir, path: &[u8]) -> Result<Level, Error> {
    let names = names(&dir).of(path)?;
    Ok((dir, names.into_iter(), path.len()))
}
