//! The two layers against a plain array of blocks.

use holdfast_base::prng::{Prng, entropy};

use super::*;

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
        for _ in 0..60 {
            let block = random.below(BLOCKS);
            match random.below(8) {
                0..=3 => {
                    let at = random.below(BLOCK_SIZE as u64) as usize;
                    let bytes = vec![random.below(255) as u8 + 1; (BLOCK_SIZE - at).min(100)];
                    want[block as usize][at..at + bytes.len()].copy_from_slice(&bytes);
                    if !pages.change(block, at, &bytes) {
                        let old = match pages.get(block) {
                            Some(page) => **page,
                            None => tree[block as usize],
                        };
                        if random.one_in(2) {
                            assert!(pages.put(block, Arc::new(old), true));
                        } else {
                            pages.put_unchanged(block, Arc::new(old));
                        }
                        assert!(pages.change(block, at, &bytes));
                    }
                }
                4 => {
                    let byte = random.below(256) as u8;
                    want[block as usize] = [byte; BLOCK_SIZE];
                    pages.put(block, page_with(0, &[byte; BLOCK_SIZE]), true);
                }
                5 if flying.is_empty() => {
                    let end = if random.one_in(2) { u64::MAX } else { BLOCKS / 2 };
                    for dirty in pages.take(0..end) {
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
                    }
                }
                6 => {
                    // The tree gets what was taken, then the pages land.
                    for (block, page) in flying.drain(..) {
                        tree[block as usize] = *page;
                    }
                    pages.land(u64::MAX);
                }
                7 => {
                    flying.clear();
                    pages.give_back();
                    let range = block..block + 3;
                    pages.drop_dirty(range.clone());
                    for block in range.filter(|&block| block < BLOCKS) {
                        want[block as usize] = tree[block as usize];
                    }
                }
                _ => {}
            }
            let fresh = |slots: &BTreeMap<u64, Slot>| slots.values().filter(|s| s.fresh).count();
            assert_eq!(pages.fresh() as usize, fresh(&pages.dirty) + fresh(&pages.flight));
            let collected = pages.collect(0..BLOCKS);
            for block in 0..BLOCKS {
                let seen = match pages.get(block) {
                    Some(page) => **page,
                    None => tree[block as usize],
                };
                assert!(seen == want[block as usize], "block {block}");
                assert_eq!(collected.get(&block), pages.get(block));
            }
        }
    }
}

#[test]
fn a_page_in_flight_does_not_change_under_a_new_write() {
    let mut pages = Pages::default();
    assert!(pages.put(3, page_with(0, b"old"), true));
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
