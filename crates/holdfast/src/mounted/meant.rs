//! What a handle means.

/// A branch, or a snapshot of it, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    pub(crate) branch: u64,
    pub(crate) snapshot: Option<u64>,
}

impl Meant {
    /// The branch itself.
    pub(crate) fn branch(branch: u64) -> Meant {
        Meant { branch, snapshot: None }
    }

    /// A snapshot of it.
    pub(crate) fn snapshot(branch: u64, snapshot: u64) -> Meant {
        Meant { branch, snapshot: Some(snapshot) }
    }
}
