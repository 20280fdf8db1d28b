//! Items that are asked for in the order of their keys, range by range: a leaf is looked for and judged once, however many of the ranges lie
//! in it.

use std::ops::ControlFlow;

use holdfast_base::{BlockNo, TreeId};
use holdfast_format::{Key, NodeView};

use crate::bounds::Bounds;
use crate::items::{VisitItem, visit_leaf};
use crate::volume::{Look, Volume};
use crate::walk::out_of_bounds;

/// The files tree of a volume, read upwards.
pub(crate) struct Ascending<'a> {
    volume: Volume<'a>,
    /// The range that was read last: that of a leaf, or of a node that does not read.
    bounds: Option<Bounds>,
    /// The block of the leaf; `None`: it does not read.
    block: Option<BlockNo>,
    leaf: Vec<u8>,
}

impl<'a> Ascending<'a> {
    pub(crate) fn new(volume: Volume<'a>) -> Ascending<'a> {
        Ascending { volume, bounds: None, block: None, leaf: Vec::new() }
    }

    /// Visits the items in `range` as [`Volume::items`] does.
    pub(crate) fn items(&mut self, range: Bounds, visit: &mut VisitItem<'_>) -> ControlFlow<()> {
        let mut low = range.low;
        loop {
            let bounds = self.enter(&low);
            let next = bounds.high.filter(|next| range.high.is_none_or(|high| *next < high));
            self.part(Bounds { low, high: next.or(range.high) }, visit)?;
            match next {
                Some(next) => low = next,
                None => return ControlFlow::Continue(()),
            }
        }
    }

    /// What [`Volume::look`] finds.
    pub(crate) fn look(&mut self, key: &Key) -> Look {
        if let Some(change) = self.volume.changes_in(TreeId::Files).and_then(|of| of.get(key)) {
            return change.value.clone().map_or(Look::Missing, Look::Found);
        }
        self.enter(key);
        if self.block.is_none() {
            return Look::Lost;
        }
        let node = NodeView::trusted(&self.leaf);
        let found = node.search(&key.raw());
        found.map_or(Look::Missing, |at| Look::Found(node.value(at).to_vec()))
    }

    /// The items of what was entered last, in a part of its range.
    fn part(&self, part: Bounds, visit: &mut VisitItem<'_>) -> ControlFlow<()> {
        let mut changes = self.volume.changes_between(TreeId::Files, &part);
        if let Some(block) = self.block {
            visit_leaf(&mut changes, (block, &NodeView::trusted(&self.leaf)), &part, visit)?;
        }
        changes.try_for_each(|(key, change)| change.visit(key, visit))
    }

    /// Goes to the leaf that may have a key. Returns its range.
    fn enter(&mut self, key: &Key) -> Bounds {
        if let Some(bounds) = self.bounds.filter(|bounds| bounds.holds(key)) {
            return bounds;
        }
        let (mut pointer, top) = self.volume.root(TreeId::Files);
        let (mut bounds, mut parent) = (Bounds::ALL, None);
        self.block = None;
        for level in (0..=top).rev() {
            let expected = self.volume.expected(TreeId::Files, pointer, level);
            let Ok(node) = self.volume.node(&expected, parent, &mut self.leaf) else { break };
            if out_of_bounds(&node, &bounds).is_some() {
                break;
            }
            if level == 0 {
                self.block = Some(pointer.block);
                break;
            }
            let at = node.child_index(&key.raw());
            let next = (at + 1 < node.count()).then(|| node.key(at + 1));
            bounds = Bounds { low: node.key(at), high: next.or(bounds.high) };
            parent = Some(pointer);
            pointer = node.child(at);
        }
        self.bounds = Some(bounds);
        bounds
    }
}
