//! How long a recovery takes: the estimate that the checkpointer keeps under the budget of
//! `-o recover=`, and that `holdfast info` shows.
//!
//! A recovery reads the journal and the base of each node that commits changed,
//! and writes those nodes. A mounted volume knows how fast its checkpoints are
//! written and reckons with half of that; who only looks at a volume takes the
//! rate of a slow disk.

use std::time::Duration;

/// Budget unless `-o recover=` says otherwise.
pub const BUDGET_DEFAULT: Duration = Duration::from_secs(1);

/// Bytes that a slow disk moves in a second, one after the other.
pub const BYTES_PER_SECOND: u64 = 200 << 20;
/// To read a node from anywhere, several at a time.
const NODE_READ: Duration = Duration::from_micros(40);
/// What any recovery takes: 16 MiB behind the journal are searched for later frames; then flushes and a superblock.
pub const FIXED: Duration = Duration::from_millis(100);

/// What a recovery would have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of commits in the journal.
    pub journal_bytes: u64,
    /// Different nodes that those commits change.
    pub nodes: u64,
    /// Bytes of a node.
    pub node_bytes: u64,
}

impl Work {
    /// How long it takes on a slow disk. Nothing to do takes no time.
    pub fn estimate(&self) -> Duration {
        self.estimate_at(BYTES_PER_SECOND)
    }

    /// How long it takes on a device that moves so many bytes in a second.
    pub fn estimate_at(&self, bytes_per_second: u64) -> Duration {
        if self.journal_bytes == 0 && self.nodes == 0 {
            return Duration::ZERO;
        }
        // Each node is read as a base and written to its home.
        let nodes = self.nodes.saturating_mul(self.node_bytes).saturating_mul(2);
        let per_micro = (bytes_per_second / 1_000_000).max(1);
        let micros = nodes.saturating_add(self.journal_bytes) / per_micro;
        let reads = self.nodes.saturating_mul(NODE_READ.as_micros() as u64);
        FIXED + Duration::from_micros(micros.saturating_add(reads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_work_takes_longer_and_none_takes_none() {
        assert_eq!(Work::default().estimate(), Duration::ZERO);
        let few = Work { journal_bytes: 1 << 20, nodes: 10, node_bytes: 16384 };
        let many = Work { nodes: 5000, ..few };
        assert!(few.estimate() < many.estimate());
        assert!(many.estimate_at(20 << 20) > many.estimate());
        assert!(many.estimate_at(0) > many.estimate());
        let endless = Work { journal_bytes: u64::MAX, nodes: u64::MAX, node_bytes: u64::MAX };
        assert!(endless.estimate() > Duration::from_secs(1 << 20));
    }
}
