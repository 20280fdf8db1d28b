//! The nodes that commits leave: each is the one that a record builds on, with what it changes.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use holdfast_base::{BlockNo, Epoch, TreeId, parallel};
use holdfast_format::codec::Reader;
use holdfast_format::journal::{Base, Commit, NodeChange, REPLAY_BYTES_MAX};
use holdfast_format::node::{self, Expected, NodeHeader};
use holdfast_format::{Malformed, NodePointer, NodeView};

use super::Replay;
use crate::side_by_side::side_by_side;
use crate::verified::first_sound;
use crate::{Result, StoreError};

/// Fewer bases are read by the caller alone.
const ALONE: usize = 16;

impl Replay<'_> {
    /// Applies a commit. Bases are the nodes that stood before it, whatever the order of its records.
    pub(super) fn apply(
        &mut self,
        commit: &Commit<'_>,
        damage: impl Fn(Malformed) -> StoreError + Sync,
    ) -> Result<()> {
        let node_bytes = self.superblock.geometry.node_size as u64;
        let nodes_max = REPLAY_BYTES_MAX.checked_div(node_bytes).unwrap_or(0);
        let born: Vec<_> = commit.nodes.iter().filter(|node| node.base != Base::Changed).collect();
        let before = self.nodes.len().saturating_add(self.lost.len());
        if before.saturating_add(born.len()) as u64 > nodes_max {
            return Err(damage(Malformed::new("journal", "it changes too many nodes")));
        }
        // Few are read alone: threads would cost more than they save.
        let most = parallel::node_threads(parallel::processors());
        let threads = if born.len() < ALONE { 1 } else { most };
        let made = side_by_side(&born, threads, |change| {
            let mut node = self.base(change, &damage)?;
            if let Ok(node) = &mut node {
                change.apply(node);
            }
            Ok((change.block, node))
        })?;
        let is_changed = |change: &&NodeChange<'_>| {
            change.base == Base::Changed && !self.lost.contains_key(&change.block)
        };
        for change in commit.nodes.iter().filter(is_changed) {
            let node = self.nodes.get_mut(&change.block).ok_or_else(|| {
                let why = format!("block {}: no commit before it made this node", change.block);
                damage(Malformed::new("node record", why))
            })?;
            change.apply(node);
        }
        for (block, node) in made {
            self.forget(block);
            match node {
                Ok(node) => drop(self.nodes.insert(block, node)),
                Err(why) => drop(self.lost.insert(block, why)),
            }
        }
        commit.cancels.iter().for_each(|block| self.forget(*block));
        Ok(())
    }

    fn forget(&mut self, block: BlockNo) {
        self.nodes.remove(&block);
        self.lost.remove(&block);
    }

    /// What a new or copied node begins as. The inner error is why it is lost.
    fn base(
        &self,
        change: &NodeChange<'_>,
        damage: impl Fn(Malformed) -> StoreError,
    ) -> Result<std::result::Result<Vec<u8>, String>> {
        let Base::Copied(pointer) = change.base else {
            return Ok(Ok(vec![0; self.superblock.geometry.node_size]));
        };
        if let Some(why) = self.lost.get(&pointer.block) {
            return Ok(Err(why.clone()));
        }
        match self.nodes.get(&pointer.block) {
            Some(node) if header(node)?.epoch == pointer.epoch.0 => Ok(Ok(node.clone())),
            Some(_) => {
                let why = format!("block {}: its base is another node", change.block);
                Err(damage(Malformed::new("node record", why)))
            }
            None => Ok(self.read_base(pointer).map_err(|error| {
                let (block, why) = (pointer.block, error.as_reason());
                format!("a commit builds on the node at block {block}: {why}")
            })),
        }
    }

    /// A node that is durable at its location.
    fn read_base(&self, pointer: NodePointer) -> Result<Vec<u8>> {
        let places = self.superblock.geometry.places_of_some_node(pointer.block);
        let read = first_sound(places, |place| {
            let mut node = Vec::new();
            self.read_blocks(place, &mut node)?;
            self.judge(&node, pointer)?;
            Ok(node)
        })?;
        if let Some(bad) = read.bad {
            // Not mended: the checkpoint of the recovery puts another node in its stead.
            let (bad, sound) = (bad.place.start, read.place.start);
            tracing::warn!(
                "block {bad} does not hold its node, which a commit builds on; block {sound} does"
            );
        }
        Ok(read.value)
    }

    fn judge(&self, node: &[u8], pointer: NodePointer) -> Result<()> {
        let header = header(node)?;
        let Some(tree) = TreeId::from_raw(header.tree) else {
            let source = Malformed::new("node", format!("there is no tree {}", header.tree));
            return Err(StoreError::Node { block: pointer.block, tree: TreeId::Files, source });
        };
        let expected = Expected { pointer, tree, level: header.level, volume: self.volume };
        match NodeView::open(node, &expected) {
            Ok(_) => Ok(()),
            Err(source) => Err(StoreError::Node { block: pointer.block, tree, source }),
        }
    }

    /// The nodes, sealed and judged: born behind the superblock, and not after the last commit. Those that are lost are among them,
    /// as what no reader takes for a node.
    pub(super) fn finish(&mut self, last: Epoch) -> Result<BTreeMap<BlockNo, Vec<u8>>> {
        let mut nodes = std::mem::take(&mut self.nodes);
        let epochs = self.superblock.epoch.next()..=last;
        for (block, bytes) in &mut nodes {
            node::seal(bytes);
            let born = Epoch(header(bytes)?.epoch);
            let born = if epochs.contains(&born) { born } else { last };
            self.judge(bytes, NodePointer { block: *block, epoch: born })?;
        }
        let size = self.superblock.geometry.node_size;
        nodes.extend(self.lost.keys().map(|block| (*block, vec![0; size])));
        Ok(nodes)
    }
}

fn header(node: &[u8]) -> Result<NodeHeader> {
    NodeHeader::read(&mut Reader::new("node", node))
        .map_err(|source| StoreError::Item { what: "a node of the journal".into(), source })
}
