//! Scripts for a target that shows one branch at a time.

use crate::branch::BranchOp;
use crate::model::VolumeModel;
use crate::op::{Op, Script};
use crate::target::Target;

/// The same script, with all handles closed before what such a target cannot do with open ones: going to another branch,
/// looking at a snapshot, a rollback, and becoming what another branch is.
pub fn closing(script: &Script) -> Script {
    let mut model = VolumeModel::new();
    let mut ops = Vec::new();
    for op in script.ops() {
        use BranchOp::{Look, Promote, Rollback, Switch};
        if matches!(op, Op::Branch(Switch { .. } | Look { .. } | Rollback { .. } | Promote { .. }))
        {
            let open = model.handles(model.current());
            for close in open.into_iter().map(|handle| Op::Close { handle }) {
                model.apply(&close);
                ops.push(close);
            }
        }
        model.apply(op);
        ops.push(op.clone());
    }
    ops.into_iter().collect()
}
