//! A state of a volume that was chosen: its trees, to be copied.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{Epoch, TreeId};
use holdfast_check::changes::Change;
use holdfast_check::reading::{NodePlace, VolumeReading, tree_name};
use holdfast_format::item::lineage::{LINEAGE, MAIN};
use holdfast_format::item::{RootItem, TreeItem, TreeKind};
use holdfast_format::{ItemKind, Key};

use crate::cover::{Cover, Root};
use crate::destination::Destination;
use crate::error::SalvageError;
use crate::index::Index;
use crate::items::{Event, Items};
use crate::owners::Owners;
use crate::point::Point;
use crate::progress::Progress;
use crate::report::Counts;
use crate::scan::{Scan, scan};
use crate::state::{Choice, Chosen};
use crate::tolerant::Tolerant;
use crate::walk::{CopyRules, Walk};

/// How files are copied.
#[derive(Default)]
pub struct CopyOptions<'a> {
    /// Blocks of data that do not match their checksums are written all the same, and said of their files.
    pub unproved: bool,
    /// Hears how far it is.
    pub progress: Option<&'a dyn Fn(Progress)>,
}

/// A branch or snapshot.
#[derive(Clone, Debug)]
pub struct TreeFound {
    /// Its number; 1 is `main`.
    pub id: u64,
    /// As commands call it: `work`, `main@monday`. Characters that a terminal would obey are written out.
    pub name: String,
    /// Whether it is a snapshot.
    pub is_snapshot: bool,
    /// Inodes in it, as it says; 0 if that is not known.
    pub inodes: u64,
    /// Nothing in it is younger than this checkpoint.
    pub epoch: u64,
    root: Option<Root>,
    /// A branch that only an older leaf of the space tree tells of: where it began then, and not now.
    is_old: bool,
}

/// A state of a volume.
pub struct Salvaged<'d> {
    pub(crate) reading: VolumeReading<'d>,
    pub(crate) index: Index,
    pub(crate) superblocks: Vec<u64>,
    trees: Vec<TreeFound>,
    /// Read when leaves are wanted to which nothing leads.
    owners: OnceCell<Owners>,
    /// No superblock says it: roots look like those of its trees.
    is_made_up: bool,
    /// The newest checkpoint that anything in it may be of.
    pub epoch: u64,
    /// How the state is known, in a sentence.
    pub by: String,
    /// What of the state as a whole is lost: a sentence each.
    pub notes: Vec<String>,
}

impl Scan {
    /// Looks at all of a device. `progress` hears how far that is.
    pub fn read(device: &Tolerant<'_>, progress: &dyn Fn(Progress)) -> Scan {
        scan(device, progress)
    }

    /// Chooses a state.
    ///
    /// # Errors
    /// There is none, or it is of a program that this one is too old or too new for.
    pub fn open<'d>(
        self,
        device: &'d Tolerant<'_>,
        choice: &Choice,
    ) -> Result<Salvaged<'d>, SalvageError> {
        Ok(Salvaged::new(Chosen::choose(device, self, choice)?))
    }
}

static NO_CHANGES: BTreeMap<Key, Change> = BTreeMap::new();

impl<'d> Salvaged<'d> {
    fn new(state: Chosen<'d>) -> Salvaged<'d> {
        let Chosen { reading, index, main, epoch, by, mut notes, superblocks } = state;
        let mut trees: Vec<TreeFound> = Vec::new();
        let is_made_up = main.is_none_or(|root| !root.is_said);
        for tree in reading.trees() {
            // What is being deleted is no tree any more.
            if tree.cursor.is_some() {
                continue;
            }
            let root = match tree.is_main() {
                true => main,
                false => Some(Root { place: tree.place(), is_said: true }),
            };
            trees.push(TreeFound {
                id: tree.id,
                name: tree.name.clone(),
                is_snapshot: tree.snapshot.is_some(),
                inodes: tree.inode_count,
                epoch: tree.snapshot.unwrap_or(epoch.0),
                root,
                is_old: false,
            });
        }
        let is_whole = reading.is_lineage_whole();
        let mut salvaged = Salvaged {
            reading,
            index,
            superblocks,
            trees,
            owners: OnceCell::new(),
            is_made_up,
            epoch: epoch.0,
            by,
            notes: Vec::new(),
        };
        if !is_whole {
            let more = salvaged.lost_trees();
            notes.push(format!(
                "nodes that may have held branches and snapshots are lost; {} were found in older ones",
                more.len()
            ));
            salvaged.trees.extend(more);
        }
        salvaged.notes = notes;
        salvaged
    }

    /// Branches and snapshots, `main` first.
    pub fn trees(&self) -> &[TreeFound] {
        &self.trees
    }

    /// Nodes of the volume that were found, those of older states included.
    pub fn nodes(&self) -> u64 {
        self.index.nodes.len() as u64
    }

    /// The tree of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn tree(&self, name: &str) -> Result<&TreeFound, SalvageError> {
        let found = self.trees.iter().find(|tree| tree.name == name);
        found.ok_or_else(|| SalvageError::NoSuchTree(name.into()))
    }

    /// Copies a tree.
    ///
    /// # Errors
    /// What ends a salvage, as the destination says.
    pub fn copy(
        &self,
        tree: &TreeFound,
        destination: &mut dyn Destination,
        options: &CopyOptions<'_>,
    ) -> Result<Counts, SalvageError> {
        let epoch = Epoch(tree.epoch);
        let line = OnceCell::new();
        let may_be = |block| {
            let owners = self.owners.get_or_init(|| Owners::read(&self.reading, &self.index));
            owners.may_be_of(line.get_or_init(|| owners.line(tree.id)), block)
        };
        let (reading, index) = (&self.reading, &self.index);
        let cover = Cover::build(reading, index, TreeId::Files, tree.root, epoch, &may_be);
        // What the log says was said of another root.
        let changes = if tree.is_old { &NO_CHANGES } else { self.reading.changes(tree.id) };
        let items = Items::new(&self.reading, TreeId::Files, &cover, changes);
        let quiet = |_| ();
        let way = CopyRules {
            unproved: options.unproved,
            is_doubted: self.is_made_up || tree.is_old,
            has_branches: self.trees.iter().filter(|tree| !tree.is_snapshot).count() > 1,
            progress: options.progress.unwrap_or(&quiet),
            total: tree.inodes,
        };
        Ok(Walk::new(&self.reading, items, destination, way).run()?)
    }

    /// Branches and snapshots that the space tree, as far as it reads, does not tell of, by older leaves of it.
    fn lost_trees(&self) -> Vec<TreeFound> {
        let superblock = self.reading.superblock();
        let root = Root {
            place: NodePlace::root(superblock.space, superblock.space_level),
            is_said: true,
        };
        let (reading, epoch) = (&self.reading, Epoch(self.epoch));
        let cover = Cover::build(reading, &self.index, TreeId::Space, Some(root), epoch, &|_| true);
        let mut items = Items::new(reading, TreeId::Space, &cover, &NO_CHANGES);
        let (mut heads, mut roots, mut gone) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let _ = items.visit(Point::inode(LINEAGE), None, &mut |event| {
            if let Event::Item { key, value, .. } = event {
                let id = key.inode.0.saturating_sub(LINEAGE);
                match key.kind {
                    ItemKind::Tree => heads.extend(TreeItem::decode(value).map(|item| (id, item))),
                    ItemKind::Root => roots.extend(RootItem::decode(value).map(|item| (id, item))),
                    ItemKind::Walk => gone.push(key.offset),
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        });
        let is_new = |id: &u64| {
            *id != MAIN && !gone.contains(id) && self.trees.iter().all(|tree| tree.id != *id)
        };
        let mut found = Vec::new();
        for (id, head) in heads.iter().filter(|(id, _)| is_new(id)) {
            let root = match head.kind {
                TreeKind::Snapshot => Some((head.root, head.level, head.inode_count, head.epoch.0)),
                TreeKind::Branch | TreeKind::Going => roots.get(id).map(|root: &RootItem| {
                    (root.pointer(), root.level, root.inode_count, self.epoch)
                }),
            };
            let Some((pointer, level, inodes, epoch)) = root else { continue };
            let root = Root { place: NodePlace::root(pointer, level), is_said: true };
            let name = tree_name(*id, &|id| heads.get(&id).cloned());
            // A snapshot is what it was.
            let is_snapshot = head.kind == TreeKind::Snapshot;
            found.push(TreeFound {
                id: *id,
                name,
                is_snapshot,
                inodes,
                epoch,
                root: Some(root),
                is_old: !is_snapshot,
            });
        }
        found
    }
}
