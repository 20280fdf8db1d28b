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

#[cfg(test)]
mod tests {
    use super::*;

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
