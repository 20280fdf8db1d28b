//! All tests of what bytes mean, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod codecs;
mod format_md;
mod journal;
mod log;
mod nodes;
