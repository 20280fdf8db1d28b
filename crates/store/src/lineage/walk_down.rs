//! Which nodes and data of a snapshot the next step of its deletion frees, and how far it comes.
//!
//! A step handles one node whose place the cursor has not passed, and each node that ends where it ends. An extent may reach
//! beyond the end of its leaf: then the cursor goes to the end of the extent, and leaves that lie within, which hold nothing, are
//! handled by the same step.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::WalkPlace;

use super::walk_data::{data_of_leaf, end_of_last_extent};
use super::way::{Found, Stand, Walk};
use crate::apply::Halt;
use crate::tree::{Forest, Missing, TreeNo};

/// How far a step has come.
struct Reach {
    /// Behind the last node that was handled.
    nodes: WalkPlace,
    /// Behind the last data.
    data: WalkPlace,
}

/// Finds what the next step frees. Changes nothing.
pub(super) fn find(walk: &Walk, forest: &Forest) -> Result<Found, Halt> {
    let mut found = Found::default();
    let mut reach = Reach { nodes: walk.cursor, data: walk.cursor };
    loop {
        let is_left = step(walk, forest, &mut reach, &mut found)?;
        if !is_left {
            found.cursor = None;
            return Ok(found);
        }
        found.cursor = Some(reach.nodes.max(reach.data));
        if reach.nodes >= reach.data {
            return Ok(found);
        }
        // The last extent reaches beyond its leaf. What ends within it holds nothing.
        let next = next_node(walk, forest, &reach.nodes)?;
        if next.last().is_none_or(|next| next.place() > reach.data) {
            return Ok(found);
        }
    }
}

/// Handles one node. Returns whether another is left.
fn step(walk: &Walk, forest: &Forest, reach: &mut Reach, found: &mut Found) -> Result<bool, Halt> {
    let mut way = next_node(walk, forest, &reach.nodes)?;
    let Some(here) = way.pop() else { return Ok(false) };
    if is_passed_whole(walk, forest, &here)? {
        if let Some(end) = end_of_last_extent(walk, forest, &here)? {
            reach.data = reach.data.max(end);
        }
    } else {
        if here.level == 0 {
            let node = view(forest, walk.of, &here)?;
            let end = data_of_leaf(walk, forest, &node, found)?;
            reach.data = end.map_or(reach.data, |end| reach.data.max(end));
        }
        found.nodes.push(here.pointer);
    }
    reach.nodes = here.behind();
    // What ends with it has nothing left below.
    while let Some(above) = way.last().filter(|above| above.end == here.end).copied() {
        way.pop();
        found.nodes.push(above.pointer);
        reach.nodes = above.behind();
    }
    Ok(!way.is_empty())
}

/// The way to the first node that a place has not passed: a leaf, a node that is passed as a whole, or one below which all is
/// passed. Empty: there is none.
fn next_node(walk: &Walk, forest: &Forest, at: &WalkPlace) -> Result<Vec<Stand>, Halt> {
    let mut way = vec![Stand::root(forest, walk.of)];
    if way[0].place() < *at {
        return Ok(Vec::new());
    }
    while let Some(here) = way.last().copied() {
        if here.level == 0 || is_passed_whole(walk, forest, &here)? {
            break;
        }
        let node = view(forest, walk.of, &here)?;
        match here.children(&node).find(|child| child.place() >= *at) {
            Some(child) => way.push(child),
            None => break,
        }
    }
    Ok(way)
}

/// Whether nothing of a node is freed: the snapshot's parent has all of it, or the child has the same node.
fn is_passed_whole(walk: &Walk, forest: &Forest, here: &Stand) -> Result<bool, Missing> {
    if here.pointer.epoch <= walk.above.parent && !mutants::is(Mutant::WalkTakesFromParent) {
        return Ok(true);
    }
    let Some(beside) = walk.beside.filter(|_| !mutants::is(Mutant::WalkTakesFromChild)) else {
        return Ok(false);
    };
    let mut stand = Stand::root(forest, beside);
    while stand.level > here.level {
        let node = view(forest, beside, &stand)?;
        let index = node.child_index(&here.low);
        let level = stand.level.saturating_sub(1);
        stand = Stand { pointer: node.child(index), level, low: node.raw_key(index), end: None };
    }
    Ok(stand.level == here.level && stand.pointer == here.pointer)
}

fn view<'a>(
    forest: &'a Forest,
    tree: TreeNo,
    stand: &Stand,
) -> Result<crate::cache::Node<'a>, Missing> {
    forest.node_at(tree, stand.pointer, stand.level, stand.low)
}
