//! Pass 2: every node of the files trees of all branches and snapshots, and of the space tree. What trees share is read once.
//!
//! The rules of a single node are those of `NodeView::open`; this pass adds
//! what only the whole shows: bounds, epochs, sharing, kinds of items.

use std::ops::ControlFlow;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::item::Extent;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::{ItemKind, NodePointer, NodeView};

use super::copies::Copies;
use super::{Context, Use};
use crate::issue::Issue;
use crate::lineage::TreeRoot;
use crate::met_nodes::MetNodes;
use crate::referenced::Referenced;
use crate::text::tree_name;
use crate::volume::Volume;
use crate::walk::{Step, WalkPart};

/// Nodes between two reports of progress.
const STRIDE: u64 = 256;

pub(super) fn run(context: &mut Context<'_>) {
    let trees = std::mem::take(&mut context.trees);
    let (mut seen, mut copies) = (MetNodes::default(), Copies::default());
    for tree in &trees {
        let way = WalkPart { of: tree.id, cursor: tree.cursor, ..WalkPart::default() };
        let volume = context.recovered.volume_of(context.volume.device, tree);
        let name = (tree.id != MAIN).then(|| tree.name.clone());
        context.aside = name;
        walk(context, &volume, TreeId::Files, way, (&mut seen, &mut copies));
        compare_referenced(context, tree, seen.referenced());
    }
    context.aside = None;
    context.trees = trees;
    let volume = context.volume;
    let seen = &mut MetNodes::default();
    walk(context, &volume, TreeId::Space, WalkPart::default(), (seen, &mut copies));
    copies.compare(context);
    context.facts.complete = context.is_whole() && context.space_lost.is_empty();
}

fn walk(
    context: &mut Context<'_>,
    volume: &Volume<'_>,
    tree: TreeId,
    way: WalkPart,
    (seen, copies): (&mut MetNodes, &mut Copies),
) {
    let _ = volume.walk_unseen(tree, way, seen, &mut |step| {
        match step {
            // A part of what is below it was not walked before.
            Step::Node { is_first: false, .. } => {}
            Step::Node { pointer, node, .. } => {
                let geometry = &volume.superblock.geometry;
                let stored = geometry.stored(tree, node.level());
                let places = geometry.places_of_node(pointer.block, stored);
                context.facts.node_blocks += geometry.blocks_of(stored);
                context.uses.extend(places.map(|blocks| Use::node(blocks, tree)));
                copies.meets(volume, tree, pointer, node.level());
                let nodes = match tree {
                    TreeId::Files => &mut context.facts.files_nodes,
                    TreeId::Space => &mut context.facts.space_nodes,
                };
                *nodes += 1;
                let done = context.facts.files_nodes + context.facts.space_nodes;
                if done.is_multiple_of(STRIDE) {
                    context.progress(done, 0);
                }
                if node.level() == 0 {
                    check_kinds(context, tree, pointer.block, &node);
                    check_births(context, pointer, &node);
                }
            }
            Step::Lost { pointer, level, bounds, problem } => {
                let what = format!(
                    "node {} of level {level} in the {} tree: {problem}",
                    pointer.block,
                    tree_name(tree)
                );
                context.add(problem.issue(), what).block(pointer.block);
                match tree {
                    TreeId::Files if context.aside.is_some() => {
                        context.others_lost = true;
                        context.lost_trees.insert(way.of);
                    }
                    TreeId::Files => context.files_lost.push(bounds),
                    TreeId::Space => context.space_lost.push(bounds),
                }
            }
        }
        ControlFlow::Continue(())
    });
}

/// What a tree says that it refers to is what was met in it. Nothing is known of what cannot be read.
fn compare_referenced(context: &mut Context<'_>, tree: &TreeRoot, met: u64) {
    let is_whole = context.files_lost.is_empty() && context.lost_trees.is_empty();
    let wrong = Referenced::of(tree, met).filter(|of| is_whole && !of.is_right());
    if let Some(Referenced { name, said, counted, .. }) = wrong {
        let what = format!("{name} counts {said} blocks that it refers to, there are {counted}");
        context.add(Issue::ReferencedBlocks, what);
    }
}

fn check_kinds(context: &mut Context<'_>, tree: TreeId, block: BlockNo, node: &NodeView<'_>) {
    for (key, _) in node.items() {
        if key.kind.tree() != tree {
            let what = format!("the item {key:?} in the {} tree", tree_name(tree));
            context.add(Issue::ItemMisplaced, what).block(block);
        }
    }
}

/// S2: no extent is younger than its leaf. One that is younger than the volume has another finding.
fn check_births(context: &mut Context<'_>, pointer: NodePointer, node: &NodeView<'_>) {
    let youngest = context.volume.superblock.epoch.next();
    for (key, value) in node.items_of(ItemKind::Extent) {
        let Ok(extent) = Extent::decode(value) else { continue };
        if extent.birth > pointer.epoch && extent.birth <= youngest {
            let (birth, epoch) = (extent.birth, pointer.epoch);
            let what = format!(
                "the extent at {} of inode {} is born in epoch {birth}, its leaf in epoch {epoch}",
                key.offset, key.inode
            );
            context.add(Issue::ExtentYounger, what).inode(key.inode).block(pointer.block);
        }
    }
}
