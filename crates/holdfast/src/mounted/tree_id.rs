//! What a handle means.

/// A branch, or a snapshot of it, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeId {
    pub(crate) branch: u64,
    pub(crate) snapshot: Option<u64>,
}

impl TreeId {
    /// The branch itself.
    pub(crate) fn branch(branch: u64) -> TreeId {
        TreeId { branch, snapshot: None }
    }

    /// A snapshot of it.
    pub(crate) fn snapshot(branch: u64, snapshot: u64) -> TreeId {
        TreeId { branch, snapshot: Some(snapshot) }
    }
}
