//! Branches and snapshots as words.

use super::Parsed;
use super::words::Words;
use crate::branch::{BranchOp, TreeName};

impl Words<'_> {
    /// The operation on branches that `verb` means; `None` if it is another verb.
    pub(super) fn branch_op(&mut self, verb: &str) -> Parsed<Option<BranchOp>> {
        Ok(Some(match verb {
            "switch" => BranchOp::Switch { branch: self.tree_name("a branch")? },
            "snapshot" => BranchOp::Snapshot { name: self.tree_name("a name")? },
            "fork" => BranchOp::Fork {
                branch: self.tree_name("a new branch")?,
                from: self.tree_name_or_end("a snapshot")?,
            },
            "newbranch" => BranchOp::NewBranch { branch: self.tree_name("a new branch")? },
            "rollback" => BranchOp::Rollback {
                to: self.tree_name("a snapshot")?,
                keep: self.tree_name_or_end("a name")?,
            },
            "promote" => BranchOp::Promote {
                fork: self.tree_name("a branch")?,
                keep: self.tree_name_or_end("a name")?,
            },
            "rmsnapshot" => BranchOp::RemoveSnapshot { name: self.tree_name("a snapshot")? },
            "rmbranch" => BranchOp::RemoveBranch { branch: self.tree_name("a branch")? },
            "mvsnapshot" => BranchOp::RenameSnapshot {
                from: self.tree_name("a snapshot")?,
                to: self.tree_name("a new name")?,
            },
            "mvbranch" => BranchOp::RenameBranch {
                from: self.tree_name("a branch")?,
                to: self.tree_name("a new name")?,
            },
            "hold" => BranchOp::Hold {
                name: self.tree_name("a snapshot")?,
                tag: self.tree_name_or_end("a tag")?,
            },
            "unhold" => BranchOp::Unhold {
                name: self.tree_name("a snapshot")?,
                tag: self.tree_name_or_end("a tag")?,
            },
            "look" => BranchOp::Look { name: self.tree_name("a snapshot")? },
            "branches" => BranchOp::Branches,
            "snapshots" => BranchOp::Snapshots,
            _ => return Ok(None),
        }))
    }

    fn tree_name(&mut self, what: &str) -> Parsed<TreeName> {
        let (bytes, start) = self.bytes(what)?;
        match TreeName::new(bytes) {
            Some(name) => Ok(name),
            None => self.fail(start, format!("expected {what}, without / @ and :")),
        }
    }

    fn tree_name_or_end(&mut self, what: &str) -> Parsed<Option<TreeName>> {
        if self.ended() { Ok(None) } else { self.tree_name(what).map(Some) }
    }
}
