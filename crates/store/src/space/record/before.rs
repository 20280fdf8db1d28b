//! `accounting=always`: a group that was touched has its record written, whether it changed or not (M1).

use holdfast_format::item::GroupItem;

use super::Step;

/// What is done with a record that the tree holds as it is.
pub(super) fn step_of_unchanged(record: GroupItem) -> Step {
    Step::Put(record)
}
