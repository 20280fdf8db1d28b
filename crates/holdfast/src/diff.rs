//! What became of the files of a volume from one moment to another.

use std::io;
use std::sync::Arc;

use holdfast_posix::{Change, Changes, Moment};

use crate::handle::Shared;
use crate::volume::Volume;

/// The differences of two snapshots or branches, from [`Snapshot::diff`][crate::Snapshot::diff] and others. They come in no
/// order that means anything to people, but always in the same. After an error there are no more.
///
/// While this lives, snapshots that are compared may be deleted; their space comes back behind it.
#[derive(Debug)]
pub struct Diff {
    shared: Arc<Shared>,
    changes: Option<Changes>,
}

impl Diff {
    pub(crate) fn start(
        shared: Arc<Shared>,
        old: Moment<'_>,
        new: Moment<'_>,
        ranges: bool,
    ) -> io::Result<Diff> {
        shared.takes_the_volume("a difference", "`holdfast diff` shows it")?;
        let changes = Some(shared.with_volume(|fs| fs.changes(old, new, ranges))?);
        Ok(Diff { shared, changes })
    }
}

impl Volume {
    /// What became of each file from one moment of the volume to another; with `ranges`, which of its bytes differ as well.
    ///
    /// Where a branch is named, it is compared as it is now, at one moment: a snapshot without a name is taken for that, which
    /// goes with the [`Diff`]. A volume that was opened read-only needs none.
    ///
    /// # Errors
    /// `NotFound` if there is no branch or snapshot of this name. `InvalidData`, also from the [`Diff`], if the volume is damaged.
    pub fn diff(&self, old: Moment<'_>, new: Moment<'_>, ranges: bool) -> io::Result<Diff> {
        Diff::start(self.shared().clone(), old, new, ranges)
    }

    /// As [`Volume::diff`], from what is open as `older` to what is open here, both of one volume.
    pub fn diff_from(&self, older: &Volume, ranges: bool) -> io::Result<Diff> {
        let shared = self.shared().clone();
        for side in [&shared, older.shared()] {
            side.takes_the_volume("a difference", "`holdfast diff` shows it")?;
        }
        let changes = older
            .shared()
            .with_volume(|old| Ok(shared.with_volume(|fs| fs.changes_from(old, ranges))))??;
        Ok(Diff { shared, changes: Some(changes) })
    }
}

impl Iterator for Diff {
    type Item = io::Result<Change>;

    fn next(&mut self) -> Option<io::Result<Change>> {
        let changes = self.changes.as_mut()?;
        self.shared.with_volume(|fs| fs.next_change(changes)).transpose()
    }
}

impl Drop for Diff {
    fn drop(&mut self) {
        if let Some(changes) = self.changes.take() {
            // With the volume closed nothing waits for it.
            let _ = self.shared.with_volume(|fs| {
                fs.end_changes(changes);
                Ok(())
            });
        }
    }
}
