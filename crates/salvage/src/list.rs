//! What a device holds of volumes, to choose from.

use std::collections::BTreeMap;

use holdfast_base::TreeId;
use holdfast_base::units::BLOCK_BYTES;
use serde::Serialize;

use crate::roots::roots;
use crate::salvaged::Salvaged;
use crate::scan::{FoundSuperblock, Scan, Tag};
use crate::state::counts;

/// A volume of which something was found.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeFound {
    /// What all of its nodes carry, in hexadecimal digits.
    pub tag: String,
    /// Nodes, those of older states included.
    pub nodes: u64,
    /// Bytes of a node; 0 if none was found.
    pub node_bytes: u64,
    /// Oldest and newest epoch of a node.
    pub epochs: Option<(u64, u64)>,
    /// The last change of a file that is in a node, in seconds since 1970.
    pub changed: Option<i64>,
    /// Valid superblocks: block and epoch.
    pub superblocks: Vec<(u64, u64)>,
    /// Bytes of the volume, if a superblock is left.
    pub bytes: Option<u64>,
    /// Label, if a superblock is left.
    pub label: Option<String>,
    /// Id, if a superblock is left.
    pub uuid: Option<String>,
}

/// A checkpoint of which something was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EpochFound {
    /// Its number.
    pub epoch: u64,
    /// Nodes that it wrote.
    pub nodes: u64,
    /// The last change of a file in these, in seconds since 1970: about when it was.
    pub changed: Option<i64>,
    /// A superblock of it is left.
    pub has_superblock: bool,
    /// Nodes of it that look like roots of files trees.
    pub roots: Vec<RootFound>,
}

/// A node that looks like the root of a files tree.
#[derive(Clone, Debug, Serialize)]
pub struct RootFound {
    /// Its block.
    pub block: u64,
    /// Levels above the leaves.
    pub level: u8,
}

impl Scan {
    /// Volumes of which something was found, those with superblocks first, then those with the most nodes.
    pub fn volumes(&self) -> Vec<VolumeFound> {
        let counts = counts(self);
        let volumes = self.volumes.iter().zip(&counts);
        let mut found: Vec<VolumeFound> =
            volumes.map(|(tag, count)| self.volume(tag, *count)).collect();
        for node in &self.nodes {
            let Some(volume) = found.get_mut(node.volume as usize) else { continue };
            volume.node_bytes = u64::from(node.blocks) * BLOCK_BYTES;
            let (first, last) = volume.epochs.unwrap_or((node.epoch, node.epoch));
            volume.epochs = Some((first.min(node.epoch), last.max(node.epoch)));
            volume.changed = newer(volume.changed, node.changed);
        }
        found.sort_by_key(|volume| {
            std::cmp::Reverse((!volume.superblocks.is_empty(), volume.nodes))
        });
        found
    }

    fn volume(&self, tag: &Tag, nodes: u64) -> VolumeFound {
        let of = |found: &&FoundSuperblock| found.superblock.node_tag == *tag;
        let own: Vec<_> = self.superblocks.iter().filter(of).collect();
        let newest = own.iter().max_by_key(|found| found.superblock.epoch);
        VolumeFound {
            tag: digits(tag),
            nodes,
            node_bytes: 0,
            epochs: None,
            changed: None,
            superblocks: own.iter().map(|found| (found.block, found.superblock.epoch.0)).collect(),
            bytes: newest
                .map(|found| found.superblock.geometry.volume_blocks.saturating_mul(BLOCK_BYTES)),
            label: newest.map(|found| found.superblock.label.clone()),
            uuid: newest.map(|found| found.superblock.uuid.to_string()),
        }
    }
}

/// A tag as people write it.
fn digits(tag: &Tag) -> String {
    format!("{:016x}", u64::from_be_bytes(*tag))
}

/// The tag that people have written.
pub fn tag(digits: &str) -> Option<Tag> {
    let is_hex = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some(number.to_be_bytes())
}

fn newer(one: Option<i64>, two: i64) -> Option<i64> {
    // A node without inodes has none.
    if two == i64::MIN { one } else { Some(one.map_or(two, |one| one.max(two))) }
}

impl Salvaged<'_> {
    /// Checkpoints of which something was found, the newest first.
    pub fn epochs(&self) -> Vec<EpochFound> {
        let mut epochs: BTreeMap<u64, EpochFound> = BTreeMap::new();
        for node in &self.index.nodes {
            let found = epochs.entry(node.epoch).or_default();
            found.nodes += 1;
            found.changed = newer(found.changed, node.changed);
        }
        for root in roots(&self.reading, &self.index, TreeId::Files, u64::MAX) {
            let found = RootFound { block: root.block, level: root.level };
            epochs.entry(root.epoch).or_default().roots.push(found);
        }
        for epoch in &self.superblocks {
            epochs.entry(*epoch).or_default().has_superblock = true;
        }
        epochs.iter_mut().for_each(|(epoch, found)| found.epoch = *epoch);
        epochs.into_values().rev().collect()
    }
}
