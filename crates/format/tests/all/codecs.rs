//! Every decoder against every kind of bytes: an error, or a value that encodes to the same bytes (P10).
//!
//! Three sources of bytes: valid values, valid values with a few bytes
//! changed, and noise. proptest prints the smallest failing input and its seed.

use holdfast_base::{
    BLOCK_SIZE, BlockNo, BlockRange, CommitNo, Epoch, InodeNo, Lsn, Timestamp, TreeId,
};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::item::lineage::decode_numbers;
use holdfast_format::item::xattr::XattrValue;
use holdfast_format::item::{
    Dentry, Extent, FileType, GroupItem, HoldItem, InodeItem, LineageItem, OriginItem, RootItem,
    RunPart, SharedItem, TreeItem, WalkItem, Xattr, group, orphan,
};
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::limits::{FILE_SIZE_MAX, GROUP_BLOCKS, LINK_MAX, NODE_SIZES};
use holdfast_format::superblock::{
    BASES, FoundDamage, LEAF_COPIES, NODE_COPIES, RING_COPIES, RUNS, newer_program,
};
use holdfast_format::{
    Geometry, ItemKind, JournalMark, Key, LogMark, Malformed, NodePointer, Stored, Superblock,
};
use proptest::prelude::*;
use uuid::Uuid;

/// Decodes, and encodes again what was found. The outer `Err` is the failure of a test.
type Again = fn(&[u8]) -> Result<Vec<u8>, Malformed>;

fn key_again(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let key = Key::decode(bytes)?;
    assert_eq!(Key::decode(&key.encode())?.raw(), key.raw());
    Ok([&key.encode(), &bytes[Key::SIZE..]].concat())
}

const DECODERS: [(&str, Again); 18] = [
    ("key", key_again),
    ("node pointer", |bytes| Ok(NodePointer::decode(bytes)?.encode().to_vec())),
    ("inode", |bytes| Ok([&InodeItem::decode(bytes)?.encode(), InodeItem::tail(bytes)].concat())),
    ("dentry", |bytes| Ok(Dentry::decode(bytes)?.encode())),
    ("extent", |bytes| Ok(Extent::decode(bytes)?.encode())),
    ("run", |bytes| Ok(RunPart::decode(bytes)?.encode())),
    ("xattr", |bytes| Ok(Xattr::decode(bytes)?.encode())),
    ("group", |bytes| Ok(GroupItem::decode(bytes)?.encode())),
    ("shared", |bytes| Ok(SharedItem::decode(&SharedItem::key(1, 9), bytes)?.bytes().to_vec())),
    ("bitmap", |bytes| Ok(group::decode_bitmap(bytes)?.to_vec())),
    ("orphan", |bytes| orphan::decode(bytes).map(|()| orphan::VALUE.to_vec())),
    ("tree", |bytes| Ok(TreeItem::decode(bytes)?.encode())),
    ("hold", |bytes| Ok(HoldItem::decode(bytes)?.encode())),
    ("origin", |bytes| Ok(OriginItem::decode(bytes)?.bytes().to_vec())),
    ("root", |bytes| Ok(RootItem::decode(bytes)?.bytes().to_vec())),
    ("walk", |bytes| Ok(WalkItem::at(&WalkItem::decode(bytes)?).bytes().to_vec())),
    ("lineage", |bytes| Ok(LineageItem::decode(bytes)?.bytes().to_vec())),
    ("names", |bytes| {
        Ok(decode_numbers(bytes)?.iter().flat_map(|number| number.to_le_bytes()).collect())
    }),
];

/// Fails unless every decoder refuses `bytes` or gives them back unchanged.
fn judge_by_all(bytes: &[u8]) {
    for (name, again) in DECODERS {
        if let Ok(encoded) = again(bytes) {
            assert_eq!(encoded, bytes, "{name}");
        }
    }
}

fn keys() -> impl Strategy<Value = Key> {
    let kinds = prop::sample::select(ItemKind::ALL.to_vec());
    (any::<u64>(), kinds, any::<u64>()).prop_map(|(inode, kind, offset)| Key {
        inode: InodeNo(inode),
        kind,
        offset,
    })
}

fn times() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

const TYPES: [FileType; 7] = [
    FileType::Fifo,
    FileType::CharDevice,
    FileType::Directory,
    FileType::BlockDevice,
    FileType::Regular,
    FileType::Symlink,
    FileType::Socket,
];

fn inodes() -> impl Strategy<Value = InodeItem> {
    let head = (prop::sample::select(TYPES.to_vec()), 0..0o10000u32, any::<u32>(), any::<u32>());
    let counts = (0..=LINK_MAX, 0..=FILE_SIZE_MAX, any::<u64>(), any::<u64>(), any::<u64>());
    let rest = ([times(), times(), times(), times()], any::<bool>(), any::<u32>());
    (head, counts, rest).prop_map(
        |((kind, perm, uid, gid), (nlink, size, blocks, rdev, parent), (times, xattrs, next))| {
            InodeItem {
                mode: kind.mode_bits() | perm,
                uid,
                gid,
                nlink,
                size,
                blocks,
                rdev,
                parent: InodeNo(parent),
                parent_slot: if parent == 0 { 0 } else { rdev },
                atime: times[0],
                mtime: times[1],
                ctime: times[2],
                btime: times[3],
                flags: if xattrs { InodeItem::HAS_XATTRS } else { 0 },
                xattr_value_next: next,
                change: blocks,
                project: next,
                reserved: [0; 4],
            }
        },
    )
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..=255)
        .prop_filter("a name", |name| holdfast_format::item::dentry::is_valid_name(name))
}

/// The encoded form of a valid value of any record.
fn encoded() -> impl Strategy<Value = Vec<u8>> {
    let dentries = (1..=u64::MAX, prop::sample::select(TYPES.to_vec()), names()).prop_map(
        |(inode, file_type, name)| {
            Dentry { inode: InodeNo(inode), file_type, name: &name }.encode()
        },
    );
    let extents = (0..1u64 << 55, prop::collection::vec(any::<u64>(), 0..64), 1..u32::MAX)
        .prop_map(|(start, sums, count)| {
            let count = if sums.is_empty() { count.into() } else { sums.len() as u64 };
            Extent::new(BlockRange::new(BlockNo(start), count), sums).encode()
        });
    let runs =
        (0..1u64 << 55, 1..=64u16, any::<[u16; 3]>(), prop::collection::vec(any::<u64>(), 64))
            .prop_map(|(block, decoded, [codec, skip, less], mut sums)| {
                let codec = (codec % 2) as u8;
                let skip = skip % decoded;
                let count = 1 + less % (decoded - skip);
                sums.truncate(if codec == 0 { count.into() } else { 1 });
                let stored = u32::from(decoded) * BLOCK_SIZE as u32 - 1 - u32::from(less % 4095);
                let (block, place, birth) = (BlockNo(block), (less % 8) as u8, Epoch(block >> 8));
                let part =
                    RunPart { block, place, codec, stored, decoded, skip, count, birth, sums };
                assert_eq!(RunPart::decode(&part.encode()), Ok(part.clone()));
                part.encode()
            });
    let xattrs = (names(), prop::collection::vec(any::<u8>(), 0..300), any::<Option<(u32, u16)>>())
        .prop_map(|(name, value, pieces)| {
            let value = match pieces {
                None => XattrValue::Here(&value),
                Some((id, len)) => XattrValue::Pieces { id, len: len.into() },
            };
            Xattr { name: &name, value }.encode()
        });
    let groups = (0..=32768u32, 0..=32768u32).prop_map(|(a, b)| {
        let (used_blocks, node_blocks) = (a.max(b), a.min(b));
        let (shared_blocks, free_slots) =
            ((used_blocks - node_blocks) / 2, (32768 - used_blocks) / 4);
        GroupItem { used_blocks, node_blocks, shared_blocks, free_slots }.encode()
    });
    let holds = (names(), times()).prop_map(|(tag, created)| HoldItem { tag, created }.encode());
    prop_oneof![
        holds,
        keys().prop_map(|key| key.encode().to_vec()),
        (any::<u64>(), any::<u64>()).prop_map(|(block, epoch)| {
            NodePointer { block: BlockNo(block >> 8), epoch: Epoch(epoch) }.encode().to_vec()
        }),
        inodes().prop_map(|inode| inode.encode()),
        dentries,
        extents,
        runs,
        xattrs,
        groups,
        prop::collection::vec(any::<u8>(), 512),
    ]
}

fn superblocks() -> impl Strategy<Value = Superblock> {
    let shape = (2048u64..1 << 38, prop::sample::select(NODE_SIZES.to_vec()));
    let rest =
        (any::<[u8; 16]>(), "\\PC{0,16}", any::<[u64; 4]>(), 1..=COUNTER_MAX, [0..16u8, 0..16]);
    (shape, rest).prop_map(|((blocks, node_size), (uuid, label, numbers, epoch, levels))| {
        let geometry = Geometry::for_device(blocks * BLOCK_SIZE as u64, node_size)
            .expect("8 MiB are enough for any node size");
        let geometry = match numbers[0] % 2 {
            0 => geometry,
            _ => geometry.with_copies().unwrap_or(geometry),
        };
        let first = geometry.first_data_block();
        let places = (first.0..).step_by(geometry.node_blocks() as usize).map(BlockNo);
        let places: Vec<_> = places
            .filter(|at| geometry.holds_node(*at, geometry.stored(TreeId::Space, 0)))
            .take(2)
            .collect();
        let at = |index: u64| NodePointer {
            block: places[index as usize],
            epoch: Epoch(epoch - index.min(epoch)),
        };
        let unknown = numbers[1] % 2;
        Superblock {
            epoch: Epoch(epoch),
            geometry,
            uuid: Uuid::from_bytes(uuid),
            label,
            hash_seed: numbers[0],
            features_compat: 0,
            features_ro_compat: (unknown << 5)
                | ((geometry.node_copies().0 - 1) * (NODE_COPIES | LEAF_COPIES | RING_COPIES)),
            files: at(0),
            files_level: levels[0],
            space: at(1),
            space_level: levels[1],
            lsn: Lsn(numbers[2] % COUNTER_MAX),
            inode_next: InodeNo((numbers[3] % COUNTER_MAX).max(16)),
            inode_count: numbers[2] % COUNTER_MAX,
            used_blocks: numbers[3] % geometry.data_blocks(),
            referenced_blocks: numbers[3] % COUNTER_MAX,
            journal: JournalMark {
                commit: CommitNo(numbers[2] % COUNTER_MAX),
                next: BlockNo(geometry.journal().start.0 + numbers[3] % geometry.journal().count),
                sum: numbers[1],
            },
            log: LogMark::START,
            ring_tag: numbers[0].to_be_bytes(),
            node_tag: numbers[1].to_be_bytes(),
            created: Timestamp {
                secs: numbers[2] as i64,
                nanos: (numbers[2] % 1_000_000_000) as u32,
            },
            writer: "a program".into(),
            fault: (numbers[3] % 2 == 0).then(|| FoundDamage {
                time: Timestamp { secs: numbers[3] as i64, nanos: 0 },
                reason: "a node is damaged".into(),
            }),
            // Of the ro_compat features that it claims.
            rest: if unknown == 1 { vec![1, 0, 2] } else { Vec::new() },
        }
    })
}

fn superblock_again(bytes: &[u8; BLOCK_SIZE]) -> Option<Box<[u8; BLOCK_SIZE]>> {
    let (address, superblock) = SUPERBLOCK_SLOTS
        .iter()
        .find_map(|slot| Some((*slot, Superblock::decode(bytes, *slot).ok()?)))?;
    superblock.geometry.check().expect("decode checks the geometry");
    Some(superblock.encode(address))
}

fn reseal(block: &mut [u8; BLOCK_SIZE]) {
    let sum = holdfast_format::checksum::crc64_with_hole(block, 16);
    block[16..24].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn valid_values_come_back(inode in inodes(), key in keys(), name in names()) {
        prop_assert_eq!(InodeItem::decode(&inode.encode()), Ok(inode));
        prop_assert_eq!(Key::decode(&key.encode()), Ok(key));
        let dentry = Dentry { inode: InodeNo(1), file_type: FileType::Socket, name: &name };
        let bytes = dentry.encode();
        prop_assert_eq!(Dentry::decode(&bytes), Ok(dentry));
        let value = XattrValue::Here(&name);
        let xattr = Xattr { name: &name, value };
        let bytes = xattr.encode();
        prop_assert_eq!(Xattr::decode(&bytes), Ok(xattr));
    }

    #[test]
    fn the_order_of_keys_is_the_order_of_raw_keys(a in keys(), b in keys()) {
        prop_assert_eq!(a.cmp(&b), a.raw().cmp(&b.raw()));
        prop_assert!(Key::MIN <= a && a <= Key::MAX);
    }

    #[test]
    fn no_decoder_accepts_what_it_would_not_write(bytes in encoded()) {
        judge_by_all(&bytes);
    }

    #[test]
    fn nor_after_damage(
        mut bytes in encoded(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
        more in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        bytes.extend(more);
        judge_by_all(&bytes);
    }

    #[test]
    fn nor_for_noise(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        judge_by_all(&bytes);
    }

    #[test]
    fn superblocks_come_back(superblock in superblocks()) {
        let slot = (superblock.epoch.0 % 2) as usize;
        let address = SUPERBLOCK_SLOTS[slot];
        let block = superblock.encode(address);
        prop_assert_eq!(Superblock::decode(&block, address), Ok(superblock.clone()));
        prop_assert!(Superblock::decode(&block, BlockNo(address.0 + 1)).is_err());
        let wrong = SUPERBLOCK_SLOTS[1 - slot];
        prop_assert!(Superblock::decode(&superblock.encode(wrong), wrong).is_err());
    }

    #[test]
    fn one_wrong_byte_is_seen(superblock in superblocks(), at in 0..BLOCK_SIZE, by in 1..=255u8) {
        let slot = SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize];
        let mut block = superblock.encode(slot);
        block[at] ^= by;
        prop_assert!(Superblock::decode(&block, slot).is_err());
    }

    /// Features that change what items mean keep a program that lacks them away from all of the volume.
    #[test]
    fn a_feature_that_no_program_has_yet_is_obeyed(superblock in superblocks()) {
        let slot = SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize];
        for feature in [RUNS, BASES] {
            let mut block = superblock.encode(slot);
            block[64..72].copy_from_slice(&feature.to_le_bytes());
            reseal(&mut block);
            prop_assert!(Superblock::decode(&block, slot).is_err());
            prop_assert!(newer_program(&block, slot).is_some());
        }
    }

    #[test]
    fn superblocks_with_false_fields_and_true_sums(
        superblock in superblocks(),
        damage in prop::collection::vec((0..330usize, any::<u8>()), 1..5),
    ) {
        let slot = SUPERBLOCK_SLOTS[(superblock.epoch.0 % 2) as usize];
        let mut block = superblock.encode(slot);
        for (at, byte) in damage {
            block[at] = byte;
        }
        reseal(&mut block);
        if let Some(again) = superblock_again(&block) {
            prop_assert_eq!(again, block);
        }
    }

    #[test]
    fn a_geometry_that_passes_has_zones_in_order(
        volume_blocks in any::<u64>().prop_map(|bits| bits >> (bits % 64)),
        node_size in prop::sample::select(vec![4096usize, 16384, 65536, 8192, 0]),
        log_blocks in any::<u64>().prop_map(|bits| bits >> (bits % 64)),
        journal_blocks in any::<u64>().prop_map(|bits| bits >> (bits % 64)),
        group in any::<u64>(),
        copy_mask in prop::sample::select(vec![0, 64, 1280, 16384, 32, 32768]),
        distance in any::<u64>().prop_map(|bits| bits >> (bits % 64)),
        (is_twice, is_packed) in any::<(bool, bool)>(),
        (log_start, journal_start, data_start) in (0..2000u64, 0..2000u64, (0..300u64).prop_map(|at| at * 16)),
    ) {
        let ring_distance = if is_twice { distance } else { 0 };
        let plain = Geometry {
            volume_blocks, node_size, log_start, log_blocks: 0, journal_start: 0, journal_blocks: 0, data_start, copy_mask, leaf_copies: false,
            ring_distance,
        };
        let geometry = match is_packed {
            true => plain.with_ring_blocks(log_blocks, journal_blocks),
            false => Geometry { log_blocks, journal_start, journal_blocks, ..plain },
        };
        if geometry.check().is_ok() {
            let first = geometry.first_data_block();
            // No place of a ring lies in another one, nor outside their zone.
            let mut rings: Vec<_> = geometry.rings().map(|ring| (ring.start.0, ring.end().unwrap().0)).collect();
            rings.sort_unstable();
            prop_assert!(rings.windows(2).all(|two| two[0].1 <= two[1].0), "{rings:?}");
            prop_assert!(rings[0].0 >= 272 && rings.last().unwrap().1 <= first.0);
            prop_assert!(geometry.log_room() >= log_blocks && geometry.journal_room() >= journal_blocks);
            let longest = Geometry {
                log_blocks: geometry.log_room(), journal_blocks: geometry.journal_room(), ..geometry
            };
            prop_assert!(longest.check().is_ok(), "{longest:?}");
            prop_assert!(geometry.with_first_rings().check().is_ok());
            prop_assert_eq!(geometry.ring_places().count(), if ring_distance == 0 { 1 } else { 2 });
            prop_assert!(geometry.holds_some_node(first));
            prop_assert_eq!(first.0 + geometry.data_blocks(), geometry.far_copy().0);
            prop_assert!((16..32).contains(&(volume_blocks - geometry.far_copy().0)));
            let blocks = geometry.group_blocks(group);
            prop_assert!(blocks.is_empty() || geometry.holds_data(blocks));
            prop_assert!(group < geometry.group_count() || blocks.is_empty());
        }
    }
}

/// Readers take what can be counted; a program makes and opens what it has memory for.
#[test]
fn a_pib_is_a_limit_of_programs_and_not_of_the_format() {
    let pib = (1 << 50) / 4096;
    let small = Geometry::for_device(1 << 40, 4096).expect("it is large enough");
    let of = |volume_blocks| Geometry { volume_blocks, ..small };
    assert!(Geometry::for_device(1 << 50, 4096).is_ok());
    assert!(Geometry::for_device((1 << 50) + 4096, 4096).is_err());
    assert!(of(pib).check_own().is_ok());
    let most = i64::MAX as u64 / 4096;
    for blocks in [pib + 1, most] {
        assert!(of(blocks).check().is_ok());
        let error = of(blocks).check_own().expect_err("it is too large").to_string();
        assert!(error.contains("more than the 1024 TiB"), "{error}");
        // What is reckoned with at once does not overflow.
        let (far, groups) = (of(blocks).far_copy(), of(blocks).group_count());
        assert!(
            far.byte_offset().is_some()
                && of(blocks).holds_data(of(blocks).group_blocks(groups - 1))
        );
    }
    assert!(of(most + 1).check().is_err() && of(u64::MAX).check().is_err());
}

/// Copies are far away and of most volumes' size the same way; where half of a volume is too little for that, they are nearer.
#[test]
fn copies_lie_as_far_away_as_the_volume_allows() {
    for node_size in NODE_SIZES {
        for (bytes, mask) in [
            (8u64 << 20, 1024 | 256),
            (64 << 20, 8192 | 256),
            (1 << 30, 16384 | 256),
            (1 << 40, 16384 | 256),
        ] {
            let geometry = Geometry::for_device(bytes, node_size).expect("it is large enough");
            let Ok(geometry) = geometry.with_copies() else {
                assert_eq!((bytes, node_size), (8 << 20, 65536), "it is large enough for copies");
                continue;
            };
            assert_eq!(geometry.copy_mask, mask, "{bytes} bytes, nodes of {node_size}");
            let (rings, distance) =
                (geometry.log_blocks + geometry.journal_blocks, geometry.ring_distance);
            assert!(
                distance >= rings && distance <= rings + 512,
                "{bytes}: {distance} for {rings}"
            );
            assert!(
                rings < 8192 || distance >> 8 & 1 == 1 && distance % 256 == 0,
                "the other kind of MiB"
            );
            let mut places = (geometry.first_data_block().0..geometry.volume_blocks).map(BlockNo);
            let block = places.find(|block| geometry.holds_node(*block, Stored::Twice));
            let block = block.expect("it has room for a node");
            let copy = geometry.copy_of(block, Stored::Twice).expect("it has copies");
            assert_eq!(copy.0 >> 8 & 1, 1 - (block.0 >> 8 & 1), "the other kind of MiB");
            assert_eq!(geometry.copy_of(copy, Stored::Twice), Some(block));
            assert!(!geometry.holds_node(copy, Stored::Twice), "a copy is no node");
            assert!(geometry.holds_node(copy, Stored::Once), "but any place may hold a leaf");
        }
    }
}

#[test]
fn slots_of_a_group_are_the_places_for_nodes_in_it() {
    let (rings, far) = ([64, 40000], [40 << 20, 200 << 20]);
    for (node_size, mask) in NODE_SIZES.iter().flat_map(|size| [0, 64, 16640].map(|m| (*size, m))) {
        for (ring, bytes) in rings.iter().flat_map(|ring| far.map(|bytes| (*ring, bytes))) {
            let ring = Some(ring * BLOCK_SIZE as u64);
            let Ok(plain) = Geometry::with_rings(bytes, node_size, ring, None) else { continue };
            let geometry = Geometry { copy_mask: mask, ..plain };
            geometry.check().expect("it differs in the mask alone");
            let partial = [0, 1, 2, geometry.group_count() - 1];
            for group in partial.into_iter().filter(|group| *group < geometry.group_count()) {
                let begin = group * GROUP_BLOCKS;
                let blocks = (begin..begin + GROUP_BLOCKS).map(BlockNo);
                let places = blocks
                    .filter(|at| geometry.holds_node(*at, geometry.stored(TreeId::Space, 0)))
                    .count() as u64;
                assert_eq!(places, geometry.slots_of_group(group), "{geometry:?}, group {group}");
                assert_eq!(places, geometry.free_slots_of_group(group, &[]), "{geometry:?}");
                let blocks = (begin..begin + GROUP_BLOCKS).map(BlockNo);
                let single = blocks.filter(|at| geometry.holds_some_node(*at)).count() as u64;
                assert_eq!(single, geometry.places_of_group(group), "{geometry:?}, group {group}");
            }
        }
    }
}
