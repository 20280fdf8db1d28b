//! A part of a *run*: bytes of a file that are stored as a whole, coded, or with others in one block.
//!
//! ```text
//!  blocks of the file       |<- skip ->|<- count ->|            |     a part; what lies beside it is a hole by now, or written anew
//!                           |<-------------- decoded ---------->|
//!  bytes of the device  ...| place |<- stored ->|  other runs |...    from a unit of 512 bytes of the first block on
//! ```
//!
//! A part says all that a reader needs of the run, so a hole in the middle of one, also of one that several trees have, is one more
//! item and writes no data. An extent that is no part of a run has none of these bytes.
//!
//! Here is the form alone: runs are an incompat feature ([`crate::superblock::RUNS`]), and no program writes or reads them yet.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch};

use super::extent::ExtentHead;
use crate::Malformed;
use crate::codec::{Fixed, Reader};
use crate::limits::COUNTER_MAX;
use crate::node::check_device;

/// The state of an extent that is a part of a run.
pub const STATE: u8 = 2;
/// A run begins at a multiple of this in its first block, in bytes.
pub const UNIT: u64 = 512;
/// The bytes of the run are those of the file.
pub const RAW: u8 = 0;
/// They are one frame of zstd.
pub const ZSTD: u8 = 1;

record! {
    /// What of a run stands behind the head of an extent. Its checksums follow.
    pub struct RunFields("run", 8 bytes) {
        /// Bytes on the device.
        stored: u32,
        /// Blocks, decoded.
        decoded: u16,
        /// Of those, blocks before the extent's first.
        skip: u16,
    }
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPart {
    /// The block in which the run begins.
    pub block: BlockNo,
    /// The unit of that block with which it begins.
    pub place: u8,
    /// [`RAW`] or [`ZSTD`].
    pub codec: u8,
    /// Bytes of the run on the device.
    pub stored: u32,
    /// Blocks of the file that they are, decoded.
    pub decoded: u16,
    /// Of those, blocks before this part.
    pub skip: u16,
    /// Blocks of this part.
    pub count: u16,
    /// Epoch in which the run became part of the tree.
    pub birth: Epoch,
    /// Raw: the sum of the stored bytes of each block of this part. Else one sum, of all stored bytes.
    pub sums: Vec<u64>,
}

impl RunPart {
    /// The blocks that the run touches. Those at its ends may have bytes of others.
    pub fn blocks(&self) -> BlockRange {
        let end = u64::from(self.place) * UNIT + u64::from(self.stored);
        BlockRange::new(self.block, end.div_ceil(BLOCK_BYTES))
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let RunPart { place, codec, stored, decoded, skip, .. } = *self;
        let mut out = Vec::with_capacity(ExtentHead::SIZE + RunFields::SIZE + 8 * self.sums.len());
        let head = ExtentHead {
            block: self.block.0,
            birth: self.birth.0,
            count: self.count.into(),
            state: STATE,
            codec,
            place,
            reserved: 0,
        };
        head.write(&mut out);
        RunFields { stored, decoded, skip }.write(&mut out);
        self.sums.iter().for_each(|sum| sum.write(&mut out));
        out
    }

    /// Reads and judges a part of a run. Whether its blocks lie inside the volume is the caller's to check.
    pub fn decode(bytes: &[u8]) -> Result<RunPart, Malformed> {
        let mut reader = Reader::new(RunFields::TITLE, bytes);
        let head = ExtentHead::read(&mut reader)?;
        let RunFields { stored, decoded, skip } = RunFields::read(&mut reader)?;
        let rest = reader.rest();
        let ExtentHead { state, codec, place, reserved, .. } = head;
        if state != STATE || codec > ZSTD || u64::from(place) >= BLOCK_BYTES / UNIT || reserved != 0
        {
            return RunFields::fail(format!(
                "state {state}, codec {codec} or place {place} is unknown"
            ));
        }
        check_device(BlockNo(head.block)).or_else(RunFields::fail)?;
        if head.birth > COUNTER_MAX {
            return RunFields::fail(format!("it cannot be born in epoch {}", head.birth));
        }
        let blocks = u64::from(stored).div_ceil(BLOCK_BYTES);
        let is_coded = codec != RAW;
        // Bytes that fill blocks are an extent like any other: there is one way to say that.
        let is_plain = place == 0 && u64::from(stored).is_multiple_of(BLOCK_BYTES);
        let has_length = match is_coded {
            true => (1..=u64::from(decoded)).contains(&blocks),
            false => stored > 0 && blocks == u64::from(decoded) && !is_plain,
        };
        if !has_length {
            return RunFields::fail(format!(
                "{stored} bytes of codec {codec} are not {decoded} blocks"
            ));
        }
        let behind = u64::from(decoded.saturating_sub(skip));
        let Some(count) = u16::try_from(head.count)
            .ok()
            .filter(|count| (1..=behind).contains(&u64::from(*count)))
        else {
            return RunFields::fail(format!(
                "it has no {} blocks behind {skip} of {decoded}",
                head.count
            ));
        };
        let (sums, more) = rest.as_chunks::<8>();
        let wanted = if is_coded { 1 } else { usize::from(count) };
        if sums.len() != wanted || !more.is_empty() {
            return RunFields::fail(format!("{} bytes are no {wanted} checksums", rest.len()));
        }
        let sums = sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect();
        let (block, birth) = (BlockNo(head.block), Epoch(head.birth));
        Ok(RunPart { block, place, codec, stored, decoded, skip, count, birth, sums })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Extent;

    /// 128 KiB that have become 41,003 bytes, the fourth block on of them.
    fn part() -> RunPart {
        RunPart {
            block: BlockNo(4096),
            place: 7,
            codec: ZSTD,
            stored: 41_003,
            decoded: 32,
            skip: 3,
            count: 29,
            birth: Epoch(9),
            sums: vec![5],
        }
    }

    /// A file of 1,700 bytes in a block with others.
    fn packed() -> RunPart {
        RunPart { codec: RAW, stored: 1700, decoded: 1, skip: 0, count: 1, place: 3, ..part() }
    }

    #[test]
    fn parts_come_back_and_are_no_extents_to_others() {
        for part in [part(), packed(), RunPart { place: 0, ..packed() }] {
            assert_eq!(RunPart::decode(&part.encode()), Ok(part.clone()));
            assert!(Extent::decode(&part.encode()).is_err(), "a program without runs");
        }
        assert_eq!(part().blocks(), BlockRange::new(BlockNo(4096), 11));
        assert_eq!(packed().blocks().count, 1);
        assert_eq!(part().encode().len(), 40, "a compressed run of 128 KiB");
    }

    #[test]
    fn parts_that_cannot_be_are_refused() {
        let raw =
            RunPart { stored: 9000, decoded: 3, count: 2, skip: 1, sums: vec![1, 2], ..packed() };
        assert!(RunPart::decode(&raw.encode()).is_ok());
        let wrong = [
            RunPart { place: 8, ..part() },
            RunPart { codec: 2, ..part() },
            RunPart { count: 0, ..part() },
            RunPart { count: 30, ..part() },
            RunPart { skip: 32, count: 1, ..part() },
            RunPart { stored: 0, ..part() },
            RunPart { stored: 0, ..packed() },
            RunPart { stored: 33 * 4096, ..part() },
            RunPart { stored: 4096, place: 0, ..packed() },
            RunPart { decoded: 2, ..packed() },
            RunPart { decoded: 4, ..raw.clone() },
            RunPart { sums: vec![1], ..raw },
            RunPart { sums: vec![1, 2], ..part() },
            RunPart { block: BlockNo(1 << 56), ..part() },
            RunPart { birth: Epoch(COUNTER_MAX + 1), ..part() },
        ];
        for part in wrong {
            assert!(RunPart::decode(&part.encode()).is_err(), "{part:?}");
        }
    }
}
