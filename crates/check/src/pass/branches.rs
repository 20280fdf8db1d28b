//! Pass 11: all other branches and snapshots, each by what differs from one that has been judged.
//!
//! A tree stands beside those that it grew out of and that grew out of it, and is compared with the one of them that came
//! first, `main` before all. Only what differs is judged, so that ten thousand snapshots cost what changed between
//! them. Of a file that differs all items but names are read again; of a directory only the names that differ.
//!
//! Of a snapshot that is being deleted only the blocks count: nothing enters it any more but the deletion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::item::{Extent, FileType, InodeItem, TreeKind, WalkPlace};
use holdfast_format::{ItemKind, Key};

use super::{Context, Use, data, inodes, names};
use crate::ascending::Ascending;
use crate::bounds::Bounds;
use crate::difference::{Difference, difference};
use crate::issue::Issue;
use crate::lineage::{TreeRoot, inside};
use crate::report::Counted;

pub(super) fn run(context: &mut Context<'_>) {
    let trees = std::mem::take(&mut context.trees);
    let facts = &context.facts;
    let main = Counted {
        inodes: facts.inodes,
        files: facts.files,
        directories: facts.directories,
        dentries: facts.dentries,
        extents: facts.extents,
    };
    // What each has.
    let mut counted = BTreeMap::from([(MAIN, main)]);
    for (at, (base, tree)) in in_turn(context, &trees).into_iter().enumerate() {
        context.progress(at as u64, trees.len() as u64);
        let volume = |tree| context.recovered.volume_of(context.volume.device, tree);
        let (before, now) = (volume(base), volume(tree));
        let mut differs = difference(&before, &now, tree);
        differs.is_whole &= !context.lost_trees.contains(&tree.id) && context.files_lost.is_empty();
        let of_base = counted.get(&base.id).copied().unwrap_or_default();
        let of_tree = judge(context, tree, of_base, &differs);
        counted.insert(tree.id, of_tree);
    }
    context.progress(trees.len() as u64, trees.len() as u64);
    for tree in trees.iter().filter(|tree| tree.cursor.is_some()) {
        counted.remove(&tree.id);
    }
    let others = context.lineage.all().filter(|(_, item)| item.kind == TreeKind::Branch);
    let branches = others.map(|(id, _)| id).filter(|id| *id != MAIN).chain([MAIN]);
    let of_branches = branches.filter_map(|id| counted.get(&id));
    context.facts.of_branches =
        of_branches.fold(Counted::default(), |all, of| all.with(*of, u64::saturating_add));
    context.trees = trees;
}

/// Each tree but `main`, behind the one with which it is compared.
fn in_turn<'t>(context: &Context<'_>, trees: &'t [TreeRoot]) -> Vec<(&'t TreeRoot, &'t TreeRoot)> {
    let by_id: BTreeMap<u64, &TreeRoot> = trees.iter().map(|tree| (tree.id, tree)).collect();
    let mut beside: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (id, item) in context.lineage.all().filter(|(_, item)| item.parent != 0) {
        beside.entry(id).or_default().push(item.parent);
        beside.entry(item.parent).or_default().push(id);
    }
    let mut left: BTreeSet<u64> = by_id.keys().copied().collect();
    let (mut order, mut turn) = (Vec::new(), VecDeque::from([(MAIN, MAIN)]));
    left.remove(&MAIN);
    while let Some((base, id)) = turn.pop_front() {
        if let (Some(base), Some(tree)) = (by_id.get(&base), by_id.get(&id))
            && id != MAIN
        {
            order.push((*base, *tree));
        }
        // What is being deleted is nothing to compare with; what lies behind it is compared with what is before.
        let is_whole = by_id.get(&id).is_some_and(|tree| tree.cursor.is_none());
        let base = if is_whole { id } else { base };
        let next = beside.get(&id).into_iter().flatten();
        turn.extend(next.filter(|next| left.remove(next)).map(|next| (base, *next)));
        if turn.is_empty() {
            turn.extend(left.pop_first().map(|id| (MAIN, id)));
        }
    }
    order
}

/// Judges what differs, and takes its blocks. Returns what the tree has, if the one before it has `content`.
fn judge(
    context: &mut Context<'_>,
    tree: &TreeRoot,
    content: Counted,
    differs: &Difference,
) -> Counted {
    context.others_lost |= !differs.is_whole;
    let changed = || differs.items.iter().filter_map(|(key, pair)| Some((key, pair.now.as_ref()?)));
    for (key, value) in changed().filter(|(key, _)| key.kind == ItemKind::Extent) {
        take_blocks(context, tree, key, value);
    }
    if tree.cursor.is_some() {
        return content;
    }
    let mut beside = context.beside(tree);
    if !differs.is_whole {
        beside.files_lost.push(Bounds::ALL);
    }
    judge_files(&mut beside, differs);
    if differs.is_whole {
        names::judge(&mut beside, differs);
    }
    let content = count(&mut beside, tree, content, differs);
    if beside.options.data {
        let mut reader = data::Reader::default();
        changed().for_each(|(key, value)| reader.take(&mut beside, key, value));
    }
    context.facts.verified_bytes += beside.facts.verified_bytes;
    context.findings = beside.findings;
    content
}

fn take_blocks(context: &mut Context<'_>, tree: &TreeRoot, key: &Key, value: &[u8]) {
    let extent = match Extent::decode(value) {
        Ok(extent) if context.volume.superblock.geometry.holds_data(extent.blocks) => extent,
        found => return not_deleted(context, tree, key, found.ok()),
    };
    let used = Use::of(key, &extent);
    // What lies across the cursor is cut there.
    let passed = tree.cursor.filter(|cursor| WalkPlace::item(key) < *cursor).map_or(0, |cursor| {
        let end = inside(&cursor, key.inode).unwrap_or(u64::MAX);
        end.saturating_sub(key.offset).div_ceil(BLOCK_BYTES)
    });
    if passed < used.blocks.count {
        context.uses.push(used.behind(passed));
    }
}

/// Of a snapshot that is being deleted nothing else is judged; but its deletion does not go on over an extent that cannot be. Of other
/// trees, the pass over their files says this.
fn not_deleted(context: &mut Context<'_>, tree: &TreeRoot, key: &Key, extent: Option<Extent>) {
    if tree.cursor.is_none() {
        return;
    }
    let (issue, why) = match &extent {
        Some(extent) => (
            Issue::ExtentOutside,
            format!("has the blocks {:?}, outside the data zone", extent.blocks),
        ),
        None => (Issue::ItemDamaged, "is damaged".to_owned()),
    };
    let what = format!("the extent at {} of inode {}, being deleted, {why}", key.offset, key.inode);
    let finding = context.findings.add(issue, what);
    finding.tree = Some(tree.name.clone());
    finding.block = extent.map(|extent| extent.blocks.start);
}

/// Pass 3 for each inode of which an item differs.
fn judge_files(beside: &mut Context<'_>, differs: &Difference) {
    let mut volume = Ascending::new(beside.volume);
    let mut reader = inodes::Reader::default();
    let items: Vec<_> = differs.items.iter().collect();
    for of_inode in items.chunk_by(|one, two| one.0.inode == two.0.inode) {
        let inode = of_inode[0].0.inode;
        let all = Bounds::inode(inode);
        // The names of a directory may be many: those that differ stand between two parts of the rest.
        let front = Bounds { high: Some(Key::new(inode, ItemKind::Dentry, 0)), ..all };
        let back = Bounds { low: Key::new(inode, ItemKind::Xattr, 0), ..all };
        if inode.0 > 0 {
            read(beside, &mut volume, &mut reader, front);
        }
        for (key, pair) in
            of_inode.iter().filter(|(key, _)| inode.0 == 0 || key.kind == ItemKind::Dentry)
        {
            if let Some(value) = &pair.now {
                reader.take(beside, pair.block, key, value);
            }
        }
        if inode.0 > 0 {
            read(beside, &mut volume, &mut reader, back);
        }
    }
    reader.end(beside);
}

fn read(
    beside: &mut Context<'_>,
    volume: &mut Ascending<'_>,
    reader: &mut inodes::Reader,
    range: Bounds,
) {
    let _ = volume.items(range, &mut |block, key, value| {
        reader.take(beside, block, &key, value);
        ControlFlow::Continue(())
    });
}

/// What the tree has, if the one before it has `content`.
fn count(
    beside: &mut Context<'_>,
    tree: &TreeRoot,
    content: Counted,
    differs: &Difference,
) -> Counted {
    let (mut more, mut less) = (Counted::default(), Counted::default());
    for (key, pair) in &differs.items {
        for (side, value) in [(&mut more, &pair.now), (&mut less, &pair.before)] {
            if let Some(value) = value {
                *side = side.with(of_item(key, value), u64::saturating_add);
            }
        }
    }
    let content = content.with(more, u64::saturating_add).with(less, u64::saturating_sub);
    let counted = content.inodes;
    if counted != tree.inode_count && differs.is_whole {
        let what = format!("it counts {} inodes, there are {counted}", tree.inode_count);
        beside.add(Issue::InodeCount, what);
    }
    content
}

/// What one item counts as.
fn of_item(key: &Key, value: &[u8]) -> Counted {
    let none = Counted::default();
    match key.kind {
        ItemKind::Inode if *key == Key::inode(key.inode) => {
            let file_type = InodeItem::decode(value).ok().map(|item| item.file_type());
            let is = |wanted| u64::from(file_type == Some(wanted));
            let (files, directories) = (is(FileType::Regular), is(FileType::Directory));
            Counted { inodes: 1, files, directories, ..none }
        }
        ItemKind::Dentry => Counted { dentries: 1, ..none },
        ItemKind::Extent => Counted { extents: 1, ..none },
        _ => none,
    }
}
