//! Whether the fields of a superblock can be those of a volume, one rule after the other.

use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, CommitNo, Epoch, InodeNo, Timestamp};

use super::{
    Fields, FoundDamage, INCOMPAT_KNOWN, LEAF_COPIES, MAGIC, NODE_COPIES, RING_COPIES, SUM_AT,
    SUMS_CRC64, other_version, text,
};
use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::geometry::{Geometry, SUPERBLOCK_SLOTS};
use crate::journal::JournalMark;
use crate::limits::COUNTER_MAX;
use crate::log::LogMark;
use crate::node::NodePointer;
use crate::roots::judge_roots;

impl Fields {
    /// Fails if the block is none that was written at `address`.
    pub(super) fn check_intact(
        &self,
        block: &[u8; BLOCK_SIZE],
        address: BlockNo,
    ) -> Result<(), Malformed> {
        if self.magic != MAGIC {
            return Fields::fail("the magic is missing");
        }
        if crc64_with_hole(block, SUM_AT) != self.sum {
            return Fields::fail("its checksum does not match");
        }
        if self.address != address.0 {
            return Fields::fail(format!("it belongs to block {}", self.address));
        }
        Ok(())
    }

    /// Fails if this program cannot read such a volume.
    pub(super) fn check_known(&self) -> Result<(), Malformed> {
        if let Some(why) = other_version(self.version) {
            return Fields::fail(why);
        }
        let unknown = self.features_incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Fields::fail(format!("features {unknown:#x} are unknown to this program"));
        }
        Ok(())
    }

    /// The shape of the volume.
    pub(super) fn geometry(&self) -> Result<Geometry, Malformed> {
        let geometry = Geometry {
            volume_blocks: self.volume_blocks,
            node_size: self.node_size as usize,
            log_start: self.log_start,
            log_blocks: self.log_blocks,
            journal_start: self.journal_start,
            journal_blocks: self.journal_blocks,
            data_start: self.data_start,
            copy_mask: self.copy_mask,
            leaf_copies: self.features_ro_compat & LEAF_COPIES != 0,
            ring_distance: self.ring_distance,
        };
        geometry.check()?;
        if (self.copy_mask != 0) != (self.features_ro_compat & NODE_COPIES != 0) {
            return Fields::fail("its features and its copy mask contradict each other");
        }
        if (self.ring_distance != 0) != (self.features_ro_compat & RING_COPIES != 0) {
            return Fields::fail("its features and the places of its rings contradict each other");
        }
        Ok(geometry)
    }

    /// The roots of both trees.
    pub(super) fn roots(&self, geometry: &Geometry) -> Result<[NodePointer; 2], Malformed> {
        let pointer = |block, epoch| NodePointer { block: BlockNo(block), epoch: Epoch(epoch) };
        let files = pointer(self.files_block, self.files_epoch);
        let space = pointer(self.space_block, self.space_epoch);
        let roots = [(files, self.files_level), (space, self.space_level)];
        judge_roots(geometry, Epoch(self.epoch), roots).or_else(Fields::fail)?;
        Ok([files, space])
    }

    /// Fails if the volume cannot have counted so far.
    pub(super) fn check_counters(&self, geometry: &Geometry) -> Result<(), Malformed> {
        if self.used_blocks > geometry.data_blocks() {
            return Fields::fail(format!("{} used blocks are too many", self.used_blocks));
        }
        // Counters only grow; a volume that has counted so far does not exist.
        let counters = [
            self.inode_next,
            self.epoch,
            self.lsn,
            self.inode_count,
            self.referenced_blocks,
            self.journal_commit,
            self.log_batch,
        ];
        if self.inode_next < InodeNo::FIRST_FREE.0 || counters.iter().any(|n| *n > COUNTER_MAX) {
            return Fields::fail("its counters are out of range");
        }
        Ok(())
    }

    /// Fails if its epoch belongs into the other slot: the slots alternate (R1).
    pub(super) fn check_slot(&self, geometry: &Geometry) -> Result<(), Malformed> {
        let address = BlockNo(self.address);
        let slot = SUPERBLOCK_SLOTS[(self.epoch % 2) as usize];
        if address != slot && address != geometry.far_copy() {
            return Fields::fail(format!("epoch {} does not belong into this slot", self.epoch));
        }
        Ok(())
    }

    /// Where the journal goes on.
    pub(super) fn journal(&self, geometry: &Geometry) -> Result<JournalMark, Malformed> {
        let journal = JournalMark {
            commit: CommitNo(self.journal_commit),
            next: BlockNo(self.journal_next),
            sum: self.journal_sum,
        };
        let ring = geometry.journal();
        if !(ring.start.0..ring.start.0 + ring.count).contains(&journal.next.0) {
            return Fields::fail(format!("block {} does not lie in the journal", journal.next));
        }
        Ok(journal)
    }

    /// Where the log goes on.
    pub(super) fn log(&self, geometry: &Geometry) -> Result<LogMark, Malformed> {
        let log =
            LogMark { batch: BatchNo(self.log_batch), next: self.log_next, sum: self.log_sum };
        log.check(geometry).or_else(Fields::fail)?;
        Ok(log)
    }

    /// Fails if a byte means something that this program does not know.
    pub(super) fn check_reserved(&self) -> Result<(), Malformed> {
        if self.sums != SUMS_CRC64 {
            return Fields::fail(format!("checksums of kind {} are unknown", self.sums));
        }
        if self.branches != 1 {
            return Fields::fail(format!("form {} of the lineage is not 1", self.branches));
        }
        let set_aside = [
            &self.pad[..],
            &self.pad2,
            &self.pad3,
            &self.encryption,
            &self.key_slots,
            &self.mirror,
            &self.mirror_state,
            &self.reserved,
        ];
        if set_aside.iter().any(|bytes| bytes.iter().any(|&b| b != 0)) {
            return Fields::fail("reserved bytes are set");
        }
        let nanos = [self.created.nanos, self.fault_time.nanos];
        if nanos.iter().any(|nanos| *nanos >= 1_000_000_000) {
            return Fields::fail("one of its times cannot be");
        }
        Ok(())
    }

    pub(super) fn found_fault(&self) -> Result<Option<FoundDamage>, Malformed> {
        let reason = text(&self.fault_reason, "fault")?;
        match self.fault {
            1 => Ok(Some(FoundDamage { time: self.fault_time, reason })),
            0 if reason.is_empty() && self.fault_time == Timestamp::default() => Ok(None),
            _ => Fields::fail("its fault cannot be"),
        }
    }
}
