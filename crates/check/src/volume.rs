//! Reading single nodes, items and data from a volume, the slow and plain way.
//!
//! Nodes are those that the journal leaves; items and data are as the log
//! leaves them, and callers cannot tell where they come from. What was read
//! lately is kept as bytes, and judged each time.
//!
//! All nodes of a tree: `walk`. All items: `items`.

use std::collections::BTreeMap;

use holdfast_base::{BLOCK_SIZE, BlockNo, BlockRange, TreeId};
use holdfast_device::{Device, DeviceError};
use holdfast_format::node::Expected;
use holdfast_format::{Key, Malformed, NodePointer, NodeView, Superblock};

use crate::changes::{Change, Changes};
use crate::issue::Issue;
use crate::journal::Replay;
use crate::nodes::NodeCache;

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

    /// What the log changed of the items of a tree.
    pub(crate) fn changes_in(&self, tree: TreeId) -> Option<&'a BTreeMap<Key, Change>> {
        self.log.map(|log| match tree {
            TreeId::Files => log.items,
            TreeId::Space => log.lineage,
        })
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
            |block: &BlockNo| geometry.holds_some_node(*block) && !self.nodes.contains_key(block);
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
        if !expected.can_be(&self.superblock.geometry) {
            return Err(Problem::Outside);
        }
        if pointer.epoch > self.superblock.epoch {
            return Err(Problem::Future("the superblock"));
        }
        if parent.is_some_and(|parent| pointer.epoch > parent.epoch) {
            return Err(Problem::Future("its parent"));
        }
        self.read.count();
        if let Err(problem) = self.judged(expected, buffer) {
            self.read_copy(expected, buffer).ok_or(problem)?;
        }
        Ok(NodeView::trusted(buffer))
    }

    fn judged(&self, expected: &Expected, buffer: &mut Vec<u8>) -> Result<(), Problem> {
        self.read_node(expected.pointer.block, buffer).map_err(Problem::Unreadable)?;
        NodeView::open(buffer, expected).map(drop).map_err(Problem::Damaged)
    }

    /// Reads the copy of a node, if there is one and it is sound. It is kept for the next call for the node.
    fn read_copy(&self, expected: &Expected, buffer: &mut Vec<u8>) -> Option<()> {
        let (block, geometry) = (expected.pointer.block, &self.superblock.geometry);
        let copy = geometry
            .copy_of(block, expected.stored(geometry))
            .filter(|_| self.is_on_device(block))?;
        buffer.resize(geometry.node_size, 0);
        self.read(copy, buffer).ok()?;
        NodeView::open(buffer, expected).ok()?;
        self.read.keep(block, buffer);
        Some(())
    }

    /// How often a node was judged.
    pub(crate) fn judged_nodes(&self) -> u64 {
        self.read.judged()
    }

    /// Whether the node at `block` is read from the device: none of the journal stands in front of it.
    pub(crate) fn is_on_device(&self, block: BlockNo) -> bool {
        !self.nodes.contains_key(&block)
    }

    pub(crate) fn expected(&self, tree: TreeId, pointer: NodePointer, level: u8) -> Expected {
        Expected { pointer, tree, level, volume: self.superblock.nodes() }
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
}

/// What is found at a key.
pub(crate) enum Look {
    Found(Vec<u8>),
    Missing,
    /// The node in which it would be does not read.
    Lost,
}
