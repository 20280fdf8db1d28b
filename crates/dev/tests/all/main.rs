//! All tests of holdfast-dev, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod bench;
mod bench_files;
#[path = "../../../cli/tests/common/mod.rs"]
mod common;
mod crashtest;
mod dump;
