//! A volume at rest becomes smaller; what cannot move is named in words of files.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, show};
use holdfast_format::Key;
use holdfast_store::{Device, OpenOptions, Store, StoreError};

use crate::path::find_by;
use crate::scrub::called;
use crate::*;

/// So many files with a block that does not read are named.
const NAMED_MAX: usize = 8;

impl FileSystem {
    /// Makes a volume at rest smaller; see [`holdfast_store::shrink`].
    ///
    /// # Errors
    /// Where a block does not read that would have to move: a sentence with the files that have it.
    pub fn shrink(
        device: &Arc<dyn Device>,
        bytes: u64,
        tell: &mut dyn FnMut(Shrinking),
    ) -> Result<u64> {
        let error = match holdfast_store::shrink(device, bytes, tell) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        if let StoreError::CannotMove { block, owners, .. } = &error
            && let Ok(files) = names(device, owners)
        {
            return Err(FsError::Io(format!(
                "block {block} does not read, and would have to move: delete or replace what has it, then shrink again: {files}"
            )));
        }
        Err(error.into())
    }
}

/// Paths of files in trees.
fn names(device: &Arc<dyn Device>, owners: &[(u64, InodeNo)]) -> Result<String> {
    let options = OpenOptions { read_only: true, threads: false, ..OpenOptions::default() };
    let store = Store::open(device.clone(), &options, Arc::new(Counters::default()))?;
    let trees = store.trees()?;
    let branches: BTreeMap<u64, String> =
        trees.iter().map(|of| (of.number, show::name(&of.item.name))).collect();
    let mut names = Vec::new();
    for (number, inode) in owners.iter().take(NAMED_MAX) {
        let tree = trees.iter().find(|of| of.number == *number);
        let tree = tree.map_or_else(|| format!("({number})"), |of| called(of, &branches));
        let pin = store.pin_number(*number)?;
        let get = |key: &Key| store.get_pinned(&pin, key).ok().flatten();
        names.push(match find_by(*inode, &get).path() {
            Some(path) => format!("{tree}:{path}"),
            None => format!("{tree}: inode {inode}"),
        });
    }
    let more = owners.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    Ok(names.join(", "))
}
