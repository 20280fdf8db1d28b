//! The two layers against a plain array of blocks.

use holdfast_base::prng::{Prng, entropy};

use holdfast_store::page::{copy_blocks, in_a_row};

use super::*;

fn runs_are_counted(pages: &Pages, seed: u64) {
    let begins = |slots: &BTreeMap<u64, Slot>| {
        let blocks = slots.keys();
        blocks.filter(|&&block| block == 0 || !slots.contains_key(&(block - 1))).count() as u64
    };
    let runs = begins(&pages.dirty) + begins(&pages.flight);
    assert_eq!(pages.delayed().runs, runs, "seed {seed}");
}

#[test]
fn random_writes_flights_and_drops_show_the_newest_bytes() {
    let seed = entropy();
    println!("seed {seed}");
    let mut random = Prng::seeded(seed);
    const BLOCKS: u64 = 24;
    for _ in 0..200 {
        let mut pages = Pages::default();
        // What a reader must see: the tree's byte 0 everywhere until something is written.
        let mut tree = vec![[0u8; BLOCK_SIZE]; BLOCKS as usize];
        let mut want = tree.clone();
        let mut flying: Vec<(u64, Page)> = Vec::new();
        // Blocks that the tree counts.
        let mut counted = [false; BLOCKS as usize];
        // Bytes that were written and are not in the tree, of both layers.
        let nothing = vec![[false; BLOCK_SIZE]; BLOCKS as usize];
        let (mut wrote, mut wrote_flying) = (nothing.clone(), nothing.clone());
        for _ in 0..60 {
            let block = random.below(BLOCKS);
            match random.below(9) {
                0..=3 => {
                    let at = random.below(BLOCK_SIZE as u64) as usize;
                    let bytes = vec![random.below(255) as u8 + 1; (BLOCK_SIZE - at).min(100)];
                    want[block as usize][at..at + bytes.len()].copy_from_slice(&bytes);
                    wrote[block as usize][at..at + bytes.len()].fill(true);
                    if !pages.change(block, at, &bytes) {
                        let old = match pages.get(block) {
                            Some(page) => **page,
                            None => tree[block as usize],
                        };
                        if random.one_in(2) {
                            pages.put_base(block, Page::from(&old), !counted[block as usize]);
                        } else {
                            pages.put_unchanged(block, Page::from(&old), !counted[block as usize]);
                        }
                        assert!(pages.change(block, at, &bytes));
                    }
                }
                4 => {
                    let byte = random.below(256) as u8;
                    want[block as usize] = [byte; BLOCK_SIZE];
                    wrote[block as usize] = [true; BLOCK_SIZE];
                    pages.put(block, Page::from(&[byte; BLOCK_SIZE]), !counted[block as usize]);
                }
                8 => {
                    // Several at once, which share their memory.
                    let count = random.below(BLOCKS - block) + 1;
                    let bytes: Vec<u8> = (0..count as usize * BLOCK_SIZE)
                        .map(|at| random.below(2) as u8 + (at / BLOCK_SIZE) as u8)
                        .collect();
                    let written = bytes.as_chunks().0;
                    for (block, page) in (block..).zip(copy_blocks(block, &bytes)) {
                        pages.put(block, page, !counted[block as usize]);
                    }
                    pages.dissolve_runs(block..block + count);
                    want[block as usize..][..written.len()].copy_from_slice(written);
                    wrote[block as usize..][..written.len()].fill([true; BLOCK_SIZE]);
                }
                5 if flying.is_empty() => {
                    let range = match random.below(4) {
                        0 => 0..BLOCKS / 2,
                        1 => BLOCKS / 3..BLOCKS / 2,
                        _ => 0..u64::MAX,
                    };
                    for dirty in pages.take(range) {
                        let old = if dirty.over_tree {
                            tree[dirty.block as usize]
                        } else {
                            [0; BLOCK_SIZE]
                        };
                        let outside = |at: &usize| !dirty.changed.contains(at);
                        let is_based =
                            (0..BLOCK_SIZE).filter(outside).all(|at| old[at] == dirty.page[at]);
                        assert!(is_based, "seed {seed}: block {}", dirty.block);
                        flying.push((dirty.block, dirty.page));
                        let at = dirty.block as usize;
                        wrote_flying[at] = std::mem::replace(&mut wrote[at], [false; BLOCK_SIZE]);
                    }
                }
                6 => {
                    // The tree gets what was taken, then the pages land.
                    // As an item, it counts for nothing.
                    let is_inline = random.one_in(3);
                    for (block, page) in flying.drain(..) {
                        tree[block as usize] = *page;
                        counted[block as usize] |= !is_inline;
                    }
                    match is_inline {
                        true => pages.land_inline(),
                        false => {
                            pages.land(block);
                            runs_are_counted(&pages, seed);
                            pages.land(u64::MAX);
                        }
                    }
                    wrote_flying.clone_from(&nothing);
                }
                7 => {
                    flying.clear();
                    pages.give_back();
                    let flown = std::mem::replace(&mut wrote_flying, nothing.clone());
                    for (bytes, flown) in wrote.iter_mut().zip(&flown) {
                        bytes.iter_mut().zip(flown).for_each(|(byte, flown)| *byte |= flown);
                    }
                    let range = block..block + 3;
                    pages.drop_dirty(range.clone());
                    for block in range.filter(|&block| block < BLOCKS) {
                        wrote[block as usize] = [false; BLOCK_SIZE];
                        want[block as usize] = tree[block as usize];
                    }
                }
                _ => {}
            }
            runs_are_counted(&pages, seed);
            let fresh = |slots: &BTreeMap<u64, Slot>| slots.values().filter(|s| s.fresh).count();
            assert_eq!(pages.fresh() as usize, fresh(&pages.dirty) + fresh(&pages.flight));
            let waiting = pages.blocks_from(0).into_iter();
            let uncounted = waiting.filter(|block| !counted[*block as usize]).count();
            assert_eq!(pages.fresh() as usize, uncounted, "seed {seed}: what stat adds");
            let mut written = nothing.clone();
            for bytes in pages.written_bytes() {
                let (block, at) =
                    (bytes.start as usize / BLOCK_SIZE, bytes.start as usize % BLOCK_SIZE);
                written[block][at..at + (bytes.end - bytes.start) as usize].fill(true);
            }
            assert!(written == wrote, "seed {seed}: which bytes were written");
            let collected = pages.collect(0..BLOCKS);
            for block in 0..BLOCKS {
                let seen = match pages.get(block) {
                    Some(page) => **page,
                    None => tree[block as usize],
                };
                assert!(seen == want[block as usize], "block {block}");
                assert_eq!(pages.is_dirty(block), pages.dirty.contains_key(&block));
                assert_eq!(pages.is_in_flight(block), pages.flight.contains_key(&block));
                assert_eq!(collected.get(&block), pages.get(block));
            }
        }
    }
}

#[test]
fn what_is_left_of_a_run_does_not_keep_the_rest_of_it_in_memory() {
    let mut pages = Pages::default();
    for (block, page) in (60..).zip(copy_blocks(60, &[7; 80 * BLOCK_SIZE])) {
        pages.put(block, page, true);
    }
    let row = |pages: &Pages, from, to| in_a_row(pages.collect(from..to).values()).is_some();
    assert!(row(&pages, 60, 64) && row(&pages, 64, 128) && row(&pages, 128, 140));
    assert_eq!(pages.drop_dirty(66..130), 64);
    assert!(row(&pages, 60, 64), "it was not touched");
    for block in [64, 65, 130, 139] {
        let page = pages.get(block).expect("it is left");
        assert!(page.alone().is_same(page), "block {block} is not alone");
    }
    assert_eq!(pages.drop_dirty(62..u64::MAX), 14);
    assert!(pages.collect(0..u64::MAX).values().all(|page| page.alone().is_same(page)));
}

#[test]
fn a_flight_of_a_part_takes_the_run_apart_and_so_does_one_that_comes_back() {
    let run = |pages: &mut Pages| {
        for (block, page) in (0..).zip(copy_blocks(0, &[7; 8 * BLOCK_SIZE])) {
            pages.put(block, page, true);
        }
    };
    let are_alone = |pages: &Pages, from, to| {
        pages.collect(from..to).values().all(|page| page.run_pages() == 1)
    };
    let mut pages = Pages::default();
    run(&mut pages);
    assert_eq!(pages.take(0..5).len(), 5);
    assert!(are_alone(&pages, 5, 8) && !are_alone(&pages, 0, 5));
    pages.land(2);
    assert_eq!(pages.give_back(), 0);
    assert!(are_alone(&pages, 0, 8));
    assert_eq!(pages.count(), 6);
}

#[test]
fn the_front_of_a_stream_is_taken_as_long_as_there_is_more_and_leaves_whole_runs() {
    let mut pages = Pages::default();
    for (block, page) in (10..).zip(copy_blocks(10, &[7; 300 * BLOCK_SIZE])) {
        pages.put(block, page, true);
    }
    let front = pages.front(100);
    assert_eq!(front, 0..128);
    assert_eq!(pages.take(front).len(), 118);
    assert!(in_a_row(pages.collect(128..192).values()).is_some(), "the next write is one row");
    assert_eq!(pages.land(u64::MAX), 118);
    assert_eq!(pages.front(100), 0..256);
    assert_eq!(pages.front(181), 0..310_u64.next_multiple_of(64));
    assert_eq!(pages.front(182), 0..u64::MAX);
}

#[test]
fn a_page_in_flight_does_not_change_under_a_new_write() {
    let mut pages = Pages::default();
    assert!(pages.put(3, Page::with(0, b"old"), true));
    let taken = pages.take(0..u64::MAX);
    assert!(!pages.is_dirty(3) && !pages.is_empty());
    assert!(!pages.change(3, 0, b"new"), "nothing is dirty any more");
    let copy = pages.get(3).expect("in flight").clone();
    assert!(pages.put(3, copy, true));
    assert!(pages.change(3, 0, b"new"));
    assert_eq!(&taken[0].page[..3], b"old");
    assert_eq!(&pages.get(3).expect("dirty")[..3], b"new");
    assert_eq!(pages.fresh(), 1, "one block, counted once");
    assert_eq!(pages.land(u64::MAX), 1);
    assert_eq!((pages.fresh(), pages.count()), (0, 1));
}
