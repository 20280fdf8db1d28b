//! All tests of scripts and the model, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod branches;
mod copies;
mod host;
mod language;
mod seeds;
