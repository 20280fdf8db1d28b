//! All checksums: CRC-64/NVME for every block of data and every structure.
//!
//! [`block_sum`] is that of a block of data, for the engine, fsck and a recovery alike. The superblock names its kind
//! (`sums`), so that another one can come beside it.
//!
//! Structures carry their own address and epoch inside the summed bytes, so
//! the sum binds them to both.

use crc_fast::CrcAlgorithm;
use holdfast_base::BLOCK_SIZE;

/// The CRC-64/NVME of `bytes`.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The checksum of a block of data.
pub fn block_sum(block: &[u8]) -> u64 {
    crc64(block)
}

/// The checksums of the blocks of data that `bytes` are; what fills no block has none.
pub fn block_sums(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(BLOCK_SIZE).map(block_sum)
}

/// The CRC-64/NVME of `bytes` with the eight bytes at `hole` taken as zero: the field that holds the sum itself.
pub fn crc64_with_hole(bytes: &[u8], hole: usize) -> u64 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
    let end = bytes.len().min(hole + 8);
    digest.update(&bytes[..hole.min(bytes.len())]);
    digest.update(&[0; 8]);
    digest.update(&bytes[end..]);
    digest.finalize()
}

/// What the lowest byte of a sum makes of the others when it leaves.
const STEP: [u64; 256] = {
    let mut step = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u64, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x9a6c_9329_ac4b_c9b5 } else { value >> 1 };
            bit += 1;
        }
        step[byte] = value;
        byte += 1;
    }
    step
};

/// The byte that left, by the highest one behind it.
const LEFT: [u8; 256] = {
    let mut left = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        left[(STEP[byte] >> 56) as usize] = byte as u8;
        byte += 1;
    }
    left
};

/// Which of `len` bytes has changed, if that one alone makes their sum differ by these bits.
pub fn crc64_by_one_byte(bits: u64, len: usize) -> Option<usize> {
    let mut bits = bits;
    if bits == 0 {
        return None;
    }
    for at in (0..len).rev() {
        let byte = LEFT[(bits >> 56) as usize];
        let step = STEP[usize::from(byte)];
        if step == bits {
            return Some(at);
        }
        bits = (bits ^ step) << 8 | u64::from(byte);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_changed_is_found() {
        let bytes: Vec<u8> = (0..5000u32).map(|at| ((at * at) >> 3) as u8).collect();
        let sum = crc64(&bytes);
        for at in (0..5000).step_by(7) {
            for bits in [1, 0x80, 0xff, 0x5a] {
                let mut changed = bytes.clone();
                changed[at] ^= bits;
                assert_eq!(crc64_by_one_byte(crc64(&changed) ^ sum, 5000), Some(at));
                changed[(at + 900) % 5000] ^= 1;
                assert_eq!(crc64_by_one_byte(crc64(&changed) ^ sum, 5000), None);
            }
        }
        assert_eq!(crc64_by_one_byte(0, 5000), None);
    }

    #[test]
    fn the_check_value_of_the_published_polynomial() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn the_field_of_the_sum_counts_as_zero() {
        let mut bytes = vec![7u8; 64];
        let sum = crc64_with_hole(&bytes, 8);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(crc64_with_hole(&bytes, 8), sum);
        bytes[20] ^= 1;
        assert_ne!(crc64_with_hole(&bytes, 8), sum);
    }
}
