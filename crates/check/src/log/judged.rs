//! What one batch of the log changes, as its records are read; nothing of it counts before all of it is judged.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::{BlockRange, InodeNo};
use holdfast_format::item::{Dentry, Extent};
use holdfast_format::journal::DataExtent;
use holdfast_format::log::Dropped;
use holdfast_format::{ItemKind, Key};

use super::blocks::Blocks;
use super::origins::Origins;
use crate::issue::Issue;
use crate::patched::Patched;

/// What an item, a patch or a range of blocks costs beside its bytes.
pub(super) const COST: u64 = 96;

/// What one batch breaks: the issue and the words.
pub(super) type Refusal = (Issue, String);

pub(super) fn malformed<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err((Issue::BatchMalformed, why.into()))
}

pub(super) fn misused<T>(start: u64, count: u64, why: &str) -> Result<T, Refusal> {
    Err((Issue::BatchBlocks, format!("{count} blocks from {start} on {why}")))
}

/// A key of a branch.
pub(super) type OfBranch = (u64, Key);

/// What a batch changes.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) items: BTreeMap<OfBranch, Option<Vec<u8>>>,
    pub(super) lineage: BTreeMap<Key, Option<Vec<u8>>>,
    /// Inodes of the branches that it names.
    pub(super) counts: BTreeMap<u64, u64>,
    pub(super) taken: Blocks,
    pub(super) freed: Blocks,
    pub(super) given: Blocks,
    pub(super) origins: Origins,
    pub(super) data: Patched,
    /// Bytes of data inside the batch.
    pub(super) data_bytes: u64,
    /// Data that the batch's flush made durable.
    pub(super) named: Vec<DataExtent>,
    pub(super) named_blocks: u64,
    /// Inodes of names whose own record has not come.
    waiting: BTreeSet<(u64, InodeNo)>,
    pub(super) kept: u64,
}

impl Judged {
    /// The one record of a key.
    pub(super) fn change(
        &mut self,
        branch: u64,
        key: Key,
        value: Option<Vec<u8>>,
    ) -> Result<(), Refusal> {
        self.kept += COST + value.as_ref().map_or(0, |value| value.len() as u64);
        let before = match key.kind.is_lineage() {
            true => self.lineage.insert(key, value),
            false => self.items.insert((branch, key), value),
        };
        match before {
            None => Ok(()),
            Some(_) => malformed(format!("it has two records of {key:?}")),
        }
    }

    /// The blocks that the keys which the batch changes hold before it, and those that it takes. Of one branch, or of all.
    pub(super) fn held(&self, branch: Option<u64>, value: &Value<'_>) -> Blocks {
        let keys = self.items.keys().filter(|(of, key)| {
            key.kind == ItemKind::Extent && branch.is_none_or(|branch| branch == *of)
        });
        let extents = keys.filter_map(|(of, key)| Extent::decode(&value(*of, key)?).ok());
        let mut runs: Vec<(u64, u64)> = extents.map(|extent| extent.blocks.ends()).collect();
        runs.extend(self.taken.runs().iter());
        united(runs)
    }

    /// A key gets a value.
    pub(super) fn put(&mut self, branch: u64, key: Key, value: Vec<u8>) -> Result<(), Refusal> {
        if key == Key::inode(key.inode) && self.waiting.contains(&(branch, key.inode)) {
            return malformed(format!("the inode {} comes after its name", key.inode));
        }
        // A damaged name is left to the pass that judges names.
        if key.kind == ItemKind::Dentry
            && let Ok(dentry) = Dentry::decode(&value)
            && !self.items.contains_key(&(branch, Key::inode(dentry.inode)))
        {
            self.waiting.insert((branch, dentry.inode));
        }
        self.change(branch, key, Some(value))
    }
}

/// The value of a key of a branch.
pub(super) type Value<'a> = dyn Fn(u64, &Key) -> Option<Vec<u8>> + 'a;

/// The union of runs. Extents of branches, and of a damaged volume, may lie over one another.
pub(super) fn united(mut runs: Vec<(u64, u64)>) -> Blocks {
    runs.sort_unstable();
    let (mut all, mut done) = (Blocks::default(), 0);
    for (start, end) in runs {
        if end > done {
            all.insert(start.max(done), end);
            done = end;
        }
    }
    all
}

/// What a batch gives back: of all branches, or dropped by one.
pub(super) enum Given {
    Free(BlockRange),
    Drop(u64, Dropped),
}

impl Given {
    pub(super) fn blocks(&self) -> BlockRange {
        match self {
            Given::Free(blocks) | Given::Drop(_, Dropped { blocks, .. }) => *blocks,
        }
    }
}
