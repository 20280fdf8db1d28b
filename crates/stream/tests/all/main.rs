//! All tests of streams, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod common;
mod cut_and_damaged;
mod power_cut;
mod receiver;
mod round_trips;
