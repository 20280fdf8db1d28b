//! The fork in which a stream is obeyed.

use holdfast::{Branch, Snapshot, Volume};
use holdfast_posix::SetAttr;

use super::of_volume;
use crate::error::Doing;
use crate::files::{Files, Parking};
use crate::record::Begin;
use crate::{Result, StreamError};

/// How often the number of the next snapshot is guessed. The second guess is right, unless others take some meanwhile.
const TRIES: usize = 8;

/// The base, which is looked at only.
struct Base {
    number: u64,
    volume: Volume,
}

/// A fork, and what is known of it while a stream comes.
pub(super) struct Tree<'a> {
    pub(super) branch: Branch,
    volume: Volume,
    base: Option<Base>,
    pub(super) begin: &'a Begin,
    pub(super) files: Files,
    /// Bytes of the body of the first record, as it came first.
    pub(super) begin_bytes: u64,
    /// Where it was kept last how far it has come.
    pub(super) kept: Option<Snapshot>,
}

/// What a tree is made of.
pub(super) struct Parts<'a, 'b> {
    pub(super) branch: Branch,
    pub(super) volume: Volume,
    pub(super) base: Option<&'b Snapshot>,
    pub(super) begin: &'a Begin,
    pub(super) parking: Parking,
}

impl<'a> Tree<'a> {
    pub(super) fn new(parts: Parts<'a, '_>, root: SetAttr) -> Result<Tree<'a>> {
        let Parts { branch, volume, base, begin, parking } = parts;
        let fs = of_volume(volume.engine())?;
        let (base, looked_at) = match base {
            None => (None, None),
            Some(snapshot) => {
                let volume = snapshot.open().doing(|| format!("snapshot {}", snapshot.name()))?;
                let fs = of_volume(volume.engine())?;
                (Some(Base { number: snapshot.number(), volume }), Some(fs))
            }
        };
        let files = Files::new(fs, looked_at, parking, root);
        let begin_bytes = begin.body_bytes();
        Ok(Tree { branch, volume, base, begin, files, begin_bytes, kept: None })
    }

    /// The number of the snapshot that the fork has grown out of.
    pub(super) fn base_number(&self) -> Option<u64> {
        self.base.as_ref().map(|base| base.number)
    }

    /// Takes a snapshot of the fork in which its own number stands, which `put` writes there.
    pub(super) fn take(
        &self,
        name: &str,
        mut put: impl FnMut(&Self, u64) -> Result<()>,
    ) -> Result<Snapshot> {
        let what = || format!("snapshot {name}");
        let last = self.kept.as_ref().map_or(self.branch.number(), Snapshot::number);
        let mut number = last.saturating_add(1);
        for _ in 0..TRIES {
            put(self, number)?;
            let snapshot = self.branch.snapshot(name).doing(what)?;
            if snapshot.number() == number {
                return Ok(snapshot);
            }
            number = snapshot.number().saturating_add(1);
            snapshot.delete().doing(what)?;
        }
        StreamError::refused("others take snapshots of the volume at the same time; try again")
    }

    /// The stream has failed. Deletes the fork if nothing of it can be used.
    pub(super) fn leave(self, kept: bool) {
        let is_of_use = kept || self.kept.is_some();
        let branch = self.branch.clone();
        if self.close().is_ok() && !is_of_use {
            // It can be deleted by hand as well.
            let _ = branch.delete();
        }
    }

    /// Ends all use of fork and base.
    pub(super) fn close(self) -> Result<()> {
        let Tree { volume, files, base, branch, .. } = self;
        // It has borrowed both.
        drop(files);
        if let Some(Base { volume, .. }) = base {
            of_volume(volume.close())?;
        }
        volume.close().doing(|| format!("branch {}", branch.name()))
    }
}
