//! What a rename logs of its directories besides the names that it changes: nothing (M2), or as it was done before.
//!
//! What was done before is there with the feature `before` only, to be measured. Without it the same names are there,
//! and remember and do nothing.

#[cfg(feature = "before")]
mod before;
#[cfg(not(feature = "before"))]
mod none;

#[cfg(feature = "before")]
pub(crate) use before::DirectoryLog;
#[cfg(not(feature = "before"))]
pub(crate) use none::DirectoryLog;
