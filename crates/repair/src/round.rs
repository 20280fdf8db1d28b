//! One round: read, decide, write to memory, check. Where the check finds something left, another round follows on top.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use holdfast_base::{BLOCK_SIZE, BatchNo, BlockNo, BlockRange, CommitNo, Epoch, InodeNo};
use holdfast_check::reading::{Gaps, RingContents, TreeRoot, VolumeReading};
use holdfast_check::runs::Runs;
use holdfast_check::{Finding, Issue, Options as CheckOptions, Report, check};
use holdfast_device::Device;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::superblock::RO_COMPAT_KNOWN;
use holdfast_format::{ItemKind, JournalMark, LogMark, Stored, Superblock, node};

use crate::blocks::Space;
use crate::copies::{Mended, Mends};
use crate::error::RepairError;
use crate::judge::{self, Shared};
use crate::lineage::{Lineage, OlderItems, Root};
use crate::overlay::Overlay;
use crate::plan::Repair;
use crate::relocate::{self, Uses};
use crate::superblocks::superblocks;
use crate::walk::{Edits, Survey, TreeWork};
use crate::watched::Watched;
use crate::{
    ROUNDS, RepairOptions, account, copies, cut, is_repaired, lineage, older as versions, owners,
    rewrite,
};

/// Trees that are all judged when anything is wrong in one; of more, those in which something was found.
const ALL_JUDGED: usize = 256;

/// What the rounds have made.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) repairs: Vec<Repair>,
    /// Branches and snapshots that are lost, or lose their root directory or everything: a clause that names each.
    pub(crate) given_up: Vec<String>,
    /// What a check finds of the result.
    pub(crate) after: Report,
    pub(crate) blocks: BTreeMap<u64, Box<[u8; BLOCK_SIZE]>>,
    /// What is written again from other places of the device, none of which is among `blocks`.
    pub(crate) mends: Mends,
    /// What the first superblock says that leads to it; the next one is the same of the next epoch.
    pub(crate) superblock: Superblock,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// What nodes had that are left out is looked for on the device.
    pub(crate) is_searched: bool,
    /// What becomes of what was made behind holes of the rings.
    pub(crate) holes: Gaps,
}

/// Goes on until nothing is left. `taken` are blocks that earlier rounds must not lose.
pub(crate) fn run(
    device: &dyn Device,
    report: &Report,
    options: &RepairOptions,
    (taken, how): (&[(u64, u64)], Effort),
    left: u8,
) -> Result<Done, RepairError> {
    let is_far = |issue| report.findings.iter().any(|it| it.issue() == issue);
    // First of all: a bad place does not read perhaps, and nothing that is sound is given up for that.
    let mended = Mended::over(device, report, left < ROUNDS);
    let device: &dyn Device = &mended;
    let watched = Watched::new(device);
    let is_far = is_far(Issue::NewestSuperblockLost);
    let mut reading = VolumeReading::open_over(&watched, is_far, how.holes)?;
    let overlay = Overlay::new(device);
    let older = lineage::find_older(&reading, &overlay);
    reading.take_older(older.items.clone());
    let taken = (taken, how.is_searched);
    let mut round = Round::new(&reading, &overlay, report, taken, (&older, options.accept_loss))?;
    round.judge(report, options)?;
    let superblock = round.write(options)?;
    if let Some(error) = watched.failed().filter(|_| !options.accept_loss) {
        return RepairError::refused(format!(
            "{error}: nothing is written: what does not read now may be read another time; copy the device, then say --accept-loss"
        ));
    }
    let (mut repairs, taken) = (round.shared.repairs, round.used);
    let mut given_up = round.lineage.into_lost();
    given_up.append(&mut round.shared.given_up);
    let check_options = CheckOptions { data: options.data, progress: None };
    let after = check(&overlay, &check_options)?;
    if is_repaired(&after) {
        let mut blocks = overlay.into_blocks();
        let mends = mended.beside(&mut blocks)?;
        return Ok(Done { repairs, given_up, after, blocks, mends, superblock });
    }
    if left == 0 {
        let first = after.findings.iter().find(|it| it.severity > holdfast_check::Severity::Note);
        return RepairError::refused(format!(
            "nothing is written: a repair would leave something wrong: {}",
            first.map_or("more than is listed".into(), Finding::to_string)
        ));
    }
    let mut done = run(&overlay, &after, options, (&taken, how), left - 1)?;
    repairs.append(&mut done.repairs);
    given_up.append(&mut done.given_up);
    let later = copies::through(&overlay, &mended, done.mends, &mut done.blocks);
    let mut blocks = overlay.into_blocks();
    blocks.retain(|block, _| !later.contains_key(block));
    blocks.append(&mut done.blocks);
    let mut mends = mended.beside(&mut blocks)?;
    mends.extend(later);
    Ok(Done { repairs, given_up, blocks, mends, ..done })
}

struct Round<'w, 'd> {
    reading: &'w VolumeReading<'d>,
    overlay: &'w Overlay<'d>,
    rings: RingContents,
    lineage: Lineage,
    states: Vec<TreeWork>,
    uses: Option<Uses>,
    /// All that was in use before, or is needed to find it.
    used: Vec<(u64, u64)>,
    space: Space,
    shared: Shared,
    /// Nodes that only the journal has, and whose place holds data.
    displaced: BTreeSet<u64>,
    /// Something of the lineage was put right.
    is_doubted: bool,
    /// No data was found damaged, and all of it was looked at.
    is_sound: bool,
}

/// Whether a ring ends before what was found.
pub(crate) fn is_cut(issue: Issue) -> bool {
    let goes_on = [Issue::FramePlaceBad, Issue::BatchPlaceBad, Issue::CommitBaseLost];
    (800..1000).contains(&issue.number()) && !goes_on.contains(&issue)
}

/// The place of a node of the journal may hold data that the volume as it is has: it is not written there.
fn displaced(reading: &VolumeReading<'_>, uses: &Uses) -> BTreeSet<u64> {
    let data: Runs = uses.runs().collect();
    let geometry = reading.superblock().geometry;
    let of_journal = reading.journal_nodes().iter();
    let meets = |place: BlockRange| data.touches(place.start.0, place.ends().1);
    let places = |block: BlockNo, bytes: &[u8]| {
        geometry.places_of_node(block, node::stored(bytes, &geometry))
    };
    let displaced = of_journal.filter(|(block, bytes)| places(**block, bytes).any(meets));
    displaced.map(|(block, _)| block.0).collect()
}

/// The nodes of what is being deleted, and whether all of them are known: what that has not passed yet stays whole until the repair is durable.
/// Its data goes to `reached`.
fn going(
    reading: &VolumeReading<'_>,
    ended: &[TreeRoot],
    reached: &mut Vec<(u64, u64)>,
) -> (BTreeSet<(u64, Stored)>, bool) {
    let mut going = Survey::default();
    let mut is_whole = true;
    for root in ended {
        let met = going.tree(reading, root, &mut |_, node| {
            let mut of = Uses::default();
            of.leaf(reading, node);
            reached.extend(of.runs());
        });
        is_whole &= met.lost.is_empty();
    }
    (going.nodes, is_whole)
}

impl<'w, 'd> Round<'w, 'd> {
    fn new(
        reading: &'w VolumeReading<'d>,
        overlay: &'w Overlay<'d>,
        report: &Report,
        (taken, is_searched): (&[(u64, u64)], bool),
        (older, accepts_loss): (&OlderItems, bool),
    ) -> Result<Round<'w, 'd>, RepairError> {
        let superblock = reading.superblock();
        if superblock.features_ro_compat & !RO_COMPAT_KNOWN != 0 {
            return RepairError::refused("the volume has features that this program does not know");
        }
        let rings = reading.rings();
        let most = [rings.epoch, rings.commit, rings.batch, superblock.inode_next.0];
        if most.iter().any(|count| *count > COUNTER_MAX / 4) {
            return RepairError::refused(
                "a counter is near its end: copy the files to a new volume",
            );
        }
        let mut shared = Shared::new(superblock.inode_next.0);
        let lineage = Lineage::read(reading, older, accepts_loss, &mut shared.repairs)?;
        // What grew out of what is not as it was, or not as it was said: no tree is believed to own what it seems to.
        let is_doubted = !shared.repairs.is_empty();
        let (trees, ended) = lineage.trees(reading);
        let (mut survey, mut uses) = (Survey::default(), Uses::default());
        let mut states = Vec::new();
        for root in trees {
            let surveyed = survey.tree(reading, &root, &mut |_, node| uses.leaf(reading, node));
            // What the log says was said of another root.
            let changes = reading.changes(root.id).iter().filter(|_| !older.is_old(root.id));
            let edits: Edits = changes.map(|(key, change)| (*key, change.value.clone())).collect();
            for (key, value) in edits.iter().filter(|(key, _)| key.kind == ItemKind::Extent) {
                value.iter().for_each(|value| uses.extent(reading, key, value));
            }
            let is_cut = lineage.is_cut(root.id);
            states.push(TreeWork::new(root, edits, surveyed, is_cut));
        }
        let geometry = &superblock.geometry;
        let places =
            |(block, stored): &(u64, Stored)| geometry.places_of_node(BlockNo(*block), *stored);
        let mut reached: Vec<(u64, u64)> = uses.runs().collect();
        let (going, is_whole) = going(reading, &ended, &mut reached);
        let nodes = survey.nodes.iter().chain(&going);
        let nodes = nodes.flat_map(places);
        reached.extend(nodes.map(BlockRange::ends));
        let mut used: Vec<(u64, u64)> = reached.iter().chain(taken).copied().collect();
        used.extend(&rings.needed);
        if is_searched && states.iter().any(|state| !state.lost.is_empty()) {
            let reached = reached.into_iter().collect();
            let known = survey.nodes.union(&going).copied().collect();
            let known = Some(&known).filter(|_| is_whole && !is_doubted);
            let versions = versions::find(reading, overlay, reached, &mut uses, &mut states, known);
            used.extend(&versions.needed);
            shared.versions = versions;
        }
        let displaced = displaced(reading, &uses);
        let of_nodes = survey.nodes.iter().flat_map(places);
        of_nodes.for_each(|place| uses.node(place.start.0, place.count));
        let space = Space::new(&superblock.geometry, &used, &reading.marked());
        let mut round = Round {
            reading,
            overlay,
            rings,
            lineage,
            states,
            uses: Some(uses),
            used,
            space,
            shared,
            displaced,
            is_doubted,
            is_sound: !report.findings.iter().any(|it| it.id / 100 == 7),
        };
        round.choose(report);
        Ok(round)
    }

    /// Which trees are judged.
    fn choose(&mut self, report: &Report) {
        let of_files = |it: &&Finding| {
            let family = it.id / 100;
            let is_elsewhere = [Issue::ReferencedBlocks, Issue::NodeCopyBad].contains(&it.issue());
            matches!(family, 2 | 3 | 5 | 6) && !is_elsewhere
        };
        let found = report.findings.iter().filter(of_files);
        let names: BTreeSet<Option<&String>> = found.map(|it| it.tree.as_ref()).collect();
        let any = !names.is_empty() || self.states.iter().any(|state| !state.lost.is_empty());
        let all = any && (self.states.len() <= ALL_JUDGED || report.omitted > 0);
        for state in &mut self.states {
            let name = state.name();
            let mut later = self.reading.made_later().range((state.root.id, InodeNo(0))..);
            let is_joined = later.next().is_some_and(|((id, _), _)| *id == state.root.id);
            let is_named = names.contains(&name.as_ref());
            state.is_judged = all || !state.lost.is_empty() || is_named || is_joined;
        }
    }

    fn judge(&mut self, report: &Report, options: &RepairOptions) -> Result<(), RepairError> {
        self.answers(report);
        for at in 0..self.states.len() {
            if self.states[at].is_judged {
                let (volume, states) = ((self.reading, self.overlay), &mut self.states);
                judge::tree(volume, &mut self.space, &mut self.shared, states, at)?;
            }
        }
        let is_shared_anew = self.is_doubted || owners::is_needed(&self.states);
        let uses = self.uses.take().unwrap_or_default();
        let repairs = &mut self.shared.repairs;
        let (reading, overlay) = (self.reading, self.overlay);
        relocate::apply(reading, overlay, &mut self.space, &mut self.states, uses, repairs)?;
        if !is_shared_anew {
            return Ok(());
        }
        let without = owners::apply(reading, overlay, &mut self.space, &mut self.states, repairs)?;
        self.give_up(&without, options)
    }

    /// Branches and snapshots that cannot have blocks of their own for what they share go, if that is accepted.
    fn give_up(
        &mut self,
        trees: &HashSet<u64>,
        options: &RepairOptions,
    ) -> Result<(), RepairError> {
        let of_trees = self.states.iter().filter(|state| trees.contains(&state.root.id));
        let names: Vec<&str> = of_trees.map(|state| &*state.root.name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let why = format!(
            "there is no room for copies of files that {} share with other branches and snapshots: nothing is written",
            names.join(" and ")
        );
        if trees.contains(&holdfast_format::item::lineage::MAIN) {
            return RepairError::refused(format!(
                "{why}; copy its files out with `holdfast salvage`"
            ));
        }
        if !options.accept_loss {
            return RepairError::refused(format!(
                "{why}; copy their files out with `holdfast salvage`, then give them up with --accept-loss"
            ));
        }
        for state in self.states.extract_if(.., |state| trees.contains(&state.root.id)) {
            self.lineage.give_up(state.root.id);
            let what = "it is given up, as there is no room for copies of what it shares".into();
            let tree = Some(state.root.name);
            let issue = Issue::RootAge;
            self.shared.repairs.push(Repair { issue, tree, path: None, what, loses: true });
        }
        Ok(())
    }

    /// Findings that writing everything anew answers by itself.
    fn answers(&mut self, report: &Report) {
        for finding in &report.findings {
            let what = match finding.issue() {
                Issue::SuperblockInvalid
                | Issue::NoSuperblock
                | Issue::FarCopyInvalid
                | Issue::SuperblocksDisagree
                | Issue::NewestSuperblockLost => "all superblocks are written anew",
                Issue::BlocksNotMarked
                | Issue::BlocksLeaked
                | Issue::SpaceItemDamaged
                | Issue::SpaceItemOutside
                | Issue::GroupCount
                | Issue::UsedBlocks => "the space tree is made anew from what the trees reach",
                Issue::NodeCopyBad => {
                    "the bad place of the node is written again from the other one"
                }
                Issue::FramePlaceBad | Issue::BatchPlaceBad => {
                    "what journal and log hold goes into the trees: no place of it is needed any more"
                }
                Issue::ReferencedBlocks | Issue::InodeCount => {
                    "what the tree holds is counted anew"
                }
                Issue::JournalDamaged
                | Issue::CommitMalformed
                | Issue::CommitBase
                | Issue::CommitNode
                | Issue::JournalUnreadable => {
                    "the journal ends before the damage, and so does the log"
                }
                Issue::CommitBaseLost => "the node is left out, and all else of the commits stays",
                Issue::JournalWiped => {
                    "the volume is as its last checkpoint left it: what was durable since is lost, but for files that come back, and not all of it is known"
                }
                Issue::LogWiped => {
                    "the volume is as its last commit left it: all that was durable since is lost, and which files that is, is not known"
                }
                Issue::LogDamaged | Issue::BatchGap | Issue::LogUnreadable => {
                    "the log ends before the damage"
                }
                Issue::BatchMalformed | Issue::BatchBlocks => {
                    "the log ends before the batch, and nothing of what follows comes back"
                }
                _ => continue,
            };
            let issue = finding.issue();
            let loses = is_cut(issue);
            let tree = finding.tree.clone();
            let back = cut::come_back(self.reading).filter(|_| loses);
            let back = back.map_or(String::new(), |files| format!("; {files} come back"));
            let what = format!("{what}{back}");
            let repair = Repair { issue, tree, path: None, what, loses };
            if !self.shared.repairs.contains(&repair) {
                self.shared.repairs.push(repair);
            }
        }
        if report.findings.iter().any(|it| is_cut(it.issue())) {
            self.shared.repairs.extend(cut::losses(self.reading, &self.states));
        }
        if self.lineage.ended() > 0 {
            let what = format!("{} deletions of snapshots come to their end", self.lineage.ended());
            let issue = Issue::DeletionWrong;
            let repair = Repair { issue, tree: None, path: None, what, loses: false };
            self.shared.repairs.push(repair);
        }
    }

    /// Writes trees, space tree and superblocks to memory. Returns the first of the superblocks.
    fn write(&mut self, options: &RepairOptions) -> Result<Superblock, RepairError> {
        let (reading, overlay) = (self.reading, self.overlay);
        let epoch = self.epoch();
        let how = rewrite::RewriteRules { epoch, displaced: &self.displaced, all: self.is_doubted };
        let roots = rewrite::trees(reading, overlay, &mut self.space, &self.states, &how)?;
        let mut reach = account::Reach::default();
        let mut of_trees = Vec::new();
        for (state, (root, level)) in self.states.iter().zip(roots) {
            let place =
                holdfast_check::reading::NodePlace { pointer: root, level, ..state.root.place() };
            let referenced = reach.tree(reading, overlay, &place)?;
            let (id, inode_count) = (state.root.id, state.inode_count);
            of_trees.push(Root { id, root, level, inode_count, referenced });
        }
        for (block, bytes) in reading.journal_nodes() {
            if reach.has_node(block.0) && !overlay.holds(*block) {
                overlay.put_node(&reading.superblock().geometry, *block, bytes);
            }
        }
        let mut items = self.lineage.encode(&of_trees);
        items.append(&mut reading.settings());
        let space = account::write(reading, overlay, &mut self.space, epoch, &reach, &items)?;
        let main = of_trees.iter().find(|root| root.id == holdfast_format::item::lineage::MAIN);
        let Some(main) = main else {
            return RepairError::refused("main has no root");
        };
        let before = reading.superblock();
        let superblock = Superblock {
            epoch,
            files: main.root,
            files_level: main.level,
            space: space.root,
            space_level: space.level,
            inode_next: InodeNo(self.shared.inode_next),
            inode_count: main.inode_count,
            used_blocks: space.used_blocks,
            referenced_blocks: main.referenced,
            journal: self.journal(before),
            log: self.log(before),
            writer: concat!("holdfast fsck ", env!("CARGO_PKG_VERSION")).into(),
            fault: before.fault.clone().filter(|_| !(options.data && self.is_sound)),
            ..before.clone()
        };
        for block in &self.rings.unreadable {
            overlay.put(BlockNo(*block), &[0; BLOCK_SIZE]);
        }
        superblocks(&superblock).into_iter().for_each(|(block, bytes)| {
            overlay.put(block, &bytes[..]);
        });
        Ok(superblock)
    }

    /// The epoch of what is written: above that of every frame, and of the slot that does not count now. That is one that is not valid;
    /// else a superblock that is cut while it is written would leave none.
    fn epoch(&self) -> Epoch {
        let mark = self.reading.mark().epoch.0;
        let slot = match self.reading.slots() {
            [None, Some(_)] => 0,
            [Some(_), None] => 1,
            _ => (mark + 1) % 2,
        };
        let next = self.rings.epoch.max(mark) + 1;
        Epoch(next + u64::from(next % 2 != slot))
    }

    /// Behind all that the ring holds: by its number no frame fits. Nothing need lie there, so nothing is written over what the
    /// superblock of before needs; the next opening for writing puts a marker there.
    fn journal(&self, before: &Superblock) -> JournalMark {
        JournalMark { commit: CommitNo(self.rings.commit + 1), sum: 0, ..before.journal }
    }

    fn log(&self, before: &Superblock) -> LogMark {
        LogMark { batch: BatchNo(self.rings.batch + 1), sum: 0, ..before.log }
    }
}
