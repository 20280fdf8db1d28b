//! All tests of fsck, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod behind_holes;
mod blind;
mod branches;
mod carried;
#[path = "../common/mod.rs"]
mod common;
mod cost;
mod engine;
mod forged_lineage;
mod front;
mod fsck_md;
mod fsyncs;
mod histories;
mod holds;
mod hostile;
mod hostile_log;
mod issues;
mod joined;
mod journal;
mod log;
mod log_damage;
mod references;
mod rotten_parents;
