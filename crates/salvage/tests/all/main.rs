//! All tests of salvage, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod accidents;
mod common;
mod holes;
mod image;
mod proof;
mod scramble;
