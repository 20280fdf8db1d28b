//! Transactions of commands: a command works in a fork, and the branch becomes the fork as a whole or not at all.
//!
//! ```text
//! snapshot `.txn-N` of the branch ── fork `.txn-N` ── private mount ── COMMAND ─┬─ 0: promote the fork, delete the snapshot
//!                                                                              ├─ else: delete both
//!                                                                              └─ 0, but the branch has changed: give both another name
//! ```
//! With `--theirs-if-disjoint` a branch that has changed is forked anew, under a name of the same form. What was done in the first fork is
//! done there as well, and that one is promoted: so what a killed command leaves is what any other one leaves.
//!
//! The snapshot is what the fork can be compared with. Each step is durable by itself, and the branch changes in one of them only, the
//! promotion (S6a). A process that is killed leaves at most what is called `.txn-N`: its owner holds a lock ([`owner`]),
//! and what has no owner is removed by the next transaction of the branch, or by `holdfast prune` ([`sweep`]).

pub(crate) mod base;
pub(crate) mod fork;
pub(crate) mod input;
mod owner;
pub(crate) mod sweep;
