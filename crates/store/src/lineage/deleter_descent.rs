//! Which nodes and data of a snapshot the next step of its deletion frees, and how far it comes.
//!
//! A step passes what it needs not go into, with neighbours of the same parent at once, up to a limit; then it handles one node
//! whose place the cursor has not passed, and each node that ends where it ends. An extent may reach beyond the end of its leaf: then
//! the cursor goes to the end of the extent, and leaves that lie within, which hold nothing, are handled by the same step.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_base::mutants::{self, Mutant};
use holdfast_format::item::WalkPlace;

use super::beside::Beside;
use super::deleter_cursor::{Walk, WalkStep};
use super::deleter_data::{data_of_leaf, end_of_last_extent};
use crate::apply::Halt;
use crate::cache::Node;
use crate::tree::subtree::Subtree;
use crate::tree::{Forest, Missing};

/// Nodes that a step passes as a whole at most, about: the tree has no other changes meanwhile.
const PASSED_MAX: usize = 1024;

/// How far a step has come.
struct Reach {
    /// Behind the last node that was handled.
    nodes: WalkPlace,
    /// Behind the last data.
    data: WalkPlace,
    /// Nodes that were passed as a whole.
    passed: usize,
}

/// What became of a node.
#[derive(PartialEq, Eq)]
enum Handled {
    /// It was passed as a whole, and its neighbours too.
    Passed,
    /// What it held is freed.
    Freed,
    /// There was none.
    Nothing,
}

/// Finds what the next step frees. Changes nothing.
pub(super) fn find(walk: &Walk, forest: &Forest) -> Result<WalkStep, Halt> {
    let mut found = WalkStep::default();
    let mut reach = Reach { nodes: walk.cursor, data: walk.cursor, passed: 0 };
    loop {
        let handled = step(walk, forest, &mut reach, &mut found)?;
        let next = next_node(walk, forest, &reach.nodes)?;
        let Some(next) = next.last().filter(|_| handled != Handled::Nothing) else {
            found.cursor = None;
            return Ok(found);
        };
        found.cursor = Some(reach.nodes.max(reach.data));
        // The last extent may reach beyond its leaf. What ends within it holds nothing.
        let is_within = reach.nodes < reach.data && next.place() <= reach.data;
        let goes_on = handled == Handled::Passed && reach.passed < PASSED_MAX;
        if !is_within && (!goes_on || reach.nodes < reach.data) {
            return Ok(found);
        }
    }
}

/// Handles one node, or passes as many neighbours as it may.
fn step(
    walk: &Walk,
    forest: &Forest,
    reach: &mut Reach,
    found: &mut WalkStep,
) -> Result<Handled, Halt> {
    let mut way = next_node(walk, forest, &reach.nodes)?;
    let Some(first) = way.pop() else { return Ok(Handled::Nothing) };
    let mut last = first;
    let handled = if is_passed_whole(walk, forest, &first)? {
        reach.passed = reach.passed.saturating_add(1);
        if let Some(above) = way.last() {
            last = last_passed(walk, forest, above, &first, reach)?;
        }
        let end = end_of_last_extent(walk, forest, &first, &last)?;
        reach.data = end.map_or(reach.data, |end| reach.data.max(end));
        Handled::Passed
    } else {
        if first.level == 0 {
            let node = first.node(forest)?;
            let end = data_of_leaf(walk, forest, &node, found)?;
            reach.data = end.map_or(reach.data, |end| reach.data.max(end));
        }
        found.nodes.push((first.pointer, first.level));
        Handled::Freed
    };
    reach.nodes = last.behind();
    // What ends with it has nothing left below.
    while let Some(above) = way.last().filter(|above| above.end == last.end).copied() {
        way.pop();
        found.nodes.push((above.pointer, above.level));
        reach.nodes = above.behind();
    }
    Ok(if way.is_empty() { Handled::Nothing } else { handled })
}

/// The last of the children of a node that can be passed as a whole in a row, from one that can be.
fn last_passed(
    walk: &Walk,
    forest: &Forest,
    above: &Subtree,
    first: &Subtree,
    reach: &mut Reach,
) -> Result<Subtree, Missing> {
    let node = above.node(forest)?;
    let mut neighbour = Beside::default();
    let mut last = *first;
    let mut index = node.child_index(&first.low).saturating_add(1);
    while index < node.count() && reach.passed < PASSED_MAX {
        let next = above.child(&node, index);
        let is_passed = is_the_parents(walk, &next)
            || match walk.beside.filter(|_| !mutants::is(Mutant::WalkTakesFromChild)) {
                Some(beside) => neighbour.has(forest, beside, &next)?,
                None => false,
            };
        if !is_passed {
            break;
        }
        reach.passed = reach.passed.saturating_add(1);
        index = index.saturating_add(1);
        last = next;
    }
    Ok(last)
}

/// The way to the first node that a place has not passed: a leaf, a node that is passed as a whole, or one below which all is
/// passed. Empty: there is none.
fn next_node(walk: &Walk, forest: &Forest, at: &WalkPlace) -> Result<Vec<Subtree>, Halt> {
    let mut way = vec![Subtree::root(forest, walk.of)];
    if way[0].place() < *at {
        return Ok(Vec::new());
    }
    while let Some(here) = way.last().copied() {
        if here.level == 0 || is_passed_whole(walk, forest, &here)? {
            break;
        }
        let node = here.node(forest)?;
        match first_child_not_before(&node, &here, at) {
            Some(child) => way.push(child),
            None => break,
        }
    }
    Ok(way)
}

/// The first child of a node whose place is not before another.
fn first_child_not_before(node: &Node<'_>, here: &Subtree, at: &WalkPlace) -> Option<Subtree> {
    let (mut low, mut high) = (0, node.count());
    while low < high {
        let middle = low.midpoint(high);
        if here.child(node, middle).place() < *at {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    (low < node.count()).then(|| here.child(node, low))
}

/// Whether nothing of a node is freed: the snapshot's parent has all of it, or the child has the same node.
fn is_passed_whole(walk: &Walk, forest: &Forest, here: &Subtree) -> Result<bool, Missing> {
    if is_the_parents(walk, here) {
        return Ok(true);
    }
    match walk.beside.filter(|_| !mutants::is(Mutant::WalkTakesFromChild)) {
        Some(beside) => Beside::default().has(forest, beside, here),
        None => Ok(false),
    }
}

/// Whether the snapshot's parent has a node, and so all that is below it.
fn is_the_parents(walk: &Walk, here: &Subtree) -> bool {
    here.pointer.epoch <= walk.above.parent && !mutants::is(Mutant::WalkTakesFromParent)
}
