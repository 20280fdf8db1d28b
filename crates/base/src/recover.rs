//! How long a recovery takes: the estimate that the checkpointer keeps under the budget of
//! `-o recover=`, and that `holdfast info` shows.
//!
//! A recovery reads the journal and the base of each node that commits changed,
//! then the log, does its operations once more, and writes the nodes and the
//! data that only the log held. A mounted volume knows how fast its checkpoints
//! are written and assumes half of that rate, and its random access time. A tool that
//! only reads a volume assumes the rate of a slow disk, and the access time of a quick one.

use std::time::Duration;

use crate::units::BLOCK_BYTES;

/// Budget unless `-o recover=` says otherwise.
pub const BUDGET_DEFAULT: Duration = Duration::from_secs(1);

/// Bytes that a slow disk moves in a second, one after the other.
pub const BYTES_PER_SECOND: u64 = 200 << 20;
/// Bytes of the log whose operations a slow processor does once more in a second.
pub const LOG_BYTES_PER_SECOND: u64 = 64 << 20;
/// To read a node from anywhere, or to write a block of data there, several at a time, on a device where that
/// costs next to nothing. No device is taken for faster.
pub const PLACE: Duration = Duration::from_micros(40);
/// What any recovery takes: 16 MiB behind the journal and 8 MiB behind the log are searched for what is later; then
/// flushes and a superblock.
pub const FIXED: Duration = Duration::from_millis(150);
/// Random accesses of any recovery: superblocks, rings, the space tree, the first nodes, and flushes.
const FIXED_PLACES: u32 = 16;

/// What the steps of a recovery cost on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that it moves in a second, one after the other.
    pub bytes_per_second: u64,
    /// Its random access time.
    pub place: Duration,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { bytes_per_second: BYTES_PER_SECOND, place: PLACE }
    }
}

impl Cost {
    /// What any recovery takes, however little it has to do.
    pub fn fixed(&self) -> Duration {
        FIXED.saturating_add(self.beyond().saturating_mul(FIXED_PLACES))
    }

    /// How much longer a random access takes than on a device where it costs next to nothing.
    fn beyond(&self) -> Duration {
        self.place.saturating_sub(PLACE)
    }
}

/// What a recovery would have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryWork {
    /// Bytes of commits in the journal.
    pub journal_bytes: u64,
    /// Bytes of batches in the log, behind those commits.
    pub log_bytes: u64,
    /// Of those, bytes of file data: no operation is done with them.
    pub log_data_bytes: u64,
    /// Blocks of data that only the log holds.
    pub log_blocks: u64,
    /// Different nodes that those commits and batches change.
    pub nodes: u64,
    /// Bytes of a node.
    pub node_bytes: u64,
    /// Copies of them that are written as well.
    pub copies: u64,
}

impl RecoveryWork {
    /// The same but for the log.
    pub fn without_log(self) -> RecoveryWork {
        RecoveryWork { log_bytes: 0, log_data_bytes: 0, log_blocks: 0, ..self }
    }

    /// How long it takes on a slow disk without access time. Nothing to do takes no time.
    pub fn estimate(&self) -> Duration {
        self.estimate_at(&Cost::default())
    }

    /// How long it takes on a device.
    pub fn estimate_at(&self, cost: &Cost) -> Duration {
        if self.journal_bytes == 0 && self.log_bytes == 0 && self.nodes == 0 {
            return Duration::ZERO;
        }
        // Each node is read as a base and written to its location, and perhaps to that of its copy.
        let writes = self.nodes.saturating_add(self.copies);
        let nodes = self.nodes.saturating_add(writes).saturating_mul(self.node_bytes);
        let bytes = nodes
            .saturating_add(self.journal_bytes)
            .saturating_add(self.log_bytes)
            .saturating_add(self.log_blocks.saturating_mul(BLOCK_BYTES));
        let records = self.log_bytes.saturating_sub(self.log_data_bytes);
        let places = self.nodes.saturating_add(self.log_blocks);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let time = at_rate(bytes, cost.bytes_per_second)
            .saturating_add(at_rate(records, LOG_BYTES_PER_SECOND))
            .saturating_add(places.saturating_mul(micros(cost.place)))
            // Where random accesses are cheap, nodes are written at the rate of their bytes.
            .saturating_add(writes.saturating_mul(micros(cost.beyond())));
        cost.fixed().saturating_add(Duration::from_micros(time))
    }
}

/// Microseconds that so many bytes take.
fn at_rate(bytes: u64, bytes_per_second: u64) -> u64 {
    bytes / (bytes_per_second / 1_000_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_work_takes_longer_and_none_takes_none() {
        assert_eq!(RecoveryWork::default().estimate(), Duration::ZERO);
        let few = RecoveryWork {
            journal_bytes: 1 << 20,
            nodes: 10,
            node_bytes: 16384,
            ..RecoveryWork::default()
        };
        let many = RecoveryWork { nodes: 5000, ..few };
        assert!(few.estimate() < many.estimate());
        let at_rate = |bytes_per_second| Cost { bytes_per_second, ..Cost::default() };
        assert!(many.estimate_at(&at_rate(20 << 20)) > many.estimate());
        assert!(many.estimate_at(&at_rate(0)) > many.estimate());
        let disk = Cost { place: Duration::from_millis(10), ..Cost::default() };
        assert!(many.estimate_at(&disk) > Duration::from_secs(99), "each node is read and written");
        assert!(
            many.estimate_at(&Cost { place: Duration::MAX, ..disk }) > Duration::from_secs(1 << 20)
        );
        let twice = RecoveryWork { copies: 5000, ..many };
        let more = twice.estimate() - many.estimate();
        assert!(more > Duration::from_millis(350), "78 MiB of copies: {more:?}");
        let more = twice.estimate_at(&disk) - many.estimate_at(&disk);
        assert!(more > Duration::from_secs(49), "each copy is written elsewhere: {more:?}");
        let endless = RecoveryWork {
            journal_bytes: u64::MAX,
            log_bytes: u64::MAX,
            log_data_bytes: 0,
            log_blocks: u64::MAX,
            nodes: u64::MAX,
            node_bytes: u64::MAX,
            copies: u64::MAX,
        };
        assert!(endless.estimate() > Duration::from_secs(1 << 20));
    }

    #[test]
    fn the_log_takes_its_time_too() {
        let logged = RecoveryWork { log_bytes: 512, node_bytes: 16384, ..RecoveryWork::default() };
        assert!(logged.estimate() >= FIXED, "a batch alone is something to recover");
        let more = RecoveryWork { log_bytes: 16 << 20, ..logged };
        assert!(more.estimate() > logged.estimate() + Duration::from_millis(250));
        // Operations are done by the processor, whatever the device can do.
        let endless = Cost { bytes_per_second: u64::MAX, ..Cost::default() };
        assert!(more.estimate_at(&endless) > FIXED + Duration::from_millis(200));
        assert!(RecoveryWork { log_blocks: 1000, ..more }.estimate() > more.estimate());
        let of_data = RecoveryWork { log_data_bytes: 15 << 20, ..more };
        assert!(of_data.estimate_at(&endless) < FIXED + Duration::from_millis(20), "it is copied");
        assert_eq!(
            RecoveryWork { log_blocks: 1000, ..of_data }.without_log().estimate(),
            Duration::ZERO
        );
    }
}
