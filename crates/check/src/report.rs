//! What a check hands back: findings, and what was counted on the way.
//!
//! Findings are kept up to a limit for each issue, so that a volume that is
//! rotten throughout does not fill memory (P10); the rest is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_base::{BlockNo, BlockRange, InodeNo};
use holdfast_format::Superblock;
use serde::{Serialize, Serializer};

use crate::issue::{Issue, Severity};
use crate::recovered::Recovered;
use crate::ring_part::BadRingPart;
use crate::superblocks::Slots;

/// Findings of one issue that are kept.
pub const KEPT_MAX: u64 = 1000;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Permanent number of the issue.
    pub id: u16,
    /// Permanent name of the issue.
    pub slug: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What exactly is wrong, with the numbers.
    pub what: String,
    /// The branch or snapshot concerned, if it is another than `main`.
    pub tree: Option<String>,
    /// The file or name concerned, as an absolute path in that tree, or in `main`, if one leads there.
    pub path: Option<String>,
    /// The inode concerned.
    #[serde(serialize_with = "inode_number")]
    pub inode: Option<InodeNo>,
    /// The block concerned, or the first of several.
    #[serde(serialize_with = "block_number")]
    pub block: Option<BlockNo>,
    #[serde(skip)]
    pub(crate) name: Option<Vec<u8>>,
}

fn inode_number<S: Serializer>(inode: &Option<InodeNo>, to: S) -> Result<S::Ok, S::Error> {
    inode.map(|inode| inode.0).serialize(to)
}

fn block_number<S: Serializer>(block: &Option<BlockNo>, to: S) -> Result<S::Ok, S::Error> {
    block.map(|block| block.0).serialize(to)
}

impl Finding {
    /// The issue.
    pub fn issue(&self) -> Issue {
        Issue::from_number(self.id).expect("findings are made from issues")
    }

    /// Names the inode.
    pub(crate) fn inode(&mut self, inode: InodeNo) -> &mut Finding {
        self.inode = Some(inode);
        self
    }

    /// Names the block.
    pub(crate) fn block(&mut self, block: BlockNo) -> &mut Finding {
        self.block = Some(block);
        self
    }

    /// Says that it is about this name in the directory that [`Finding::inode`] names.
    pub(crate) fn name(&mut self, name: &[u8]) -> &mut Finding {
        self.name = Some(name.to_vec());
        self
    }
}

/// Writes the tree and the path that a line is about, as far as it is about some.
pub fn write_place(
    f: &mut std::fmt::Formatter<'_>,
    tree: Option<&str>,
    path: Option<&str>,
) -> std::fmt::Result {
    match (tree, path) {
        (Some(tree), Some(path)) => write!(f, "{tree}:{path}: "),
        (Some(of), None) | (None, Some(of)) => write!(f, "{of}: "),
        (None, None) => Ok(()),
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity} {} {}: ", self.id, self.slug)?;
        write_place(f, self.tree.as_deref(), self.path.as_deref())?;
        f.write_str(&self.what)
    }
}

/// A place of a node that does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// The place.
    pub bad: BlockRange,
    /// The other one, which holds it.
    pub sound: BlockRange,
}

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    /// All of them: there are no more than nodes.
    pub(crate) bad_places: Vec<BadPlace>,
    /// All of them: there are no more than the rings hold.
    pub(crate) bad_ring_parts: Vec<BadRingPart>,
    counts: BTreeMap<Issue, u64>,
    omitted: u64,
    /// Stands for a finding that is not kept.
    spare: Option<Finding>,
}

impl Findings {
    /// Adds a finding; the caller may say more about where.
    pub(crate) fn add(&mut self, issue: Issue, what: impl Into<String>) -> &mut Finding {
        let finding = Finding {
            id: issue.number(),
            slug: issue.slug(),
            severity: issue.severity(),
            what: what.into(),
            tree: None,
            path: None,
            inode: None,
            block: None,
            name: None,
        };
        let count = self.counts.entry(issue).or_default();
        *count += 1;
        if *count > KEPT_MAX {
            self.omitted += 1;
            return self.spare.insert(finding);
        }
        self.list.push(finding);
        self.list.last_mut().expect("it was pushed just now")
    }

    pub(crate) fn into_report(self, facts: Facts) -> Report {
        let Findings { list: findings, bad_places, bad_ring_parts, omitted, .. } = self;
        Report { findings, omitted, bad_places, bad_ring_parts, facts }
    }
}

/// The superblock, as journal and log leave it, for people and machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of the newest checkpoint.
    pub epoch: u64,
    /// Last operation that the volume contains, journal and log included.
    pub lsn: u64,
    /// Id of the volume.
    pub uuid: String,
    /// Label.
    pub label: String,
    /// Nanoseconds since 1970 when it was made.
    pub created_ns: i64,
    /// The program that wrote the superblock.
    pub written_by: String,
    /// What was found damaged, and the seconds since 1970 when.
    pub fault: Option<(i64, String)>,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Bytes of a tree node.
    pub node_size: u64,
    /// How often nodes above the leaves are stored, and those of the space tree.
    pub metadata_copies: u64,
    /// How often the leaves of files trees are stored.
    pub leaf_copies: u64,
    /// How often each batch of the log and each frame of the journal is stored.
    pub ring_copies: u64,
    /// Bytes of the log ring.
    pub log_ring_bytes: u64,
    /// Bytes of the journal ring.
    pub journal_ring_bytes: u64,
    /// Blocks that can hold data and nodes.
    pub usable_blocks: u64,
    /// Of those, blocks in use, as the superblock says.
    pub used_blocks: u64,
    /// Inodes of `main`, as the superblock says.
    pub inodes: u64,
    /// Next inode number to hand out.
    pub inode_next: u64,
    /// Feature words: compat and read-only-compat.
    pub features: [u64; 2],
    /// Commits in the journal that the newest checkpoint does not contain.
    pub journal_commits: u64,
    /// Different nodes that they make or change.
    pub journal_nodes: u64,
    /// Bytes of their frames: what a recovery reads of the ring.
    pub journal_bytes_used: u64,
    /// Batches in the log that the journal does not contain.
    pub log_batches: u64,
    /// Bytes of the batches that a recovery reads.
    pub log_bytes_used: u64,
    /// Estimated time of a recovery.
    #[serde(rename = "recovery_estimate_ns", serialize_with = "nanoseconds")]
    pub recovery_estimate: Duration,
    /// What is missing of journal and log although it was durable: with any, the volume opens for reading alone until it is repaired.
    pub recovery_missing: Vec<String>,
}

fn nanoseconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).serialize(to)
}

impl Summary {
    /// Of the volume whose newest superblock is `newest`, with journal and log behind it.
    pub(crate) fn new(newest: &Superblock, slots: &Slots, recovered: &Recovered) -> Summary {
        let Recovered { journal, log, .. } = recovered;
        let superblock = &log.superblock;
        let geometry = &superblock.geometry;
        let bytes = |blocks: u64| blocks * holdfast_base::units::BLOCK_BYTES;
        Summary {
            epoch: newest.epoch.0,
            lsn: superblock.lsn.0,
            uuid: superblock.uuid.to_string(),
            label: superblock.label.clone(),
            created_ns: superblock.created.nanoseconds(),
            written_by: superblock.writer.clone(),
            fault: slots.fault().map(|fault| (fault.time.secs, fault.reason.clone())),
            volume_bytes: bytes(geometry.volume_blocks),
            node_size: geometry.node_size as u64,
            metadata_copies: geometry.node_copies().0,
            leaf_copies: geometry.node_copies().1,
            ring_copies: geometry.ring_places().count() as u64,
            log_ring_bytes: bytes(geometry.log_room()),
            journal_ring_bytes: bytes(geometry.journal_room()),
            usable_blocks: geometry.data_blocks(),
            used_blocks: superblock.used_blocks,
            inodes: superblock.inode_count,
            inode_next: superblock.inode_next.0,
            features: [superblock.features_compat, superblock.features_ro_compat],
            journal_commits: journal.commits,
            journal_nodes: journal.nodes.len() as u64,
            journal_bytes_used: journal.bytes,
            log_batches: log.batches,
            log_bytes_used: log.bytes,
            recovery_estimate: log.work(journal).estimate(),
            recovery_missing: recovered.missing(),
        }
    }
}

/// What branches have. What several of them share counts in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Inodes of any type.
    pub inodes: u64,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Directory entries.
    pub dentries: u64,
    /// Extents.
    pub extents: u64,
}

impl Counted {
    /// All numbers of both, each pair by `join`.
    pub(crate) fn with(self, other: Counted, join: impl Fn(u64, u64) -> u64) -> Counted {
        Counted {
            inodes: join(self.inodes, other.inodes),
            files: join(self.files, other.files),
            directories: join(self.directories, other.directories),
            dentries: join(self.dentries, other.dentries),
            extents: join(self.extents, other.extents),
        }
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The superblock that counts; `None` if none is valid.
    pub superblock: Option<Summary>,
    /// Branches, `main` included.
    pub branches: u64,
    /// Snapshots, those without a name included.
    pub snapshots: u64,
    /// Of those, snapshots without a name, which no list shows: what forks keep of deleted ones, and what is being deleted.
    pub nameless_snapshots: u64,
    /// Whether all trees could be read completely. If not, counts are of the readable part.
    pub complete: bool,
    /// What all branches have.
    pub of_branches: Counted,
    /// Nodes of the files trees, each once.
    pub files_nodes: u64,
    /// Nodes of the space tree.
    pub space_nodes: u64,
    /// Inodes of any type, in `main` like all counts of files, names and extents below.
    pub inodes: u64,
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pipes, sockets and devices.
    pub specials: u64,
    /// Inodes without a name that wait to be collected.
    pub orphans: u64,
    /// Directory entries.
    pub dentries: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Extents.
    pub extents: u64,
    /// Blocks of extents; of several trees, each block once.
    pub data_blocks: u64,
    /// Of those, blocks allocated but never written.
    pub unwritten_blocks: u64,
    /// Blocks of tree nodes.
    pub node_blocks: u64,
    /// Bytes of data whose checksum was verified.
    pub verified_bytes: u64,
    /// Commits in the journal that the newest checkpoint does not contain.
    pub journal_commits: u64,
    /// Different nodes that they make or change.
    pub journal_nodes: u64,
    /// Bytes of their frames.
    pub journal_bytes_used: u64,
    /// Batches in the log that the journal does not contain.
    pub log_batches: u64,
    /// Their records.
    pub log_records: u64,
    /// Bytes of the batches that a recovery reads.
    pub log_bytes_used: u64,
    /// Estimated time of a recovery.
    #[serde(rename = "recovery_estimate_ns", serialize_with = "nanoseconds")]
    pub recovery_estimate: Duration,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What is wrong, in the order of the passes.
    pub findings: Vec<Finding>,
    /// Findings that were not kept because there were more than [`KEPT_MAX`] of their issue.
    pub omitted: u64,
    /// Every place of which a finding says [`Issue::NodeCopyBad`], those that were not kept included.
    #[serde(skip)]
    pub bad_places: Vec<BadPlace>,
    /// What findings say [`Issue::FramePlaceBad`] and [`Issue::BatchPlaceBad`] of, those that were not kept included. What
    /// goes on at a ring's start is in here twice.
    #[serde(skip)]
    pub bad_ring_parts: Vec<BadRingPart>,
    /// What was counted.
    pub facts: Facts,
}

impl Report {
    /// Whether nothing is wrong. Notes do not count.
    pub fn is_clean(&self) -> bool {
        self.worst().is_none_or(|worst| worst == Severity::Note)
    }

    /// The worst severity found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// The exit code of fsck(8): 0 clean, 4 errors left uncorrected. A [`crate::CheckError`] is 8.
    pub fn exit_code(&self) -> u8 {
        if self.is_clean() { 0 } else { 4 }
    }
}
