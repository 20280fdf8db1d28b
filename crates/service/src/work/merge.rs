//! What was done in a fork, done in another one as well, which has grown out of what the branch is by now.

use holdfast::Volume;
use holdfast_stream::{Merge, Merged, StreamError};
use serde::{Deserialize, Serialize};

use super::send::failure;
use super::{Ends, Tree};
use crate::branches::Name;
use crate::outcome::{Context, Failure, Outcome, printable};

/// The exit code where both have changed the same.
pub const OVERLAP: u8 = 75;

/// Changed files of the branch that are remembered.
const CHANGED_MAX: usize = 1 << 19;

/// What is put together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MergeTrees {
    /// The snapshot that the fork has begun with.
    pub base: Tree,
    /// The fork, which is not mounted any more.
    pub fork: Tree,
    /// The snapshot of the branch that the other fork has begun with.
    pub theirs: Tree,
    /// The other fork, in which nothing was done.
    pub into: Name,
}

pub(super) fn run(door: &Volume, volume: &str, what: &MergeTrees, ends: &dyn Ends) -> Outcome {
    let taken = what.fork.branch(door, volume)?.snapshots().context(volume)?;
    if let Some(first) = taken.first() {
        return Err(Failure::new(
            OVERLAP,
            format!(
                "the command has taken snapshots ({}), which show a history that the branch does not have",
                printable(first.name())
            ),
        ));
    }
    let merge = Merge {
        base: what.base.view(door, volume)?,
        mine: what.fork.view(door, volume)?,
        theirs: what.theirs.view(door, volume)?,
        into: door.branch(what.into.utf8()?).and_then(|branch| branch.open()).context(volume)?,
    };
    let check = || ends.check();
    match merge.run(CHANGED_MAX, &check) {
        Ok(Merged::Done) => Ok(0),
        Ok(Merged::Overlap { paths, more }) => Err(Failure::new(OVERLAP, both(&paths, more))),
        // Nothing is wrong with the volume.
        Err(StreamError::Refused(why)) => Err(Failure::new(OVERLAP, why)),
        Err(error) => Err(failure(volume, &error)),
    }
}

/// The sentence that names what both have changed.
fn both(paths: &[Vec<u8>], more: u64) -> String {
    let shown = |path: &Vec<u8>| match path.is_empty() {
        true => "the root directory".to_owned(),
        false => printable(&String::from_utf8_lossy(path)).into_owned(),
    };
    let mut text = paths.iter().map(shown).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    format!("both have changed {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_paths_are_named_so_that_a_terminal_can_show_them() {
        let paths = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
        assert_eq!(both(&paths(&[b"a", b"b/c"]), 0), "both have changed a, b/c");
        assert_eq!(both(&paths(&[b""]), 3), "both have changed the root directory and 3 more");
        assert!(!both(&paths(&[b"\x1b[2J\n"]), 0).contains(char::is_control));
    }
}
