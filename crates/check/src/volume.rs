//! Reading nodes, items and data from a volume, the slow and plain way.
//!
//! [`Volume::walk`] visits every node of a tree once, in key order, and tells
//! of each subtree that it had to leave out and why. It is deterministic: a
//! second walk leaves out the same subtrees. What was read lately is kept as
//! bytes, and judged each time.
//!
//! Nodes are those that the journal leaves; items and data are as the log
//! leaves them, and callers cannot tell where they come from.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};

use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, InodeNo, TreeId};
use holdfast_device::{Device, DeviceError};
use holdfast_format::item::dentry::{slot, slot_end};
use holdfast_format::item::{Dentry, Extent, WalkPlace, group};
use holdfast_format::limits::{BITMAP_BLOCKS, BITMAPS_PER_GROUP, GROUP_BLOCKS};
use holdfast_format::node::Expected;
use holdfast_format::{ItemKind, Key, Malformed, NodePointer, NodeView, Superblock};

pub(crate) use crate::bounds::{Bounds, LostKeys};
use crate::changes::{Change, Changes};
use crate::issue::Issue;
use crate::journal::Replay;
use crate::nodes::{AHEAD, NodeCache};
use crate::runs::Runs;

/// Takes an item: the block of its leaf, its key, its value; says whether to go on.
pub(crate) type VisitItem<'a> = dyn FnMut(BlockNo, Key, &[u8]) -> ControlFlow<()> + 'a;

/// A volume to read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume<'a> {
    pub(crate) device: &'a dyn Device,
    /// The superblock, as journal and log leave it.
    pub(crate) superblock: &'a Superblock,
    /// Root and level of the files tree that is looked at: that of a branch or snapshot.
    files: (NodePointer, u8),
    /// Nodes of the journal, which stand in front of those of the device.
    nodes: &'a BTreeMap<BlockNo, Vec<u8>>,
    /// Those of the device that were read lately.
    read: &'a NodeCache,
    /// What the log changed.
    log: Option<Changes<'a>>,
}

/// Why a node was left out.
#[derive(Debug)]
pub(crate) enum Problem {
    Unreadable(DeviceError),
    Damaged(Malformed),
    Outside,
    Twice,
    OtherRange(String),
    Future(&'static str),
    OutOfBounds(String),
}

impl Problem {
    pub(crate) fn issue(&self) -> Issue {
        match self {
            Problem::Unreadable(_) => Issue::NodeUnreadable,
            Problem::Damaged(_) => Issue::NodeDamaged,
            Problem::Outside => Issue::NodeOutside,
            Problem::Twice => Issue::NodeTwice,
            Problem::OtherRange(_) => Issue::NodeRange,
            Problem::Future(_) => Issue::NodeFromFuture,
            Problem::OutOfBounds(_) => Issue::NodeOutOfBounds,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Unreadable(error) => write!(f, "{error}"),
            Problem::Damaged(malformed) => write!(f, "{}", malformed.why),
            Problem::Outside => f.write_str("no node can be there"),
            Problem::Twice => f.write_str("it was reached before by another parent"),
            Problem::Future(than) => write!(f, "it is younger than {than}"),
            Problem::OutOfBounds(why) | Problem::OtherRange(why) => f.write_str(why),
        }
    }
}

/// What a walk meets.
pub(crate) enum Step<'n> {
    /// A sound node. Its children follow.
    Node {
        pointer: NodePointer,
        node: NodeView<'n>,
        /// No other tree was met that has it.
        is_first: bool,
    },
    /// A node that is left out with all below it.
    Lost { pointer: NodePointer, level: u8, bounds: Bounds, problem: Problem },
}

type Visit<'v> = dyn FnMut(Step<'_>) -> ControlFlow<()> + 'v;

impl<'a> Volume<'a> {
    /// The volume as journal and log leave it, with the superblock that the log leaves.
    pub(crate) fn new(
        device: &'a dyn Device,
        journal: &'a Replay,
        superblock: &'a Superblock,
        log: Changes<'a>,
    ) -> Volume<'a> {
        let files = (superblock.files, superblock.files_level);
        Volume {
            device,
            superblock,
            files,
            nodes: &journal.nodes,
            read: &journal.read,
            log: Some(log),
        }
    }

    /// The volume as the journal alone leaves it.
    pub(crate) fn before_log(device: &'a dyn Device, journal: &'a Replay) -> Volume<'a> {
        let superblock = &journal.superblock;
        let files = (superblock.files, superblock.files_level);
        Volume { device, superblock, files, nodes: &journal.nodes, read: &journal.read, log: None }
    }

    /// The same with the files tree of another branch or snapshot, of which the log changed `items`.
    pub(crate) fn with_files(
        &self,
        files: (NodePointer, u8),
        items: &'a BTreeMap<Key, Change>,
    ) -> Volume<'a> {
        Volume { files, log: self.log.map(|log| Changes { items, ..log }), ..*self }
    }

    /// What the log changed of the files tree.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &'a Key> {
        self.log.into_iter().flat_map(|log| log.items.keys())
    }

    /// Reads the bytes of the node at `block`, as the journal leaves it.
    pub(crate) fn read_node(
        &self,
        block: BlockNo,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        if let Some(node) = self.nodes.get(&block) {
            buffer.clone_from(node);
            return Ok(());
        }
        self.read.read(self.device, block, self.superblock.geometry.node_size, buffer)
    }

    /// Says that these nodes will be looked at next.
    pub(crate) fn read_ahead(&self, blocks: impl Iterator<Item = BlockNo>) {
        let geometry = &self.superblock.geometry;
        let on_device =
            |block: &BlockNo| geometry.holds_node(*block) && !self.nodes.contains_key(block);
        self.read.read_ahead(self.device, blocks.filter(on_device).collect(), geometry.node_size);
    }

    /// The batch of the log that changed a key of the files tree.
    pub(crate) fn place_of(&self, key: &Key) -> Option<BlockNo> {
        self.log.and_then(|log| log.items.get(key)).map(|change| change.block)
    }

    /// Root and level of `tree`.
    pub(crate) fn root(&self, tree: TreeId) -> (NodePointer, u8) {
        let superblock = self.superblock;
        match tree {
            TreeId::Files => self.files,
            TreeId::Space => (superblock.space, superblock.space_level),
        }
    }

    /// Reads bytes of blocks. `into` may be shorter than the blocks.
    pub(crate) fn read(&self, start: BlockNo, into: &mut [u8]) -> Result<(), DeviceError> {
        let at = start.byte_offset().unwrap_or(u64::MAX);
        self.device.read(at, into)
    }

    /// Reads blocks of data, as the log leaves them.
    pub(crate) fn read_data(&self, start: BlockNo, into: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = BlockRange::new(start, (into.len() / BLOCK_SIZE) as u64);
        let Some(log) = self.log.filter(|log| log.data.touches(blocks)) else {
            return self.read(start, into);
        };
        for (block, into) in (start.0..).map(BlockNo).zip(into.chunks_mut(BLOCK_SIZE)) {
            log.data.read(self.device, block, into).unwrap_or_else(|| self.read(block, into))?;
        }
        Ok(())
    }

    /// Reads and judges one node.
    pub(crate) fn node<'b>(
        &self,
        expected: &Expected,
        parent: Option<NodePointer>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<NodeView<'b>, Problem> {
        let pointer = expected.pointer;
        if !self.superblock.geometry.holds_node(pointer.block) {
            return Err(Problem::Outside);
        }
        if pointer.epoch > self.superblock.epoch {
            return Err(Problem::Future("the superblock"));
        }
        if parent.is_some_and(|parent| pointer.epoch > parent.epoch) {
            return Err(Problem::Future("its parent"));
        }
        self.read_node(pointer.block, buffer).map_err(Problem::Unreadable)?;
        NodeView::open(buffer, expected).map_err(Problem::Damaged)
    }

    pub(crate) fn expected(&self, tree: TreeId, pointer: NodePointer, level: u8) -> Expected {
        Expected { pointer, tree, level, volume: self.superblock.nodes() }
    }

    /// Visits the nodes of `tree` that may hold keys in `range`, each node before its children,
    /// in the order of their keys.
    pub(crate) fn walk(
        &self,
        tree: TreeId,
        range: Bounds,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let mut seen = Seen::default();
        self.walk_unseen(tree, Way { range, ..Way::default() }, &mut seen, visit)
    }

    /// The same without the nodes that a walk through another tree has met, which lie in the same place of that. Of a
    /// tree that is being deleted only what lies at or behind the cursor.
    pub(crate) fn walk_unseen(
        &self,
        tree: TreeId,
        way: Way,
        seen: &mut Seen,
        visit: &mut Visit<'_>,
    ) -> ControlFlow<()> {
        let (root, level) = self.root(tree);
        seen.referenced = 0;
        let mut walk = Walk { volume: *self, tree, way, seen, visit };
        walk.descend(root, level, Bounds::ALL, None)
    }

    /// Visits the items of `tree` in `range` that can be read, in the order of their keys.
    /// The block is that of the leaf, or of the batch of the log.
    pub(crate) fn items(
        &self,
        tree: TreeId,
        range: Bounds,
        visit: &mut VisitItem<'_>,
    ) -> ControlFlow<()> {
        let changes = self.log.map(|log| match tree {
            TreeId::Files => log.items,
            TreeId::Space => log.lineage,
        });
        let high = range.high.map_or(Bound::Unbounded, Bound::Excluded);
        let changes = changes.map(|changes| changes.range((Bound::Included(range.low), high)));
        let mut changes = changes.into_iter().flatten().peekable();
        self.walk(tree, range, &mut |step| {
            let Step::Node { pointer, node, .. } = step else {
                return ControlFlow::Continue(());
            };
            if node.level() > 0 {
                return ControlFlow::Continue(());
            }
            for index in 0..node.count() {
                let key = node.key(index);
                if !range.holds(&key) {
                    continue;
                }
                let mut is_changed = false;
                while let Some((changed, change)) = changes.next_if(|(next, _)| **next <= key) {
                    is_changed = *changed == key;
                    if let Some(value) = &change.value {
                        visit(change.block, *changed, value)?;
                    }
                }
                if !is_changed {
                    visit(pointer.block, key, node.value(index))?;
                }
            }
            ControlFlow::Continue(())
        })?;
        for (key, change) in changes {
            if let Some(value) = &change.value {
                visit(change.block, *key, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The value of `key` in the files tree, if it can be read.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        match self.look(key) {
            Look::Found(value) => Some(value),
            Look::Missing | Look::Lost => None,
        }
    }

    /// The value of `key` in the files tree, and if there is none, whether a node that cannot be read may have one.
    pub(crate) fn look(&self, key: &Key) -> Look {
        if let Some(change) = self.log.and_then(|log| log.items.get(key)) {
            return change.value.clone().map_or(Look::Missing, Look::Found);
        }
        let (mut pointer, top) = self.root(TreeId::Files);
        let mut parent = None;
        let mut buffer = Vec::new();
        for level in (0..=top).rev() {
            let expected = self.expected(TreeId::Files, pointer, level);
            let Ok(node) = self.node(&expected, parent, &mut buffer) else { return Look::Lost };
            if level == 0 {
                let found = node.search(&key.raw());
                return found.map_or(Look::Missing, |at| Look::Found(node.value(at).to_vec()));
            }
            parent = Some(pointer);
            pointer = node.child(node.child_index(&key.raw()));
        }
        Look::Lost
    }

    /// The blocks that the bitmaps mark, if all of them can be read. The log is in no bitmap.
    pub(crate) fn marks(&self) -> Option<Runs> {
        let mut marks = Runs::default();
        let mut is_whole = true;
        let groups = self.superblock.geometry.group_count();
        let _ = self.walk(TreeId::Space, Bounds::ALL, &mut |step| {
            let Step::Node { node, .. } = step else {
                is_whole = false;
                return ControlFlow::Break(());
            };
            let leaf = if node.level() == 0 { node.count() } else { 0 };
            for index in 0..leaf {
                let key = node.key(index);
                if key.kind != ItemKind::Bitmap {
                    continue;
                }
                let (group, piece) = (key.inode.0, key.offset);
                match group::decode_bitmap(node.value(index)) {
                    Ok(bits) if group < groups && piece < BITMAPS_PER_GROUP => {
                        // In range: the group exists, and the geometry fits 64 bits.
                        marks.push_bits(group * GROUP_BLOCKS + piece * BITMAP_BLOCKS, bits);
                    }
                    _ => is_whole = false,
                }
            }
            ControlFlow::Continue(())
        });
        is_whole.then_some(marks)
    }

    /// The inode that `name` in `directory` leads to.
    pub(crate) fn look_up(&self, directory: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let first = slot(self.superblock.hash_seed, name);
        let low = Key::new(directory, ItemKind::Dentry, first);
        let high = Some(Key::new(directory, ItemKind::Dentry, slot_end(first) + 1));
        let mut found = None;
        let _ =
            self.items(
                TreeId::Files,
                Bounds { low, high },
                &mut |_, _, value| match Dentry::decode(value) {
                    Ok(dentry) if dentry.name == name => {
                        found = Some(dentry.inode);
                        ControlFlow::Break(())
                    }
                    _ => ControlFlow::Continue(()),
                },
            );
        found
    }

    /// Blocks of the node at `block`.
    pub(crate) fn node_blocks(&self, block: BlockNo) -> BlockRange {
        BlockRange::new(block, self.superblock.geometry.node_blocks())
    }
}

/// What is found at a key.
pub(crate) enum Look {
    Found(Vec<u8>),
    Missing,
    /// The node in which it would be does not read.
    Lost,
}

/// Which part of a tree is walked.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// The keys that are wanted.
    pub(crate) range: Bounds,
    /// The tree's number: that of its branch or snapshot. Others may share nodes with it.
    pub(crate) of: u64,
    /// Of a tree that is being deleted: what lies before is not its own any more.
    pub(crate) cursor: Option<WalkPlace>,
}

impl Default for Way {
    fn default() -> Way {
        Way { range: Bounds::ALL, of: 0, cursor: None }
    }
}

/// The nodes that were met, by their blocks: a hostile tree whose nodes share children ends all the same, and what trees
/// share is read once.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    met: HashMap<u64, Met>,
    /// Blocks that the present walk has met, those of shared nodes and what is below them included.
    referenced: u64,
}

/// Where a node was met first.
#[derive(Clone, Copy, Debug)]
struct Met {
    epoch: u64,
    tree: TreeId,
    level: u8,
    bounds: Bounds,
    of: u64,
    /// A part of what is below it was not walked.
    is_partial: bool,
    /// Blocks that it and what is below it refer to, when all of it was walked.
    referenced: u64,
}

/// What a node is that was met before.
enum Again {
    /// It is not, or only a part of it was.
    New,
    /// It lies in the same place of another tree.
    Shared,
    Wrong(Problem),
}

impl Seen {
    /// Blocks that the tree refers to that was walked last, if all of it could be read.
    pub(crate) fn referenced(&self) -> u64 {
        self.referenced
    }

    /// The subtree of a node was walked, before which so many blocks had been met.
    fn ends(&mut self, block: BlockNo, before: u64) {
        let referenced = self.referenced.saturating_sub(before);
        if let Some(met) = self.met.get_mut(&block.0) {
            met.referenced = referenced;
        }
    }

    fn judge(&self, pointer: NodePointer, now: &Met) -> Again {
        let Some(met) = self.met.get(&pointer.block.0) else { return Again::New };
        if met.of == now.of || met.tree != now.tree || met.epoch != now.epoch {
            return Again::Wrong(Problem::Twice);
        }
        if (met.level, met.bounds) != (now.level, now.bounds) {
            let why = format!(
                "another tree has it at level {} from {:?} on, this one at level {} from {:?} on",
                met.level, met.bounds.low, now.level, now.bounds.low
            );
            return Again::Wrong(Problem::OtherRange(why));
        }
        if met.is_partial { Again::New } else { Again::Shared }
    }
}

struct Walk<'a, 'v> {
    volume: Volume<'a>,
    tree: TreeId,
    way: Way,
    seen: &'v mut Seen,
    visit: &'v mut Visit<'v>,
}

impl Walk<'_, '_> {
    /// Whether the deletion of the tree has passed a node.
    fn is_passed(&self, bounds: &Bounds, level: u8) -> bool {
        let place = WalkPlace::node(bounds.high.map(|high| high.raw()), level);
        self.way.cursor.is_some_and(|cursor| place < cursor)
    }

    /// Recursion ends at level 0; the superblock's level is below `TREE_LEVELS_MAX`.
    fn descend(
        &mut self,
        pointer: NodePointer,
        level: u8,
        bounds: Bounds,
        parent: Option<NodePointer>,
    ) -> ControlFlow<()> {
        if self.is_passed(&bounds, level) {
            return ControlFlow::Continue(());
        }
        let is_partial = self.way.cursor.is_some_and(|cursor| cursor.key > bounds.low.raw());
        let (tree, of, epoch) = (self.tree, self.way.of, pointer.epoch.0);
        let now = Met { epoch, tree, level, bounds, of, is_partial, referenced: 0 };
        let expected = self.volume.expected(self.tree, pointer, level);
        let mut buffer = Vec::new();
        let opened = match self.seen.judge(pointer, &now) {
            Again::Shared => {
                let below = self.seen.met.get(&pointer.block.0).map_or(0, |met| met.referenced);
                self.seen.referenced = self.seen.referenced.saturating_add(below);
                return ControlFlow::Continue(());
            }
            Again::Wrong(problem) => Err(problem),
            Again::New => self.volume.node(&expected, parent, &mut buffer),
        };
        let checked = opened.and_then(|node| match out_of_bounds(&node, &bounds) {
            None => Ok(node),
            Some(why) => Err(Problem::OutOfBounds(why)),
        });
        let node = match checked {
            Ok(node) => node,
            Err(problem) => {
                return (self.visit)(Step::Lost { pointer, level, bounds, problem });
            }
        };
        let is_first = self.seen.met.insert(pointer.block.0, now).is_none();
        let before = self.seen.referenced;
        let own = self.volume.superblock.geometry.node_blocks() + blocks_of_extents(&node);
        self.seen.referenced = before.saturating_add(own);
        (self.visit)(Step::Node { pointer, node, is_first })?;
        if level == 0 {
            self.seen.ends(pointer.block, before);
            return ControlFlow::Continue(());
        }
        let child = |index| {
            let next = (index + 1 < node.count()).then(|| node.key(index + 1));
            let bounds = Bounds { low: node.key(index), high: next.or(bounds.high) };
            (node.child(index), bounds)
        };
        let wanted = (0..node.count()).map(child);
        let wanted: Vec<_> = wanted.filter(|(_, of)| of.meets(&self.way.range)).collect();
        for some in wanted.chunks(AHEAD) {
            self.volume
                .read_ahead(some.iter().filter_map(|(to, of)| self.will_read(*to, level - 1, of)));
            for (to, bounds) in some {
                self.descend(*to, level - 1, *bounds, Some(pointer))?;
            }
        }
        self.seen.ends(pointer.block, before);
        ControlFlow::Continue(())
    }

    /// The block of a child that has to be read.
    fn will_read(&self, pointer: NodePointer, level: u8, bounds: &Bounds) -> Option<BlockNo> {
        let is_wanted =
            !self.is_passed(bounds, level) && !self.seen.met.contains_key(&pointer.block.0);
        is_wanted.then_some(pointer.block)
    }
}

/// Blocks of the device that the extents of a leaf have.
fn blocks_of_extents(node: &NodeView<'_>) -> u64 {
    let leaf = if node.level() == 0 { node.count() } else { 0 };
    let extents = (0..leaf).filter(|index| node.key(*index).kind == ItemKind::Extent);
    // A leaf has thousands of items, each with less than 2^32 blocks.
    extents.map(|index| Extent::blocks_in(node.value(index))).sum()
}

/// What of a node does not belong between `bounds`.
pub(crate) fn out_of_bounds(node: &NodeView<'_>, bounds: &Bounds) -> Option<String> {
    let last = node.count().checked_sub(1)?;
    let (first, last) = (node.key(0), node.key(last));
    if !bounds.holds(&first) || !bounds.holds(&last) {
        return Some(format!(
            "its keys {first:?} to {last:?} do not belong between {:?} and {}",
            bounds.low,
            bounds.high.map_or("the end".into(), |high| format!("{high:?}")),
        ));
    }
    (node.level() > 0 && first != bounds.low)
        .then(|| format!("its first separator is {first:?}, not its lower bound {:?}", bounds.low))
}
