//! What a log that is cut said behind the cut. Nothing of it counts; but it names the files that were changed there, and these should
//! be told.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::InodeNo;
use holdfast_device::Device;
use holdfast_format::ItemKind;
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{Dentry, TreeItem};
use holdfast_format::log::{Decoder, Record};

use super::{TreeRoot, VolumeReading};
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
    /// There are more inodes and names than are kept.
    pub has_more: bool,
    /// The item of the branch or snapshot itself, if it was made there or changed.
    pub tree: Option<TreeItem>,
}

impl VolumeReading<'_> {
    /// What batches of the log name that do not count, as one before them is damaged: by branch.
    pub fn cut_changes(&self) -> BTreeMap<u64, CutChanges> {
        read(self.device, &self.recovered)
    }

    /// Paths of what such batches have changed, in the tree that is there.
    pub fn cut_paths(&self, tree: Option<&TreeRoot>, changes: &CutChanges) -> BTreeSet<String> {
        let of = |inode: InodeNo| tree.and_then(|tree| self.path(tree, inode));
        let mut paths = BTreeSet::new();
        for (directory, name, inode) in &changes.names {
            let name = holdfast_base::show::name(name);
            let path = of(*directory).map(|of| format!("{}/{name}", of.trim_end_matches('/')));
            paths.insert(path.unwrap_or_else(|| format!("?/{name} (inode {inode})")));
        }
        paths.extend(changes.inodes.iter().filter_map(|inode| of(*inode)));
        paths
    }

    /// The path of one of [`Self::made_later`]; its name alone where that of its directory is not known.
    pub fn later_path(&self, tree: &TreeRoot, inode: InodeNo) -> String {
        let alone = || {
            let key = self.recovered.log.later.places.get(&(tree.id, inode))?;
            let value = self.changes(tree.id).get(key)?.value.as_ref()?;
            let name = holdfast_base::show::name(Dentry::decode(value).ok()?.name);
            Some(format!("?/{name} (inode {inode})"))
        };
        self.path(tree, inode).or_else(alone).unwrap_or_else(|| format!("#{inode}"))
    }
}

fn read(device: &dyn Device, recovered: &Recovered) -> BTreeMap<u64, CutChanges> {
    let before = &recovered.journal.superblock;
    let mut cut: BTreeMap<u64, CutChanges> = BTreeMap::new();
    let (end, later) = (recovered.log.end.batch, &recovered.log.later);
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
            let counted = match (&record, key.kind) {
                (Record::Put(..), ItemKind::Dentry) => later.names.get(&(branch, key)).copied(),
                _ => later.files.get(&(branch, key.inode)).map(|file| file.last_batch),
            };
            // What a later batch made of it is lost.
            if counted.is_some_and(|last| header.number <= last) {
                continue;
            }
            let of = cut.entry(branch).or_default();
            if key.inode.0 == 0 {
                continue;
            }
            if of.inodes.len() + of.names.len() >= KEPT_MAX {
                of.has_more = true;
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
