//! Nodes from hostile disks: what `NodeView::open` accepts is safe to use in every way (P10).

use holdfast_base::{BlockNo, Epoch, InodeNo, TreeId};
use holdfast_format::codec::Reader;
use holdfast_format::key::RawKey;
use holdfast_format::limits::NODE_SIZES;
use holdfast_format::node::{
    self, Expected, NodeHeader, OfVolume, POINTER_SIZE, SLOT_SIZE, SLOTS_AT,
};
use holdfast_format::{ItemKind, Key, NodePointer, NodeView};
use proptest::prelude::*;

fn expected(level: u8) -> Expected {
    Expected {
        pointer: NodePointer { block: BlockNo(4711), epoch: Epoch(9) },
        tree: TreeId::Files,
        level,
        volume: OfVolume::tagged(*b"a volume"),
    }
}

/// A sealed node with these records, written without the engine.
fn build(size: usize, level: u8, records: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = node::empty(size, &expected(level));
    let (mut heap, mut count) = (size, 0usize);
    for (key, value) in records {
        let len = Key::SIZE + value.len();
        let slot = SLOTS_AT + count * SLOT_SIZE;
        if slot + SLOT_SIZE + len > heap {
            break;
        }
        heap -= len;
        bytes[heap..heap + Key::SIZE].copy_from_slice(&key.encode());
        bytes[heap + Key::SIZE..heap + len].copy_from_slice(value);
        bytes[slot..slot + 2].copy_from_slice(&(heap as u16).to_le_bytes());
        bytes[slot + 2..slot + 4].copy_from_slice(&(len as u16).to_le_bytes());
        count += 1;
    }
    bytes[node::COUNT_AT..][..2].copy_from_slice(&(count as u16).to_le_bytes());
    bytes[node::HEAP_START_AT..][..4].copy_from_slice(&(heap as u32).to_le_bytes());
    node::seal(&mut bytes);
    bytes
}

fn records(level: u8) -> impl Strategy<Value = Vec<(Key, Vec<u8>)>> {
    let value = if level > 0 { POINTER_SIZE..=POINTER_SIZE } else { 0..=90 };
    let keys = prop::collection::btree_set((0..64u64, 0..5000u64), 1..80);
    (keys, prop::collection::vec(prop::collection::vec(any::<u8>(), value), 80)).prop_map(
        move |(keys, values)| {
            let key = |(inode, offset)| Key::new(InodeNo(inode), ItemKind::Dentry, offset);
            // Pointers lead to the first device.
            let values = values.into_iter().map(|mut value: Vec<u8>| {
                if level > 0 {
                    value[7] = 0;
                }
                value
            });
            keys.into_iter().map(key).zip(values).collect()
        },
    )
}

fn nodes() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (prop::sample::select(NODE_SIZES.to_vec()), 0..3u8).prop_flat_map(|(size, level)| {
        records(level).prop_map(move |records| (level, build(size, level, &records)))
    })
}

/// Uses every accessor on everything that the node offers.
fn use_all(view: &NodeView<'_>, probe: &RawKey) {
    let size = view.bytes().len();
    let room = view.gap() + view.garbage();
    assert_eq!(view.free(), room);
    assert_eq!(view.used() + room + SLOTS_AT, size);
    let mut previous = None;
    for index in 0..view.count() {
        let (offset, len) = view.record(index);
        assert!(offset >= view.heap_start() && offset + len <= size);
        let key = view.key(index);
        assert!(previous < Some(key));
        previous = Some(key);
        assert_eq!(view.raw_key(index), key.raw());
        assert_eq!(view.value(index).len() + Key::SIZE, len);
        assert_eq!(view.search(&key.raw()), Ok(index));
        if view.level() > 0 {
            view.child(index);
            assert_eq!(view.child_index(&key.raw()), index);
        }
    }
    let (Ok(at) | Err(at)) = view.search(probe);
    assert!(at <= view.count());
    if view.count() > 0 {
        assert!(view.child_index(probe) < view.count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn sound_nodes_open((level, bytes) in nodes(), probe in any::<[u8; 24]>()) {
        let view = NodeView::open(&bytes, &expected(level)).expect("it was built to be sound");
        prop_assert!(view.count() > 0);
        use_all(&view, &RawKey::of(&probe));
    }

    #[test]
    fn one_wrong_byte_is_seen((level, mut bytes) in nodes(), at in any::<prop::sample::Index>(), by in 1..=255u8) {
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        prop_assert!(NodeView::open(&bytes, &expected(level)).is_err());
    }

    #[test]
    fn what_opens_after_damage_and_a_new_sum_is_safe(
        (level, mut bytes) in nodes(),
        head in prop::collection::vec((0..SLOTS_AT + 200, any::<u8>()), 0..3),
        body in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        probe in any::<[u8; 24]>(),
    ) {
        for (at, byte) in head {
            bytes[at] = byte;
        }
        // Damage lands among the records, not in the empty middle of a large node.
        for (at, byte) in body {
            let from_back = at.index(bytes.len().min(2000));
            let at = bytes.len() - 1 - from_back;
            bytes[at] = byte;
        }
        node::seal(&mut bytes);
        if let Ok(view) = NodeView::open(&bytes, &expected(level)) {
            use_all(&view, &RawKey::of(&probe));
        }
    }

    #[test]
    fn noise_with_a_sound_head_is_safe(
        size in prop::sample::select(NODE_SIZES.to_vec()),
        count in 0..4u16,
        heap in any::<u16>(),
        mut bytes in prop::collection::vec(any::<u8>(), 65536),
    ) {
        bytes.truncate(size);
        let mut header = NodeHeader::read(&mut Reader::new("node", &node::empty(size, &expected(0))))
            .expect("an empty node has a head");
        header.count = count;
        header.heap_start = heap.into();
        let mut head = Vec::new();
        header.write(&mut head);
        bytes[..head.len()].copy_from_slice(&head);
        node::seal(&mut bytes);
        if let Ok(view) = NodeView::open(&bytes, &expected(0)) {
            use_all(&view, &Key::MIN.raw());
        }
    }

    #[test]
    fn short_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(NodeView::open(&bytes, &expected(0)).is_err());
    }
}

/// Makes a change to a sound node, seals it, and returns what `open` says.
fn refused(size: usize, change: impl FnOnce(&mut [u8])) -> String {
    let item = |offset| {
        (
            Key::new(InodeNo(1), ItemKind::Dentry, offset),
            [[7; 7].as_slice(), &[0], &[7; 8]].concat(),
        )
    };
    let mut bytes = build(size, 1, &[item(1), item(2)]);
    change(&mut bytes);
    node::seal(&mut bytes);
    NodeView::open(&bytes, &expected(1)).expect_err("the change breaks a rule").why
}

#[test]
fn each_rule_has_its_words() {
    for size in NODE_SIZES {
        let why = refused(size, |bytes| bytes[0] = b'x');
        assert!(why.contains("magic"), "{why}");
        let why = refused(size, |bytes| bytes[node::ADDRESS_AT] ^= 1);
        assert!(why.contains("belongs to block"), "{why}");
        let why = refused(size, |bytes| bytes[node::EPOCH_AT] ^= 1);
        assert!(why.contains("epoch"), "{why}");
        let why = refused(size, |bytes| bytes[32] ^= 1);
        assert!(why.contains("another volume"), "{why}");
        let why = refused(size, |bytes| bytes[5] = 2);
        assert!(why.contains("tree 2"), "{why}");
        let why = refused(size, |bytes| bytes[4] = 0);
        assert!(why.contains("level 0"), "{why}");
        let why = refused(size, |bytes| bytes[50] = 1);
        assert!(why.contains("reserved"), "{why}");
        let why = refused(size, |bytes| bytes[node::GARBAGE_AT] = 1);
        assert!(why.contains("do not fill"), "{why}");
        let why = refused(size, |bytes| bytes[node::COUNT_AT + 1] = 0xff);
        assert!(why.contains("slots meet the heap"), "{why}");
        let why = refused(size, |bytes| bytes[SLOTS_AT + 2] += 1);
        assert!(why.contains("of value") || why.contains("out of place"), "{why}");
        let why = refused(size, |bytes| bytes.copy_within(SLOTS_AT..SLOTS_AT + 4, SLOTS_AT + 4));
        assert!(why.contains("out of order"), "{why}");
        let why = refused(size, |bytes| bytes[node::COUNT_AT] = 0);
        assert!(why.contains("do not fill"), "{why}");
    }
}
