//! Where the log stands.

use holdfast_base::recover::RecoveryWork;
use holdfast_base::units::BLOCK_SIZE;
use holdfast_format::log::LogMark;

/// Where the next batch goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPosition {
    pub(crate) mark: LogMark,
    /// Bytes that were ever written, counted from the opening.
    pub(crate) head: u64,
    /// Of those, bytes of file data.
    pub(crate) data: u64,
    /// Bytes of the batch before the mark, whose sum it has; 0 where there is none.
    pub(crate) before: u64,
}

impl LogPosition {
    /// Where an opened log goes on.
    pub(crate) fn at(mark: LogMark) -> LogPosition {
        LogPosition { mark, head: 0, data: 0, before: 0 }
    }

    /// What a recovery has to do with the log between an earlier position and this one, with so many bytes of
    /// log-resident data.
    pub(super) fn since(&self, earlier: &LogPosition, log_resident_bytes: usize) -> RecoveryWork {
        RecoveryWork {
            log_bytes: self.head - earlier.head,
            log_data_bytes: self.data - earlier.data,
            log_blocks: (log_resident_bytes / BLOCK_SIZE) as u64,
            ..RecoveryWork::default()
        }
    }
}
