//! The log: what an operation says there, how a batch joins several, and how a replay carries a batch out.

use super::Mutant;
use super::volume::{Blocks, Branch, Pointer, Seen, Volume};

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Record {
    /// A key of a branch has another value.
    Put(usize, usize, Option<Pointer>),
    /// A block is in use.
    Take(Pointer),
    /// Free, whatever commit a replay begins with.
    Free(Pointer),
    /// A branch drops it, at a place: the replay judges.
    Drop(usize, usize, Pointer),
    /// The item of a branch.
    Item {
        branch: usize,
        /// As it was in memory.
        parent: Option<usize>,
        /// It is new: it was put beside this snapshot, with this root.
        fork: Option<(usize, Pointer)>,
    },
    /// The deletion of a snapshot has begun.
    Delete(usize),
}

/// Operations that are durable together, or not at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Batch {
    records: Vec<Record>,
    /// What a user sees behind it.
    pub(super) seen: Seen,
}

impl Batch {
    /// An operation is added. Of each item and key the last value counts.
    pub(super) fn add(batch: &mut Option<Batch>, records: &[Record], seen: Seen) {
        let of = batch.get_or_insert_with(|| Batch { records: Vec::new(), seen: seen.clone() });
        of.seen = seen;
        for record in records {
            let known = of.records.iter_mut().find(|known| match (record, known) {
                (Record::Put(branch, key, _), Record::Put(other, known, _)) => {
                    (branch, key) == (other, known)
                }
                (Record::Item { branch, .. }, Record::Item { branch: other, .. }) => {
                    branch == other
                }
                _ => false,
            });
            match (known, *record) {
                (Some(Record::Item { parent: known, .. }), Record::Item { parent, .. }) => {
                    *known = parent;
                }
                (Some(known), record) => *known = record,
                (None, record) => of.records.push(record),
            }
        }
    }

    /// Blocks that it names: a replay copies no node there.
    pub(super) fn named(&self) -> Blocks {
        self.records.iter().fold(0, |named, record| match record {
            Record::Take(at) | Record::Free(at) | Record::Drop(_, _, at) => named | at.bit(),
            _ => named,
        })
    }

    /// The youngest birth that it names.
    pub(super) fn youngest(&self) -> u8 {
        let births = self.records.iter().map(|record| match record {
            Record::Take(at) => at.birth,
            _ => 0,
        });
        births.max().unwrap_or(0)
    }

    /// A replay carries it out.
    pub(super) fn replay(&self, volume: &mut Volume, kept: &mut Blocks, broken: Option<Mutant>) {
        for record in &self.records {
            match *record {
                Record::Item { branch, parent, fork } => {
                    item(volume, branch, parent, fork, broken);
                }
                Record::Delete(snapshot) => match &mut volume.snapshots[snapshot] {
                    Some(of) => of.is_named = false,
                    None => volume.fail("S7: a replay deletes a snapshot that is not there"),
                },
                _ => {}
            }
        }
        let mut freed = Vec::new();
        for record in &self.records {
            match *record {
                Record::Put(branch, key, value) => {
                    if volume.branches[branch].is_none() {
                        return volume.fail("S7: a replay changes a branch that is not there");
                    }
                    let (node, gone) = volume.own_node(branch, *kept, broken);
                    *kept |= gone;
                    if let Some(items) = &mut volume.nodes[node] {
                        items[key] = value;
                    }
                }
                Record::Take(at) if volume.used & at.bit() != 0 => {
                    volume.fail("R7: a replay takes a block that is in use");
                }
                Record::Take(at) => volume.used |= at.bit(),
                Record::Free(at) => freed.push(at),
                Record::Drop(branch, place, at) => {
                    let is_own = match broken {
                        Some(Mutant::ReplayFreesAll) => true,
                        Some(Mutant::ReplayFreesNothing) => false,
                        _ if volume.branches[branch].is_none() => {
                            return volume.fail("S7: a replay changes a branch that is not there");
                        }
                        _ => volume.owns(branch, place, at, broken),
                    };
                    if is_own {
                        freed.push(at);
                    }
                }
                _ => {}
            }
        }
        // Last: some of it may have been taken by the same batch.
        for at in freed {
            volume.free(at);
        }
    }
}

/// The item of a branch by the log. A branch that is there keeps its parent: only commits change parents, and the log has what
/// it was in memory. The parent of one that is new is the snapshot that it was put beside, for the same reason.
fn item(
    volume: &mut Volume,
    branch: usize,
    parent: Option<usize>,
    fork: Option<(usize, Pointer)>,
    broken: Option<Mutant>,
) {
    match (&mut volume.branches[branch], fork) {
        (Some(known), _) => {
            if broken == Some(Mutant::ParentFromLog) {
                known.parent = parent;
            }
        }
        (None, Some((snapshot, root))) => {
            let from_item = broken == Some(Mutant::ParentOfNewFromItem);
            let parent = if from_item { parent } else { Some(snapshot) };
            volume.branches[branch] = Some(Branch { root, parent });
        }
        (None, None) => volume.fail("S7: a replay changes a branch that is not there"),
    }
}
