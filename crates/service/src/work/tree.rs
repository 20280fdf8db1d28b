//! Which tree is meant, and how it is opened to be read.

use holdfast::{Branch, Snapshot, Volume};
use serde::{Deserialize, Serialize};

use crate::branches::Name;
use crate::outcome::{Context, Failure};

/// A branch as it is now, or a snapshot of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// It is what is mounted there, or of the branch that is. Of a volume at rest, and once a daemon has looked: none.
    pub at: Option<At>,
    /// The branch; without one, and without a mount, the one that the volume was made with.
    pub branch: Option<Name>,
    /// A snapshot of that branch.
    pub snapshot: Option<Name>,
}

/// A mount, as /proc/self/mountinfo has it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct At {
    /// The directory.
    pub dir: Name,
    /// `major:minor`.
    pub device: String,
}

impl Tree {
    /// Fails if it is a snapshot.
    ///
    /// # Errors
    /// It is one.
    pub fn expect_branch(&self, volume: &str) -> Result<(), Failure> {
        match self.snapshot {
            None => Ok(()),
            Some(_) => Err(Failure::plain(format!(
                "{volume}: a snapshot never changes; name a branch, or make one with: holdfast fork"
            ))),
        }
    }

    /// The branch, or that of the snapshot.
    ///
    /// # Errors
    /// There is none.
    pub fn branch(&self, door: &Volume, volume: &str) -> Result<Branch, Failure> {
        match &self.branch {
            Some(name) => door.branch(name.utf8()?).context(volume),
            None => door.first_branch().context(volume),
        }
    }

    /// The snapshot, if it is one.
    pub(crate) fn snapshot(
        &self,
        door: &Volume,
        volume: &str,
    ) -> Result<Option<Snapshot>, Failure> {
        let Some(name) = &self.snapshot else { return Ok(None) };
        let branch = self.branch(door, volume)?;
        branch.snapshot_named(name.utf8()?).context(volume).map(Some)
    }

    /// Opens it as it is at this moment, in no call's way.
    pub(crate) fn view(&self, door: &Volume, volume: &str) -> Result<Volume, Failure> {
        match self.snapshot(door, volume)? {
            Some(snapshot) => snapshot.view(),
            None => self.branch(door, volume)?.view(),
        }
        .context(volume)
    }
}
