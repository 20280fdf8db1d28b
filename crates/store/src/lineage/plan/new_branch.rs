//! A branch that has grown out of nothing.

use holdfast_base::Timestamp;
use holdfast_format::item::{TreeItem, TreeKind};

use super::{Plan, PlanResult};

impl Plan<'_> {
    /// Makes a branch without a parent. The caller makes its tree and puts the item of its root.
    pub(in crate::lineage) fn new_branch(
        &mut self,
        name: &[u8],
        now: Timestamp,
    ) -> PlanResult<u64> {
        let number = self.next_number()?;
        self.add_name(0, name, number)?;
        let branch = TreeItem {
            kind: TreeKind::Branch,
            lsn: self.lsn,
            created: now,
            name: name.to_vec(),
            ..TreeItem::first()
        };
        self.put_item(number, &branch);
        Ok(number)
    }
}
