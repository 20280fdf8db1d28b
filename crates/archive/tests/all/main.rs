//! All tests of archives, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod changing;
mod common;
mod hostile;
mod oci;
mod round_trip;
