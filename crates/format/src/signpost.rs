//! The signpost: which size the far copy of the superblock is to be looked for at, for a volume that has lost its first MiB on a device
//! that is longer than it is.
//!
//! It stands behind that MiB, at a place that no size moves and that no byte of a file reaches. Only a change of the size writes it: while
//! that is made it names both sizes. One that is not valid counts as none, and is written again by the next opening for writing.

use holdfast_base::{BLOCK_SIZE, BlockNo};

use crate::checksum::crc64_with_hole;
use crate::codec::Reader;
use crate::geometry::{SIGNPOST, far_copy};
use crate::{Malformed, Superblock};

/// First bytes of a signpost.
pub const MAGIC: [u8; 8] = *b"hfSigns\n";
const SUM_AT: usize = 8;

record! {
    /// The signpost's fields; the rest of its block is zero.
    pub struct SignpostFields("signpost", 48 bytes) {
        /// `hfSigns\n`.
        magic: [u8; 8],
        /// Of the block.
        sum: u64,
        /// 264.
        address: u64,
        /// The superblock's `node_tag`.
        volume: [u8; 8],
        /// Blocks of the volume.
        volume_blocks: u64,
        /// During a change of size that of the other; else the same.
        other_blocks: u64,
    }
}

/// A signpost, judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signpost {
    /// What nodes of the volume carry.
    pub node_tag: [u8; 8],
    /// Sizes of the volume, in blocks: one twice, or both while one becomes the other.
    pub sizes: [u64; 2],
}

impl Signpost {
    /// The one of a volume whose size is not being changed.
    pub fn of(superblock: &Superblock) -> Signpost {
        let blocks = superblock.geometry.volume_blocks;
        Signpost { node_tag: superblock.node_tag, sizes: [blocks; 2] }
    }

    /// Whether a superblock is of its volume, and has a size that it names.
    pub fn leads_to(&self, superblock: &Superblock) -> bool {
        let blocks = superblock.geometry.volume_blocks;
        self.node_tag == superblock.node_tag && self.sizes.contains(&blocks)
    }

    /// The block on disk.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        let [volume_blocks, other_blocks] = self.sizes;
        let fields = SignpostFields {
            magic: MAGIC,
            sum: 0,
            address: SIGNPOST.0,
            volume: self.node_tag,
            volume_blocks,
            other_blocks,
        };
        let mut block = Box::new([0; BLOCK_SIZE]);
        block[..SignpostFields::SIZE].copy_from_slice(&fields.bytes());
        let sum = crc64_with_hole(&block[..], SUM_AT);
        block[SUM_AT..SUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Reads and judges a block.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Result<Signpost, Malformed> {
        let mut reader = Reader::new(SignpostFields::TITLE, block);
        let fields = SignpostFields::read(&mut reader)?;
        if fields.magic != MAGIC {
            return SignpostFields::fail("the magic is missing");
        }
        if crc64_with_hole(block, SUM_AT) != fields.sum {
            return SignpostFields::fail("its checksum does not match");
        }
        if fields.address != SIGNPOST.0 || reader.rest().iter().any(|&byte| byte != 0) {
            return SignpostFields::fail("it is not at its place, or reserved bytes are set");
        }
        let sizes = [fields.volume_blocks, fields.other_blocks];
        Ok(Signpost { node_tag: fields.volume, sizes })
    }
}

/// Where the far copy of a volume is looked for, and what is taken for it.
///
/// No other place is looked at: a search of the device could take what a volume of before has left, or the content of a file.
#[derive(Debug)]
pub struct Search {
    /// What each slot says that is valid, the newest first.
    slots: Vec<Superblock>,
    /// What stands at its place, if that is of the volume.
    signpost: Option<Signpost>,
    device_blocks: u64,
}

impl Search {
    /// Of the slots that are valid, and the signpost if that is, on a device of so many blocks.
    pub fn new(
        mut slots: Vec<Superblock>,
        signpost: Option<Signpost>,
        device_blocks: u64,
    ) -> Search {
        slots.sort_by_key(|superblock| std::cmp::Reverse(superblock.epoch));
        let is_of_volume = |it: &Signpost| slots.iter().all(|slot| slot.node_tag == it.node_tag);
        let signpost = signpost.filter(is_of_volume);
        Search { slots, signpost, device_blocks }
    }

    /// Where the volume has it as slots and signpost say; where neither does, where one as large as the device has it.
    pub fn places(&self) -> Vec<BlockNo> {
        let of_slots = self.slots.iter().map(|slot| slot.geometry.volume_blocks);
        let of_signpost = self.signpost.iter().flat_map(|it| it.sizes);
        let mut sizes: Vec<u64> = of_slots.chain(of_signpost).collect();
        if sizes.is_empty() {
            sizes.push(self.device_blocks);
        }
        let mut places: Vec<BlockNo> = Vec::new();
        for place in sizes.into_iter().map(far_copy) {
            if place.0 < self.device_blocks && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Whether a superblock that was found at one of the places is the volume's. Of several the newest counts.
    pub fn takes(&self, found: &Superblock) -> bool {
        match self.slots.first() {
            Some(slot) => slot.tags() == found.tags(),
            None => self.signpost.is_none_or(|signpost| signpost.leads_to(found)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signpost_comes_back_and_any_changed_byte_is_seen() {
        let signpost = Signpost { node_tag: *b"of nodes", sizes: [4096, 8192] };
        let block = signpost.encode();
        assert_eq!(Signpost::decode(&block).unwrap(), signpost);
        for at in 0..BLOCK_SIZE {
            let mut other = block.clone();
            other[at] ^= 1;
            Signpost::decode(&other).expect_err("it was changed");
        }
    }

    #[test]
    fn a_signpost_excludes_every_other_place_and_none_leaves_the_end_of_the_device() {
        let signpost = Signpost { node_tag: *b"of nodes", sizes: [4096, 8192] };
        let places = |signpost| Search::new(Vec::new(), signpost, 10_000).places();
        assert_eq!(places(Some(signpost)), [far_copy(4096), far_copy(8192)]);
        assert_eq!(places(None), [far_copy(10_000)]);
        let beyond = Signpost { sizes: [20_000, u64::MAX], ..signpost };
        assert_eq!(places(Some(beyond)), []);
    }
}
