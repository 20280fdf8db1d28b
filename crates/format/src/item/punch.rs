//! A range of a file that is being made a hole, or zeros, in several steps: an intent.
//!
//! From the operation that puts it on, the range reads as zeros, whatever its
//! extents say. The operations behind that one remove or unwrite the extents,
//! and the last one deletes the item; what a crash has left to do, the next
//! opening for writing does.

use holdfast_base::units::blocks_for;

use crate::Malformed;
use crate::limits::FILE_SIZE_MAX;

record! {
    /// A range that is being punched.
    pub struct PunchItem("punch", 24 bytes) {
        /// First block in the file.
        first: u64,
        /// First block behind the range.
        end: u64,
        /// 0: blocks are freed. 1: they stay, unwritten.
        state: u32,
        /// Zero.
        reserved: [u8; 4],
    }
}

impl PunchItem {
    /// The state in which the blocks stay with the file.
    pub const KEEPS_BLOCKS: u32 = 1;

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        self.bytes().to_vec()
    }

    /// Reads and judges a punch.
    pub fn decode(bytes: &[u8]) -> Result<PunchItem, Malformed> {
        let item = PunchItem::exactly(bytes)?;
        if item.first >= item.end || item.end > blocks_for(FILE_SIZE_MAX) {
            return PunchItem::fail(format!(
                "blocks {} to {} are no part of a file",
                item.first, item.end
            ));
        }
        if item.state > PunchItem::KEEPS_BLOCKS || item.reserved != [0; 4] {
            return PunchItem::fail("its state is unknown or reserved bytes are set");
        }
        Ok(item)
    }
}
