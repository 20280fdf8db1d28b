//! One edit of a golden volume, as a program says it.
//!
//! Edits know the format: they change fields by name, keys and values of
//! records, numbers of a batch; make, copy and remove records; write a structure
//! over another; or change any bytes. Most of what they make passes the
//! first judgement and fails, if at all, where two things should fit together.

use std::collections::BTreeMap;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, InodeNo};
use holdfast_format::journal::{CommitHead, FrameHeader};
use holdfast_format::limits::value_max;
use holdfast_format::log::LogHeader;
use holdfast_format::node::NodeHeader;
use holdfast_format::{Carried, Field, ItemKind, superblock};

use super::lineage;
use super::records::{self, Holds, Logged};
use super::{Image, Sort, Structure};
use crate::program::Program;

/// Structures that were edited, by index.
pub type Touched = BTreeMap<usize, Vec<u8>>;

/// Reads an edit and carries it out. What bytes outside of structures become goes to `pokes`.
pub fn carry_out(
    image: &Image,
    program: &mut Program<'_>,
    touched: &mut Touched,
    pokes: &mut Vec<(u64, Vec<u8>)>,
    story: &mut Vec<String>,
) {
    match program.byte() % 16 {
        0..=2 => field(image, program, touched, story),
        3..=7 => list(image, program, touched, story),
        8..=10 => raw(image, program, touched, story),
        11 => replace(image, program, touched, story),
        12 => poke(image, program, pokes, story),
        15 => branches(image, program, touched, story),
        _ => value_number(image, program, touched, story),
    }
}

/// One of the structures that `wanted` takes.
fn pick(
    image: &Image,
    program: &mut Program<'_>,
    wanted: impl Fn(&Structure) -> bool,
) -> Option<usize> {
    let fit: Vec<usize> =
        (0..image.structures.len()).filter(|at| wanted(&image.structures[*at])).collect();
    let chosen = usize::from(program.byte());
    // From the end: the newest structures come last, and most of the others are stale.
    (!fit.is_empty()).then(|| fit[fit.len() - 1 - chosen % fit.len()])
}

fn bytes<'a>(image: &Image, touched: &'a mut Touched, index: usize) -> &'a mut Vec<u8> {
    touched.entry(index).or_insert_with(|| image.structures[index].bytes.clone())
}

fn put(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + size) {
        place.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}

fn get(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut eight = [0; 8];
    if let Some(place) = bytes.get(at..at + size) {
        eight[..size].copy_from_slice(place);
    }
    u64::from_le_bytes(eight)
}

/// A field of a header, by its table.
fn field(image: &Image, program: &mut Program<'_>, touched: &mut Touched, story: &mut Vec<String>) {
    let sort = [Sort::Superblock, Sort::Superblock, Sort::Node, Sort::Frame, Sort::Batch];
    let sort = sort[program.below(sort.len())];
    let Some(index) = pick(image, program, |structure| structure.sort == sort) else { return };
    let mut fields: Vec<(usize, Field)> = Vec::new();
    let mut add = |base: usize, table: Vec<Field>| {
        fields.extend(table.into_iter().map(|field| (base + field.offset, field)));
    };
    match sort {
        Sort::Superblock => add(0, superblock::Fields::fields()),
        Sort::Node => add(0, NodeHeader::fields()),
        Sort::Frame => {
            add(0, FrameHeader::fields());
            add(FrameHeader::SIZE, CommitHead::fields());
        }
        Sort::Batch => add(0, LogHeader::fields()),
    }
    let (at, field) = fields.swap_remove(program.below(fields.len()));
    let size = field.size.min(8);
    let bytes = bytes(image, touched, index);
    let old = get(bytes, at, size);
    let new = program.number(old, &image.known());
    put(bytes, at, size, new);
    let place = image.structures[index].at;
    story.push(format!("{sort:?} at {place}: {} {old:#x} becomes {new:#x}", field.name));
}

/// Bytes anywhere in a structure.
fn raw(image: &Image, program: &mut Program<'_>, touched: &mut Touched, story: &mut Vec<String>) {
    let Some(index) = pick(image, program, |_| true) else { return };
    let bytes = bytes(image, touched, index);
    let (at, size) = (program.u16() % bytes.len(), 1 << (program.byte() % 4));
    let old = get(bytes, at, size);
    let new = program.number(old, &image.known());
    put(bytes, at, size, new);
    let Structure { sort, at: place, .. } = &image.structures[index];
    story.push(format!("{sort:?} at {place}: {size} bytes at {at}, {old:#x} becomes {new:#x}"));
}

/// A structure where another of its sort was: misdirected, stale or doubled. Its address is put
/// right if the program says so.
fn replace(
    image: &Image,
    program: &mut Program<'_>,
    touched: &mut Touched,
    story: &mut Vec<String>,
) {
    let Some(from) = pick(image, program, |_| true) else { return };
    let Structure { sort, at: source, bytes: stale } = &image.structures[from];
    let Some(to) = pick(image, program, |other| other.sort == *sort) else { return };
    let address_at = match sort {
        Sort::Superblock | Sort::Frame => 24 - 8 * usize::from(*sort == Sort::Frame),
        Sort::Node | Sort::Batch => 16,
    };
    let bytes = bytes(image, touched, to);
    let len = stale.len().min(bytes.len());
    let address = get(bytes, address_at, 8);
    bytes[..len].copy_from_slice(&stale[..len]);
    let readdressed = program.byte() & 1 == 0;
    if readdressed {
        put(bytes, address_at, 8, address);
    }
    let place = image.structures[to].at;
    story.push(format!("{sort:?} of {source} in the place of {place}, moved: {readdressed}"));
}

/// Bytes of a sector of data, or of anything.
fn poke(
    image: &Image,
    program: &mut Program<'_>,
    pokes: &mut Vec<(u64, Vec<u8>)>,
    story: &mut Vec<String>,
) {
    let blocks = image.superblock.geometry.volume_blocks;
    let first = image.superblock.geometry.first_data_block().0;
    let block = match program.byte() & 1 {
        0 => first + program.u16() as u64 % (blocks - first),
        _ => program.u16() as u64 % blocks,
    };
    let fill = program.byte();
    story.push(format!("a sector of block {block} is filled with {fill:#x}"));
    let sector = u64::from(program.byte()) % 8 * 512;
    pokes.push((block * BLOCK_BYTES + sector, vec![fill; BLOCK_SIZE / 8]));
}

/// The records of a node or a batch.
fn list(image: &Image, program: &mut Program<'_>, touched: &mut Touched, story: &mut Vec<String>) {
    let lists = |structure: &Structure| matches!(structure.sort, Sort::Node | Sort::Batch);
    let Some(index) = pick(image, program, lists) else { return };
    let sort = image.structures[index].sort;
    let bytes = bytes(image, touched, index);
    let (new, what) = match sort {
        Sort::Node if is_sound(bytes) => {
            let mut items = records::of_node(bytes);
            let what = edit_items(image, program, &mut items);
            (records::to_node(bytes, &items), what)
        }
        Sort::Batch => {
            let mut logged = records::of_batch(bytes, &image.superblock.geometry);
            let what = edit_logged(image, program, &mut logged);
            (records::to_batch(bytes, &logged), what)
        }
        _ => return,
    };
    if let Some(new) = new {
        *bytes = new;
        story.push(format!("{sort:?} at {}: {what}", image.structures[index].at));
    }
}

/// Whether the records of a node can be listed after other edits of it.
fn is_sound(bytes: &[u8]) -> bool {
    let mut reader = holdfast_format::codec::Reader::new("node", bytes);
    NodeHeader::read(&mut reader)
        .and_then(|header| {
            holdfast_format::NodeView::trusted(bytes).check_body(&header, Carried::NOTHING)
        })
        .is_ok()
}

/// The key with one part of it changed.
fn edit_key(image: &Image, program: &mut Program<'_>, key: &mut holdfast_format::Key) {
    let known = image.known();
    match program.byte() % 6 {
        0 | 1 => key.inode = InodeNo(program.number(key.inode.0, &known)),
        2 | 3 => key.offset = program.number(key.offset, &known),
        4 => key.kind = ItemKind::ALL[program.below(ItemKind::ALL.len())],
        _ => key.kind = ItemKind::from_raw(64 + program.byte() % 128).unwrap_or(key.kind),
    }
}

/// The value with some bytes changed, or longer, or shorter.
fn edit_value(image: &Image, program: &mut Program<'_>, value: &mut Vec<u8>, most: usize) {
    match program.byte() % 8 {
        0 => value.truncate(program.u16() % (value.len() + 1)),
        1 => {
            let len = (value.len() + program.u16() % 600).min(most);
            value.resize(len, program.byte());
        }
        _ if value.is_empty() => {}
        _ => {
            let (at, size) = (program.u16() % value.len(), 1 << (program.byte() % 4));
            let new = program.number(get(value, at, size), &image.known());
            put(value, at, size, new);
        }
    }
}

fn edit_items(image: &Image, program: &mut Program<'_>, items: &mut Vec<records::Item>) -> String {
    if items.is_empty() {
        return "no records".into();
    }
    let most = value_max(image.superblock.geometry.node_size);
    let how = program.byte() % 6;
    let at = program.u16() % items.len();
    let (key, value) = items[at].clone();
    match how {
        0 => {
            items.remove(at);
            format!("{key:?} is removed")
        }
        1 => {
            let mut copy = key;
            edit_key(image, program, &mut copy);
            items.push((copy, value));
            format!("{key:?} is copied to {copy:?}")
        }
        2 => {
            let mut moved = key;
            edit_key(image, program, &mut moved);
            items[at].0 = moved;
            format!("{key:?} is moved to {moved:?}")
        }
        3 => {
            let other = program.u16() % items.len();
            items[at].1 = items[other].1.clone();
            format!("{key:?} gets the value of {:?}", items[other].0)
        }
        _ => {
            edit_value(image, program, &mut items[at].1, most);
            format!("{key:?}: {:02x?} becomes {:02x?}", head(&value), head(&items[at].1))
        }
    }
}

fn edit_logged(image: &Image, program: &mut Program<'_>, logged: &mut Vec<Logged>) -> String {
    if logged.is_empty() {
        return "no records".into();
    }
    let (how, at) = (program.byte() % 6, program.u16() % logged.len());
    let before = format!("{:?}", logged[at]);
    match how {
        0 => drop(logged.remove(at)),
        1 => {
            let more = match program.byte() % 4 {
                0 => lineage::logged(image, program),
                _ => vec![logged[at].clone()],
            };
            logged.extend(more);
        }
        2 => {
            let other = program.u16() % logged.len();
            logged.swap(at, other);
        }
        _ => {
            let known = image.known();
            let most = value_max(image.superblock.geometry.node_size);
            match &mut logged[at] {
                Logged::Put(key, value) => match how {
                    3 => edit_key(image, program, key),
                    _ => edit_value(image, program, value, most),
                },
                Logged::Delete(key) => edit_key(image, program, key),
                Logged::Branch(id, inodes) => match how {
                    3 => *id = program.number(*id, &known),
                    _ => *inodes = program.number(*inodes, &known),
                },
                Logged::Drop(start, count, birth, at) => match (how, program.byte() & 1) {
                    (3, 0) => *start = program.number(*start, &known),
                    (3, _) => *count = program.number(*count, &known),
                    (4, _) => *birth = program.number(*birth, &known),
                    _ => at.offset = program.number(at.offset, &known),
                },
                Logged::Free(start, count) => match how {
                    3 => *count = program.number(*count, &known),
                    _ => *start = program.number(*start, &known),
                },
                Logged::Take(start, count, holds) => match (how, program.byte() & 1, holds) {
                    (3, _, _) => *count = program.number(*count, &known),
                    (4, ..) | (_, 0, _) => *start = program.number(*start, &known),
                    (_, _, Holds::Sum(sum)) => *sum = program.number(*sum, &known),
                    (_, _, Holds::Inside(patches)) => {
                        let at = program.u16() % patches.len().max(1);
                        if let Some((base, offset, bytes)) = patches.get_mut(at) {
                            match program.byte() % 3 {
                                0 => *base = program.number(*base, &known),
                                1 => *offset = program.u16() as u16,
                                _ => bytes.truncate(program.u16()),
                            }
                        }
                    }
                    (_, _, holds) => *holds = Holds::Sum(program.number(0, &known)),
                },
            }
        }
    }
    // The encoder cannot encode other keys.
    logged.retain(|record| match record {
        Logged::Put(key, _) | Logged::Delete(key) => records::is_loggable(key),
        _ => true,
    });
    let cut: String = before.chars().take(100).collect();
    let after: String = match logged.get(at) {
        Some(record) if how > 2 => format!("{record:?}").chars().take(100).collect(),
        _ => ["gone", "twice", "elsewhere"][usize::from(how.min(2))].into(),
    };
    format!("record {at}, {cut}, is {after}")
}

/// Branches and snapshots in a leaf of the space tree.
fn branches(
    image: &Image,
    program: &mut Program<'_>,
    touched: &mut Touched,
    story: &mut Vec<String>,
) {
    const SPACE: u8 = 2;
    let leaf = |structure: &Structure| {
        structure.sort == Sort::Node && structure.bytes[4] == 0 && structure.bytes[5] == SPACE
    };
    let Some(index) = pick(image, program, leaf) else { return };
    let bytes = bytes(image, touched, index);
    if !is_sound(bytes) {
        return;
    }
    let mut items = records::of_node(bytes);
    let more = lineage::items(image, program);
    let what = format!("{} items of branches and snapshots", more.len());
    items.extend(more);
    if let Some(node) = records::to_node(bytes, &items) {
        *bytes = node;
        story.push(format!("Node at {}: {what}", image.structures[index].at));
    }
}

/// A number of an item, by the tables of the items: what `list` does to bytes, aimed.
fn value_number(
    image: &Image,
    program: &mut Program<'_>,
    touched: &mut Touched,
    story: &mut Vec<String>,
) {
    use holdfast_format::item::lineage::{LineageItem, RootItem, TreeHead, WalkItem};
    use holdfast_format::item::{
        GroupItem, InodeItem, OriginItem, PunchItem, SharedItem, dentry, extent, hold, xattr,
    };
    let leaf = |structure: &Structure| structure.sort == Sort::Node && structure.bytes[4] == 0;
    let Some(index) = pick(image, program, leaf) else { return };
    let bytes = bytes(image, touched, index);
    if !is_sound(bytes) {
        return;
    }
    let mut items = records::of_node(bytes);
    if items.is_empty() {
        return;
    }
    let at = program.u16() % items.len();
    let (key, value) = &mut items[at];
    let table = match key.kind {
        ItemKind::Inode => InodeItem::fields(),
        ItemKind::Dentry => dentry::DentryHead::fields(),
        ItemKind::Xattr => xattr::XattrHead::fields(),
        ItemKind::Extent => extent::ExtentHead::fields(),
        ItemKind::Punch => PunchItem::fields(),
        ItemKind::Group => GroupItem::fields(),
        ItemKind::Shared => SharedItem::fields(),
        ItemKind::Tree => TreeHead::fields(),
        ItemKind::Root => RootItem::fields(),
        ItemKind::Hold => hold::HoldHead::fields(),
        ItemKind::Origin => OriginItem::fields(),
        ItemKind::Walk => WalkItem::fields(),
        ItemKind::Lineage => LineageItem::fields(),
        _ => return,
    };
    let field = &table[program.below(table.len())];
    let size = field.size.min(8);
    let old = get(value, field.offset, size);
    let new = program.number(old, &image.known());
    put(value, field.offset, size, new);
    let text = format!("{key:?}: {} {old:#x} becomes {new:#x}", field.name);
    if let Some(node) = records::to_node(bytes, &items) {
        *bytes = node;
        story.push(format!("Node at {}: {text}", image.structures[index].at));
    }
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(32)]
}
