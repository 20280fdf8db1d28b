//! A frame or a batch of which one byte has rotted: what it was is known from its sum, which stands elsewhere too.

use crate::Malformed;
use crate::checksum::{crc64_by_one_byte, crc64_with_hole};
use holdfast_base::BLOCK_SIZE;

/// Where its sum stands, in frames as in batches.
const SUM_AT: usize = 8;

/// So many places before a mark are looked at that may be what the mark names. An honest ring has one; a hostile one would have all
/// read again for each of its sectors.
pub const LOOKS: usize = 4;

/// What a frame or a batch must have been.
#[derive(Clone, Copy, Debug)]
pub struct Was {
    pub(crate) magic: [u8; 4],
    pub(crate) sum: u64,
    pub(crate) address: u64,
    pub(crate) volume: [u8; 8],
    /// Bytes of its header.
    pub(crate) header: usize,
    /// Where that has the bytes of what follows.
    pub(crate) len_at: usize,
}

impl Was {
    /// Judges all of what was read at its place and begins with a header of this address, volume and length of what follows. Returns what
    /// follows.
    pub(crate) fn open<'a>(
        &self,
        what: &'static str,
        bytes: &'a [u8],
        (address, volume, len): (u64, [u8; 8], u32),
    ) -> Result<&'a [u8], Malformed> {
        let fail = |why: &str| Err(Malformed::new(what, why));
        let Some(bytes) = bytes.get(..self.header + len as usize) else {
            return fail("it is cut short");
        };
        if crc64_with_hole(bytes, SUM_AT) != self.sum {
            return fail("its checksum does not match");
        }
        if address != self.address {
            return fail("it belongs elsewhere");
        }
        if volume != self.volume {
            return fail("it belongs to another volume");
        }
        Ok(&bytes[self.header..])
    }

    /// Whether it may begin with `head` and take `len` bytes, padding included: whole, or but for one byte.
    pub fn may_be(&self, head: &[u8], len: u64) -> bool {
        let fields: [(usize, &[u8]); 3] =
            [(0, &self.magic), (16, &self.address.to_le_bytes()), (24, &self.volume)];
        let is_right = |(at, is): &&(usize, &[u8])| head.get(*at..at + is.len()) == Some(*is);
        let right = fields.iter().filter(is_right).count();
        match (self.has_sum(head), self.told(head)) {
            (true, Some(_)) => right >= 2,
            (false, Some(told)) => right == 3 && self.end(told, len).is_some(),
            (_, None) => false,
        }
    }

    /// Whether `held`, all of its bytes, padding included, is it but for one byte. By chance one in 10^10 of those that it may be.
    pub fn is_but_for_one_byte(&self, held: &[u8]) -> bool {
        let (len, has_sum) = (held.len() as u64, self.has_sum(held));
        let Some(told) = self.told(held).filter(|_| self.may_be(held, len)) else { return false };
        if let Some(end) = self.end(told, len) {
            let wrong = crc64_with_hole(&held[..end], SUM_AT) ^ self.sum;
            // No sum covers itself.
            if wrong == 0 || has_sum && crc64_by_one_byte(wrong, end).is_some() {
                return true;
            }
        }
        has_sum && self.is_but_for_its_length(held, told)
    }

    /// Whether a byte of the length alone has changed.
    fn is_but_for_its_length(&self, held: &[u8], told: u32) -> bool {
        let mut was = held.to_vec();
        let others = (0..4).flat_map(|byte| (1..=255).map(move |bits| told ^ (bits << (8 * byte))));
        others.filter_map(|len| Some((len, self.end(len, held.len() as u64)?))).any(|(len, end)| {
            was[self.len_at..self.len_at + 4].copy_from_slice(&len.to_le_bytes());
            crc64_with_hole(&was[..end], SUM_AT) == self.sum
        })
    }

    fn has_sum(&self, head: &[u8]) -> bool {
        head.get(SUM_AT..SUM_AT + 8) == Some(&self.sum.to_le_bytes())
    }

    /// The bytes behind the header, as that says; or nothing, if it is cut short.
    fn told(&self, head: &[u8]) -> Option<u32> {
        let len = head.get(..self.header)?.get(self.len_at..self.len_at + 4)?;
        Some(u32::from_le_bytes(len.try_into().ok()?))
    }

    /// Where it ends with so many bytes behind its header, if it takes `len` bytes with its padding.
    fn end(&self, told: u32, len: u64) -> Option<usize> {
        let end = self.header as u64 + u64::from(told);
        (end <= len && len - end < BLOCK_SIZE as u64).then_some(end as usize)
    }
}
