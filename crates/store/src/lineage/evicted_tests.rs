//! Large changes beside others that evict what these have loaded.

use holdfast_base::InodeNo;
use holdfast_format::Key;

use super::lies_tests::{made, put};
use crate::transaction::Changes;
use crate::tree::TreeNo;

fn key(no: u64) -> Key {
    Key::inode(InodeNo(20 + no * 64))
}

/// A change of many leaves, of which none is in memory, finds all of them after as many tries as the tree is high, although
/// others have each node evicted that may be, between any two tries. Behind it none is kept.
#[test]
fn a_large_change_comes_to_its_end_whatever_others_evict() {
    let (_, store) = made();
    let items: Vec<_> = (0..2000).map(|no| (key(no), vec![no as u8; 200])).collect();
    items.chunks(100).for_each(|some| put(&store, TreeNo::MAIN, some));
    store.checkpoint().unwrap();
    let inner = &store.inner;
    let mut changes = Changes::default();
    (0..2000).step_by(20).for_each(|no| changes.delete(key(no)));
    let levels = u64::from(inner.forest.read().root(TreeNo::MAIN).level) + 1;
    let (mut tries, read_before) = (0, inner.counters.nodes_read.get());
    inner
        .stop_changers(|forest, _| {
            tries += 1;
            assert!(tries < 100, "each try misses what the one before has loaded");
            forest.cache.evict_all();
            forest.prepare_all(TreeNo::MAIN, &changes)?;
            Ok(())
        })
        .unwrap();
    // A delete may join its leaf with either neighbour, and looks for one after the other.
    assert!(tries <= 3 * levels + 1, "{tries} tries in a tree of {levels} levels");
    let nodes = inner.counters.nodes_read.get() - read_before;
    assert!((50..2 * 125).contains(&nodes), "{nodes} of about 125 nodes were read");
    let mut forest = inner.forest.write();
    forest.cache.evict_all();
    assert_eq!(forest.cache.bytes(), 0, "nothing is pinned any more");
}
