//! Consecutive blocks of a file, with one checksum for each.

use holdfast_base::{BlockNo, BlockRange, Epoch};

use crate::Malformed;
use crate::codec::{Fixed, Reader};
use crate::limits::{COUNTER_MAX, EXTENT_BLOCKS_MAX, value_max};
use crate::node::check_device;

record! {
    /// The head of an extent. What the state says follows.
    pub struct ExtentHead("extent", 24 bytes) {
        /// First block.
        block: u64,
        /// Epoch in which it joined the tree.
        birth: u64,
        /// Blocks, at least 1.
        count: u32,
        /// 0: written. 1: reserved, reads as zeros. 2: a part of a run.
        state: u8,
        /// Coding of a run, else 0.
        codec: u8,
        /// Start of a run in its first block, in units of 512 bytes; else 0.
        place: u8,
        /// Zero.
        reserved: u8,
    }
}

/// Most blocks in one extent item: its checksums fill at most the longest value.
pub const fn extent_blocks_max(node_size: usize) -> u64 {
    let fit = ((value_max(node_size) - ExtentHead::SIZE) / 8) as u64;
    if fit < EXTENT_BLOCKS_MAX { fit } else { EXTENT_BLOCKS_MAX }
}

/// Consecutive blocks of a file on consecutive blocks of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they are.
    pub blocks: BlockRange,
    /// One checksum for each block; empty when the blocks were allocated but never written.
    pub sums: Vec<u64>,
    /// Epoch in which it became part of the tree; [`Extent::UNBORN`] before.
    pub birth: Epoch,
}

/// Where the birth stands in an extent.
const BIRTH_AT: usize = 8;
/// Where the number of blocks stands.
const COUNT_AT: usize = 16;

impl Extent {
    /// The birth of an extent that is not part of a tree yet.
    pub const UNBORN: Epoch = Epoch(0);

    /// An extent that is not part of a tree yet.
    pub fn new(blocks: BlockRange, sums: Vec<u64>) -> Extent {
        Extent { blocks, sums, birth: Extent::UNBORN }
    }

    /// Gives an encoded extent its birth, if it has none: it becomes part of a tree in `epoch`.
    pub fn be_born(bytes: &mut [u8], epoch: Epoch) {
        if let Some(birth) = bytes.get_mut(BIRTH_AT..BIRTH_AT + 8)
            && *birth == [0; 8]
        {
            birth.copy_from_slice(&epoch.0.to_le_bytes());
        }
    }

    /// How many blocks of the device an encoded extent has; 0 of bytes that are none. It is not judged.
    pub fn blocks_in(bytes: &[u8]) -> u64 {
        let count = bytes.get(COUNT_AT..).and_then(<[u8]>::first_chunk);
        count.map_or(0, |count| u32::from_le_bytes(*count).into())
    }

    /// Whether the blocks hold data. Otherwise they read as zeros.
    pub fn is_written(&self) -> bool {
        !self.sums.is_empty()
    }

    /// Makes an encoded extent no younger than `epoch`, the first that follows what a recovery has found: the epoch in which
    /// it was logged may have ended without a trace. It becomes part of a tree then.
    pub fn be_born_by(bytes: &mut [u8], epoch: Epoch) {
        if let Some(birth) = bytes.get_mut(BIRTH_AT..BIRTH_AT + 8)
            && !(1..=epoch.0)
                .contains(&u64::from_le_bytes((&*birth).try_into().unwrap_or_default()))
        {
            birth.copy_from_slice(&epoch.0.to_le_bytes());
        }
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Appends the bytes on disk.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(ExtentHead::SIZE + 8 * self.sums.len());
        let head = ExtentHead {
            block: self.blocks.start.0,
            birth: self.birth.0,
            count: self.blocks.count as u32,
            state: u8::from(!self.is_written()),
            codec: 0,
            place: 0,
            reserved: 0,
        };
        head.write(out);
        for sum in &self.sums {
            sum.write(out);
        }
    }

    /// Reads and judges an extent of a volume without runs ([`crate::item::run`]). Whether its blocks lie inside the volume is the
    /// caller's to check.
    pub fn decode(bytes: &[u8]) -> Result<Extent, Malformed> {
        let mut reader = Reader::new(ExtentHead::TITLE, bytes);
        let head = ExtentHead::read(&mut reader)?;
        let rest = reader.rest();
        let blocks = BlockRange::new(BlockNo(head.block), head.count.into());
        if blocks.is_empty() || blocks.end().is_none() {
            return ExtentHead::fail(format!("blocks {blocks:?} make no sense"));
        }
        check_device(blocks.start).or_else(ExtentHead::fail)?;
        if [head.codec, head.place, head.reserved] != [0; 3] {
            return ExtentHead::fail("it has a codec, a place or reserved bytes");
        }
        if head.birth > COUNTER_MAX {
            return ExtentHead::fail(format!("it cannot be born in epoch {}", head.birth));
        }
        let sums = match head.state {
            0 if rest.len() as u64 == blocks.count * 8 => {
                rest.as_chunks::<8>().0.iter().map(|sum| u64::from_le_bytes(*sum)).collect()
            }
            1 if rest.is_empty() => Vec::new(),
            state => {
                return ExtentHead::fail(format!(
                    "state {state} with {} bytes of checksums for {} blocks",
                    rest.len(),
                    blocks.count
                ));
            }
        };
        Ok(Extent { blocks, sums, birth: Epoch(head.birth) })
    }
}
