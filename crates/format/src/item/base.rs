//! Blocks of base images: of an extent whose data another image has, which is only read.
//!
//! Here is the form alone: base images are an incompat feature ([`crate::superblock::BASES`]), and no program has them yet. To all that this
//! crate decodes, such a block is of a device that is not there.

use holdfast_base::BlockNo;

use crate::node::DEVICE_SHIFT;

/// The number in place of a device's that base image 0 has; those behind it are of the others.
const FIRST: u64 = 128;

/// A block of a base image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseBlock {
    /// The number of the image, up to [`BaseBlock::IMAGE_MAX`].
    pub image: u8,
    /// The block there, below 2^56.
    pub block: u64,
}

impl BaseBlock {
    /// No image has a larger number.
    pub const IMAGE_MAX: u8 = 127;

    /// As the first block of an extent says it; `None`: it cannot.
    pub fn encode(self) -> Option<BlockNo> {
        let fits = self.image <= BaseBlock::IMAGE_MAX && self.block >> DEVICE_SHIFT == 0;
        fits.then(|| BlockNo((FIRST | u64::from(self.image)) << DEVICE_SHIFT | self.block))
    }

    /// What the first block of an extent says; `None`: it is of a device.
    pub fn of(block: BlockNo) -> Option<BaseBlock> {
        let image = (block.0 >> DEVICE_SHIFT).checked_sub(FIRST)?;
        let block = block.0 & ((1 << DEVICE_SHIFT) - 1);
        Some(BaseBlock { image: u8::try_from(image).ok()?, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePointer;
    use crate::item::{Extent, RunPart};
    use holdfast_base::{BlockRange, Epoch};

    #[test]
    fn blocks_of_base_images_come_back_and_are_no_blocks_to_others() {
        for image in [0, 1, 127] {
            let base = BaseBlock { image, block: 4096 };
            let block = base.encode().expect("there is such an image");
            assert_eq!(BaseBlock::of(block), Some(base));
            let extent = Extent::new(BlockRange::new(block, 1), vec![7]);
            assert!(Extent::decode(&extent.encode()).is_err());
            assert!(NodePointer::decode(&NodePointer { block, epoch: Epoch(1) }.encode()).is_err());
            let (codec, place, birth, sums) = (0, 1, Epoch(1), vec![7]);
            let (stored, decoded, skip, count) = (5, 1, 0, 1);
            let part = RunPart { block, place, codec, stored, decoded, skip, count, birth, sums };
            assert!(RunPart::decode(&part.encode()).is_err());
        }
        assert_eq!(BaseBlock { image: 128, block: 0 }.encode(), None);
        assert_eq!(BaseBlock { image: 0, block: 1 << 56 }.encode(), None);
        assert_eq!(BaseBlock::of(BlockNo((1 << 56) + 7)), None, "device 1");
    }
}
