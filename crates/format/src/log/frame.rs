//! The header of a batch, and the batch around its records.

use crate::Malformed;
use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::limits::COUNTER_MAX;
use crate::rot::Was;

use super::{BATCH_BYTES_MAX, UNIT};

/// First bytes of a batch.
pub const MAGIC: [u8; 4] = *b"hfLb";

record! {
    /// The header of a batch.
    pub struct LogHeader("log batch", 112 bytes) {
        /// `hfLb`.
        magic: [u8; 4],
        /// Bytes, header and padding included: a multiple of 512.
        bytes: u32,
        /// Of header and records.
        sum: u64,
        /// Its first byte in the ring.
        address: u64,
        /// The superblock's `ring_tag`.
        volume: [u8; 8],
        /// Number of the batch.
        number: u64,
        /// Last durable batch when written.
        durable: u64,
        /// `sum` of the batch before.
        prior: u64,
        /// Last operation before it.
        after: u64,
        /// Last operation in it.
        last: u64,
        /// As in the superblock.
        inode_next: u64,
        /// As in the superblock.
        inode_count: u64,
        /// Bytes of the records.
        len: u32,
        /// Records.
        records: u32,
        /// Set aside: zero.
        flags: u32,
        /// Zero.
        reserved: [u8; 12],
    }
}

const SUM_AT: usize = 8;

impl LogHeader {
    /// Whether the batch lies behind a mark of this sum: it follows the batch before the mark, or confirms that one by the complement.
    pub fn is_behind(&self, sum: u64) -> bool {
        self.prior == sum || self.prior == !sum
    }

    /// Reads the header from the first bytes of a batch. Judges what stands in it alone.
    pub fn decode(bytes: &[u8]) -> Result<LogHeader, Malformed> {
        // First: a search for batches asks this of each sector of the ring.
        if !bytes.starts_with(&MAGIC) {
            return LogHeader::fail("the magic is missing");
        }
        let header = LogHeader::read(&mut Reader::new(LogHeader::TITLE, bytes))?;
        let (bytes, len) = (header.bytes as usize, header.len as usize);
        let is_whole = bytes.is_multiple_of(UNIT as usize) && bytes <= BATCH_BYTES_MAX;
        if !is_whole || len.saturating_add(LogHeader::SIZE) > bytes {
            return LogHeader::fail(format!("{} bytes with {} of records cannot be", bytes, len));
        }
        let counts = [
            header.number,
            header.durable,
            header.after,
            header.last,
            header.inode_next,
            header.inode_count,
        ];
        if counts.iter().any(|count| *count > COUNTER_MAX)
            || header.durable >= header.number
            || header.after >= header.last
        {
            return LogHeader::fail("its counters are out of range");
        }
        if header.flags != 0 || header.reserved != [0; 12] {
            return LogHeader::fail("unknown flags or reserved bytes are set");
        }
        Ok(header)
    }

    /// Judges a whole batch that was read at byte `at` of the ring, and returns its records.
    pub fn open<'a>(
        &self,
        batch: &'a [u8],
        at: u64,
        volume: &[u8; 8],
    ) -> Result<&'a [u8], Malformed> {
        let was = LogHeader::was(at, *volume, self.sum);
        was.open(LogHeader::TITLE, batch, (self.address, self.volume, self.len))
    }

    /// What the batch at byte `address` of the ring must have been that had this sum.
    pub fn was(address: u64, volume: [u8; 8], sum: u64) -> Was {
        Was { magic: MAGIC, sum, address, volume, header: LogHeader::SIZE, len_at: 88 }
    }

    /// Appends nothing but zeros in place of a header: records follow, then [`LogHeader::finish`].
    pub fn reserve(out: &mut Vec<u8>) {
        out.resize(out.len() + LogHeader::SIZE, 0);
    }

    /// Puts the header in front of the records in `out` from `start` on, and fills up to a whole
    /// `sector`. Returns its sum. `sum`, `bytes` and `len` of the header are filled in.
    pub fn finish(mut self, out: &mut Vec<u8>, start: usize, sector: usize) -> u64 {
        let len = out.len() - start;
        let bytes = len.next_multiple_of(sector);
        assert!(bytes <= BATCH_BYTES_MAX, "a batch of {bytes} bytes");
        self.len = (len - LogHeader::SIZE) as u32;
        self.bytes = bytes as u32;
        self.sum = 0;
        let end = out.len();
        self.write(out);
        debug_assert_eq!(out.len() - end, LogHeader::SIZE, "it replaces what was reserved for it");
        out.copy_within(end.., start);
        out.truncate(end);
        let sum = crc64_with_hole(&out[start..], SUM_AT);
        out[start + SUM_AT..start + SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        out.resize(start + bytes, 0);
        sum
    }
}
