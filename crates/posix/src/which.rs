//! Which branch or snapshot a call means.
//!
//! A name means what has it when the call is carried out; a number goes on meaning the same, whatever its name is by then.

use holdfast_format::item::lineage::MAIN_NAME;
use holdfast_format::item::{TreeItem, TreeKind};
use holdfast_store::{LineageError, StoreError};

use crate::{FileSystem, Result};

/// A branch, or a snapshot of a branch that is named beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// The one that has this name now.
    Named(&'a [u8]),
    /// The one of this number, see [`crate::BranchInfo::number`] and [`crate::SnapshotInfo::number`].
    Numbered(u64),
}

impl<'a> From<&'a [u8]> for Which<'a> {
    fn from(name: &'a [u8]) -> Which<'a> {
        Which::Named(name)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Which<'a> {
    fn from(name: &'a [u8; N]) -> Which<'a> {
        Which::Named(name)
    }
}

impl<'a> From<&'a Vec<u8>> for Which<'a> {
    fn from(name: &'a Vec<u8>) -> Which<'a> {
        Which::Named(name)
    }
}

impl From<u64> for Which<'_> {
    fn from(number: u64) -> Self {
        Which::Numbered(number)
    }
}

impl FileSystem {
    /// The number of a branch that is there.
    pub(crate) fn branch_no(&self, branch: Which<'_>) -> Result<u64> {
        let store = &self.core.store;
        match branch {
            Which::Named(name) => Ok(store.find_tree(name, None)?),
            Which::Numbered(number) => self.expect(number, |of| of.kind == TreeKind::Branch),
        }
    }

    /// The number of a snapshot of a branch, both there.
    pub(crate) fn snapshot_no(&self, branch: Which<'_>, snapshot: Which<'_>) -> Result<u64> {
        let branch = self.branch_no(branch)?;
        match snapshot {
            Which::Named(name) => Ok(self.core.store.find_snapshot(branch, name)?),
            // One without a name was deleted, or is kept for what grew out of it only.
            Which::Numbered(number) => self.expect(number, |of| {
                of.kind == TreeKind::Snapshot && of.branch == branch && !of.name.is_empty()
            }),
        }
    }

    fn expect(&self, number: u64, is_good: impl FnOnce(&TreeItem) -> bool) -> Result<u64> {
        match is_good(&self.tree(number)?) {
            true => Ok(number),
            false => {
                let gone = LineageError::Gone(format!("number {number}"));
                Err(StoreError::Lineage(gone).into())
            }
        }
    }
}

/// The name of a branch. The first one has none until something of it is kept.
pub(crate) fn name_of(item: TreeItem) -> Vec<u8> {
    match item.name.is_empty() {
        true => MAIN_NAME.to_vec(),
        false => item.name,
    }
}
