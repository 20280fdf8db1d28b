//! What stands beside the item of a snapshot: what it is a copy of, and holds, which have tags: ending one ends none of others.

use holdfast_base::Timestamp;
use holdfast_format::item::lineage::judge_name;
use holdfast_format::item::{HoldItem, OriginItem, TreeItem};
use holdfast_format::{Key, Malformed};

use super::{Plan, PlanResult, damage, refuse, shown};
use crate::apply::Halt;
use crate::error::LineageError;

/// Most holds of a snapshot: a list of them fits a message.
const MOST: usize = 64;

impl Plan<'_> {
    /// The holds of a snapshot.
    pub(in crate::lineage) fn holds(&self, snapshot: u64) -> PlanResult<Vec<HoldItem>> {
        self.all_between(HoldItem::span(snapshot), "a hold", HoldItem::decode)
    }

    /// Fails if a snapshot is held.
    pub(super) fn expect_unheld(&self, snapshot: u64, of: &TreeItem) -> PlanResult<()> {
        let tags: Vec<_> = self.holds(snapshot)?.iter().map(|hold| shown(&hold.tag)).collect();
        match tags.is_empty() {
            true => Ok(()),
            false => {
                refuse(LineageError::Held { snapshot: shown(&of.name), tags: tags.join("`, `") })
            }
        }
    }

    /// What a snapshot is a copy of.
    pub(in crate::lineage) fn origins(&self, snapshot: u64) -> PlanResult<Vec<OriginItem>> {
        self.all_between(OriginItem::span(snapshot), "an origin", OriginItem::decode)
    }

    fn all_between<T>(
        &self,
        span: (Key, Key),
        what: &str,
        decode: impl Fn(&[u8]) -> std::result::Result<T, Malformed>,
    ) -> PlanResult<Vec<T>> {
        let found = self.between(span, usize::MAX)?;
        found.values().map(|bytes| decode(bytes).map_err(|why| damage(what, why))).collect()
    }

    /// A snapshot is held under a tag from now on.
    pub(in crate::lineage) fn hold(
        &mut self,
        snapshot: u64,
        tag: &[u8],
        now: Timestamp,
    ) -> PlanResult<u64> {
        judge_name(tag).map_err(|why| Halt::Failed(LineageError::Name(why).into()))?;
        let of = self.snapshot(snapshot)?;
        let holds = self.holds(snapshot)?;
        if holds.iter().any(|hold| hold.tag == tag) {
            return refuse(LineageError::HeldAlready {
                snapshot: shown(&of.name),
                tag: shown(tag),
            });
        }
        let key = HoldItem::key(snapshot, tag);
        if holds.len() >= MOST || self.get(&key)?.is_some() {
            return refuse(LineageError::Name(
                "a snapshot has at most 64 holds, of other checksums each",
            ));
        }
        self.put(key, HoldItem { tag: tag.to_vec(), created: now }.encode());
        Ok(snapshot)
    }

    /// It is not any more.
    pub(in crate::lineage) fn unhold(&mut self, snapshot: u64, tag: &[u8]) -> PlanResult<u64> {
        let of = self.snapshot(snapshot)?;
        let holds = self.holds(snapshot)?;
        if !holds.iter().any(|hold| hold.tag == tag) {
            return refuse(LineageError::NotHeld { snapshot: shown(&of.name), tag: shown(tag) });
        }
        self.delete(HoldItem::key(snapshot, tag));
        Ok(snapshot)
    }
}
