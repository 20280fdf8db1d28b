//! A scrub in words of files: which path of which branch or snapshot is damaged.
//!
//! Damaged data names its file. A damaged node names keys, and where the inodes in it are is not known from them: what they say of
//! their names is in the node. So behind each tree that has such a node all names of it are looked through once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BlockNo, InodeNo, show};
use holdfast_format::item::{Dentry, InodeItem, TreeKind};
use holdfast_format::{ItemKind, Key};
use holdfast_store::{
    BadRing, Damaged, Listener, Pin, RingName, Scrubbed, Store, StoreError, TreeInfo,
};

use crate::path::{Whereabouts, find_by};
use crate::*;

pub use holdfast_store::Scrub;

/// Damaged nodes of one tree of which the files are looked for.
const NODES_MAX: usize = 256;
/// Files of one tree that are told because of damaged nodes.
const NAMES_MAX: u64 = 1000;
/// How often the list of branches and snapshots is gone through, if it changes meanwhile.
const ROUNDS_MAX: usize = 8;

/// What a scrub has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// What is damaged.
    pub kind: ScrubKind,
    /// The branch, or the snapshot as `branch@snapshot`; of what is of no branch: nothing.
    pub tree: Option<String>,
    /// The path of the file, as people read it, if it is known.
    pub path: Option<String>,
    /// The inode of the file.
    pub inode: Option<InodeNo>,
    /// Which of its bytes; of a ring: of the device.
    pub bytes: Option<Range<u64>>,
    /// Where it lies on the device.
    pub block: Option<BlockNo>,
    /// What is wrong: a sentence.
    pub why: String,
    /// It is whole again.
    pub is_mended: bool,
}

/// What of a volume is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubKind {
    /// Bytes of a file: reading them fails.
    Data,
    /// A node of a tree: what is in it cannot be reached.
    Node,
    /// An item of a file.
    Item,
    /// A file, or a directory with its names, that is in a damaged node, wholly or in part.
    File,
    /// A superblock.
    Superblock,
    /// Commits in the journal, which a recovery would need.
    Journal,
    /// What fsyncs have made durable in the log, and a recovery would need.
    Log,
}

impl ScrubFinding {
    fn new(kind: ScrubKind, tree: Option<&str>, why: impl Into<String>) -> ScrubFinding {
        ScrubFinding {
            kind,
            tree: tree.map(str::to_owned),
            path: None,
            inode: None,
            bytes: None,
            block: None,
            why: why.into(),
            is_mended: false,
        }
    }

    /// What is damaged, as messages name it: `main@monday:/a/b, bytes 0 to 4095`.
    pub fn what(&self) -> String {
        let of_none = match self.kind {
            ScrubKind::Journal => "the journal",
            ScrubKind::Log => "the log",
            _ => "the volume",
        };
        let tree = self.tree.as_deref().unwrap_or(of_none);
        let file = match (&self.path, self.inode) {
            (Some(path), _) => format!("{tree}:{path}"),
            (None, Some(inode)) => format!("{tree}: inode {inode}"),
            (None, None) => tree.to_owned(),
        };
        match &self.bytes {
            Some(bytes) => {
                format!("{file}, bytes {} to {}", bytes.start, bytes.end.saturating_sub(1))
            }
            None => file,
        }
    }
}

/// The listener of a scrub.
pub trait ScrubListener {
    /// So many bytes were read, which took so long. Returns whether to go on; it may wait before it does.
    fn has_read(&mut self, scrub: &Scrub, bytes: u64, took: Duration) -> bool;
    /// Something is damaged.
    fn found(&mut self, finding: ScrubFinding);
    /// It ends with an error, and can go on from here: the device does not answer, for one. What was not read is not judged.
    fn is_cut_short(&mut self, _scrub: &Scrub) {}
}

impl FileSystem {
    /// Reads everything of the volume that was in use when the scrub began from the device, and judges it: superblocks, what a recovery
    /// would need of the journal and the log, and nodes and data of all branches and snapshots, each once; what is being deleted is left out. Calls go on beside it. `from` is [`Scrub::to_bytes`] of one that was interrupted. Superblocks
    /// that are damaged are written anew. Returns whether it came to its end.
    ///
    /// # Errors
    /// One is under way already, or the device fails as a whole: [`StoreError::NoAnswer`] if it reads nothing any more.
    pub fn scrub(&self, from: Option<&[u8]>, listener: &mut dyn ScrubListener) -> Result<bool> {
        let store = self.core.store.store();
        let mut hears = Hears {
            store,
            pin: None,
            tree: None,
            nodes: Vec::new(),
            several: Vec::new(),
            listener,
        };
        let Some(mut scrub) = store.begin_scrub(from, &mut hears)? else { return Ok(false) };
        let done = self.scrub_all(&mut scrub, &mut hears);
        if done.is_err() {
            listener.is_cut_short(&scrub);
        }
        done
    }

    fn scrub_all(&self, scrub: &mut Scrub, hears: &mut Hears<'_>) -> Result<bool> {
        let store = self.core.store.store();
        self.scrub_superblocks(hears.listener)?;
        if store.scrub_space_tree(scrub, hears)? == Scrubbed::Stopped {
            return Ok(false);
        }
        hears.nodes.clear();
        let mut scrubbed = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let changes = store.lineage_changes();
            if !self.scrub_trees(scrub, hears, &mut scrubbed)? {
                return Ok(false);
            }
            // Another round is for those that were not there: damage of the others was told.
            if store.lineage_changes() == changes {
                break;
            }
        }
        Ok(true)
    }

    fn scrub_superblocks(&self, listener: &mut dyn ScrubListener) -> Result<()> {
        let store = self.core.store.store();
        let Some(why) = store.scrub_superblocks()? else { return Ok(()) };
        let mut finding = ScrubFinding::new(ScrubKind::Superblock, None, why);
        let mut mended = Ok(());
        if !self.volume.volume.stands_still() {
            mended = store.mend_superblocks();
            finding.is_mended = mended.is_ok() && matches!(store.scrub_superblocks(), Ok(None));
        }
        // Before the error of the mend: no later scrub may tell of it.
        listener.found(finding);
        Ok(mended?)
    }

    /// Scrubs those that are not `scrubbed`. Returns whether it came to its end.
    fn scrub_trees(
        &self,
        scrub: &mut Scrub,
        hears: &mut Hears<'_>,
        scrubbed: &mut BTreeSet<u64>,
    ) -> Result<bool> {
        let store = self.core.store.store();
        let trees = store.trees()?;
        let names: BTreeMap<u64, String> =
            trees.iter().map(|of| (of.number, show::name(&of.item.name))).collect();
        for of in trees.iter().filter(|of| !of.is_deleted) {
            if !scrubbed.insert(of.number) {
                continue;
            }
            let pin = match store.pin_whole(of.number) {
                Ok(Some(pin)) => pin,
                // It was deleted a moment ago.
                Ok(None) => continue,
                Err(error) => {
                    let error = store.answers_behind(error)?;
                    hears.unreadable(&called(of, &names), &error);
                    continue;
                }
            };
            hears.pin = Some(pin.clone());
            hears.tree = Some(called(of, &names));
            let done = store.scrub_tree(scrub, &pin, hears);
            let nodes = std::mem::take(&mut hears.nodes);
            if !nodes.is_empty() {
                hears.tell_files(&nodes)?;
            }
            hears.tell_other_names()?;
            (hears.pin, hears.tree) = (None, None);
            drop(pin);
            self.volume.volume.go_on_with_deletions();
            if done? == Scrubbed::Stopped {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// `main`, or `main@monday`.
pub(crate) fn called(of: &TreeInfo, names: &BTreeMap<u64, String>) -> String {
    let name = show::name(&of.item.name);
    match of.item.kind {
        TreeKind::Branch | TreeKind::Going => name,
        TreeKind::Snapshot => {
            let branch = names.get(&of.item.branch).map_or("?", String::as_str);
            let name = if name.is_empty() { format!("({})", of.number) } else { name };
            format!("{branch}@{name}")
        }
    }
}

/// Finds the words for damage in one tree.
struct Hears<'a> {
    store: &'a Store,
    pin: Option<Pin>,
    tree: Option<String>,
    /// Keys of damaged nodes.
    nodes: Vec<(Key, Option<Key>)>,
    /// What was found of files with several names, and told with one.
    several: Vec<ScrubFinding>,
    listener: &'a mut dyn ScrubListener,
}

impl Hears<'_> {
    fn whereabouts(&self, inode: InodeNo) -> Whereabouts {
        let get = |key: &Key| self.store.get_pinned(self.pin.as_ref()?, key).ok().flatten();
        find_by(inode, &get)
    }

    fn path_in(&self, dir: InodeNo, name: &[u8]) -> Option<String> {
        let dir = self.whereabouts(dir);
        Some(format!("{}/{}", dir.path()?.trim_end_matches('/'), show::name(name)))
    }

    fn found(&mut self, finding: ScrubFinding) {
        let sentence = format!("{}: {}", finding.what(), finding.why);
        tracing::error!("{sentence}");
        self.store.found_damage(&sentence);
        self.listener.found(finding);
    }

    /// A tree whose root cannot be found.
    fn unreadable(&mut self, tree: &str, error: &StoreError) {
        self.found(ScrubFinding::new(ScrubKind::Node, Some(tree), error.in_words()));
    }

    fn of_file(&self, kind: ScrubKind, inode: InodeNo, why: impl Into<String>) -> ScrubFinding {
        let path = self.whereabouts(inode).path().map(str::to_owned);
        let finding = ScrubFinding::new(kind, self.tree.as_deref(), why);
        ScrubFinding { path, inode: Some(inode), ..finding }
    }

    /// Tells of damage in a file.
    fn found_in_file(&mut self, finding: ScrubFinding) {
        let item = |inode: InodeNo| {
            let value = self.store.get_pinned(self.pin.as_ref()?, &Key::inode(inode)).ok()??;
            InodeItem::decode(&value).ok()
        };
        let names = finding.inode.and_then(item).map_or(1, |item| item.nlink);
        if names > 1 && self.several.len() < NODES_MAX {
            self.several.push(finding.clone());
        }
        self.found(finding);
    }

    /// Tells of files with several names under each of the others.
    fn tell_other_names(&mut self) -> Result<()> {
        let several = std::mem::take(&mut self.several);
        let Some(pin) = self.pin.clone().filter(|_| !several.is_empty()) else { return Ok(()) };
        let store = self.store;
        store.visit_readable(&pin, &mut |key, value| {
            let (ItemKind::Dentry, Ok(name)) = (key.kind, Dentry::decode(value)) else {
                return true;
            };
            for finding in several.iter().filter(|of| of.inode == Some(name.inode)) {
                let path = self.path_in(key.inode, name.name);
                if path.is_some() && path != finding.path {
                    let finding = ScrubFinding { path, ..finding.clone() };
                    tracing::error!("{}: {}", finding.what(), finding.why);
                    self.listener.found(finding);
                }
            }
            true
        })?;
        Ok(())
    }

    /// Tells of the files whose items are in damaged nodes, as far as names lead to them.
    fn tell_files(&mut self, nodes: &[(Key, Option<Key>)]) -> Result<()> {
        const WHY: &str = "some of it, or all, was in a damaged node";
        let Some(pin) = self.pin.clone() else { return Ok(()) };
        let is_in = |inode: InodeNo| {
            let key = Key::inode(inode);
            nodes.iter().any(|(from, end)| from.inode <= inode && end.is_none_or(|end| key < end))
        };
        let (store, mut told, mut more) = (self.store, 0, 0);
        if is_in(InodeNo::ROOT) {
            let why = "some of its names, or all, were in a damaged node";
            self.found(self.of_file(ScrubKind::File, InodeNo::ROOT, why));
        }
        store.visit_readable(&pin, &mut |key, value| {
            if key.kind != ItemKind::Dentry {
                return true;
            }
            let Ok(name) = Dentry::decode(value) else { return true };
            if !is_in(name.inode) {
                return true;
            }
            if told == NAMES_MAX {
                more += 1;
                return true;
            }
            told += 1;
            let path = self.path_in(key.inode, name.name);
            let finding = ScrubFinding::new(ScrubKind::File, self.tree.as_deref(), WHY);
            self.found(ScrubFinding { path, inode: Some(name.inode), ..finding });
            true
        })?;
        if more > 0 {
            let why = format!("so many other files were in damaged nodes: {more}");
            self.found(ScrubFinding::new(ScrubKind::File, self.tree.as_deref(), why));
        }
        Ok(())
    }
}

impl Listener for Hears<'_> {
    fn has_bad_place(&mut self, block: BlockNo, is_mended: bool, why: String) {
        let finding = ScrubFinding::new(ScrubKind::Node, self.tree.as_deref(), why);
        let finding = ScrubFinding { block: Some(block), is_mended, ..finding };
        tracing::warn!("{}: {}", finding.what(), finding.why);
        self.listener.found(finding);
    }

    fn has_bad_ring(&mut self, bad: BadRing) {
        let kind = match bad.ring {
            RingName::Journal => ScrubKind::Journal,
            RingName::Log => ScrubKind::Log,
        };
        let block = Some(BlockNo(bad.bytes.start / BLOCK_BYTES));
        let finding = ScrubFinding::new(kind, None, bad.why);
        let finding =
            ScrubFinding { block, bytes: Some(bad.bytes), is_mended: bad.is_mended, ..finding };
        match bad.is_lost {
            true => tracing::error!("{}: {}", finding.what(), finding.why),
            false => tracing::warn!("{}: {}", finding.what(), finding.why),
        }
        // No superblock says so: either nothing is lost, or none is written.
        self.listener.found(finding);
    }

    fn has_read(&mut self, scrub: &Scrub, bytes: u64, took: Duration) -> bool {
        self.listener.has_read(scrub, bytes, took)
    }

    fn is_damaged(&mut self, what: Damaged, why: String) {
        let finding = match what {
            Damaged::Data { inode, first, count, block } => {
                let start = first.saturating_mul(BLOCK_BYTES);
                let end = start.saturating_add(count.saturating_mul(BLOCK_BYTES));
                let finding = self.of_file(ScrubKind::Data, inode, why);
                let finding =
                    ScrubFinding { bytes: Some(start..end), block: Some(block), ..finding };
                return self.found_in_file(finding);
            }
            Damaged::Item { key } => {
                return self.found_in_file(self.of_file(ScrubKind::Item, key.inode, why));
            }
            Damaged::Node { block, from, end } => {
                if self.nodes.len() < NODES_MAX {
                    self.nodes.push((from, end));
                }
                let finding = ScrubFinding::new(ScrubKind::Node, self.tree.as_deref(), why);
                ScrubFinding { block: Some(block), ..finding }
            }
        };
        self.found(finding);
    }
}
