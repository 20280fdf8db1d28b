//! Which leaf holds which keys of a tree: those to which sound nodes lead from the root, and where these end, the newest others.
//!
//! The tree is walked above its leaves; whether a leaf is sound is known from the scan. Memory: about 90 bytes for each leaf.

use holdfast_base::{Epoch, TreeId};
use holdfast_check::reading::{NodePlace, VolumeReading};

use crate::fill::{LostRange, Part, fill};
use crate::index::Index;
use crate::point::{Point, ends_behind, nearer};
use crate::scan::FoundNode;

/// Keys of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) low: Point,
    /// Excluded; `None`: up to the last key.
    pub(crate) end: Option<Point>,
    /// The leaf.
    pub(crate) block: u64,
    pub(crate) epoch: u64,
    /// Sound nodes lead here from the root.
    pub(crate) is_proven: bool,
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) place: NodePlace,
    /// Something else than itself says that it is one: a superblock, or an item of a branch or snapshot.
    pub(crate) is_said: bool,
}

/// A tree, as far as it is there.
#[derive(Debug)]
pub(crate) struct Cover {
    /// Upwards and disjoint. Of keys between two of them nothing is known.
    pub(crate) segments: Vec<Segment>,
}

impl Cover {
    /// What there is of a tree. Without a root there are leaves alone, none younger than `newest`. `may_be`: whether the leaf at a block
    /// can be of this tree if nothing leads to it.
    pub(crate) fn build(
        reading: &VolumeReading<'_>,
        index: &Index,
        tree: TreeId,
        root: Option<Root>,
        newest: Epoch,
        may_be: &dyn Fn(u64) -> bool,
    ) -> Cover {
        let mut building =
            Building { reading, index, tree, segments: Vec::new(), lost: Vec::new() };
        match root {
            Some(root) => {
                building.descend(root.place);
                if !root.is_said {
                    building.doubt_end(root.place.pointer.epoch);
                }
            }
            None => building.lose(Point::MIN, None, newest),
        }
        building.end(may_be)
    }

    /// The segments that may hold keys from `low` up to `end`.
    pub(crate) fn between(&self, low: Point, end: Option<Point>) -> &[Segment] {
        let first = self.segments.partition_point(|of| !ends_behind(of.end, low));
        let rest = &self.segments[first..];
        let count = rest.partition_point(|of| ends_behind(end, of.low));
        &rest[..count]
    }

    /// Whether all keys from `low` up to `end` are proven.
    pub(crate) fn is_proven(&self, low: Point, end: Option<Point>) -> bool {
        let mut at = Some(low);
        for segment in self.between(low, end) {
            match at {
                Some(here) if segment.is_proven && segment.low <= here => at = segment.end,
                _ => return false,
            }
        }
        match (at, end) {
            (None, _) => true,
            (Some(at), Some(end)) => at >= end,
            (Some(_), None) => false,
        }
    }
}

struct Building<'a, 'd> {
    reading: &'a VolumeReading<'d>,
    index: &'a Index,
    tree: TreeId,
    segments: Vec<Segment>,
    lost: Vec<LostRange>,
}

impl Building<'_, '_> {
    /// Recursion ends at level 0. A node fits one place alone, by its first separator, so none is entered twice.
    fn descend(&mut self, place: NodePlace) {
        let (low, end) = (Point::of(&place.low), place.high.map(|high| Point::of(&high)));
        if place.level == 0 {
            let leaf = self.index.get(place.pointer).filter(|leaf| self.fits(leaf, low, end));
            match leaf {
                Some(leaf) => self.segments.push(Segment {
                    low,
                    end,
                    block: leaf.block,
                    epoch: leaf.epoch,
                    is_proven: true,
                }),
                None => self.lose(low, end, place.pointer.epoch),
            }
            return;
        }
        let mut buffer = Vec::new();
        let Ok(node) = self.reading.node(self.tree, &place, None, &mut buffer) else {
            return self.lose(low, end, place.pointer.epoch);
        };
        let children = place.children(&node);
        if place.level > 1 {
            self.reading.read_ahead(children.iter().map(|child| child.pointer.block));
        }
        for child in children {
            match child.pointer.epoch > place.pointer.epoch {
                true => self.lose(
                    Point::of(&child.low),
                    child.high.map(|high| Point::of(&high)),
                    place.pointer.epoch,
                ),
                false => self.descend(child),
            }
        }
    }

    fn fits(&self, leaf: &FoundNode, low: Point, end: Option<Point>) -> bool {
        let is_inside = leaf.count == 0 || low <= leaf.first && ends_behind(end, leaf.last);
        leaf.level == 0 && leaf.tree == self.tree as u8 && is_inside
    }

    fn lose(&mut self, low: Point, end: Option<Point>, epoch: Epoch) {
        self.add_lost(LostRange { low, end, epoch: epoch.0 });
    }

    fn add_lost(&mut self, range: LostRange) {
        match self.lost.last_mut() {
            // One range for neighbours, so that a leaf across both is one part.
            Some(last) if last.end == Some(range.low) && last.epoch == range.epoch => {
                last.end = range.end;
            }
            _ => self.lost.push(range),
        }
    }

    /// Of a root that only looks like one it is not known that nothing comes behind its last key: it may be the first child of a
    /// lost one.
    fn doubt_end(&mut self, epoch: Epoch) {
        let Some(last) = self.segments.last_mut().filter(|last| last.end.is_none()) else { return };
        let pointer = holdfast_format::NodePointer {
            block: holdfast_base::BlockNo(last.block),
            epoch: Epoch(last.epoch),
        };
        let leaf = self.index.get(pointer).filter(|leaf| leaf.count > 0);
        let Some(behind) = leaf.map_or(Some(last.low), |leaf| leaf.last.after()) else { return };
        last.end = Some(behind);
        self.add_lost(LostRange { low: behind, end: None, epoch: epoch.0 });
    }

    fn end(self, may_be: &dyn Fn(u64) -> bool) -> Cover {
        let Building { index, tree, mut segments, lost, .. } = self;
        if !lost.is_empty() {
            let leaves = index.leaves(tree).filter(|at| may_be(index.nodes[*at].block)).collect();
            let parts = fill(&lost, &index.nodes, leaves);
            segments.extend(parts.iter().map(|part| Segment::of(part, index)));
            segments.sort_unstable_by_key(|segment| segment.low);
        }
        segments.shrink_to_fit();
        Cover { segments }
    }
}

impl Segment {
    fn of(part: &Part, index: &Index) -> Segment {
        let leaf = &index.nodes[part.leaf];
        let (block, epoch) = (leaf.block, leaf.epoch);
        Segment { low: part.low, end: part.end, block, epoch, is_proven: false }
    }

    /// Where the leaf is to be read.
    pub(crate) fn place(&self) -> NodePlace {
        let pointer = holdfast_format::NodePointer {
            block: holdfast_base::BlockNo(self.block),
            epoch: Epoch(self.epoch),
        };
        // Whether its keys belong here was judged when the cover was made; a part of them may be meant.
        NodePlace::root(pointer, 0)
    }

    /// The part of it before `end`.
    pub(crate) fn end_before(&self, end: Option<Point>) -> Option<Point> {
        nearer(self.end, end)
    }
}
