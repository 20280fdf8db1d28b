//! What a commit does to the nodes in memory: all of it, or nothing if it cannot be.
//!
//! New and copied nodes are made aside first, from the bases that stood before
//! the commit; then changed nodes change, and cancelled ones go. Nothing that
//! can fail comes after the first change.

use std::collections::BTreeSet;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, CommitNo, Epoch, TreeId};
use holdfast_format::codec::Reader;
use holdfast_format::journal::{Base, Commit, DataExtent, REPLAY_BYTES_MAX};
use holdfast_format::node::{self, Expected, NodeHeader};
use holdfast_format::{Malformed, NodePointer, NodeView, Superblock};

use super::ring::{Ring, Whole};
use super::{End, Fault, Reason, Replay, bytes_of};
use crate::data_sums;
use crate::issue::Issue;

/// What one commit breaks: the issue and the words.
type Refusal = (Issue, String);
/// Nodes with their first blocks, or why they are lost.
type Nodes = Vec<(BlockNo, Result<Vec<u8>, Fault>)>;

impl Replay {
    /// Applies a commit. The error is where the journal ends instead.
    pub(super) fn take(
        &mut self,
        ring: &Ring<'_>,
        whole: &Whole,
        is_last: bool,
    ) -> Result<(), End> {
        let commit = match judge(ring, whole) {
            Ok(commit) => commit,
            Err(why) => return Err(self.refuse(whole, (Issue::CommitMalformed, why))),
        };
        let past = [
            ("last operation", commit.head.lsn, self.superblock.lsn.0),
            ("next inode", commit.head.inode_next, self.superblock.inode_next.0),
        ];
        if let Some((what, now, before)) = past.into_iter().find(|(_, now, before)| now < before) {
            let why = format!("its {what} goes back from {before} to {now}");
            return Err(self.refuse(whole, (Issue::CommitMalformed, why)));
        }
        if is_last && let Some(extent) = data_sums::missing(ring.device, &commit.extents) {
            let DataExtent { block, count, .. } = extent;
            let why = format!("{count} blocks of data from {block} on did not arrive");
            let end = whole.ends_before(whole.at(), Reason::DataMissing, why);
            // What was durable and does not match has rotted: that speaks against its file.
            if ring.damage(&end).0.is_none() {
                return Err(end);
            }
        }
        let made = match self.make(ring, whole.commit, &commit) {
            Ok(made) => made,
            Err(refusal) => return Err(self.refuse(whole, refusal)),
        };
        for change in commit.nodes.iter().filter(|change| change.base == Base::Changed) {
            if let Some(node) = self.nodes.get_mut(&change.block) {
                change.apply(node);
            }
        }
        for (block, node) in made {
            self.forget(block);
            match node {
                Ok(node) => drop(self.nodes.insert(block, node)),
                Err(fault) => drop(self.lost.insert(block, fault)),
            }
        }
        commit.cancels.iter().for_each(|block| self.forget(*block));
        self.earlier_log = self.superblock.log;
        self.superblock = commit.head.superblock(&self.superblock, whole.epoch, whole.mark());
        self.commits += 1;
        self.bytes += bytes_of(whole.blocks());
        Ok(())
    }

    fn forget(&mut self, block: BlockNo) {
        self.nodes.remove(&block);
        self.lost.remove(&block);
    }

    fn refuse(&mut self, whole: &Whole, (issue, why): Refusal) -> End {
        let what = format!("commit {}: {why}", whole.commit);
        self.faults.push(Fault { issue, what, block: whole.at() });
        whole.ends_before(whole.at(), Reason::Broken, why)
    }

    /// The nodes that a commit makes anew. Refuses what it has no base for; changes nothing.
    fn make(
        &self,
        ring: &Ring<'_>,
        commit_no: CommitNo,
        commit: &Commit<'_>,
    ) -> Result<Nodes, Refusal> {
        let node_size = ring.geometry.node_size;
        let nodes_max = (REPLAY_BYTES_MAX / node_size as u64) as usize;
        let mut made = Vec::new();
        for change in &commit.nodes {
            let block = change.block;
            let mut node = match change.base {
                Base::Changed if self.nodes.contains_key(&block) => continue,
                Base::Changed if self.lost.contains_key(&block) => continue,
                Base::Changed => {
                    let why = format!("it changes node {block}, which no commit made");
                    return Err((Issue::CommitBase, why));
                }
                Base::Zeros => Ok(vec![0; node_size]),
                Base::Copied(pointer) => {
                    let NodePointer { block: base, epoch } = pointer;
                    let says = |why| format!("node {block} copies {base} of epoch {epoch}: {why}");
                    match self.base(ring, pointer) {
                        Based::On(node) => Ok(node),
                        Based::Never(why) => return Err((Issue::CommitBase, says(why))),
                        Based::Lost(why) => {
                            let what = format!("commit {}: {}", commit_no, says(why));
                            Err(Fault { issue: Issue::CommitBaseLost, what, block })
                        }
                    }
                }
            };
            if self.nodes.len() + self.lost.len() + made.len() >= nodes_max {
                let why = "more nodes than a journal may change";
                return Err((Issue::CommitMalformed, why.into()));
            }
            if let Ok(node) = &mut node {
                change.apply(node);
            }
            made.push((block, node));
        }
        Ok(made)
    }

    /// The node that `pointer` names, as it stood before the commit.
    fn base(&self, ring: &Ring<'_>, pointer: NodePointer) -> Based {
        if let Some(node) = self.nodes.get(&pointer.block) {
            let epoch = head(node).map(|header| header.epoch);
            return match epoch {
                Ok(epoch) if epoch == pointer.epoch.0 => Based::On(node.clone()),
                Ok(epoch) => Based::Never(format!("that node is of epoch {epoch}")),
                Err(malformed) => Based::Never(malformed.why),
            };
        }
        if self.lost.contains_key(&pointer.block) {
            return Based::Lost("that node is lost".into());
        }
        let at = |block: BlockNo| -> Result<Vec<u8>, String> {
            let mut node = vec![0; ring.geometry.node_size];
            let read = ring.device.read(block.0 * BLOCK_BYTES, &mut node);
            read.map_err(|error| error.to_string())?;
            open(&node, pointer, ring.volume).map_err(|malformed| malformed.why)?;
            Ok(node)
        };
        let mut first = None;
        for place in ring.geometry.places_of_some_node(pointer.block) {
            match at(place.start) {
                Ok(node) => return Based::On(node),
                Err(why) => drop(first.get_or_insert(why)),
            }
        }
        Based::Lost(first.unwrap_or_default())
    }

    /// Seals every node, and judges it: what the last commit leaves must be valid. `before` is the
    /// superblock on the device.
    pub(super) fn seal(&mut self, before: &Superblock) {
        let volume = before.nodes();
        let epochs = before.epoch.0 + 1..=self.superblock.epoch.0;
        for (&block, bytes) in &mut self.nodes {
            node::seal(bytes);
            let judged = head(bytes).and_then(|header| {
                let pointer = NodePointer { block, epoch: Epoch(header.epoch) };
                open(bytes, pointer, volume)?;
                let why = format!("epoch {} does not belong into the journal", header.epoch);
                if epochs.contains(&header.epoch) { Ok(()) } else { Err(Malformed::new("", why)) }
            });
            if let Err(malformed) = judged {
                let what = format!("node {block} of the journal: {}", malformed.why);
                self.faults.push(Fault { issue: Issue::CommitNode, what, block });
            }
        }
        // What no reader takes for a node.
        let size = before.geometry.node_size;
        self.nodes.extend(self.lost.keys().map(|block| (*block, vec![0; size])));
    }
}

/// What a copied node begins as.
enum Based {
    On(Vec<u8>),
    /// It cannot be replayed.
    Never(String),
    /// The base is damaged, and so is what is made of it.
    Lost(String),
}

fn head(node: &[u8]) -> Result<NodeHeader, Malformed> {
    NodeHeader::read(&mut Reader::new(NodeHeader::TITLE, node))
}

/// Judges a node of any tree and level: those that it claims.
fn open(bytes: &[u8], pointer: NodePointer, volume: node::OfVolume) -> Result<(), Malformed> {
    let header = head(bytes)?;
    let Some(tree) = TreeId::from_raw(header.tree) else {
        return Err(Malformed::new(NodeHeader::TITLE, format!("there is no tree {}", header.tree)));
    };
    NodeView::open(bytes, &Expected { pointer, tree, level: header.level, volume }).map(drop)
}

/// Decodes a commit, and judges what its records alone do not show.
fn judge<'a>(ring: &Ring<'_>, whole: &'a Whole) -> Result<Commit<'a>, String> {
    let commit = Commit::decode(&whole.payload, whole.epoch, ring.geometry)
        .map_err(|malformed| malformed.to_string())?;
    let mut blocks = BTreeSet::new();
    if let Some(twice) = commit.nodes.iter().find(|change| !blocks.insert(change.block)) {
        return Err(format!("it has two records of node {}", twice.block));
    }
    let data = commit.extents.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.count));
    if data > ring.geometry.data_blocks() {
        return Err(format!("{data} blocks of data are more than the volume has"));
    }
    Ok(commit)
}
