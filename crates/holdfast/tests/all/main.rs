//! All tests of the library, in one program: one file for each subject.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod branches;
mod common;
mod examples;
mod files;
mod io_budgets;
mod like_std;
mod no_cliff;
mod paths;
mod recovery_of_the_log;
mod views;
