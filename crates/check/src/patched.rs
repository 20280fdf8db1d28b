//! Data that lies inside batches: blocks whose location on the device may still hold anything.
//!
//! Each is a change of another block, which may be such a change itself. Nothing
//! is put together before it is asked for, and chains are cut short, so that many
//! small changes cost what they are long and not a block each (P10).

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange};
use holdfast_device::{Device, DeviceError};
use holdfast_format::log::Patch;

/// Changes one over the other before they are joined.
const DEPTH_MAX: u32 = 32;

/// What a change is made over.
#[derive(Clone, Debug)]
enum Base {
    Zeros,
    Device(BlockNo),
    Changed(Arc<Changed>),
}

/// A block as a change of another one.
#[derive(Debug)]
struct Changed {
    base: Base,
    /// Where bytes begin, and the bytes; in the order in which they are put in place.
    pieces: Vec<(usize, Box<[u8]>)>,
    /// Changes one over the other, this one included.
    depth: u32,
}

impl Changed {
    fn put(&self, block: &mut [u8]) {
        for (at, bytes) in &self.pieces {
            block[*at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// This change and all below it, the lowest first, and what lies under that.
    fn layers(&self) -> (Vec<&Changed>, Option<BlockNo>) {
        let mut layers = vec![self];
        let mut base = &self.base;
        while let Base::Changed(below) = base {
            layers.push(below);
            base = &below.base;
        }
        layers.reverse();
        (layers, if let Base::Device(block) = base { Some(*block) } else { None })
    }

    /// The same change as one, over what lies under the lowest.
    fn joined(&self) -> Changed {
        let (layers, base) = self.layers();
        let (mut bytes, mut is_set) = ([0; BLOCK_SIZE], [false; BLOCK_SIZE]);
        for layer in layers {
            layer.put(&mut bytes);
            for (at, piece) in &layer.pieces {
                is_set[*at..at + piece.len()].fill(true);
            }
        }
        let mut pieces = Vec::new();
        let mut at = 0;
        for run in is_set.chunk_by(|a, b| a == b) {
            if run[0] {
                pieces.push((at, bytes[at..at + run.len()].into()));
            }
            at += run.len();
        }
        Changed { base: base.map_or(Base::Zeros, Base::Device), pieces, depth: 1 }
    }
}

/// Blocks whose data lies in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patched(BTreeMap<BlockNo, Arc<Changed>>);

impl Patched {
    /// Gives `block` the data that `patch` makes. `before` are blocks of earlier batches.
    pub(crate) fn add(&mut self, block: BlockNo, patch: &Patch<'_>, before: &Patched) {
        let below = |base| self.0.get(&base).or_else(|| before.0.get(&base));
        let base = match patch.base {
            None => Base::Zeros,
            Some(base) => below(base).cloned().map_or(Base::Device(base), Base::Changed),
        };
        let depth = 1 + if let Base::Changed(below) = &base { below.depth } else { 0 };
        let pieces = vec![(usize::from(patch.at), patch.bytes.into())];
        let mut changed = Changed { base, pieces, depth };
        if depth >= DEPTH_MAX {
            changed = changed.joined();
        }
        self.0.insert(block, Arc::new(changed));
    }

    /// Adds the blocks of a later batch.
    pub(crate) fn absorb(&mut self, mut later: Patched) {
        self.0.append(&mut later.0);
    }

    /// Those of these blocks that are meant.
    pub(crate) fn only(mut self, is_meant: impl Fn(BlockNo) -> bool) -> Patched {
        self.0.retain(|block, _| is_meant(*block));
        self
    }

    /// Forgets blocks that were freed.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        let range = BlockNo(start)..BlockNo(end);
        let gone: Vec<BlockNo> = self.0.range(range).map(|(block, _)| *block).collect();
        gone.iter().for_each(|block| drop(self.0.remove(block)));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether any block of `blocks` is among them.
    pub(crate) fn touches(&self, blocks: BlockRange) -> bool {
        let end = BlockNo(blocks.start.0.saturating_add(blocks.count));
        self.0.range(blocks.start..end).next().is_some()
    }

    /// Fills `into` with the data of `block`, if it is one of these.
    pub(crate) fn read(
        &self,
        device: &dyn Device,
        block: BlockNo,
        into: &mut [u8],
    ) -> Option<Result<(), DeviceError>> {
        let (layers, base) = self.0.get(&block)?.layers();
        match base {
            None => into.fill(0),
            Some(base) => {
                let at = base.byte_offset().unwrap_or(u64::MAX);
                if let Err(error) = device.read(at, into) {
                    return Some(Err(error));
                }
            }
        }
        layers.iter().for_each(|layer| layer.put(into));
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::prng::Prng;
    use holdfast_device::MemoryDevice;

    /// Chains of any length, over the device, over zeros and over each other.
    #[test]
    fn changes_over_changes_agree_with_plain_copies() {
        for seed in 0..20 {
            let mut prng = Prng::seeded(seed);
            let device = MemoryDevice::new(16 * BLOCK_SIZE as u64);
            let mut plain: Vec<Vec<u8>> = (0..16u8).map(|index| vec![index; BLOCK_SIZE]).collect();
            for (index, block) in plain.iter().enumerate() {
                device.write((index * BLOCK_SIZE) as u64, block).expect("memory takes it");
            }
            let (mut patched, mut batch) = (Patched::default(), Patched::default());
            for index in 16..400u64 {
                // Mostly the last one, so that chains grow long.
                let from = index - 1 - if prng.one_in(20) { prng.below(index - 1) } else { 0 };
                let base = (!prng.one_in(50)).then_some(BlockNo(from));
                let at = prng.below(BLOCK_SIZE as u64) as usize;
                let mut bytes = vec![0; prng.below(60).min((BLOCK_SIZE - at) as u64) as usize];
                prng.fill(&mut bytes);
                let mut block =
                    base.map_or(vec![0; BLOCK_SIZE], |base| plain[base.0 as usize].clone());
                block[at..at + bytes.len()].copy_from_slice(&bytes);
                plain.push(block);
                batch.add(BlockNo(index), &Patch { base, at: at as u16, bytes: &bytes }, &patched);
                if prng.one_in(4) {
                    patched.absorb(std::mem::take(&mut batch));
                }
            }
            patched.absorb(batch);
            assert_eq!(patched.len(), 384);
            for (index, expected) in plain.iter().enumerate().skip(16) {
                let mut found = vec![1; BLOCK_SIZE];
                let read = patched.read(&device, BlockNo(index as u64), &mut found);
                assert!(matches!(read, Some(Ok(()))) && found == *expected, "seed {seed} {index}");
            }
            assert!(patched.0.values().all(|changed| changed.depth < DEPTH_MAX));
            assert!(patched.read(&device, BlockNo(15), &mut [0; BLOCK_SIZE]).is_none());
            patched.forget(20, 500);
            assert_eq!(patched.len(), 4);
        }
    }
}
