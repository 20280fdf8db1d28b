//! The walk through one tree, down from its root, with the nodes on the way in memory: one for each level.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use holdfast_base::BlockRange;
use holdfast_base::clock::Stopwatch;
use holdfast_device::DeviceError;
use holdfast_format::key::RawKey;
use holdfast_format::node::Expected;
use holdfast_format::{Key, Malformed, NodeView, Stored};

use super::answers::Row;
use super::{Damaged, Listener, Scrub, Scrubbed};
use crate::mend::Led;
use crate::tree::subtree::Subtree;
use crate::tree::{TreeNo, lies_between};
use crate::verified::{BadPlace, Verified};
use crate::{Inner, Result, StoreError};

/// A node on the way.
struct Level {
    subtree: Subtree,
    bytes: Arc<[u8]>,
    next: usize,
    /// All below it that was passed is verified.
    is_whole: bool,
}

/// What became of a node that was looked for.
enum NodeLookup {
    /// Its bytes, and the place that does not hold it, if one of two does not.
    Here(Arc<[u8]>, Option<Half>),
    /// The tree does not lead to it any more.
    Moved,
    /// It is not there.
    Damaged(StoreError),
}

/// A node that one of its places does not hold.
struct Half {
    expected: Expected,
    bad: BadPlace,
    sound: BlockRange,
}

/// How far a walk has come.
pub(super) enum Step {
    /// To the end of what it went into. Whether all of it is verified.
    Done(bool),
    /// The tree is another one from this key on.
    Moved(RawKey),
    Over(Scrubbed),
}

pub(super) struct Walk<'a> {
    pub(super) inner: &'a Inner,
    pub(super) tree: TreeNo,
    /// Of the branch or snapshot.
    number: Option<u64>,
    pub(super) scrub: &'a mut Scrub,
    pub(super) listener: &'a mut dyn Listener,
    row: Row,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        tree: TreeNo,
        number: Option<u64>,
        scrub: &'a mut Scrub,
        listener: &'a mut dyn Listener,
    ) -> Walk<'a> {
        Walk { inner, tree, number, scrub, listener, row: Row::default() }
    }

    pub(super) fn run(mut self) -> Result<Scrubbed> {
        let done = self.walk()?;
        let held = self.row.ask(self.inner)?;
        self.tell_held(held);
        Ok(done)
    }

    fn walk(&mut self) -> Result<Scrubbed> {
        let mut from = Key::MIN.raw();
        loop {
            match self.pass(from)? {
                Step::Done(_) => return Ok(Scrubbed::Whole),
                Step::Over(how) => return Ok(how),
                Step::Moved(at) => {
                    self.inner.counters.scrub_restarts.increment();
                    from = at;
                }
            }
        }
    }

    /// One way down and on to the end, from this key of the tree as it is now.
    fn pass(&mut self, from: RawKey) -> Result<Step> {
        let root = Subtree::root(&self.inner.forest.read(), self.tree);
        let mut way: Vec<Level> = Vec::new();
        let mut next = Some(root);
        loop {
            let is_whole = match next.take() {
                Some(subtree) if self.scrub.has_node(subtree.pointer) => true,
                Some(subtree) => match self.enter(&subtree, &from)? {
                    Ok(level) if level.subtree.level > 0 => {
                        way.push(level);
                        true
                    }
                    Ok(level) => match self.leaf(&NodeView::trusted(&level.bytes), &from)? {
                        Step::Done(is_whole) => {
                            self.leave(&level, is_whole && level.is_whole);
                            is_whole && level.is_whole
                        }
                        over => return Ok(over),
                    },
                    Err(Step::Done(is_whole)) => is_whole,
                    Err(over) => return Ok(over),
                },
                None => true,
            };
            let Some(top) = way.last_mut() else { return Ok(Step::Done(is_whole)) };
            top.is_whole &= is_whole;
            let node = NodeView::trusted(&top.bytes);
            if top.next < node.count() {
                next = Some(top.subtree.child(&node, top.next));
                top.next = top.next.saturating_add(1);
                continue;
            }
            let Some(level) = way.pop() else { continue };
            self.leave(&level, level.is_whole);
            if let Some(above) = way.last_mut() {
                above.is_whole &= level.is_whole;
            }
        }
    }

    /// Everything below a node was seen.
    fn leave(&mut self, level: &Level, is_whole: bool) {
        if is_whole && self.scrub.trusts(level.subtree.pointer.epoch) {
            let geometry = self.inner.geometry();
            let stored = geometry.stored(self.tree.id(), level.subtree.level);
            let places = geometry.places_of_node(level.subtree.pointer.block, stored);
            places.for_each(|place| self.scrub.marks.set(place, true));
        }
    }

    /// Reads a node, unless it is on its way to the device, and tells of it if it is damaged.
    fn enter(
        &mut self,
        subtree: &Subtree,
        from: &RawKey,
    ) -> Result<std::result::Result<Level, Step>> {
        let is_waited_for = |number| self.inner.pins.lock().is_waited_for(number);
        if is_gone(self.inner, self.tree) || self.number.is_some_and(is_waited_for) {
            return Ok(Err(Step::Over(Scrubbed::Deleted)));
        }
        let time = Stopwatch::start();
        let mut reads = Reads::default();
        let found = find(self.inner, subtree, &mut reads)?;
        let bytes = (self.inner.geometry().node_size as u64).saturating_mul(reads.count);
        let goes_on = self.has_read(bytes, time);
        if reads.has_answer {
            self.has_answered();
        }
        let bytes = match found {
            NodeLookup::Here(bytes, None) => bytes,
            NodeLookup::Here(bytes, Some(half)) if self.mend(subtree, &half)? => bytes,
            NodeLookup::Here(..) | NodeLookup::Moved => {
                return Ok(Err(Step::Moved(subtree.low.max(*from))));
            }
            NodeLookup::Damaged(error) => {
                let (low, end) = (key(&subtree.low), subtree.end.map(|end| key(&end)));
                let what = Damaged::Node { block: subtree.pointer.block, from: low, end };
                let why = match &error {
                    StoreError::Device(_) => {
                        format!("node at block {}: {}", subtree.pointer.block, error.in_words())
                    }
                    error => error.to_string(),
                };
                self.has_failed(error, Some((what, why)))?;
                return Ok(Err(Step::Done(false)));
            }
        };
        if !goes_on {
            return Ok(Err(Step::Over(Scrubbed::Stopped)));
        }
        let node = NodeView::trusted(&bytes);
        // What lies before was seen in the tree as it was.
        let is_entered_behind = *from > subtree.low;
        let next = match subtree.level {
            0 => 0,
            _ if is_entered_behind => node.child_index(from),
            _ => 0,
        };
        Ok(Ok(Level { subtree: *subtree, next, is_whole: !is_entered_behind, bytes }))
    }

    /// Writes the bad place again, if its tree leads to it, and tells of it. Returns `false` if the tree leads to it no more: then the tree is
    /// another one. Where that is not known the node is entered: another way down would come to the same.
    fn mend(&mut self, subtree: &Subtree, half: &Half) -> Result<bool> {
        let inner = self.inner;
        let Half { expected, bad, sound } = half;
        let is_led_to = || is_led_to(inner, subtree);
        let done = inner.mend_for_scrub(expected, (bad.place, *sound), is_led_to)?;
        let Some(done) = done else { return Ok(false) };
        inner.counters.scrub_damages.increment();
        let block = bad.place.start;
        let what = bad.why.in_words();
        let mut why = format!("block {block}: {what}; block {} holds the node", sound.start);
        if let Err(reason) = &done {
            why = format!("{why}; not written again: {reason}");
        }
        self.listener.has_bad_place(block, done.is_ok(), why);
        Ok(true)
    }

    pub(super) fn has_read(&mut self, bytes: u64, time: Stopwatch) -> bool {
        let took = time.elapsed();
        self.inner.counters.scrubbed_bytes.add(bytes);
        self.listener.has_read(self.scrub, bytes, took)
    }

    /// Tells of damage, or holds it back while it is not known whether the device answers.
    pub(super) fn is_damaged(&mut self, what: Damaged, why: String) {
        let told = self.row.hold(what, why);
        self.tell_held(told);
    }

    /// The device has read something.
    pub(super) fn has_answered(&mut self) {
        let held = self.row.end();
        self.tell_held(held);
    }

    /// Something was not read, or not what it should be; what that damages, if it is known already.
    pub(super) fn has_failed(
        &mut self,
        error: StoreError,
        damaged: Option<(Damaged, String)>,
    ) -> Result<()> {
        let is_read = !matches!(error, StoreError::Device(_));
        let asks = !is_read && self.row.has_failed(error);
        if is_read {
            self.has_answered();
        }
        if let Some((what, why)) = damaged {
            self.is_damaged(what, why);
        }
        if asks {
            let held = self.row.ask(self.inner)?;
            self.tell_held(held);
        }
        Ok(())
    }

    fn tell_held(&mut self, held: impl IntoIterator<Item = (Damaged, String)>) {
        for (what, why) in held {
            self.inner.counters.scrub_damages.increment();
            self.listener.is_damaged(what, why);
        }
    }
}

fn is_led_to(inner: &Inner, subtree: &Subtree) -> Result<Led> {
    let led = inner.look(|forest| forest.leads_to(subtree.tree, &subtree.low, subtree.level));
    // Asked behind that: what a deleted tree leads to may be anything.
    match led {
        _ if is_gone(inner, subtree.tree) => Ok(Led::No),
        Ok(pointer) if pointer == Some(subtree.pointer) => Ok(Led::Yes),
        Ok(_) => Ok(Led::No),
        Err(error) if is_of_place(&error) => Ok(Led::Unknown),
        Err(error) => Err(error),
    }
}

/// What was asked of the device.
#[derive(Default)]
struct Reads {
    count: u64,
    /// It has read a node.
    has_answer: bool,
}

/// A node by its place on the device; by memory, if it is on its way there. Adds what was read to `reads`.
fn find(inner: &Inner, subtree: &Subtree, reads: &mut Reads) -> Result<NodeLookup> {
    let mut verify = || {
        let geometry = inner.geometry();
        let places = match geometry.stored(subtree.tree.id(), subtree.level) {
            Stored::Once => 1,
            Stored::Twice => 2,
        };
        reads.count = reads.count.saturating_add(places);
        let found = verify(inner, subtree)?;
        reads.has_answer |= !matches!(found, Err(StoreError::Device(_)));
        Ok::<_, StoreError>(found)
    };
    let not_written = || {
        let found = inner.forest.read().cache.not_written(subtree.pointer);
        found.map(|bytes| NodeLookup::Here(bytes.into(), None))
    };
    if let Some(found) = not_written() {
        return Ok(found);
    }
    if let Ok((bytes, None)) = verify()? {
        return Ok(NodeLookup::Here(bytes, None));
    }
    // It may have become free since its parent was read, and its place something else. If the tree leads there now, and the device
    // has it, a second read decides, unless it becomes free during that.
    let is_led_away = || is_led_to(inner, subtree).map(|led| led == Led::No);
    if is_led_away()? {
        return Ok(NodeLookup::Moved);
    }
    if let Some(found) = not_written() {
        return Ok(found);
    }
    match verify()? {
        // Whether the tree leads there still is asked when it is mended.
        Ok((bytes, half)) => Ok(NodeLookup::Here(bytes, half)),
        Err(_) if is_led_away()? => Ok(NodeLookup::Moved),
        Err(error) => Ok(NodeLookup::Damaged(error)),
    }
}

/// What the device has of a node.
type Read = std::result::Result<(Arc<[u8]>, Option<Half>), StoreError>;

/// Reads a node from the device, and judges it by itself and by what leads to it.
fn verify(inner: &Inner, subtree: &Subtree) -> Result<Read> {
    let expected = inner.forest.read().expected(subtree.tree, subtree.pointer, subtree.level);
    let found = match inner.verify_node(&expected) {
        Ok(Verified { bad: Some(BadPlace { why, .. }), .. }) if !is_of_place(&why) => Err(why),
        found => found,
    };
    let Verified { value: bytes, place: sound, bad } = match found {
        Ok(found) => found,
        Err(error) if is_of_place(&error) => return Ok(Err(error)),
        Err(error) => return Err(error),
    };
    let node = NodeView::trusted(&bytes);
    let is_young = subtree.level > 0
        && (0..node.count()).any(|index| node.child(index).epoch > subtree.pointer.epoch);
    if is_young || !lies_between(&node, subtree.low, subtree.end) {
        let source = Malformed::new("node", "it is not what its parent says");
        let block = subtree.pointer.block;
        return Ok(Err(StoreError::Node { block, tree: subtree.tree.id(), source }));
    }
    Ok(Ok((bytes, bad.map(|bad| Half { expected, bad, sound }))))
}

/// Whether the branch or snapshot of a tree is deleted.
pub(super) fn is_gone(inner: &Inner, tree: TreeNo) -> bool {
    inner.forest.read().trees.is_gone(tree)
}

/// Whether an error says something of the place that was read, and not of the whole device.
pub(super) fn is_of_place(error: &StoreError) -> bool {
    matches!(error, StoreError::Node { .. } | StoreError::Device(DeviceError::Io { .. }))
}

/// A key of a node that was judged.
pub(super) fn key(raw: &RawKey) -> Key {
    Key::decode(&raw.encode()).unwrap_or(Key::MAX)
}

/// Visits what can be read of a tree, upwards, until `visit` says that it is enough.
pub(super) fn visit(
    inner: &Inner,
    tree: TreeNo,
    visit: &mut dyn FnMut(&Key, &[u8]) -> bool,
) -> Result<()> {
    let mut from = Key::MIN.raw();
    'moved: while !is_gone(inner, tree) {
        let mut ahead = vec![Subtree::root(&inner.forest.read(), tree)];
        while let Some(subtree) = ahead.pop() {
            if subtree.end.is_some_and(|end| end <= from) {
                continue;
            }
            let bytes = match find(inner, &subtree, &mut Reads::default())? {
                NodeLookup::Here(bytes, _) => bytes,
                NodeLookup::Damaged(_) => continue,
                NodeLookup::Moved => {
                    from = from.max(subtree.low);
                    continue 'moved;
                }
            };
            let node = NodeView::trusted(&bytes);
            if subtree.level > 0 {
                ahead.extend(subtree.children(&node).rev());
                continue;
            }
            for index in node.search(&from).unwrap_or_else(|index| index)..node.count() {
                if !visit(&node.key(index), node.value(index)) {
                    return Ok(());
                }
            }
            from = subtree.end.unwrap_or(from);
        }
        break;
    }
    Ok(())
}
