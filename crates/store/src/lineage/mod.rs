//! Branches and snapshots: what has grown out of what, and how that changes.
//!
//! ```text
//!  plan (what the items become) -> by the log:      fork of a snapshot, names, holds, a deletion begins
//!                               -> with a commit:   snapshot, rollback, a branch goes
//!  walk (a deletion, step by step): in memory, durable with the next commit
//! ```
//!
//! Rules S1 to S9 are in docs/BRANCHES.md. Here is what carries them: items in the space tree
//! ([`holdfast_format::item::lineage`]), and of each open tree what it owns ([`crate::tree::open::Ancestry`]).

pub(crate) mod look;
mod moved;
mod plan;
mod seal;
mod walk;
mod walk_data;
mod walk_down;
mod way;

pub use look::TreeInfo;
pub(crate) use look::first_key;
pub(crate) use seal::Sealing;

use holdfast_base::{Lsn, Timestamp};

use crate::transaction::Changes;
use crate::tree::TreeNo;
use crate::{Inner, Need, Result, Transaction};
use plan::{Plan, PlanResult};

/// What a caller is told of a change that waits for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// The number of the branch or snapshot.
    pub(crate) number: u64,
    /// It is durable with this operation.
    pub(crate) lsn: Lsn,
}

/// Changes of items that an operation by the log makes at most, about.
const CHANGES: u32 = 8;

impl Inner {
    /// Carries out what `plan` makes of the lineage, as an ordinary operation. The caller holds the lineage's lock.
    fn by_the_log(&self, plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>) -> Result<Made> {
        self.by_the_log_for(Need::Shrink { changes: CHANGES }, plan)
    }

    fn by_the_log_for(
        &self,
        need: Need,
        plan: impl FnMut(&mut Plan<'_>) -> PlanResult<u64>,
    ) -> Result<Made> {
        let mut reservation = self.reserve(TreeNo::SPACE, need)?;
        let planned = self.plan(plan)?;
        let changes: Changes = planned.changes;
        let transaction = Transaction { changes, ..Transaction::default() };
        let lsn = self.apply(TreeNo::SPACE, transaction, &mut reservation)?;
        Ok(Made { number: planned.number, lsn })
    }

    /// Makes a branch out of a snapshot (S3).
    pub(crate) fn fork(&self, snapshot: u64, name: &[u8], now: Timestamp) -> Result<Made> {
        let _one = self.lineage.lock();
        let need = Need::Grow { changes: CHANGES, blocks: 0 };
        self.by_the_log_for(need, |plan| plan.fork(snapshot, name, now))
    }

    /// Gives a branch or snapshot another name.
    pub(crate) fn rename_tree(&self, number: u64, name: &[u8]) -> Result<Made> {
        let _one = self.lineage.lock();
        self.by_the_log(|plan| plan.rename(number, name))
    }

    /// Holds a snapshot, or ends that: a snapshot that is held is not deleted.
    pub(crate) fn hold(&self, snapshot: u64, held: bool) -> Result<Made> {
        let _one = self.lineage.lock();
        self.by_the_log(|plan| plan.hold(snapshot, held))
    }

    /// Limits what a branch may refer to; 0: no limit.
    pub(crate) fn limit(&self, branch: u64, blocks: u64) -> Result<Made> {
        let _one = self.lineage.lock();
        self.by_the_log(|plan| plan.limit(branch, blocks))
    }

    /// Begins the deletion of a snapshot (S4): its name is gone.
    pub(crate) fn delete_snapshot(&self, snapshot: u64) -> Result<Made> {
        let _one = self.lineage.lock();
        let made = self.by_the_log(|plan| plan.delete_snapshot(snapshot))?;
        self.follow_walks()?;
        Ok(made)
    }
}
