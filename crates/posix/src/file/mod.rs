//! The content of files in the tree. Inner floors, top first: content, inline, lookup, map.

pub(crate) mod content;
pub(crate) mod inline;
pub(crate) mod lookup;
pub(crate) mod map;
