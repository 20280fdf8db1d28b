//! All tests of the program, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod archives;
mod branches_at_rest;
mod checker_agrees;
#[path = "../common/mod.rs"]
mod common;
mod copies_of_streams;
mod daemon;
mod deep;
mod diff;
#[path = "../document/mod.rs"]
mod document;
mod dying;
mod explain;
mod full_host;
mod host;
mod json;
mod limits;
mod many_mounts_beside;
mod messages;
mod metrics;
mod mkfs;
mod not_whole;
mod offline;
mod older_nodes;
mod packaging;
mod prune;
mod recovery;
mod salvage;
mod scrub;
mod snapdir;
mod stats;
mod stopped;
mod strangers;
mod streams;
mod superblock;
mod supervised;
mod through_mount;
mod through_mount_names;
mod two_names;
mod waiting;
mod whole_volume;
mod work_live;
