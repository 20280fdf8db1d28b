//! Frames: the pieces in which a commit lies in the ring.

use holdfast_base::BlockNo;
use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::limits::COUNTER_MAX;
use crate::rot::Was;

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"hfJf";
/// Largest frame, in bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// A frame of a commit.
pub const KIND_COMMIT: u32 = 1;
/// The last frame: the volume was closed, no commit follows.
pub const KIND_END: u32 = 2;
record! {
    /// The head of a frame.
    pub struct FrameHeader("journal frame", 96 bytes) {
        /// `hfJf`.
        magic: [u8; 4],
        /// 1: part of a commit. 2: the end.
        kind: u32,
        /// Of header and payload.
        sum: u64,
        /// First block of the frame.
        address: u64,
        /// The superblock's `ring_tag`.
        volume: [u8; 8],
        /// Epoch of the commit.
        epoch: u64,
        /// Number of the commit.
        commit: u64,
        /// Last durable commit when written.
        durable: u64,
        /// `sum` of the frame before.
        prior: u64,
        /// Place in its commit, from 0.
        index: u32,
        /// Frames of the commit.
        frames: u32,
        /// Bytes of payload.
        len: u32,
        /// Zero.
        pad: u32,
        /// Zero.
        reserved: [u8; 16],
    }
}

const SUM_AT: usize = 8;

impl FrameHeader {
    /// Blocks of the frame.
    pub fn blocks(&self) -> u64 {
        (FrameHeader::SIZE as u64 + u64::from(self.len)).div_ceil(BLOCK_BYTES)
    }

    /// Whether the frame lies behind a mark of this sum: it follows what is before the mark, or says by the complement that nothing does or
    /// that a commit was left out.
    pub fn is_behind(&self, sum: u64) -> bool {
        self.index == 0 && (self.prior == sum || self.prior == !sum)
    }

    /// Reads the header from the first block of a frame. Judges what stands in it alone.
    pub fn decode(block: &[u8]) -> Result<FrameHeader, Malformed> {
        // First: a search for frames asks this of each block of the ring.
        if !block.starts_with(&MAGIC) {
            return FrameHeader::fail("the magic is missing");
        }
        let header = FrameHeader::read(&mut Reader::new(FrameHeader::TITLE, block))?;
        if header.len as usize > FRAME_BYTES_MAX - FrameHeader::SIZE {
            return FrameHeader::fail(format!("{} bytes are too many", header.len));
        }
        let counts = [header.epoch, header.commit, header.durable];
        if counts.iter().any(|count| *count > COUNTER_MAX) || header.durable >= header.commit {
            return FrameHeader::fail("its counters are out of range");
        }
        let lonely = header.index == 0 && header.frames == 1 && header.len == 0;
        match header.kind {
            KIND_COMMIT if header.index < header.frames && header.len > 0 => {}
            KIND_END if lonely => {}
            kind => {
                return FrameHeader::fail(format!(
                    "kind {kind}, frame {} of {}, {} bytes cannot be",
                    header.index, header.frames, header.len
                ));
            }
        }
        if header.pad != 0 || header.reserved != [0; 16] {
            return FrameHeader::fail("reserved bytes are set");
        }
        Ok(header)
    }

    /// Judges a whole frame that was read at `at`, and returns its payload.
    pub fn open<'a>(
        &self,
        frame: &'a [u8],
        at: BlockNo,
        volume: &[u8; 8],
    ) -> Result<&'a [u8], Malformed> {
        let was = FrameHeader::was(at, *volume, self.sum);
        was.open(FrameHeader::TITLE, frame, (self.address, self.volume, self.len))
    }

    /// What the frame at block `at` must have been that had this sum.
    pub fn was(at: BlockNo, volume: [u8; 8], sum: u64) -> Was {
        let (magic, address) = (MAGIC, at.0);
        Was { magic, sum, address, volume, header: FrameHeader::SIZE, len_at: 72 }
    }

    /// Appends the frame with its payload to `out`, up to the end of a block; returns its sum.
    /// `sum` and `len` of the header are filled in.
    pub fn encode(mut self, payload: &[u8], out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        self.len = payload.len() as u32;
        self.sum = 0;
        self.write(out);
        out.extend_from_slice(payload);
        let sum = crc64_with_hole(&out[start..], SUM_AT);
        out[start + SUM_AT..start + SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        out.resize(start + (out.len() - start).next_multiple_of(BLOCK_SIZE), 0);
        sum
    }
}
