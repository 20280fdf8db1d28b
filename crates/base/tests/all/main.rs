//! All tests of the house, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod cargo;
mod circles;
mod documents;
mod floors;
mod glossary;
mod programs;
mod publishable;
mod skipped;
mod threads;
mod tidy;
