//! What lies directly before a mark of the log or the journal.

/// What lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeforeMark {
    /// The mark names nothing.
    Nothing,
    /// What the mark names: so many bytes of the log, or blocks of the journal.
    Whole(u64),
    /// Something else.
    Gone,
    /// It is not known: the device does not read.
    Unread,
}

impl BeforeMark {
    /// How long it is; 0 where it is not there.
    pub(crate) fn len(self) -> u64 {
        match self {
            BeforeMark::Whole(len) => len,
            BeforeMark::Nothing | BeforeMark::Gone | BeforeMark::Unread => 0,
        }
    }

    /// Whether all is there that the mark names.
    pub(crate) fn is_fine(self) -> bool {
        matches!(self, BeforeMark::Nothing | BeforeMark::Whole(_))
    }
}
