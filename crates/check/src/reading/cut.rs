//! What a log that is cut said behind the cut. Nothing of it counts; but it names the files that were changed there, and these should
//! be told.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::InodeNo;
use holdfast_device::Device;
use holdfast_format::ItemKind;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{Dentry, TreeItem};
use holdfast_format::log::{Decoder, Record};

use crate::log::Ring;
use crate::recovered::Recovered;

/// Inodes and names of one branch that are kept; of more, those that come first in the ring.
const KEPT_MAX: usize = 10_000;

/// What batches that do not count have changed of a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutChanges {
    /// Inodes that were made or changed, or whose data was.
    pub inodes: BTreeSet<InodeNo>,
    /// Names that were made: directory, name, inode.
    pub names: BTreeSet<(InodeNo, Vec<u8>, InodeNo)>,
    /// The item of the branch or snapshot itself, if it was made there or changed.
    pub tree: Option<TreeItem>,
}

pub(super) fn read(device: &dyn Device, recovered: &Recovered) -> BTreeMap<u64, CutChanges> {
    let before = &recovered.journal.superblock;
    let mut cut: BTreeMap<u64, CutChanges> = BTreeMap::new();
    let end = recovered.log.end.batch;
    Ring::new(device, before).beyond(end, &mut |header, records| {
        let decoder = Decoder::new(records, header.records, &before.geometry, before.carried());
        let mut branch = MAIN;
        for record in decoder.map_while(Result::ok) {
            let key = match record {
                Record::Branch { id, .. } => {
                    branch = id;
                    continue;
                }
                Record::Put(key, value) if key.kind == ItemKind::Tree => {
                    if let (Some(id), Ok(item)) =
                        (key.inode.0.checked_sub(LINEAGE), TreeItem::decode(value))
                    {
                        cut.entry(id).or_default().tree = Some(item);
                    }
                    continue;
                }
                Record::Put(key, _) | Record::Delete(key) if key.kind.is_lineage() => continue,
                Record::Put(key, _) | Record::Delete(key) => key,
                Record::Inode(inode, _) => holdfast_format::Key::inode(inode),
                _ => continue,
            };
            let of = cut.entry(branch).or_default();
            if of.inodes.len() + of.names.len() >= KEPT_MAX || key.inode.0 == 0 {
                continue;
            }
            match (&record, key.kind) {
                (Record::Put(_, value), ItemKind::Dentry) => {
                    if let Ok(dentry) = Dentry::decode(value) {
                        of.names.insert((key.inode, dentry.name.to_vec(), dentry.inode));
                    }
                }
                _ => {
                    of.inodes.insert(key.inode);
                }
            }
        }
    });
    cut
}
