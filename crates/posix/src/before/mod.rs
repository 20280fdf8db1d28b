//! What was done before the mechanisms of this crate, one module for each: only with the feature `before`, to be measured.
//!
//! Without it the same names are there, and remember and do nothing.

#[cfg(feature = "before")]
pub(crate) mod completion;
#[cfg(feature = "before")]
mod rename_log;
#[cfg(not(feature = "before"))]
mod none;

#[cfg(not(feature = "before"))]
pub(crate) use {
    crate::data::insert::insert_extents as complete,
    none::{Completer, DirectoryLog},
};
#[cfg(feature = "before")]
pub(crate) use {
    completion::{Completer, complete},
    rename_log::DirectoryLog,
};
