//! Random edits of a map against an array that says for each block of the file where it is.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_base::prng::{Prng, entropy};

use super::*;

const FILE_BLOCKS: u64 = 60;

/// For each block of the file: its block on the device and its checksum (0: unwritten).
type Model = BTreeMap<u64, (u64, u64)>;

fn flatten(pieces: &BTreeMap<u64, Piece>) -> Model {
    let mut model = Model::new();
    for (&first, piece) in pieces {
        assert_eq!(first, piece.first);
        assert!(piece.count() > 0, "an empty piece at {first}");
        if piece.extent.is_written() {
            assert_eq!(piece.extent.sums.len() as u64, piece.count());
        }
        for i in 0..piece.count() {
            let sum = piece.extent.sums.get(i as usize).copied().unwrap_or(0);
            let old = model.insert(first + i, (piece.extent.blocks.start.0 + i, sum));
            assert!(old.is_none(), "block {} is in two pieces", first + i);
        }
    }
    model
}

fn random_range(random: &mut Prng) -> Range<u64> {
    let start = random.below(FILE_BLOCKS);
    start..(start + random.below(13)).min(FILE_BLOCKS)
}

/// The map as it will be.
fn after(edit: &MapEdit) -> BTreeMap<u64, Piece> {
    assert!(edit.after.is_sorted_by(|left, right| left.piece.end() <= right.piece.first));
    edit.after.iter().map(|of| (of.piece.first, of.piece.clone())).collect()
}

/// Applies what the plan says to what the tree held before.
fn replay(before: &BTreeMap<u64, Piece>, edit: &MapEdit) -> BTreeMap<u64, Piece> {
    let mut tree = before.clone();
    for first in edit.gone() {
        assert!(tree.remove(&first).is_some(), "deleted what was not there");
    }
    for piece in edit.new_or_changed() {
        tree.insert(piece.first, piece.clone());
    }
    tree
}

#[test]
fn random_edits_agree_with_a_model_and_free_each_block_once() {
    let seed = entropy();
    println!("seed {seed}");
    let mut random = Prng::seeded(seed);
    for _ in 0..400 {
        let mut tree: BTreeMap<u64, Piece> = BTreeMap::new();
        let mut next_block = 1000;
        for _ in 0..6 {
            let mut edit = MapEdit::new(tree.values().cloned().collect(), Epoch(0));
            let mut model = flatten(&tree);
            let held: BTreeSet<u64> = model.values().map(|place| place.0).collect();
            let mut placed = BTreeSet::new();
            for _ in 0..1 + random.below(5) {
                let range = random_range(&mut random);
                match random.below(4) {
                    0 => {
                        edit.cut(range.clone());
                        model.retain(|block, _| !range.contains(block));
                    }
                    1 => {
                        edit.unwrite(range.clone());
                        for block in range {
                            if let Some(place) = model.get_mut(&block) {
                                place.1 = 0;
                            }
                        }
                    }
                    _ => {
                        let count = range.end - range.start;
                        if count == 0 {
                            continue;
                        }
                        // Sometimes right behind the last blocks, so that pieces join.
                        next_block += if random.one_in(2) { 0 } else { 7 };
                        let start = next_block;
                        next_block += count;
                        let written = !random.one_in(4);
                        let sums: Vec<u64> = (0..if written { count } else { 0 })
                            .map(|_| 1 + random.below(1 << 40))
                            .collect();
                        for i in 0..count {
                            placed.insert(start + i);
                            let sum = sums.get(i as usize).copied().unwrap_or(0);
                            model.insert(range.start + i, (start + i, sum));
                        }
                        let blocks = BlockRange::new(BlockNo(start), count);
                        edit.insert(
                            Piece { first: range.start, extent: Extent::new(blocks, sums) },
                            16,
                        );
                    }
                }
            }
            assert_eq!(flatten(&after(&edit)), model);
            let added = model.len() as i64 - flatten(&tree).len() as i64;
            assert_eq!(edit.blocks_added(), added);

            let mut freed = BTreeSet::new();
            for (range, ..) in &edit.freed {
                for i in 0..range.count {
                    assert!(freed.insert(range.start.0 + i), "freed twice");
                }
            }
            let kept: BTreeSet<u64> = model.values().map(|place| place.0).collect();
            let had: BTreeSet<u64> = held.union(&placed).copied().collect();
            assert!(freed.is_disjoint(&kept), "freed a block in use");
            assert_eq!(freed.len() + kept.len(), had.len(), "lost a block");

            let gaps: u64 = edit.gaps(0..FILE_BLOCKS).iter().map(|g| g.end - g.start).sum();
            assert_eq!(gaps, FILE_BLOCKS - model.len() as u64);
            let replayed = replay(&tree, &edit);
            assert_eq!(replayed, after(&edit));
            tree = replayed;
        }
    }
}

#[test]
fn blocks_appended_one_by_one_become_one_piece() {
    let mut edit = MapEdit::default();
    for i in 0..10 {
        edit.insert(
            Piece {
                first: i,
                extent: Extent::new(BlockRange::new(BlockNo(500 + i), 1), vec![i + 1]),
            },
            510,
        );
    }
    assert_eq!(edit.after.len(), 1);
    assert_eq!(after(&edit)[&0].extent.sums, (1..=10).collect::<Vec<_>>());
    assert_eq!(edit.goal(10), Some(BlockNo(510)));
    assert_eq!(edit.new_or_changed().count(), 1);
}

#[test]
fn the_middle_of_a_piece_goes_and_both_ends_keep_their_blocks() {
    let piece = Piece {
        first: 10,
        extent: Extent::new(BlockRange::new(BlockNo(100), 10), (0..10).map(|i| 70 + i).collect()),
    };
    let mut edit = MapEdit::new(vec![piece], Epoch(0));
    edit.cut(13..15);
    let freed: Vec<_> = edit.freed.iter().map(|(range, _, first)| (*range, *first)).collect();
    assert_eq!(freed, [(BlockRange::new(BlockNo(103), 2), 13)]);
    assert_eq!(after(&edit)[&10].extent.sums, [70, 71, 72]);
    assert_eq!(after(&edit)[&15].extent.blocks.start, BlockNo(105));
    assert_eq!(after(&edit)[&15].extent.sums, [75, 76, 77, 78, 79]);
    assert_eq!(edit.blocks_added(), -2);
}

#[test]
fn what_is_unwritten_already_is_left_as_it_is() {
    let piece = |first: u64, sums: Vec<u64>| {
        let blocks = BlockRange::new(BlockNo(100 + first), 10);
        Piece { first, extent: Extent::new(blocks, sums) }
    };
    let mut edit = MapEdit::new(vec![piece(0, Vec::new()), piece(10, vec![7; 10])], Epoch(0));
    edit.unwrite(5..15);
    let firsts: Vec<u64> = edit.new_or_changed().map(|piece| piece.first).collect();
    assert_eq!(firsts, [10, 15], "the piece in front is neither cut nor put");
    assert_eq!(after(&edit)[&0].count(), 10);
    assert_eq!((edit.gone().count(), edit.freed.len(), edit.blocks_added()), (0, 0, 0));
}

#[test]
fn parts_are_joined_whose_births_are_equal_or_the_branchs_own() {
    let piece = |first: u64, birth: u64| Piece {
        first,
        extent: Extent {
            birth: Epoch(birth),
            ..Extent::new(BlockRange::new(BlockNo(100 + first), 2), vec![7; 2])
        },
    };
    let unborn = Extent::UNBORN.0;
    for (parent, left, right, joined) in [
        (0, 3, 4, Some(4)),
        (0, 3, unborn, Some(unborn)),
        (5, 6, 7, Some(7)),
        (5, 7, 6, Some(7)),
        (5, 7, unborn, Some(unborn)),
        (5, 4, 4, Some(4)),
        (5, 5, 6, None),
        (5, 6, 5, None),
        (5, 3, 4, None),
        (5, 5, unborn, None),
    ] {
        let mut edit = MapEdit::new(vec![piece(0, left)], Epoch(parent));
        edit.insert(piece(2, right), 64);
        let births: Vec<u64> = after(&edit).values().map(|of| of.extent.birth.0).collect();
        let separate = vec![left, right];
        assert_eq!(births, joined.map_or(separate, |birth| vec![birth]), "{parent} {left} {right}");
    }
}

#[test]
fn what_a_snapshot_has_as_well_is_not_unwritten_and_its_reserve_is_a_gap() {
    let piece = |first: u64, sums: Vec<u64>, birth: u64| Piece {
        first,
        extent: Extent {
            birth: Epoch(birth),
            ..Extent::new(BlockRange::new(BlockNo(100 + first), 10), sums)
        },
    };
    let pieces = || {
        vec![
            piece(0, vec![7; 10], 5),
            piece(10, vec![7; 10], 6),
            piece(20, Vec::new(), 5),
            piece(30, Vec::new(), 6),
        ]
    };
    let mut edit = MapEdit::new(pieces(), Epoch(5));
    assert_eq!(edit.gaps(5..40), vec![20..30]);
    edit.unwrite(5..15);
    assert_eq!(edit.freed, [(BlockRange::new(BlockNo(105), 5), Epoch(5), 5)]);
    assert_eq!(edit.unwritten, [(BlockRange::new(BlockNo(110), 5), Epoch(6))]);
    assert_eq!(edit.blocks_added(), -5);
    assert_eq!(edit.gaps(0..40), [5..10, 20..30]);
    // Without a parent all of it is the branch's own.
    let mut edit = MapEdit::new(pieces(), Epoch(0));
    assert_eq!(edit.gaps(5..40), []);
    edit.unwrite(5..15);
    assert_eq!((edit.freed.len(), edit.unwritten.len()), (0, 2));
}
