//! Pass 2: every node of both trees.
//!
//! The rules of a single node are those of `NodeView::open`; this pass adds
//! what only the whole shows: bounds, epochs, sharing, kinds of items.

use std::ops::ControlFlow;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::NodeView;

use super::{Context, Owner, Use};
use crate::issue::Issue;
use crate::volume::{Bounds, Step};

/// Nodes between two reports of progress.
const STRIDE: u64 = 256;

pub(super) fn run(context: &mut Context<'_>) {
    for tree in [TreeId::Files, TreeId::Space] {
        walk(context, tree);
    }
    context.facts.node_blocks = (context.facts.files_nodes + context.facts.space_nodes)
        * context.volume.superblock.geometry.node_blocks();
    context.facts.complete = context.files_lost.is_empty() && context.space_lost.is_empty();
}

fn walk(context: &mut Context<'_>, tree: TreeId) {
    let volume = context.volume;
    let _ = volume.walk(tree, Bounds::ALL, &mut |step| {
        match step {
            Step::Node { pointer, node } => {
                let blocks = volume.node_blocks(pointer.block);
                context.uses.push(Use { blocks, owner: Owner::Node(tree) });
                let nodes = match tree {
                    TreeId::Files => &mut context.facts.files_nodes,
                    TreeId::Space => &mut context.facts.space_nodes,
                };
                *nodes += 1;
                let done = context.facts.files_nodes + context.facts.space_nodes;
                if done.is_multiple_of(STRIDE) {
                    context.progress(done, 0);
                }
                check_kinds(context, tree, pointer.block, &node);
            }
            Step::Lost { pointer, level, bounds, problem } => {
                let what = format!(
                    "node {} of level {level} in the {} tree: {problem}",
                    pointer.block,
                    name(tree)
                );
                context.findings.add(problem.issue(), what).block(pointer.block);
                match tree {
                    TreeId::Files => context.files_lost.push(bounds),
                    TreeId::Space => context.space_lost.push(bounds),
                }
            }
        }
        ControlFlow::Continue(())
    });
}

/// The tree's name in messages.
pub(crate) fn name(tree: TreeId) -> &'static str {
    match tree {
        TreeId::Files => "files",
        TreeId::Space => "space",
    }
}

fn check_kinds(context: &mut Context<'_>, tree: TreeId, block: BlockNo, node: &NodeView<'_>) {
    if node.level() > 0 {
        return;
    }
    for index in 0..node.count() {
        let key = node.key(index);
        if key.kind.tree() != tree {
            let what = format!("the item {key:?} in the {} tree", name(tree));
            context.findings.add(Issue::ItemMisplaced, what).block(block);
        }
    }
}
