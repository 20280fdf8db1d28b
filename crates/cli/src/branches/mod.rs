//! Branches and snapshots, as commands speak of them: on a volume at rest and on one that is mounted.

pub(crate) mod arguments;
pub(crate) mod place;
pub(crate) mod show;

pub(crate) use holdfast_control::{Ask, Name, Which};
pub(crate) use place::{Origin, SnapshotName, TreeLocation};
