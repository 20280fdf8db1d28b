//! The content of files in the tree.

pub(crate) mod content;
