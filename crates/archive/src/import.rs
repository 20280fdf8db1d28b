//! An archive into a branch: as a whole or not at all.

use std::io::Read;

use holdfast::{Branch, Volume};

use crate::apply::{Imported, LeftOut, Target};
use crate::read::Members;
use crate::{Error, Form};

/// Puts the members of an archive into the open branch. See [`import_all`].
///
/// # Errors
/// As of [`import_all`].
pub fn import(volume: &Volume, form: Form, fork: &str, from: impl Read) -> Result<Imported, Error> {
    let failed = |source| Error::Volume { what: "the branch".into(), source };
    let branch = volume.branch_here().map_err(failed)?;
    import_all(&branch, form, fork, [(from, None)], &mut |_, _| {})
}

/// Puts the members of archives into a branch, one archive after the other, over what is there, and makes them durable. A name
/// beside an archive is that of a snapshot that is taken behind it.
///
/// A member replaces what has its name. A directory that is there stays with what is in it, and gets the attributes of
/// the member; anything else takes the place of a directory only if that is empty, or, from a layer, also if it is not.
/// Leading slashes are dropped. Symbolic links on the way to a member are followed, inside the volume, as a program would
/// that has it as its root; one that has the name of a member is replaced.
///
/// Extended attributes that the volume has no place for are left out, which `left_out` hears.
///
/// All of it is in the branch, or nothing (P12): it is put into a fork of the name `fork`, which is promoted when it is whole. After a
/// crash meanwhile the branch is as it was, and the fork may be there.
///
/// # Errors
/// An archive that is damaged, hostile, ends too early or has no end: the sentence says which member and where. What the volume
/// refuses; also if the branch has changed meanwhile.
pub fn import_all<R: Read>(
    branch: &Branch,
    form: Form,
    fork: &str,
    archives: impl IntoIterator<Item = (R, Option<String>)>,
    left_out: &mut LeftOut<'_>,
) -> Result<Imported, Error> {
    let of = |what: String| |source| Error::Volume { what, source };
    let made = branch.fork(fork).map_err(of(format!("a fork {fork} to import into")))?;
    let imported = into(&made, form, archives, left_out).and_then(|imported| {
        branch.promote(made.clone(), None).map_err(of(format!("branch {}", branch.name())))?;
        Ok(imported)
    });
    if let Err(error) = imported {
        return Err(match made.delete() {
            Ok(()) => error,
            Err(source) => {
                let what = format!("{error}; and the fork {fork}, which has a part, is left");
                Error::Volume { what, source }
            }
        });
    }
    imported
}

/// Puts archives into a fork.
fn into<R: Read>(
    fork: &Branch,
    form: Form,
    archives: impl IntoIterator<Item = (R, Option<String>)>,
    left_out: &mut LeftOut<'_>,
) -> Result<Imported, Error> {
    let failed = |source| Error::Volume { what: "the fork".into(), source };
    let volume = fork.open().map_err(failed)?;
    let mut sum = Imported::default();
    for (archive, snapshot) in archives {
        let imported = apply(&volume, form, archive, left_out)?;
        sum.members += imported.members;
        sum.bytes += imported.bytes;
        sum.xattrs_left_out += imported.xattrs_left_out;
        if let Some(name) = snapshot {
            let what = || format!("snapshot {name}");
            fork.snapshot(&name).map_err(|source| Error::Volume { what: what(), source })?;
        }
    }
    volume.close().map_err(failed)?;
    Ok(sum)
}

fn apply(
    volume: &Volume,
    form: Form,
    from: impl Read,
    left_out: &mut LeftOut<'_>,
) -> Result<Imported, Error> {
    let mut members = Members::new(from);
    let mut target = Target::new(volume, form)
        .map_err(|source| Error::Volume { what: "the root directory".into(), source })?;
    while let Some(member) = members.next()? {
        target.put(&member, &mut members, left_out)?;
    }
    target.finish()
}
