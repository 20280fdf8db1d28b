//! Checksums after edits: each structure's own, and those by which others name it.
//!
//! Frames and batches carry the sum of the one before them, superblocks and
//! commits that of a frame or batch. When a sum changes, every structure that
//! names it follows, and so on, until none does. Nothing else of a structure is put right.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::journal::{CommitHead, FrameHeader};
use holdfast_format::log::LogHeader;

use super::{Image, Sort, Structure};

/// Where the sum of a [`Sort`] stands.
pub const SUM_AT: [usize; 4] = [16, 8, 8, 8];

fn number(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
    eight.map_or(0, |eight| u64::from_le_bytes(*eight))
}

/// The bytes that are summed: a header may lie about them.
fn summed(sort: Sort, bytes: &[u8]) -> Range<usize> {
    let len_at = |at: usize| number(bytes, at) as u32 as usize;
    let len = match sort {
        Sort::Superblock | Sort::Node => bytes.len(),
        Sort::Frame => FrameHeader::SIZE.saturating_add(len_at(72)),
        Sort::Batch => LogHeader::SIZE.saturating_add(len_at(88)),
    };
    0..len.min(bytes.len())
}

/// Where a structure names sums of others.
fn names(structure: Sort) -> &'static [usize] {
    match structure {
        Sort::Superblock => &[272, 296],
        Sort::Node => &[],
        // The second is the head's `log_sum`, if it is the first frame of a commit.
        Sort::Frame => &[56, FrameHeader::SIZE + CommitHead::SIZE - 8],
        Sort::Batch => &[48],
    }
}

/// Writes the sum of `bytes` into them; returns it.
fn seal(sort: Sort, bytes: &mut [u8]) -> u64 {
    let at = SUM_AT[sort as usize];
    let sum = crc64_with_hole(&bytes[summed(sort, bytes)], at);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Those that are named come before those that name them.
fn order(structure: &Structure) -> (u8, u64, u64) {
    let number = |at| number(&structure.bytes, at);
    match structure.sort {
        Sort::Batch => (0, number(32), 0),
        Sort::Frame => (1, number(40), number(64) & u64::from(u32::MAX)),
        Sort::Node => (2, 0, 0),
        Sort::Superblock => (3, 0, 0),
    }
}

/// Repairs the sums of the structures in `touched`, by index, and adds those that name them. A name that
/// was edited stays as it is.
pub fn repair(image: &Image, touched: &mut BTreeMap<usize, Vec<u8>>) {
    let mut indices: Vec<usize> = (0..image.structures.len()).collect();
    indices.sort_by_key(|index| order(&image.structures[*index]));
    // The sums that were, and what they are now.
    let mut changed: BTreeMap<u64, u64> = BTreeMap::new();
    for index in indices {
        let Structure { sort, bytes: golden, .. } = &image.structures[index];
        for &at in names(*sort) {
            let old = number(golden, at);
            let Some(new) = changed.get(&old).filter(|_| old != 0) else { continue };
            let bytes = touched.entry(index).or_insert_with(|| golden.clone());
            if number(bytes, at) == old {
                bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
            }
        }
        if let Some(bytes) = touched.get_mut(&index) {
            let old = number(golden, SUM_AT[*sort as usize]);
            changed.insert(old, seal(*sort, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{COUNT, golden};

    #[test]
    fn a_repaired_chain_is_whole() {
        for image in (0..COUNT).map(golden) {
            let before = holdfast_check::view(&image.snapshot()).expect("it is honest");
            for index in 0..image.structures.len() {
                let Structure { sort, at, bytes } = &image.structures[index];
                // Touched, and so sealed: the same bytes as before.
                let mut touched = BTreeMap::from([(index, bytes.clone())]);
                repair(image, &mut touched);
                assert_eq!(touched[&index], *bytes, "{sort:?} at {at}");
                // A time that is never checked, or the label: all others follow.
                let mut edited = bytes.clone();
                match sort {
                    Sort::Superblock => edited[88] ^= 1,
                    Sort::Batch | Sort::Frame => continue,
                    Sort::Node => continue,
                }
                let mut touched = BTreeMap::from([(index, edited)]);
                repair(image, &mut touched);
                let device = image.snapshot();
                for (index, bytes) in touched {
                    let at = image.structures[index].at;
                    holdfast_device::Device::write(&device, at, &bytes).expect("it lies there");
                }
                assert_eq!(holdfast_check::view(&device).expect("it is whole"), before);
            }
        }
    }
}
