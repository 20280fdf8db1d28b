//! How ordered extents whose writes have returned get into the tree: by the caller itself (M5), or as it was done before.
//!
//! What was done before is there with the feature `before` only, to be measured. Without it the same names are there.

#[cfg(feature = "before")]
mod before;
#[cfg(not(feature = "before"))]
mod none;

#[cfg(feature = "before")]
pub(crate) use before::{Completer, complete};
#[cfg(not(feature = "before"))]
pub(crate) use {super::insert::insert_extents as complete, none::Completer};
