//! All tests of the filesystem's calls, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod alone;
mod branches;
mod branches_alive;
mod common;
mod content;
mod damage;
mod failing_deletions;
mod full;
mod full_leaves;
mod lost_groups;
mod moved_directory;
mod rename_log;
mod replace_under_writes;
mod reserved;
mod reserved_and_snapshots;
mod scrub;
mod shrink;
mod threads;
mod whole_volume;
