//! Content that is short to write down, and a digest of content that ignores holes.
//!
//! A pattern is named by a length and a small seed, so that megabytes of
//! distinguishable data stay a few characters of script. Every eight bytes of a
//! pattern differ from all others of it, so shifted or repeated data is seen.

use xxhash_rust::xxh3::xxh3_64;

use crate::errno::Errno;
use crate::prng::{STEP, scramble};
use crate::words::{Quoted, Size};

/// Bytes of a block: the unit of holes and digests.
pub const BLOCK: u64 = 4096;

/// What is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// `len` bytes derived from `seed`; seed 0 means zeros.
    Pattern {
        /// Bytes.
        len: u64,
        /// Which pattern.
        seed: u32,
    },
    /// These bytes.
    Literal(Vec<u8>),
}

impl Data {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Data::Pattern { len, .. } => *len,
            Data::Literal(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Data::Literal(bytes) => bytes.clone(),
            Data::Pattern { len, seed: 0 } => vec![0; *len as usize],
            Data::Pattern { len, seed } => {
                let start = scramble(u64::from(*seed));
                (0..len.div_ceil(8))
                    .flat_map(|word| {
                        scramble(start.wrapping_add(word.wrapping_mul(STEP))).to_le_bytes()
                    })
                    .take(*len as usize)
                    .collect()
            }
        }
    }
}

impl std::fmt::Display for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Data::Pattern { len, seed } => write!(f, "{} {seed}", Size(*len)),
            Data::Literal(bytes) => write!(f, "{}", Quoted(bytes)),
        }
    }
}

/// A digest of a file's content. Blocks of zeros do not count, so a hole and written zeros
/// agree; the size must be compared beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest(pub u64);

impl Digest {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.add(0, bytes);
        digest
    }

    /// Adds the content at `offset`, a multiple of the block size. Blocks are given in rising order.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        for (index, block) in bytes.chunks(BLOCK as usize).enumerate() {
            if let Some(sum) = of_block(block) {
                let number = offset / BLOCK + index as u64;
                self.0 = scramble(self.0.wrapping_add(STEP) ^ number).wrapping_add(sum);
            }
        }
    }

    /// The digest of a file of `size` bytes. Up to 16 MiB every byte is read; beyond, only what
    /// `next_data` (SEEK_DATA) names, so that sparse files of many TiB take no time.
    pub fn of_file(
        size: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Errno>,
        mut next_data: impl FnMut(u64) -> Result<Option<u64>, Errno>,
    ) -> Result<Digest, Errno> {
        const CHUNK: usize = 1 << 18;
        let mut digest = Digest::default();
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(CHUNK).min(CHUNK)];
        let mut at = 0;
        while at < size {
            if size > 16 << 20 {
                match next_data(at)? {
                    Some(data) => at = data.max(at) / BLOCK * BLOCK,
                    None => break,
                }
            }
            let want = usize::try_from(size - at).unwrap_or(CHUNK).min(CHUNK);
            let mut have = 0;
            while have < want {
                let count = read(at + have as u64, &mut buffer[have..want])?;
                if count == 0 {
                    return Err(Errno::EIO); // The size promised more.
                }
                have += count;
            }
            digest.add(at, &buffer[..want]);
            at += want as u64;
        }
        Ok(digest)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A digest of one block, as if zeros filled it up: a short last block equals a padded one. None if there are only zeros.
/// Half of the time of a search for crash states goes by here, so the hash is one that reads a block in a quarter of a
/// microsecond.
fn of_block(block: &[u8]) -> Option<u64> {
    const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    if block == &ZEROS[..block.len()] {
        return None;
    }
    if block.len() == ZEROS.len() {
        return Some(xxh3_64(block));
    }
    let mut padded = ZEROS;
    padded[..block.len()].copy_from_slice(block);
    Some(xxh3_64(&padded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(content: &[u8]) -> Digest {
        let mut digest = Digest::default();
        digest.add(0, content);
        digest
    }

    #[test]
    fn patterns_differ_and_zero_is_zeros() {
        let pattern = |seed| Data::Pattern { len: 4099, seed }.bytes();
        assert_eq!(pattern(1).len(), 4099);
        assert_ne!(pattern(1), pattern(2));
        assert!(pattern(0).iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_digest_sees_content_and_place_but_not_holes() {
        let block = Data::Pattern { len: 4096, seed: 1 }.bytes();
        let zeros = vec![0; 4096];
        assert_ne!(digest(&[&block[..], &zeros].concat()), digest(&[&zeros[..], &block].concat()));
        assert_eq!(digest(&[&block[..], &zeros].concat()), digest(&block));
        let mut other = block.clone();
        other[4095] ^= 1;
        assert_ne!(digest(&other), digest(&block));
    }

    #[test]
    fn a_file_of_terabytes_is_digested_by_its_data() {
        let block = Data::Pattern { len: 4096, seed: 1 }.bytes();
        let at = 8u64 << 40;
        let found = Digest::of_file(
            at + 4096,
            |offset, into| {
                into.fill(0);
                let into_block = (offset.max(at) - at) as usize;
                let count = into.len().min(4096 - into_block);
                into[..count].copy_from_slice(&block[into_block..][..count]);
                Ok(into.len())
            },
            |offset| Ok((offset < at + 4096).then_some(at)),
        );
        let mut direct = Digest::default();
        direct.add(at, &block);
        assert_eq!(found, Ok(direct));
    }
}
