//! What the space tree holds for a block group (M1).
//!
//! ```text
//!  Absent --begin--> Writing --finish--> InTree(record) --begin--> Writing --finish--> ...
//!     ^                 |                                             |
//!     +----finish-------+---------------------------------------------+
//! ```
//!
//! Always true: the remembered record equals the tree's (R6). Only the writer that moved
//! it to `Writing` resolves it, with what it wrote; nothing restores an older
//! value, not a failure and not a record that was not found.

#[cfg(feature = "before")]
mod before;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::switch::Accounting;
use holdfast_format::item::GroupItem;

/// What the space tree holds for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// There is no record: nothing of the group is in use.
    Absent,
    /// The record is being written.
    Writing,
    /// The record is this.
    InTree(GroupItem),
}

/// What to do to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The tree holds what it should: it is not even searched.
    Skip,
    /// The record is to be this.
    Put(GroupItem),
    /// The record is to go.
    Delete,
}

impl Record {
    /// What must be done so that the tree holds `now`. The whole record is compared, not one field.
    pub(crate) fn step(self, now: GroupItem, accounting: Accounting) -> Step {
        let is_empty = now.used_blocks == 0;
        match self {
            Record::Writing => unreachable!("a record is written under one lock"),
            Record::Absent if is_empty => Step::Skip,
            Record::InTree(record)
                if mutants::is(Mutant::RecordOneField)
                    && record.used_blocks == now.used_blocks
                    && !is_empty =>
            {
                Step::Skip
            }
            Record::InTree(record) if record == now => match accounting {
                Accounting::Changed => Step::Skip,
                #[cfg(feature = "before")]
                Accounting::Always => before::step_of_unchanged(now),
            },
            _ if is_empty => Step::Delete,
            _ => Step::Put(now),
        }
    }

    /// The step is taken now; [`Record::finish`] must follow.
    pub(crate) fn begin(&mut self) {
        assert_ne!(*self, Record::Writing, "two writers of one record");
        *self = Record::Writing;
    }

    /// The step was taken.
    pub(crate) fn finish(&mut self, step: Step) {
        assert_eq!(*self, Record::Writing, "only who began may finish");
        *self = match step {
            Step::Put(item) => Record::InTree(item),
            Step::Delete => Record::Absent,
            Step::Skip => unreachable!("what is skipped is not begun"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(used: u64, nodes: u64) -> GroupItem {
        GroupItem::bounded(used, nodes, 0, None)
    }

    #[test]
    fn every_field_counts_and_equal_records_are_skipped() {
        let mut record = Record::Absent;
        assert_eq!(record.step(item(0, 0), Accounting::Changed), Step::Skip);
        let step = record.step(item(7, 1), Accounting::Changed);
        record.begin();
        record.finish(step);
        assert_eq!(record, Record::InTree(item(7, 1)));
        assert_eq!(record.step(item(7, 1), Accounting::Changed), Step::Skip);
        #[cfg(feature = "before")]
        assert_eq!(record.step(item(7, 1), Accounting::Always), Step::Put(item(7, 1)));
        assert_eq!(record.step(item(7, 2), Accounting::Changed), Step::Put(item(7, 2)));
    }

    #[test]
    fn an_emptied_group_loses_its_record_and_may_get_another() {
        let mut record = Record::InTree(item(3, 3));
        let step = record.step(item(0, 0), Accounting::Changed);
        assert_eq!(step, Step::Delete);
        record.begin();
        record.finish(step);
        assert_eq!(record, Record::Absent);
        for &accounting in Accounting::ALL {
            assert_eq!(record.step(item(0, 0), accounting), Step::Skip);
        }
    }
}
