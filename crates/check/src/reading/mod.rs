//! A volume as the check reads it, for a program that repairs it.
//!
//! Nodes, items and data are what journal and log leave, judged in the same way as by the passes. Nothing here
//! decides what a volume should be, and nothing writes.

mod chosen;
mod cut;
mod named;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{BlockNo, BlockRange, InodeNo, TreeId};
use holdfast_device::{Device, DeviceError};
use holdfast_format::checksum::block_sums;
use holdfast_format::item::GroupItem;
use holdfast_format::item::lineage::LINEAGE;
use holdfast_format::{ItemKind, Key, NodePointer, NodeView, Superblock};

pub use chosen::Rings;
pub use cut::CutChanges;
pub use named::RingContents;

pub use crate::log::{Gaps, MadeLater};
pub use crate::path::{climb, own_name};

use crate::bounds::Bounds;
use crate::changes::Change;
use crate::error::CheckError;
use crate::issue::Issue;
pub use crate::lineage::{TreeRoot, tree_name};

use crate::lineage::Lineage;
pub use crate::node_place::NodePlace;
use crate::recovered::Recovered;
use crate::runs::Runs;
use crate::superblocks::Slots;
use crate::volume::Volume;
use crate::walk::{Step, out_of_bounds};

/// Why a node does not count.
#[derive(Clone, Debug)]
pub struct LostNode {
    /// The finding that this is.
    pub issue: Issue,
    /// What is wrong with it.
    pub why: String,
}

/// A volume, read as journal and log leave it.
#[derive(Debug)]
pub struct VolumeReading<'d> {
    device: &'d dyn Device,
    slots: Slots,
    mark: Superblock,
    recovered: Recovered,
    lineage: Lineage,
    trees: Vec<TreeRoot>,
    /// Settings of an older version of a node that is damaged.
    older: BTreeMap<Key, Vec<u8>>,
}

impl<'d> VolumeReading<'d> {
    /// Reads the volume on `device` by its newest valid superblock; by the far copy if no slot is valid, or if `far` says that
    /// it is the one that counts. Fails if there is none, or a device does not read.
    pub fn open(device: &'d dyn Device, far: bool) -> Result<VolumeReading<'d>, CheckError> {
        VolumeReading::open_over(device, far, Gaps::End)
    }

    /// The same, where holes of the rings may be crossed.
    pub fn open_over(
        device: &'d dyn Device,
        far: bool,
        holes: Gaps,
    ) -> Result<VolumeReading<'d>, CheckError> {
        let slots = Slots::read(device)?;
        if let Some(words) = slots.newer() {
            return Err(CheckError::Newer(words));
        }
        let found = slots.lost_newest().filter(|_| far);
        let Some(mark) = found.or(slots.newest()).or(slots.only_far()).cloned() else {
            return Err(CheckError::Missing("no superblock is valid".into()));
        };
        let recovered = Recovered::read_over(device, &mark, holes);
        Ok(VolumeReading::of(device, slots, mark, recovered))
    }

    fn of(
        device: &'d dyn Device,
        slots: Slots,
        mark: Superblock,
        recovered: Recovered,
    ) -> VolumeReading<'d> {
        let (lineage, older) = (Lineage::read(&recovered.volume(device)), BTreeMap::new());
        let trees = recovered.trees(device, &lineage);
        VolumeReading { device, slots, mark, recovered, lineage, trees, older }
    }

    fn volume(&self) -> Volume<'_> {
        self.recovered.volume(self.device)
    }

    fn volume_of(&self, tree: &TreeRoot) -> Volume<'_> {
        self.recovered.volume_of(self.device, tree)
    }

    /// The superblock that counts, as it stands on the device.
    pub fn mark(&self) -> &Superblock {
        &self.mark
    }

    /// The superblock that stands for the volume behind journal and log.
    pub fn superblock(&self) -> &Superblock {
        &self.recovered.log.superblock
    }

    /// The slots that are valid: their epochs.
    pub fn slots(&self) -> [Option<u64>; 2] {
        let epoch = |slot: usize| self.slots.judged[slot].as_ref().ok().map(|found| found.epoch.0);
        [epoch(0), epoch(1)]
    }

    /// Every branch and snapshot whose root is known: `main` first, what is being deleted last.
    pub fn trees(&self) -> &[TreeRoot] {
        &self.trees
    }

    /// The items of branches and snapshots, as the log leaves them.
    pub fn lineage(&self) -> &BTreeMap<Key, Vec<u8>> {
        &self.lineage.0
    }

    /// Whether each node of the space tree reads in which branches, snapshots or settings may stand.
    pub fn is_lineage_whole(&self) -> bool {
        self.lost_of_space().is_empty()
    }

    /// Nodes of the space tree in which branches, snapshots or settings may have stood, and that do not count.
    pub fn lost_of_space(&self) -> Vec<NodePlace> {
        let volume = self.volume();
        let lineage = Bounds { low: Key::inode(InodeNo(LINEAGE)), high: None };
        let first = Key::new(InodeNo(0), ItemKind::Setting, 0);
        let settings = Bounds { low: first, high: Some(Key::inode(InodeNo(1))) };
        let mut lost = Vec::new();
        for range in [settings, lineage] {
            let _ = volume.walk(TreeId::Space, range, &mut |step| {
                if let Step::Lost { pointer, level, bounds, .. } = step {
                    let place = NodePlace { pointer, level, low: bounds.low, high: bounds.high };
                    if !lost.contains(&place) {
                        lost.push(place);
                    }
                }
                ControlFlow::Continue(())
            });
        }
        lost
    }

    /// Takes items of the space tree, of an older version of a node that is damaged, where the log has not changed them.
    pub fn take_older(&mut self, items: BTreeMap<Key, Vec<u8>>) {
        for (key, value) in items {
            if self.volume().changes_in(TreeId::Space).is_some_and(|of| of.contains_key(&key)) {
                continue;
            }
            let of = if key.kind.is_lineage() { &mut self.lineage.0 } else { &mut self.older };
            of.entry(key).or_insert(value);
        }
        self.trees = self.recovered.trees(self.device, &self.lineage);
    }

    /// What the log changed of the files tree of a branch.
    pub fn changes(&self, branch: u64) -> &BTreeMap<Key, Change> {
        self.recovered.log.items_of(branch)
    }

    /// The nodes that the journal leaves, by their first block: they stand in front of those of the device.
    pub fn journal_nodes(&self) -> &BTreeMap<BlockNo, Vec<u8>> {
        &self.recovered.journal.nodes
    }

    /// Reads and judges a node, whose keys belong between `low` and `high`.
    pub fn node<'b>(
        &self,
        tree: TreeId,
        place: &NodePlace,
        parent: Option<NodePointer>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<NodeView<'b>, LostNode> {
        let volume = self.volume();
        let expected = volume.expected(tree, place.pointer, place.level);
        let lost = |issue, why: String| Err(LostNode { issue, why });
        let node = match volume.node(&expected, parent, buffer) {
            Ok(node) => node,
            Err(problem) => return lost(problem.issue(), problem.to_string()),
        };
        match out_of_bounds(&node, &Bounds { low: place.low, high: place.high }) {
            None => Ok(node),
            Some(why) => lost(Issue::NodeOutOfBounds, why),
        }
    }

    /// Says which nodes will be asked for next.
    pub fn read_ahead(&self, blocks: impl Iterator<Item = BlockNo>) {
        self.volume().read_ahead(blocks);
    }

    /// Reads blocks of data as the log leaves them. `into` has whole blocks.
    pub fn data(&self, start: BlockNo, into: &mut [u8]) -> Result<(), DeviceError> {
        self.volume().read_data(start, into)
    }

    /// As [`VolumeReading::data`], of one block that has this sum. What lies in the log may build on what is gone behind a hole: then
    /// the block itself counts, where it is right. False if neither is: `into` is of no use.
    pub fn data_of_sum(&self, block: BlockNo, sum: u64, into: &mut [u8]) -> bool {
        let is_right = |bytes: &[u8]| block_sums(bytes).next() == Some(sum);
        let volume = self.volume();
        (volume.read_data(block, into).is_ok() && is_right(into))
            || (volume.read(block, into).is_ok() && is_right(into))
    }

    /// Whether the data of a block of `blocks` lies in the log, and not yet in its place.
    pub fn is_in_log(&self, blocks: BlockRange) -> bool {
        self.recovered.log.data.touches(blocks)
    }

    /// The path of an inode in a branch or snapshot, by what inodes say of their names.
    pub fn path(&self, tree: &TreeRoot, inode: InodeNo) -> Option<String> {
        self.volume_of(tree).path(inode, &mut 4096)
    }

    /// The value of a key in a branch or snapshot, if it can be read.
    pub fn get(&self, tree: &TreeRoot, key: &Key) -> Option<Vec<u8>> {
        self.volume_of(tree).get(key)
    }

    /// Blocks that the bitmaps mark, each as its start and end, as far as they can be read.
    pub fn marked(&self) -> Runs {
        self.volume().marks().unwrap_or_default()
    }

    /// How many blocks of nodes each group counts, by its number, and the nodes of the space tree itself. `None` if any of it does not read.
    pub fn counted_nodes(&self) -> Option<CountedNodes> {
        let mut counted = CountedNodes::default();
        let read = self.volume().walk(TreeId::Space, Bounds::ALL, &mut |step| {
            let Step::Node { pointer, node, .. } = step else { return ControlFlow::Break(()) };
            counted.of_space.push(pointer.block);
            for (key, value) in node.items_of(ItemKind::Group) {
                let Ok(item) = GroupItem::decode(value) else { return ControlFlow::Break(()) };
                counted.by_group.insert(key.offset, item.node_blocks.into());
            }
            ControlFlow::Continue(())
        });
        read.is_continue().then_some(counted)
    }

    /// Settings, and items that a feature brought into the space tree: what a new space tree carries along.
    pub fn settings(&self) -> BTreeMap<Key, Vec<u8>> {
        let mut items = self.older.clone();
        let _ = self.volume().items(TreeId::Space, Bounds::ALL, &mut |_, key, value| {
            let is_setting = key.kind == ItemKind::Setting && key.inode.0 == 0;
            let is_carried = key.kind.asks().is_some() && key.kind.tree() == TreeId::Space;
            if is_setting || is_carried {
                items.insert(key, value.to_vec());
            }
            ControlFlow::Continue(())
        });
        items
    }

    /// Whether something that was durable is missing of the rings, and what lies behind was looked at.
    pub fn has_hole(&self) -> bool {
        self.recovered.log.later.has_hole
    }

    /// Files that were made behind a hole of the rings, and are there all the same, by branch and number. Files of which no block of data
    /// is left are not among them.
    pub fn made_later(&self) -> &BTreeMap<(u64, InodeNo), MadeLater> {
        &self.recovered.log.later.files
    }

    /// What stands in journal and log: what a new superblock must be younger than, and which blocks a replay reads.
    pub fn rings(&self) -> RingContents {
        named::read(self.device, &self.mark, &self.recovered)
    }
}

/// The nodes of a volume, as its space tree counts them.
#[derive(Clone, Debug, Default)]
pub struct CountedNodes {
    /// Blocks of nodes by the number of their group; copies count.
    pub by_group: BTreeMap<u64, u64>,
    /// The nodes of the space tree.
    pub of_space: Vec<BlockNo>,
}
