//! Branches and snapshots that no honest program makes: circles, roots outside of the volume, huge counts, cursors that make
//! no sense, names that lead elsewhere.
//!
//! Most numbers are small, so that they meet; each may be any.

use holdfast_base::{BlockNo, Epoch, InodeNo, Lsn, Timestamp};
use holdfast_format::item::lineage::{
    LINEAGE, LineageItem, RootItem, WalkItem, child_key, name_key,
};
use holdfast_format::item::{HoldItem, TreeItem, TreeKind, WalkPlace};
use holdfast_format::{ItemKind, Key, NodePointer};

use super::Image;
use super::records::{Item, Logged};
use crate::program::Program;

/// Numbers of branches and snapshots go up to this, mostly.
const IDS: u64 = 6;

/// A number of a branch or snapshot.
fn id(image: &Image, program: &mut Program<'_>) -> u64 {
    match program.byte() {
        byte if byte < 240 => u64::from(byte) % (IDS + 1),
        _ => program.number(IDS, &image.known()),
    }
}

/// A root: that of `main`, a node of it, or anything.
fn root(image: &Image, program: &mut Program<'_>) -> (NodePointer, u8) {
    let superblock = &image.superblock;
    let (mut root, mut level) = (superblock.files, superblock.files_level);
    match program.byte() % 8 {
        0..=4 => {}
        5 => root.block = BlockNo(program.number(root.block.0, &image.known())),
        6 => root.epoch = Epoch(program.number(root.epoch.0, &image.known())),
        _ => level = program.byte() % 20,
    }
    (root, level)
}

fn place(image: &Image, program: &mut Program<'_>) -> WalkPlace {
    let kind = ItemKind::ALL[program.below(ItemKind::ALL.len())];
    let inode = InodeNo(program.number(16, &image.known()));
    let key = Key::new(inode, kind, program.number(4096, &image.known()));
    match program.byte() % 4 {
        0 => WalkPlace::start(),
        1 => WalkPlace::node(None, program.byte() % 16),
        2 => WalkPlace::node(Some(key.raw()), program.byte()),
        _ => WalkPlace::item(&key),
    }
}

/// A branch or snapshot, and what belongs to it as the program says.
fn tree(image: &Image, program: &mut Program<'_>, items: &mut Vec<Item>) {
    let superblock = &image.superblock;
    let known = image.known();
    let own = 1 + id(image, program) % IDS;
    let how = program.byte();
    let kind = if how & 1 == 0 { TreeKind::Snapshot } else { TreeKind::Branch };
    let name = if how & 2 == 0 { format!("t{own}").into_bytes() } else { Vec::new() };
    let (root, level) = root(image, program);
    let parent = if how & 4 == 0 { 0 } else { id(image, program) };
    let mut item = TreeItem {
        kind,
        parent,
        branch: 0,
        epoch: Epoch(0),
        lsn: superblock.lsn,
        created: Timestamp { secs: 1, nanos: 0 },
        root: NodePointer { block: BlockNo(0), epoch: Epoch(0) },
        level: 0,
        inode_count: 0,
        referenced_blocks: 0,
        limit: 0,
        name,
        tail: Vec::new(),
    };
    if kind == TreeKind::Snapshot {
        (item.root, item.level, item.branch) = (root, level, 1 + id(image, program) % 3);
        item.epoch = superblock.epoch;
        item.inode_count = superblock.inode_count;
        item.referenced_blocks = superblock.referenced_blocks;
    }
    match program.byte() % 10 {
        0 => item.epoch = Epoch(program.number(item.epoch.0, &known)),
        1 => item.lsn = Lsn(program.number(item.lsn.0, &known)),
        2 => item.tail = vec![1; program.byte().into()],
        7 => {
            let hold = HoldItem { tag: b"held".to_vec(), created: item.created };
            items.push((HoldItem::key(own, &hold.tag), hold.encode()));
        }
        3 => item.inode_count = program.number(item.inode_count, &known),
        4 => item.branch = id(image, program),
        8 if how & 2 != 0 => item = TreeItem::going(id(image, program)),
        5 => item.referenced_blocks = program.number(item.referenced_blocks, &known),
        6 => item.limit = program.number(item.limit, &known),
        _ => {}
    }
    items.push((TreeItem::key(own), item.encode()));
    if how & 8 == 0 && !item.name.is_empty() {
        items.push((name_key(item.branch, &item.name), own.to_le_bytes().to_vec()));
    }
    if how & 16 == 0 && parent != 0 {
        items.push((child_key(parent, own), Vec::new()));
    }
    if (how & 32 == 0) == (kind == TreeKind::Branch) {
        let count = program.number(superblock.inode_count, &known);
        let referenced = program.number(superblock.referenced_blocks, &known);
        let root = RootItem::of(root, level, count, referenced);
        items.push((RootItem::key(own), root.bytes().to_vec()));
    }
    if how & 64 == 0 {
        items.push((WalkItem::key(own), WalkItem::at(&place(image, program)).bytes().to_vec()));
    }
}

/// Some branches and snapshots, as items of the space tree.
pub(super) fn items(image: &Image, program: &mut Program<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    for _ in 0..=program.byte() % 4 {
        tree(image, program, &mut items);
    }
    let next = match program.byte() % 4 {
        0 => program.number(IDS, &image.known()),
        _ => IDS + 2,
    };
    items.push((LineageItem::KEY, LineageItem { next, reserved: [0; 8] }.bytes().to_vec()));
    if program.byte().is_multiple_of(4) {
        let key = Key::new(InodeNo(LINEAGE), ItemKind::Name, program.number(7, &image.known()));
        items.push((key, vec![program.byte(); program.below(40)]));
    }
    items
}

/// The same as records of a batch, and a branch that gives up blocks.
pub(super) fn logged(image: &Image, program: &mut Program<'_>) -> Vec<Logged> {
    let mut items = Vec::new();
    tree(image, program, &mut items);
    let mut records: Vec<Logged> =
        items.into_iter().map(|(key, value)| Logged::Put(key, value)).collect();
    let first = image.superblock.geometry.first_data_block().0;
    records.push(Logged::Branch(id(image, program), program.number(3, &image.known())));
    let at = Key::new(InodeNo(16 + id(image, program)), ItemKind::Extent, 0);
    let block = program.number(first, &image.known());
    records.push(Logged::Drop(block, 1, program.number(2, &image.known()), at));
    records
}
