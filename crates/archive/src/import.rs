//! An archive into a branch: as a whole or not at all.

use std::io::{self, Read};

use holdfast::{Branch, Volume};

use crate::apply::{Imported, Target};
use crate::read::Members;
use crate::{Error, Form};

/// Puts the members of an archive into the open branch, over what is there, and makes them durable.
///
/// A member replaces what has its name. A directory that is there stays with what is in it, and gets the attributes of
/// the member; anything else takes the place of a directory only if that is empty, or, from a layer, also if it is not.
/// Leading slashes are dropped. Symbolic links on the way to a member are followed, inside the volume, as a program would
/// that has it as its root; one that has the name of a member is replaced.
///
/// The branch is as it was if this fails: a snapshot of the name `before` is taken first, to which it goes back, and which is
/// deleted in the end. After a crash meanwhile the snapshot is there, and the branch has a part of the archive. While
/// this works nobody else should change the branch: what others do meanwhile goes back with the rest.
///
/// # Errors
/// An archive that is damaged, hostile, ends too early or has no end: the sentence says which member and where. What the volume refuses.
pub fn import(
    volume: &Volume,
    form: Form,
    before: &str,
    from: impl Read,
) -> Result<Imported, Error> {
    let of = |what: &str| {
        let what = what.to_owned();
        |source| Error::Volume { what, source }
    };
    let branch = open_branch(volume).map_err(of("the branch"))?;
    let snapshot =
        branch.snapshot(before).map_err(of("a snapshot to go back to cannot be taken"))?;
    let done = apply(volume, form, from).and_then(|imported| {
        volume.sync().map_err(of("what was imported cannot be made durable"))?;
        Ok(imported)
    });
    if let Err(error) = done {
        let back = branch.rollback_to(&snapshot, None).and_then(|()| snapshot.delete());
        return Err(match back {
            Ok(()) => error,
            Err(source) => {
                let name = branch.name();
                let what = format!(
                    "{error}; and a part of it is in {name}, which cannot be taken back to {name}@{before}"
                );
                Error::Volume { what, source }
            }
        });
    }
    snapshot.delete().map_err(of("the snapshot before the import cannot be deleted"))?;
    done
}

/// The branch that is open.
fn open_branch(volume: &Volume) -> io::Result<Branch> {
    let name = volume.engine()?.branch_name().map_err(io::Error::other)?;
    let name = String::from_utf8(name)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"))?;
    volume.branch(&name)
}

fn apply(volume: &Volume, form: Form, from: impl Read) -> Result<Imported, Error> {
    let mut members = Members::new(from);
    let mut target = Target::new(volume, form)
        .map_err(|source| Error::Volume { what: "the root directory".into(), source })?;
    while let Some(member) = members.next()? {
        target.put(&member, &mut members)?;
    }
    target.finish()
}
