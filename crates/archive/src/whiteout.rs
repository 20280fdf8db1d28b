//! Members of a layer that remove what the layers below have.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;

use holdfast::Dir;

use crate::listing::names;

/// Begins the name of each of them.
pub(crate) const PREFIX: &[u8] = b".wh.";
/// Removes everything that the layers below have in its directory.
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";

/// What one removes from its directory.
pub(crate) enum Removes<'a> {
    One(&'a OsStr),
    All,
    /// It is bookkeeping of a filesystem that made layers once.
    Nothing,
}

/// What a name that begins with [`PREFIX`] removes.
pub(crate) fn of(name: &[u8]) -> Result<Removes<'_>, &'static str> {
    if name == OPAQUE {
        return Ok(Removes::All);
    }
    match name.strip_prefix(PREFIX) {
        Some(b"" | b"." | b"..") | None => Err("it removes nothing that has a name"),
        Some(rest) if rest.starts_with(PREFIX) => Ok(Removes::Nothing),
        Some(rest) => Ok(Removes::One(OsStr::from_bytes(rest))),
    }
}

/// What a layer has put there itself.
pub(crate) struct Kept<'a> {
    /// Whether an inode is of this layer, or its name (in a directory, by that one's number) is.
    pub(crate) is_new: &'a dyn Fn(u64, u64, &OsStr) -> bool,
    /// Whether a directory is a member of it.
    pub(crate) is_listed: &'a dyn Fn(u64) -> bool,
    /// Directories in which nothing older is left. Each is looked through once, however many whiteouts ask for it.
    pub(crate) cleaned: BTreeSet<u64>,
}

/// The path of the member that removes `name` in the directory `above`.
pub(crate) fn path(above: &[u8], marker: &[u8]) -> Vec<u8> {
    match above.is_empty() {
        true => marker.to_vec(),
        false => [above, b"/", marker].concat(),
    }
}

/// Removes from `dir` what is older than the layer; what the layer itself has put there stays, whichever came first.
pub(crate) fn remove(dir: &Dir, what: Removes<'_>, kept: &mut Kept<'_>) -> io::Result<()> {
    match what {
        Removes::Nothing => Ok(()),
        Removes::One(name) => old(kept, dir, vec![name.to_owned()]),
        Removes::All => {
            if !kept.cleaned.insert(dir.symlink_metadata(".")?.ino()) {
                return Ok(());
            }
            old(kept, dir, names(dir)?)
        }
    }
}

/// Removes a directory, unless the layer has put something into it.
fn remove_empty(above: &Dir, name: &OsStr) -> io::Result<()> {
    match above.remove_dir(name) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        done => done,
    }
}

struct Level {
    dir: Dir,
    number: u64,
    names: std::vec::IntoIter<OsString>,
    /// Its name in the level above, if it goes when nothing is left in it.
    goes: Option<OsString>,
}

/// Removes old things of these names, and old things below, without recursion.
fn old(kept: &mut Kept<'_>, dir: &Dir, names_here: Vec<OsString>) -> io::Result<()> {
    let level = |dir: Dir, names: Vec<OsString>, goes| -> io::Result<Level> {
        let number = dir.symlink_metadata(".")?.ino();
        Ok(Level { dir, number, names: names.into_iter(), goes })
    };
    let mut levels = vec![level(dir.clone(), names_here, None)?];
    while let Some(here) = levels.last_mut() {
        let Some(name) = here.names.next() else {
            let goes = here.goes.take();
            levels.pop();
            if let (Some(name), Some(above)) = (goes, levels.last()) {
                remove_empty(&above.dir, &name)?;
            }
            continue;
        };
        let found = match here.dir.symlink_metadata(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found?,
        };
        if (kept.is_new)(found.ino(), here.number, &name) {
            continue;
        }
        if !found.is_dir() {
            here.dir.remove_file(&name)?;
            continue;
        }
        if !kept.cleaned.insert(found.ino()) {
            if !(kept.is_listed)(found.ino()) {
                remove_empty(&here.dir, &name)?;
            }
            continue;
        }
        let below = here.dir.open_dir(&name)?;
        let names = names(&below)?;
        let goes = (!(kept.is_listed)(found.ino())).then_some(name);
        levels.push(level(below, names, goes)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::listing::LOOKS;
    use crate::{Form, import};
    use holdfast::Volume;
    use tar::{Builder, EntryType, Header};

    /// Whiteouts that ask for the same directories again and again, beside many new files: each is looked through once.
    #[test]
    fn a_directory_is_looked_through_once_for_all_whiteouts() {
        let member = |to: &mut Builder<Vec<u8>>, name: &str, kind: EntryType| {
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(0o755);
            header.set_size(0);
            to.append_data(&mut header, name, &[][..]).expect("it goes into memory");
        };
        let mut base = Builder::new(Vec::new());
        for name in ["d", "d/below", "other"] {
            member(&mut base, name, EntryType::Directory);
        }
        member(&mut base, "d/below/old", EntryType::Regular);
        let mut layer = Builder::new(Vec::new());
        for at in 0..200 {
            member(&mut layer, &format!("d/below/new-{at}"), EntryType::Regular);
            member(&mut layer, "d/.wh..wh..opq", EntryType::Regular);
            member(&mut layer, "d/below/.wh..wh..opq", EntryType::Regular);
            member(&mut layer, ".wh.d", EntryType::Regular);
            member(&mut layer, ".wh..wh..opq", EntryType::Regular);
        }
        let volume = Volume::in_memory(16 << 20).expect("there is memory");
        for (archive, looks) in [(base, 0), (layer, 4)] {
            let bytes = archive.into_inner().expect("it is in memory");
            LOOKS.set(0);
            import(&volume, Form::Layer, "importing", &bytes[..]).expect("it is whole");
            // The root, `d`, `below` and `other`.
            assert_eq!(LOOKS.get(), looks);
        }
        assert_eq!(volume.read_dir("/d/below").expect("it is there").count(), 200);
        assert!(!volume.exists("/other").expect("the volume is whole"));
    }
}
