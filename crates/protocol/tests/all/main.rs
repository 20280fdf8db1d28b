//! All tests of the models, in one program: one file for each model and its mutants.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod exhaustive;
mod lineage;
mod mutants;
