//! What lies directly before a mark of the log or the journal.

/// What lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeforeMark {
    /// The mark names nothing.
    Nothing,
    /// What the mark names: so many bytes of the log, or blocks of the journal.
    Whole(u64),
    /// The same, but for a byte that has rotted.
    Rotten,
    /// Something else.
    Gone,
    /// It is not known: the device does not read.
    Unread,
}

impl BeforeMark {
    /// What all places of a ring hold: the best that one has. What does not read may be it.
    pub(crate) fn in_any(places: impl Iterator<Item = BeforeMark>) -> BeforeMark {
        let mut found = BeforeMark::Gone;
        for place in places {
            match place {
                whole @ BeforeMark::Whole(_) => return whole,
                BeforeMark::Gone => {}
                other => found = other,
            }
        }
        found
    }

    /// How long it is; 0 where it is not there.
    pub(crate) fn len(self) -> u64 {
        match self {
            BeforeMark::Whole(len) => len,
            BeforeMark::Nothing | BeforeMark::Rotten | BeforeMark::Gone | BeforeMark::Unread => 0,
        }
    }

    /// Whether all is there that the mark names.
    pub(crate) fn is_fine(self) -> bool {
        matches!(self, BeforeMark::Nothing | BeforeMark::Whole(_))
    }
}
