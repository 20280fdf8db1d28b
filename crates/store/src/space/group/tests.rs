//! Counts of a group against what is counted anew.

use super::*;
use holdfast_base::prng::Prng;

/// Distances of copies.
const MASKS: [u64; 4] = [0, 64, 1024 | 256, (GROUP_BLOCKS / 2) | 256];

fn whole(place_blocks: u64) -> Group {
    with_copies(place_blocks, 0)
}

fn with_copies(place_blocks: u64, copy_mask: u64) -> Group {
    let inside = BlockRange::new(BlockNo(3 * GROUP_BLOCKS), GROUP_BLOCKS);
    Group::new(3, inside, place_blocks, copy_mask)
}

fn recount(group: &Group) {
    let busy = |at: u64| group.busy[(at / 64) as usize] >> (at % 64) & 1 == 1;
    let free = (0..GROUP_BLOCKS).filter(|at| !busy(*at)).count() as u64;
    let is_free = |place: Run| (place.at..place.at + place.len).all(|block| !busy(block));
    let slots = (0..GROUP_BLOCKS)
        .step_by(group.place_blocks as usize)
        .map(|at| Run { at, len: group.place_blocks })
        .filter(|place| {
            let copy = group.copy_of(*place);
            let is_lower = copy.is_none_or(|copy| place.at < copy.at);
            is_lower && is_free(*place) && copy.is_none_or(is_free)
        })
        .count() as u64;
    assert_eq!((group.free_blocks, group.free_slots), (free, slots));
    let places = (0..GROUP_BLOCKS).step_by(group.place_blocks as usize);
    let places = places.filter(|at| is_free(Run { at: *at, len: group.place_blocks }));
    assert_eq!(group.free_places, places.count() as u64);
    let mut run = 0;
    for block in 0..GROUP_BLOCKS {
        let is_free = group.busy[(block / 64) as usize] >> (block % 64) & 1 == 0;
        run = if is_free { run + 1 } else { 0 };
        assert!(run <= group.run_max, "a run of {run}, at most {} are believed", group.run_max);
    }
}

#[test]
fn counts_follow_every_change_and_nothing_is_given_twice() {
    for (slot_blocks, mask) in [1, 4, 16].iter().flat_map(|blocks| MASKS.map(|m| (*blocks, m))) {
        let mut prng = Prng::seeded(slot_blocks + mask);
        let mut group = with_copies(slot_blocks, mask);
        let mut taken: Vec<Run> = Vec::new();
        for step in 0..2000 {
            if prng.one_in(3) && !taken.is_empty() {
                let run = taken.swap_remove(prng.below(taken.len() as u64) as usize);
                group.release(group.blocks(run));
            } else if prng.one_in(4) {
                if let Some(run) = group.find_single() {
                    let other = group.copy_of(run).expect("singles are halves of pairs");
                    assert!(!group.all_free(group.blocks(other)), "{mask}: {run:?}");
                    group.take(run);
                    taken.push(run);
                }
            } else if prng.one_in(2) {
                if let Some(run) = group.find_slot() {
                    assert_eq!(run.at % slot_blocks, 0);
                    let copy = group.copy_of(run);
                    assert!(copy.is_none_or(|copy| run.at < copy.at), "{mask}: {run:?}");
                    for place in [Some(run), copy].into_iter().flatten() {
                        group.take(place);
                        taken.push(place);
                    }
                }
            } else {
                let from = if prng.one_in(2) { 0 } else { prng.below(GROUP_BLOCKS) };
                let limit = if prng.one_in(4) { GROUP_BLOCKS } else { 300 };
                let want = 1 + prng.below(limit);
                let whole = match prng.below(6) {
                    0 => Whole::Slots,
                    1 => Whole::Places,
                    _ => Whole::Nothing,
                };
                if let Some(run) = group.find_run(from, want, whole) {
                    assert!(run.at >= from && run.len <= want && run.len > 0);
                    group.take(run);
                    taken.push(run);
                }
            }
            if step % 200 == 0 {
                recount(&group);
            }
        }
        recount(&group);
    }
}

#[test]
fn broken_slots_are_used_up_before_whole_ones() {
    let mut group = whole(16);
    group.take(Run { at: 0, len: 5 });
    assert_eq!(group.find_run(0, 100, Whole::Slots), Some(Run { at: 5, len: 11 }));
    assert_eq!(group.find_run(0, 100, Whole::Nothing), Some(Run { at: 5, len: 100 }));
    assert_eq!(group.find_slot(), Some(Run { at: 16, len: 16 }));
}

#[test]
fn the_longest_run_is_found_when_none_is_long_enough() {
    let mut group = whole(1);
    for at in (0..GROUP_BLOCKS).step_by(64) {
        group.take(Run { at, len: 1 });
    }
    assert_eq!(group.find_run(0, 64, Whole::Nothing), Some(Run { at: 1, len: 63 }));
    assert_eq!(group.find_run(GROUP_BLOCKS - 3, 64, Whole::Nothing).map(|run| run.len), Some(3));
}
