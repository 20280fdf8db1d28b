//! A commit says what a superblock would: one stands for the other.

use holdfast_base::{Epoch, InodeNo, Lsn};

use super::Superblock;
use crate::journal::{CommitHead, JournalMark};

impl CommitHead {
    /// The superblock that stands for `before` and the commits up to this one, which end at `journal`.
    pub fn superblock(
        &self,
        before: &Superblock,
        epoch: Epoch,
        journal: JournalMark,
    ) -> Superblock {
        Superblock {
            epoch,
            files: self.files(),
            files_level: self.files_level,
            space: self.space(),
            space_level: self.space_level,
            lsn: Lsn(self.lsn),
            inode_next: InodeNo(self.inode_next),
            inode_count: self.inode_count,
            used_blocks: self.used_blocks,
            referenced_blocks: self.referenced_blocks,
            journal,
            log: self.log(),
            ..before.clone()
        }
    }

    /// The head of a commit that stands for `now`.
    pub fn of(now: &Superblock) -> CommitHead {
        CommitHead {
            lsn: now.lsn.0,
            inode_next: now.inode_next.0,
            inode_count: now.inode_count,
            used_blocks: now.used_blocks,
            referenced_blocks: now.referenced_blocks,
            files_block: now.files.block.0,
            files_epoch: now.files.epoch.0,
            space_block: now.space.block.0,
            space_epoch: now.space.epoch.0,
            files_level: now.files_level,
            space_level: now.space_level,
            pad: [0; 6],
            nodes: 0,
            cancels: 0,
            extents: 0,
            pad2: 0,
            log_batch: now.log.batch.0,
            log_next: now.log.next,
            log_sum: now.log.sum,
        }
    }
}
