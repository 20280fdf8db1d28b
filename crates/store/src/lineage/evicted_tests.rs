//! Large changes: beside others that evict what these have loaded, and larger than one may be.

use holdfast_base::InodeNo;
use holdfast_format::Key;

use super::lies_tests::{made, put};
use crate::load::PINNED_MAX;
use crate::transaction::Changes;
use crate::tree::TreeNo;
use crate::{Need, StoreError, Transaction};

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

/// An operation keeps no more of the trees in memory than is set aside for it: a larger one is refused, changes nothing and leaves nothing
/// behind. In parts it is done.
#[test]
fn a_change_of_more_than_memory_is_set_aside_for_is_refused() {
    let (_, store) = made();
    const COUNT: u64 = 8000;
    let items: Vec<_> = (0..COUNT).map(|no| (key(no), vec![no as u8; 200])).collect();
    items.chunks(100).for_each(|some| put(&store, TreeNo::MAIN, some));
    store.checkpoint().unwrap();
    let inner = &store.inner;
    let evict = || inner.forest.write().cache.evict_all();
    let change = |from: u64, to: u64| {
        evict();
        let mut transaction = Transaction::new();
        (from..to).step_by(10).for_each(|no| transaction.put(key(no), [7]));
        let mut room = inner.reserve(TreeNo::MAIN, Need::Change { changes: 64, blocks: 0 })?;
        inner.apply(TreeNo::MAIN, transaction, &mut room)
    };
    let before = inner.counters.nodes_read.get();
    let refused = change(0, COUNT);
    assert!(matches!(refused, Err(StoreError::TooLarge)), "{refused:?}");
    let read = inner.counters.nodes_read.get() - before;
    assert!(read as usize * 4096 <= 2 * PINNED_MAX, "{read} nodes were read of what is refused");
    evict();
    assert_eq!(inner.forest.read().cache.bytes(), 0, "nothing is pinned any more");
    assert_eq!(inner.get(TreeNo::MAIN, &key(0)).unwrap().unwrap().len(), 200);
    for from in (0..COUNT).step_by(1000) {
        change(from, from + 1000).unwrap();
    }
    assert_eq!(inner.get(TreeNo::MAIN, &key(COUNT - 10)).unwrap(), Some(vec![7]));
}
