//! Blocks with several references: as many as the volume counts, and no volume that does not count has any.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange};
use holdfast_check::Issue;
use holdfast_format::item::{Extent, GroupItem, SharedItem};
use holdfast_format::superblock::SHARED_BLOCKS;
use holdfast_format::{ItemKind, Key};

use crate::common::*;

/// What a volume counts: blocks from one that follows the first one of the file on, and their references.
type CountsOfVolume = &'static [(u64, u32, u32)];

/// The sample, in which block 1 and 2 of a file are cloned to block 12, and block 1 to block 20 as well.
fn cloned(is_written: bool, counts: bool, said: CountsOfVolume) -> Vec<Issue> {
    let mut maker = Maker::sample();
    let key = |block: u64| Key::new(DATA, ItemKind::Extent, block * BLOCK_BYTES);
    let mut whole = Extent::decode(&maker.files[&key(0)]).unwrap();
    let more = Extent::decode(&maker.files[&key(2)]).unwrap();
    whole.sums.extend(more.sums);
    let start = BlockNo(whole.blocks.start.0 + 1);
    for (block, count) in [(12, 2), (20, 1)] {
        let sums = whole.sums[1..=count].to_vec();
        let sums = if is_written { sums } else { Vec::new() };
        maker.extent(
            DATA,
            block * BLOCK_BYTES,
            &Extent::new(BlockRange::new(start, count as u64), sums),
        );
    }
    maker.change(DATA, |item| item.blocks += 3);
    let shared: u32 = said.iter().map(|of| of.1).sum();
    maker.accounts(move |items| {
        let group = GroupItem::decode(&items[&GroupItem::key(0)]).unwrap();
        items.insert(GroupItem::key(0), GroupItem { shared_blocks: shared, ..group }.encode());
        for &(from, blocks, references) in said {
            let item = SharedItem { blocks, references };
            items.insert(SharedItem::key(0, start.0 - 1 + from), item.bytes().to_vec());
        }
    });
    if counts {
        maker.superblock(|superblock| superblock.features_ro_compat |= SHARED_BLOCKS);
    }
    issues(&check_all(&maker.make().device))
}

#[test]
fn blocks_have_as_many_references_as_are_counted() {
    // A note says that this program cannot write such a volume.
    let right: CountsOfVolume = &[(1, 1, 3), (2, 1, 2)];
    let note = Issue::FeaturesUnknown;
    assert_eq!(cloned(true, true, right), [note]);
    assert_eq!(cloned(true, true, &[(1, 1, 3)]), [note, Issue::BlocksShared], "one is not counted");
    assert_eq!(cloned(true, true, &[(1, 2, 2)]), [note, Issue::BlocksShared], "one has another");
    assert_eq!(cloned(true, true, &[(1, 1, 3), (2, 1, 4)]), [note, Issue::GroupCount], "too many");
    assert_eq!(cloned(true, true, &[(0, 1, 2), (1, 1, 3), (2, 1, 2)]), [note, Issue::GroupCount]);
    assert_eq!(
        cloned(true, true, &[(1, 2, 2), (2, 1, 2)]),
        [note, Issue::BlocksShared, Issue::SpaceItemDamaged],
        "one is counted twice"
    );
    assert_eq!(cloned(true, false, &[]), [Issue::BlocksShared]);
    let uncounted = [Issue::BlocksShared, Issue::SpaceItemDamaged, Issue::GroupCount];
    assert_eq!(cloned(true, false, right), uncounted, "the record of the group does not count");
    assert!(cloned(false, true, right).contains(&Issue::BlocksShared), "never written");
}
