//! One node in memory: its bytes, where it is in its life, and what of it is not in the journal yet.
//!
//! Always true: a node is changed in place only while it is dirty, and its
//! bytes are shared with a writer only while it is sealed. In debug builds a shadow
//! holds the node as a recovery would build it from the commits so far: what no
//! range covered is seen at the next commit.

use holdfast_sync::atomic::AtomicBool;
use std::ops::Deref;
use std::sync::Arc;

use holdfast_base::Epoch;
use holdfast_format::NodeView;
use holdfast_format::journal::Base;
use holdfast_format::key::RawKey;
use holdfast_format::node::{SLOT_SIZE, SLOTS_AT, covering};

use super::dirty::{ByteRange, Tracker};
use super::key_prefixes::KeyPrefixes;

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameState {
    /// Equal to what is durable at its location.
    Clean,
    /// Born in this epoch: changed, and not yet part of a checkpoint.
    Dirty,
    /// Part of the checkpoint that is being written.
    Sealed,
}

/// The bytes of a node and the prefixes of its keys: of one that was read they are made before a lock is taken, since
/// that looks at every record.
#[derive(Debug)]
pub(crate) struct Body {
    bytes: Arc<[u8]>,
    prefixes: KeyPrefixes,
}

impl Body {
    /// That of a valid node.
    pub(crate) fn of(bytes: impl Into<Arc<[u8]>>) -> Body {
        let bytes = bytes.into();
        Body { prefixes: KeyPrefixes::of(&NodeView::trusted(&bytes)), bytes }
    }

    /// The node, to be searched.
    #[inline]
    pub(crate) fn node(&self) -> Node<'_> {
        Node { view: NodeView::trusted(&self.bytes), prefixes: &self.prefixes }
    }
}

/// A node in memory.
#[derive(Debug)]
pub(crate) struct Frame {
    body: Body,
    pub(super) epoch: Epoch,
    pub(super) state: FrameState,
    /// What the next commit's record of this node is applied to.
    pub(super) base: Base,
    pub(super) tracker: Tracker,
    /// Whether it is on the list of nodes that changed since the last commit.
    pub(super) listed: bool,
    #[cfg(debug_assertions)]
    shadow: Vec<u8>,
    pub(super) referenced: AtomicBool,
}

impl Frame {
    /// A node that was read and judged. Its reader marks it by using it; a node that was only read along is evicted
    /// first.
    pub(crate) fn clean(body: Body, epoch: Epoch, tracker: Tracker) -> Frame {
        Frame {
            #[cfg(debug_assertions)]
            shadow: Vec::new(),
            body,
            epoch,
            state: FrameState::Clean,
            base: Base::Changed,
            tracker,
            listed: false,
            referenced: AtomicBool::new(false),
        }
    }

    /// A node that exists nowhere else: new (`base` is zeros), or the copy of `base`.
    pub(crate) fn dirty(body: Body, epoch: Epoch, base: Base, tracker: Tracker) -> Frame {
        assert_ne!(base, Base::Changed, "no commit knows this node");
        Frame {
            #[cfg(debug_assertions)]
            shadow: if base == Base::Zeros {
                vec![0; body.bytes.len()]
            } else {
                body.bytes.to_vec()
            },
            body,
            epoch,
            state: FrameState::Dirty,
            base,
            tracker,
            listed: false,
            referenced: AtomicBool::new(true),
        }
    }

    /// Bytes and prefixes, for a node that takes the place of this one. They are copied if a writer still has
    /// the bytes.
    pub(super) fn into_body(self) -> Body {
        let Body { mut bytes, prefixes } = self.body;
        if Arc::get_mut(&mut bytes).is_none() {
            bytes = Arc::from(&bytes[..]);
        }
        Body { bytes, prefixes }
    }

    /// As [`Frame::into_body`], for a node that stays.
    pub(super) fn copied_body(&self) -> Body {
        Body { bytes: Arc::from(&self.body.bytes[..]), prefixes: self.body.prefixes.clone() }
    }

    /// The node, to be searched.
    #[inline]
    pub(crate) fn node(&self) -> Node<'_> {
        self.body.node()
    }

    /// The bytes, the prefixes of their keys and the memory of their changes, to be changed. The node must be dirty.
    #[inline]
    pub(crate) fn edit(&mut self) -> (&mut [u8], &mut KeyPrefixes, &mut Tracker) {
        assert_eq!(self.state, FrameState::Dirty, "only dirty nodes are changed in place");
        let Body { bytes, prefixes } = &mut self.body;
        let bytes = Arc::get_mut(bytes).expect("a dirty node is not shared with a writer");
        (bytes, prefixes, &mut self.tracker)
    }

    /// Whether a commit has a record of this node, which must be forgotten when the node goes.
    pub(super) fn is_in_journal(&self) -> bool {
        match self.state {
            FrameState::Clean => false,
            FrameState::Dirty => self.base == Base::Changed,
            FrameState::Sealed => true,
        }
    }

    /// Appends what the next commit logs of this node.
    pub(super) fn ranges(&self, out: &mut Vec<ByteRange>) {
        if self.base == Base::Zeros {
            let (head, heap) = content(&self.body.bytes);
            self.tracker.ranges_of_new(head, heap, self.body.bytes.len(), out);
            return;
        }
        let (count, _) = self.tracker.measure();
        let before = out.len();
        self.tracker.ranges(out);
        assert_eq!(out.len() - before, count, "measured as it is formatted");
    }

    /// The node's record is part of a commit.
    pub(super) fn logged(&mut self, ranges: &[ByteRange]) {
        #[cfg(debug_assertions)]
        {
            for (start, end) in ranges.iter().map(ByteRange::pair) {
                self.shadow[start..end].copy_from_slice(&self.body.bytes[start..end]);
            }
            let (head, heap) = content(&self.body.bytes);
            assert!(
                self.shadow[..head] == self.body.bytes[..head]
                    && self.shadow[heap..] == self.body.bytes[heap..],
                "a node changed outside its dirty ranges {ranges:?}"
            );
        }
        #[cfg(not(debug_assertions))]
        let _ = ranges;
        self.tracker.clear();
        self.base = Base::Changed;
        self.listed = false;
    }

    /// Ends the node's time of change; the bytes are shared from now on.
    pub(super) fn seal(&mut self) -> Arc<[u8]> {
        #[cfg(debug_assertions)]
        {
            self.shadow = Vec::new();
        }
        self.state = FrameState::Sealed;
        self.tracker.clear();
        self.listed = false;
        self.body.bytes.clone()
    }
}

/// The view of a node in memory, with searches that look at the prefixes of its keys first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    view: NodeView<'a>,
    prefixes: &'a KeyPrefixes,
}

impl<'a> Deref for Node<'a> {
    type Target = NodeView<'a>;

    fn deref(&self) -> &NodeView<'a> {
        &self.view
    }
}

impl Node<'_> {
    /// As [`NodeView::search`].
    #[inline]
    pub(crate) fn search(&self, key: &RawKey) -> Result<usize, usize> {
        self.prefixes.search(&self.view, key)
    }

    /// The same when `key` is known not to be before record `first`, and is probably right there.
    #[inline]
    pub(crate) fn search_from(&self, first: usize, key: &RawKey) -> Result<usize, usize> {
        match self.prefixes.is_behind(first, key) {
            true => Err(first),
            false => self.search(key),
        }
    }

    /// Whether the prefixes are those of its keys.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn has_its_prefixes(&self) -> bool {
        self.prefixes.fit(&self.view)
    }

    /// As [`NodeView::child_index`].
    #[inline]
    pub(crate) fn child_index(&self, key: &RawKey) -> usize {
        covering(self.search(key))
    }
}

/// Where the head and slots of a node end, and where its records begin: what lies between means nothing.
fn content(bytes: &[u8]) -> (usize, usize) {
    let node = NodeView::trusted(bytes);
    (SLOTS_AT + node.count() * SLOT_SIZE, node.heap_start())
}

#[cfg(test)]
mod tests {
    use holdfast_base::switch::Dirty;
    use holdfast_base::{BlockNo, TreeId};
    use holdfast_format::NodePointer;
    use holdfast_format::node::{self, Expected, OfVolume};

    use super::*;

    #[test]
    fn bytes_that_a_writer_has_are_copied_and_others_move() {
        let pointer = NodePointer { block: BlockNo(8), epoch: Epoch(3) };
        let expected =
            Expected { pointer, tree: TreeId::Files, level: 0, volume: OfVolume::tagged([7; 8]) };
        let sealed = || {
            let body = Body::of(node::empty(4096, &expected));
            let tracker = Tracker::new(Dirty::Ranges, 4096);
            let mut frame = Frame::dirty(body, Epoch(3), Base::Zeros, tracker);
            let writers = frame.seal();
            (frame, writers)
        };
        let (frame, writers) = sealed();
        let place = writers.as_ptr();
        let mut own = frame.into_body();
        assert_ne!(own.bytes.as_ptr(), place);
        Arc::get_mut(&mut own.bytes).expect("its own")[100] = 1;
        assert_eq!(writers[100], 0, "what is being written stays as it was sealed");

        let (frame, writers) = sealed();
        let place = writers.as_ptr();
        drop(writers);
        assert_eq!(frame.into_body().bytes.as_ptr(), place);
    }
}
