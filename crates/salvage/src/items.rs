//! The items of a tree, in the order of their keys, as the log leaves them: each with where it comes from, and the keys between of
//! which nothing is known.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use holdfast_base::TreeId;
use holdfast_check::changes::Change;
use holdfast_check::reading::VolumeReading;
use holdfast_format::{Key, NodeView};

use crate::cover::{Cover, Segment};
use crate::point::{Point, ends_behind};

/// Where an item comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// It belongs to the state that is salvaged. Else it is of a leaf to which nothing leads.
    pub(crate) is_proven: bool,
    /// The epoch of the leaf; of the log the newest.
    pub(crate) epoch: u64,
}

impl Origin {
    /// What counts before all else.
    pub(crate) const LOG: Origin = Origin { is_proven: true, epoch: u64::MAX };
}

/// What there is next.
pub(crate) enum Event<'a> {
    Item {
        key: Key,
        value: &'a [u8],
        origin: Origin,
        /// Of an item that is not proven: the first place behind it that a leaf has which counts more.
        until: Option<Point>,
    },
    /// Keys from the first place up to the second of which nothing is known.
    Gap(Point, Option<Point>),
}

type Visit<'v> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'v;

/// A tree to read items from.
#[derive(Debug)]
pub(crate) struct Items<'a, 'd> {
    reading: &'a VolumeReading<'d>,
    tree: TreeId,
    cover: &'a Cover,
    changes: &'a BTreeMap<Key, Change>,
    /// The leaf that was read last: it lies in the buffer.
    leaf: Option<u64>,
    buffer: Vec<u8>,
}

impl<'a, 'd> Items<'a, 'd> {
    pub(crate) fn new(
        reading: &'a VolumeReading<'d>,
        tree: TreeId,
        cover: &'a Cover,
        changes: &'a BTreeMap<Key, Change>,
    ) -> Items<'a, 'd> {
        Items { reading, tree, cover, changes, leaf: None, buffer: Vec::new() }
    }

    /// Visits what there is from `low` up to `end`, until the visitor has enough.
    pub(crate) fn visit(
        &mut self,
        low: Point,
        end: Option<Point>,
        visitor: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let segments = &self.cover.segments;
        let first = segments.partition_point(|of| !ends_behind(of.end, low));
        let mut at = low;
        for index in first..segments.len() {
            let segment = segments[index];
            if !ends_behind(end, segment.low) {
                break;
            }
            if at < segment.low {
                self.visit_gap(at, Some(segment.low), visitor)?;
                at = segment.low;
            }
            let stop = segment.end_before(end);
            if self.load(&segment) {
                // An older leaf that only fills the gap behind this one takes nothing from it.
                let next = segments.get(index + 1);
                let is_newer = |next: &&Segment| next.is_proven || next.epoch > segment.epoch;
                let next = next.filter(is_newer).map(|next| next.low);
                self.visit_leaf(&segment, (at, stop), next, visitor)?;
            } else {
                self.visit_gap(at, stop, visitor)?;
            }
            match stop {
                Some(stop) => at = stop,
                None => return ControlFlow::Continue(()),
            }
        }
        match ends_behind(end, at) {
            true => self.visit_gap(at, end, visitor),
            false => ControlFlow::Continue(()),
        }
    }

    /// The value of one key, and where it comes from. `Err`: nothing is known of it.
    pub(crate) fn get(&mut self, key: &Key) -> Result<Option<(Vec<u8>, Origin)>, ()> {
        let (low, mut found) = (Point::of(key), Ok(None));
        let _ = self.visit(low, low.after(), &mut |event| {
            match event {
                Event::Item { value, origin, .. } => found = Ok(Some((value.to_vec(), origin))),
                Event::Gap(..) if found == Ok(None) => found = Err(()),
                Event::Gap(..) => {}
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Whether all that there is, and is not, from `low` up to `end` is proven.
    pub(crate) fn is_proven(&self, low: Point, end: Option<Point>) -> bool {
        self.cover.is_proven(low, end)
    }

    /// Has the leaf of a segment in the buffer. It was sound when it was scanned; a device may have lost it since.
    fn load(&mut self, segment: &Segment) -> bool {
        if self.leaf != Some(segment.block) {
            let read = self.reading.node(self.tree, &segment.place(), None, &mut self.buffer);
            self.leaf = read.is_ok().then_some(segment.block);
        }
        self.leaf.is_some()
    }

    fn changes(
        &self,
        low: Point,
        end: Option<Point>,
    ) -> impl Iterator<Item = (&'a Key, &'a Change)> {
        let none = (Bound::Excluded(Key::MAX), Bound::Unbounded);
        let range = match (low.key(), end.map(Point::key)) {
            (None, _) => none,
            (Some(low), None | Some(None)) => (Bound::Included(low), Bound::Unbounded),
            (Some(low), Some(Some(end))) if low < end => {
                (Bound::Included(low), Bound::Excluded(end))
            }
            _ => none,
        };
        self.changes.range(range)
    }

    fn visit_gap(
        &self,
        low: Point,
        end: Option<Point>,
        visitor: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        visitor(Event::Gap(low, end))?;
        for (key, change) in self.changes(low, end) {
            if let Some(value) = &change.value {
                visitor(Event::Item { key: *key, value, origin: Origin::LOG, until: None })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn visit_leaf(
        &self,
        segment: &Segment,
        (low, end): (Point, Option<Point>),
        next: Option<Point>,
        visitor: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let node = NodeView::trusted(&self.buffer);
        let origin = Origin { is_proven: segment.is_proven, epoch: segment.epoch };
        let until = if segment.is_proven { None } else { next };
        let mut changes = self.changes(low, end).peekable();
        let of_log = |key: &Key, change: &Change, visitor: &mut Visit<'_>| match &change.value {
            Some(value) => {
                visitor(Event::Item { key: *key, value, origin: Origin::LOG, until: None })
            }
            None => ControlFlow::Continue(()),
        };
        let begin = low
            .key()
            .map_or(node.count(), |low| node.search(&low.raw()).unwrap_or_else(|behind| behind));
        for index in begin..node.count() {
            let key = node.key(index);
            if !ends_behind(end, Point::of(&key)) {
                break;
            }
            let mut is_changed = false;
            while let Some((changed, change)) = changes.next_if(|(next, _)| **next <= key) {
                is_changed = *changed == key;
                of_log(changed, change, visitor)?;
            }
            if !is_changed {
                let value = node.value(index);
                visitor(Event::Item { key, value, origin, until })?;
            }
        }
        for (key, change) in changes {
            of_log(key, change, visitor)?;
        }
        ControlFlow::Continue(())
    }
}
