//! What is near the roots is stored twice and leaves are not: each node of it may be lost once.

use std::ops::ControlFlow;
use std::sync::Arc;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, InodeNo, TreeId};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::node::Expected;
use holdfast_format::{Geometry, ItemKind, Key, NodePointer, NodeView, Stored, Superblock};
use holdfast_store::{Branch, StoreError};

use crate::small;

const ITEMS: u64 = 300;

fn geometry() -> Geometry {
    small::geometry().with_root_copies().unwrap()
}

/// A closed volume with some hundred nodes.
fn image() -> MemoryDevice {
    small::scattered(geometry(), ITEMS)
}

fn read(image: &MemoryDevice, block: BlockNo) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    image.read(block.0 * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

fn spoil(image: &MemoryDevice, place: BlockRange) {
    let mut bytes = read(image, place.start);
    bytes[100] ^= 4;
    image.write(place.start.0 * BLOCK_BYTES, &bytes).unwrap();
}

/// All nodes of both trees.
fn nodes(image: &MemoryDevice) -> Vec<Expected> {
    let slots = SUPERBLOCK_SLOTS
        .map(|slot| Superblock::decode(read(image, slot)[..].try_into().unwrap(), slot).unwrap());
    let newest = slots.iter().max_by_key(|slot| slot.epoch).unwrap();
    let mut found = Vec::new();
    below(image, newest, (newest.files, TreeId::Files, newest.files_level), &mut found);
    below(image, newest, (newest.space, TreeId::Space, newest.space_level), &mut found);
    found
}

fn below(
    image: &MemoryDevice,
    of: &Superblock,
    (pointer, tree, level): (NodePointer, TreeId, u8),
    found: &mut Vec<Expected>,
) {
    let expected = Expected { pointer, tree, level, volume: of.nodes() };
    let bytes = read(image, pointer.block);
    let node = NodeView::open(&bytes, &expected).unwrap();
    found.push(expected);
    for index in (0..node.count()).filter(|_| level > 0) {
        below(image, of, (node.child(index), tree, level - 1), found);
    }
}

fn twice(image: &MemoryDevice) -> Vec<Expected> {
    let all = nodes(image).into_iter();
    all.filter(|node| node.stored(&geometry()) == Stored::Twice).collect()
}

fn is_whole(store: &Branch) -> Result<(), StoreError> {
    let mut seen = Vec::new();
    let (from, to) = Key::span(InodeNo(20), ItemKind::Extent);
    store.scan(&from, &to, &mut |key: Key, _: &[u8]| {
        seen.push(key.offset);
        ControlFlow::Continue(())
    })?;
    assert_eq!(seen, (0..ITEMS).collect::<Vec<_>>());
    Ok(())
}

fn copies_used(store: &Branch) -> (u64, u64) {
    let counters = store.counters();
    (counters.copies_used.get(), counters.copies_unmendable.get())
}

#[test]
fn what_is_above_the_leaves_has_copies_and_the_space_tree_has() {
    let image = image();
    let all = nodes(&image);
    assert!(all.iter().any(|node| node.level > 0 && node.tree == TreeId::Files));
    assert!(all.iter().any(|node| node.level == 0 && node.tree == TreeId::Space));
    let mut used = Vec::new();
    for node in &all {
        let is_leaf = node.level == 0 && node.tree == TreeId::Files;
        let places: Vec<_> = node.places(&geometry()).collect();
        assert_eq!(places.len(), if is_leaf { 1 } else { 2 }, "{node:?}");
        for place in &places {
            assert!(read(&image, place.start) == read(&image, node.pointer.block), "{node:?}");
        }
        used.extend(places);
    }
    used.sort_unstable();
    assert!(used.windows(2).all(|pair| pair[0].end() <= Some(pair[1].start)), "a place is of one");
    let leaves = all.iter().filter(|node| node.level == 0 && node.tree == TreeId::Files);
    let upper = leaves.filter(|leaf| !geometry().holds_node(leaf.pointer.block, Stored::Twice));
    assert!(upper.count() > 20, "leaves lie where copies could");
}

/// Of each such node one place is lost, the first or the second: all reads, and is written again.
#[test]
fn each_node_near_a_root_may_be_lost_once() {
    let sound = image();
    for which in [0, 1] {
        let damaged = Arc::new(sound.snapshot());
        for node in twice(&sound) {
            spoil(&damaged, node.places(&geometry()).nth(which).unwrap());
        }
        let store = small::open(&damaged);
        is_whole(&store).unwrap();
        let (used, unmendable) = copies_used(&store);
        assert!((which == 1 || used > 3) && unmendable == 0, "{used} {unmendable}");
        store.close().unwrap();
        let store = small::open(&damaged);
        is_whole(&store).unwrap();
        assert_eq!(copies_used(&store), (0, 0), "place {which} was mended");
    }
}

/// Both places of one, and the one place of a leaf.
#[test]
fn without_a_sound_place_a_node_is_damaged() {
    let sound = image();
    let all = nodes(&sound);
    let inner = all.iter().find(|node| node.level == 1 && node.tree == TreeId::Files).unwrap();
    let leaf = all.iter().rfind(|node| node.level == 0 && node.tree == TreeId::Files).unwrap();
    for node in [inner, leaf] {
        let damaged = Arc::new(sound.snapshot());
        node.places(&geometry()).for_each(|place| spoil(&damaged, place));
        let store = small::open(&damaged);
        let found = is_whole(&store);
        assert!(matches!(found, Err(StoreError::Node { .. })), "{found:?}");
    }
}
