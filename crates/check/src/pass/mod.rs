//! The passes of a check, declared once, and what they hand to each other.
//!
//! Each pass reads what it needs from the volume and from `Context`, adds
//! findings, and leaves what later passes need. Damage in one place does not
//! stop the rest: what could not be read is remembered as lost bounds of keys,
//! and nothing is reported that may be explained by them.

mod branches;
mod copies;
mod data;
mod dirs;
mod inodes;
mod journal;
mod lineage;
mod log;
mod names;
mod orphans;
mod references;
mod space;
mod superblocks;
mod trees;
mod xattrs;

use std::collections::{BTreeSet, HashMap};

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, BlockRange, Epoch, InodeNo, TreeId};
use holdfast_device::Device;
use holdfast_format::item::Extent;
use holdfast_format::{Key, Superblock};

use crate::bounds::{Bounds, LostKeys};
use crate::inodes::Inodes;
use crate::issue::{Issue, Severity};
use crate::lineage::{Lineage, TreeRoot};
use crate::recovered::Recovered;
use crate::report::{Facts, Finding, Findings, Summary};
use crate::volume::Volume;
use crate::{CheckError, Options, Progress, Report};

/// A pass of a check.
#[derive(Clone, Copy)]
pub struct Pass {
    /// The hundreds of its issues' numbers.
    pub number: u16,
    /// Its name in messages and progress.
    pub name: &'static str,
    /// The passes whose results it uses.
    pub needs: &'static [&'static str],
    /// What it does.
    pub sentence: &'static str,
    run: fn(&mut Context<'_>),
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.number, self.name)
    }
}

macro_rules! passes {
    ($($number:literal $name:literal $run:path, [$($needs:literal),*], $sentence:literal;)*) => {
        /// Every pass, in the order in which they run.
        pub const PASSES: [Pass; 11] = [$(Pass {
            number: $number,
            name: $name,
            needs: &[$($needs),*],
            sentence: $sentence,
            run: $run,
        }),*];
    };
}

passes! {
    1 "superblocks" superblocks::run, [],
        "Judges both superblock slots, finds the one that counts, and compares them.";
    8 "journal" journal::run, ["superblocks"],
        "Replays the commits of the journal in memory; all that follows sees the result.";
    9 "log" log::run, ["superblocks", "journal"],
        "Replays the batches of the fsync log in memory; all that follows sees the result.";
    2 "trees" trees::run, ["superblocks", "journal"],
        "Reads every node of all trees, once: sums, levels, epochs, order and bounds of keys.";
    10 "lineage" lineage::run, ["log", "trees"],
        "Judges how branches and snapshots grew out of one another, their names and deletions.";
    3 "inodes" inodes::run, ["log", "trees"],
        "Judges every item of every inode, and how they fit together.";
    11 "branches" branches::run, ["log", "trees", "lineage", "inodes"],
        "Judges what other branches and snapshots have that the tree beside them has not, as passes 3, 5, 6 and 7 do.";
    4 "space" space::run, ["log", "trees", "inodes", "branches"],
        "Compares the blocks that nodes and extents reach with bitmaps and counts.";
    5 "directories" dirs::run, ["trees", "inodes"],
        "Follows every name, and compares link counts, parents and reachability.";
    6 "orphans" orphans::run, ["inodes", "directories"],
        "Compares the list of orphans with the inodes that have no link.";
    7 "data" data::run, ["log", "trees"],
        "Reads the data of all files and verifies every checksum, if asked for.";
}

/// Names looked up for the paths of all findings: many findings far below the root would take hours.
const NAMES_MAX: usize = 100_000;

/// What uses blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Node(TreeId),
    File(InodeNo),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Owner::Node(TreeId::Files) => f.write_str("a node of the files tree"),
            Owner::Node(TreeId::Space) => f.write_str("a node of the space tree"),
            Owner::File(inode) => write!(f, "inode {inode}"),
        }
    }
}

/// Blocks with an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) blocks: BlockRange,
    pub(crate) owner: Owner,
    /// Of data: when it became part of a tree, and the block of the file that the first one is.
    of: (Epoch, u64),
    is_written: bool,
}

/// What tells references to blocks apart: the file, the birth, and the place, as far behind the block.
pub(crate) type Reference = (InodeNo, Epoch, u64);

impl Use {
    pub(crate) fn node(blocks: BlockRange, tree: TreeId) -> Use {
        Use { blocks, owner: Owner::Node(tree), of: (Epoch(0), 0), is_written: true }
    }

    pub(crate) fn of(key: &Key, extent: &Extent) -> Use {
        let of = (extent.birth, key.offset / BLOCK_BYTES);
        let (blocks, owner) = (extent.blocks, Owner::File(key.inode));
        Use { blocks, owner, of, is_written: extent.is_written() }
    }

    /// Without so many of the first blocks.
    pub(crate) fn behind(self, count: u64) -> Use {
        let Use { blocks, of: (birth, at), .. } = self;
        let blocks =
            BlockRange::new(BlockNo(blocks.start.0 + count), blocks.count.saturating_sub(count));
        Use { blocks, of: (birth, at.saturating_add(count)), ..self }
    }

    /// The reference that it is, of data.
    pub(crate) fn reference(&self) -> Option<Reference> {
        match self.owner {
            Owner::Node(_) => None,
            Owner::File(inode) => {
                Some((inode, self.of.0, self.of.1.wrapping_sub(self.blocks.start.0)))
            }
        }
    }

    /// Whether trees share these blocks: they have one reference to them.
    fn is_same(&self, other: &Use) -> bool {
        self.reference().is_some_and(|own| other.reference() == Some(own))
    }

    /// Whether blocks may have both references, if they are counted.
    fn may_share(&self, other: &Use) -> bool {
        [self, other].iter().all(|used| used.reference().is_some() && used.is_written)
    }
}

/// What the passes share.
pub(crate) struct Context<'a> {
    pub(crate) volume: Volume<'a>,
    pub(crate) slots: &'a crate::superblocks::Slots,
    /// The far copy counts, as the superblock that it is a copy of is lost.
    pub(crate) newest_is_lost: bool,
    pub(crate) recovered: &'a Recovered,
    pub(crate) options: &'a Options<'a>,
    pub(crate) findings: Findings,
    pub(crate) facts: Facts,
    /// Keys of the files tree that could not be read.
    pub(crate) files_lost: LostKeys,
    /// Keys of the space tree that could not be read.
    pub(crate) space_lost: LostKeys,
    /// Whether something of another branch or snapshot could not be read.
    pub(crate) others_lost: bool,
    /// Branches and snapshots of which that is known.
    pub(crate) lost_trees: BTreeSet<u64>,
    /// Items of branches and snapshots.
    pub(crate) lineage: Lineage,
    /// Every tree: `main` first, what is being deleted last.
    pub(crate) trees: Vec<TreeRoot>,
    /// The branch or snapshot beside `main` that is looked at.
    pub(crate) aside: Option<String>,
    /// Blocks of nodes and extents, in no order.
    pub(crate) uses: Vec<Use>,
    pub(crate) inodes: Inodes,
    /// Inodes named by orphan items.
    pub(crate) orphans: Vec<InodeNo>,
    /// Inodes in which holes are being made.
    pub(crate) punches: Vec<InodeNo>,
    /// The pass that runs.
    pass: &'static str,
}

impl<'a> Context<'a> {
    fn new(
        volume: Volume<'a>,
        slots: &'a crate::superblocks::Slots,
        recovered: &'a Recovered,
        options: &'a Options<'a>,
    ) -> Context<'a> {
        Context {
            volume,
            slots,
            newest_is_lost: false,
            recovered,
            options,
            findings: Findings::default(),
            facts: Facts::default(),
            files_lost: LostKeys::default(),
            space_lost: LostKeys::default(),
            others_lost: false,
            lost_trees: BTreeSet::new(),
            lineage: Lineage::default(),
            trees: Vec::new(),
            aside: None,
            uses: Vec::new(),
            inodes: Inodes::default(),
            orphans: Vec::new(),
            punches: Vec::new(),
            pass: "",
        }
    }

    /// The same for another tree: findings are of that, and nothing else is counted.
    fn beside(&mut self, tree: &TreeRoot) -> Context<'a> {
        let volume = self.recovered.volume_of(self.volume.device, tree);
        Context {
            findings: std::mem::take(&mut self.findings),
            aside: Some(tree.name.clone()),
            pass: self.pass,
            ..Context::new(volume, self.slots, self.recovered, self.options)
        }
    }

    /// Adds a finding about the tree that is looked at.
    pub(crate) fn add(&mut self, issue: Issue, what: impl Into<String>) -> &mut Finding {
        let finding = self.findings.add(issue, what);
        finding.tree.clone_from(&self.aside);
        finding
    }

    /// Whether all of the files trees could be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.files_lost.is_empty() && !self.others_lost
    }

    /// Says how far the running pass is.
    pub(crate) fn progress(&self, done: u64, total: u64) {
        if let Some(progress) = self.options.progress {
            let judged = self.volume.judged_nodes();
            progress(Progress { pass: self.pass, done, total, judged });
        }
    }

    /// Whether an item with this key may exist although it was not found.
    pub(crate) fn may_be_lost(&self, key: &Key) -> bool {
        self.files_lost.holds(key)
    }

    /// Whether items of this inode may exist although they were not found.
    pub(crate) fn is_partly_lost(&self, inode: InodeNo) -> bool {
        self.files_lost.meets(&Bounds::inode(inode))
    }
}

/// Runs all passes.
pub(crate) fn run(device: &dyn Device, options: &Options<'_>) -> Result<Report, CheckError> {
    let slots = crate::superblocks::Slots::read(device)?;
    if let Some(words) = slots.newer() {
        return Err(CheckError::Newer(words));
    }
    if let Some(words) = slots.older() {
        return Err(CheckError::Older(words));
    }
    let Some(superblock) = slots.newest().or(slots.only_far()).cloned() else {
        if !slots.has_magic() {
            return Err(CheckError::NotHoldfast { found: crate::foreign::identify(device) });
        }
        let mut findings = Findings::default();
        superblocks::none_is_valid(&slots, &mut findings);
        return Ok(findings.into_report(Facts::default()));
    };
    let report = run_with(device, options, &slots, &superblock, false);
    let errors = |report: &Report, besides: Option<Issue>| {
        let known = besides.map(Issue::number);
        let is_one = |it: &Finding| it.severity > Severity::Warning && Some(it.id) != known;
        // Of an issue of which more was found than is kept, some is kept.
        report.findings.iter().any(is_one)
    };
    // A slot that rotted, and what it alone led to: the far copy may know better.
    if errors(&report, None)
        && let Some(far) = slots.lost_newest()
    {
        let better = run_with(device, options, &slots, far, true);
        if !errors(&better, Some(Issue::NewestSuperblockLost)) {
            return Ok(better);
        }
    }
    Ok(report)
}

fn run_with(
    device: &dyn Device,
    options: &Options<'_>,
    slots: &crate::superblocks::Slots,
    superblock: &Superblock,
    newest_is_lost: bool,
) -> Report {
    let recovered = Recovered::read(device, superblock);
    let summary = Summary::new(superblock, slots, &recovered);
    let mut context = Context::new(recovered.volume(device), slots, &recovered, options);
    context.newest_is_lost = newest_is_lost;
    context.facts.superblock = Some(summary);
    context.lineage = Lineage::read(&context.volume);
    context.trees = recovered.trees(device, &context.lineage);
    for pass in PASSES {
        context.pass = pass.name;
        (pass.run)(&mut context);
    }
    name_paths(&mut context);
    context.findings.into_report(context.facts)
}

/// Says of each finding about a file where that is, in the tree that the finding is of.
fn name_paths(context: &mut Context<'_>) {
    let trees: HashMap<&str, &TreeRoot> =
        context.trees.iter().map(|tree| (tree.name.as_str(), tree)).collect();
    let (volume, inodes) = (&context.volume, &context.inodes);
    let mut budget = NAMES_MAX;
    for finding in &mut context.findings.list {
        let Some(inode) = finding.inode else { continue };
        let found = match &finding.tree {
            None => inodes.path(volume, inode, &mut budget),
            Some(tree) => trees.get(tree.as_str()).and_then(|tree| {
                let volume = context.recovered.volume_of(volume.device, tree);
                volume.path(inode, &mut budget)
            }),
        };
        finding.path = match (found, &finding.name) {
            (Some(path), None) => Some(path),
            (Some(path), Some(name)) => {
                let name = crate::text::printable(name);
                Some(format!("{}/{name}", path.trim_end_matches('/')))
            }
            (None, _) => None,
        };
    }
}
