//! What two heads of a branch do not have alike. What is remembered above of anything else is as true behind a turn as before.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::{Dentry, InodeItem};
use holdfast_format::{ItemKind, Malformed};
use holdfast_store::{Branch, Differing, Pin, StoreError};

use crate::{Differs, NameIn};

/// Steps of a comparison. Programs wait for it, some milliseconds, as nothing is read meanwhile.
const STEPS_MAX: u64 = 2048;
/// Names and inodes that are told, together. More are as far apart as all.
const TOLD_MAX: usize = 1 << 16;

/// The inodes that differ, and how far, and the names that lead elsewhere.
#[derive(Debug, Default)]
pub(crate) struct HeadsDiffer {
    inodes: HashMap<InodeNo, Differs>,
    pub(crate) names: Vec<NameIn>,
}

impl HeadsDiffer {
    /// Compares a branch, which stands still, with what it is about to be. Nothing is read meanwhile ([`HeadsDiffer::warm`]). `None`: they
    /// are too far apart to look, or not all in memory.
    pub(crate) fn between(branch: &Branch, other: &Pin) -> holdfast_store::Result<Option<Self>> {
        let (mut all, mut wrong) = (HeadsDiffer::default(), None);
        let is_all = compare(branch, other, false, |items| {
            for item in items {
                if let Err(source) = all.add(&item) {
                    wrong = Some(StoreError::Item { what: format!("{:?}", item.key), source });
                    return ControlFlow::Break(());
                }
            }
            go_on(all.names.len() + all.inodes.len() < TOLD_MAX)
        })?;
        wrong.map_or(Ok(is_all.then_some(all)), Err)
    }

    /// Reads what [`HeadsDiffer::between`] will compare, while the branch goes on, and keeps it. `None`: it is going, or does not read.
    pub(crate) fn warm(branch: &Branch, other: u64) -> Option<Pin> {
        let read = branch.store().pin_whole(other).and_then(|pin| {
            let Some(pin) = pin else { return Ok(None) };
            compare(branch, &pin, true, |_| ControlFlow::Continue(()))?;
            Ok(Some(pin))
        });
        read.unwrap_or_else(|error| {
            tracing::debug!("before a comparison: {error}");
            None
        })
    }

    /// How far an inode differs.
    pub(crate) fn of(&self, inode: InodeNo) -> Differs {
        self.inodes.get(&inode).copied().unwrap_or(Differs::Nowhere)
    }

    fn add(&mut self, item: &Differing) -> Result<(), Malformed> {
        let Differing { key, old, new } = item;
        let (mut inode, mut differs) = (key.inode, Differs::Anywhere);
        match (key.kind, old, new) {
            (ItemKind::Orphan | ItemKind::Punch, ..) => inode = InodeNo(key.offset),
            (ItemKind::Inode, Some(old), Some(new)) if is_as_accessed(old, new)? => {
                differs = Differs::InAccessTime;
            }
            (ItemKind::Dentry, ..) => {
                let name = |entry: &Option<Vec<u8>>| match entry {
                    Some(bytes) => Ok(Some(Dentry::decode(bytes)?.name.into())),
                    None => Ok(None),
                };
                let (before, after): (Option<Box<[u8]>>, _) = (name(old)?, name(new)?);
                let other = after.filter(|after| before.as_ref() != Some(after));
                self.names.extend(before.into_iter().chain(other).map(|name| (inode, name)));
            }
            _ => {}
        }
        let known = self.inodes.entry(inode).or_insert(differs);
        *known = differs.max(*known);
        Ok(())
    }
}

/// As [`Branch::compare`], with the bound of its steps.
fn compare(
    branch: &Branch,
    other: &Pin,
    reads: bool,
    mut visit: impl FnMut(VecDeque<Differing>) -> ControlFlow<()>,
) -> holdfast_store::Result<bool> {
    let mut steps = 0;
    branch.compare(other, reads, |items| {
        visit(items)?;
        steps += 1;
        go_on(steps < STEPS_MAX)
    })
}

fn go_on(does: bool) -> ControlFlow<()> {
    if does { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Whether two versions of an inode are the same but for when it was read.
fn is_as_accessed(old: &[u8], new: &[u8]) -> Result<bool, Malformed> {
    let (before, after) = (InodeItem::decode(old)?, InodeItem::decode(new)?);
    let shown = InodeItem { atime: before.atime, change: before.change, ..after };
    Ok(shown == before && InodeItem::tail(old) == InodeItem::tail(new))
}
