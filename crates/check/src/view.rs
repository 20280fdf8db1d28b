//! All that a volume holds, as a recovery would leave it, in a form that can be compared.
//!
//! Two images hold the same if their views are the same: the one that a crash
//! left, and the same one after the engine recovered it. Where nodes lie is not
//! a part of it: a recovery moves them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdfast_base::{BlockNo, BlockRange, InodeNo, Lsn, TreeId};
use holdfast_device::Device;
use holdfast_format::item::lineage::MAIN;
use holdfast_format::{ItemKind, Key};

use crate::CheckError;
use crate::bounds::Bounds;
use crate::lineage::{Lineage, TreeRoot};
use crate::met_nodes::MetNodes;
use crate::recovered::Recovered;
use crate::runs::Runs;
use crate::superblocks::Slots;
use crate::volume::Volume;
use crate::walk::{Step, WalkPart};

/// What a volume holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Last operation that it contains.
    pub lsn: Lsn,
    /// Next inode number to hand out.
    pub inode_next: InodeNo,
    /// Inodes, as the volume counts them.
    pub inode_count: u64,
    /// Every item of the files tree of `main`.
    pub items: BTreeMap<Key, Vec<u8>>,
    /// The same of each other branch, by its number. Snapshots hold what they held.
    pub branches: BTreeMap<u64, BTreeMap<Key, Vec<u8>>>,
    /// Branches and snapshots, but for where roots lie and how far deletions have come.
    pub lineage: BTreeMap<Key, Vec<u8>>,
    /// Blocks marked in use that no tree node lies in, upwards; ranges do not touch.
    pub data: Vec<BlockRange>,
}

/// Lists what a recovery would leave of the volume on `device`. Needs memory for all of its metadata.
///
/// Fails if there is no volume, or if journal, log or a node does not read or cannot be.
pub fn view(device: &dyn Device) -> Result<View, CheckError> {
    let superblock = Slots::read(device)?.into_newest()?;
    let mut recovered = Recovered::read(device, &superblock);
    if let Some(error) = recovered.journal_error.take().or(recovered.log_error.take()) {
        return Err(error);
    }
    let volume = recovered.volume(device);
    let marks = volume.marks();
    let missing = recovered.missing().into_iter().next();
    let missing = missing.or(marks.is_none().then(|| "the bitmaps cannot be read".into()));
    let (None, Some(marks)) = (&missing, marks) else {
        return Err(CheckError::Missing(missing.unwrap_or_default()));
    };
    let mut lineage = Lineage::read(&volume);
    let trees = recovered.trees(device, &lineage);
    let of = |tree: &TreeRoot| recovered.volume_of(device, tree);
    let nodes = nodes(&volume, trees.iter().map(|tree| (tree, of(tree))))?;
    let is_branch = |tree: &&TreeRoot| tree.id != MAIN && lineage.root(tree.id).is_some();
    let branches = trees.iter().filter(is_branch);
    let branches = branches.map(|tree| (tree.id, items(&of(tree)))).collect();
    lineage.0.retain(|key, _| !matches!(key.kind, ItemKind::Root | ItemKind::Walk));
    let data =
        marks.changed(&recovered.log.taken, &recovered.log.freed).changed(&Runs::default(), &nodes);
    let range = |(start, end)| BlockRange::new(BlockNo(start), end - start);
    let now = volume.superblock;
    Ok(View {
        lsn: now.lsn,
        inode_next: now.inode_next,
        inode_count: now.inode_count,
        items: items(&volume),
        branches,
        lineage: lineage.0,
        data: data.iter().map(range).collect(),
    })
}

fn items(volume: &Volume<'_>) -> BTreeMap<Key, Vec<u8>> {
    let mut items = BTreeMap::new();
    let _ = volume.items(TreeId::Files, Bounds::ALL, &mut |_, key, value| {
        items.insert(key, value.to_vec());
        ControlFlow::Continue(())
    });
    items
}

/// The blocks of all nodes of all trees.
fn nodes<'a>(
    volume: &Volume<'_>,
    trees: impl Iterator<Item = (&'a TreeRoot, Volume<'a>)>,
) -> Result<Runs, CheckError> {
    let (mut firsts, mut lost) = (Vec::new(), None);
    let geometry = &volume.superblock.geometry;
    let mut walk = |volume: &Volume<'_>, tree, way, seen: &mut MetNodes| {
        let _ = volume.walk_unseen(tree, way, seen, &mut |step| match step {
            Step::Node { pointer, node, .. } => {
                firsts.push((pointer.block.0, geometry.stored(tree, node.level())));
                ControlFlow::Continue(())
            }
            Step::Lost { pointer, problem, .. } => {
                lost = Some(format!("node {}: {problem}", pointer.block));
                ControlFlow::Break(())
            }
        });
    };
    let mut seen = MetNodes::default();
    for (tree, volume) in trees {
        let way = WalkPart { of: tree.id, cursor: tree.cursor, ..WalkPart::default() };
        walk(&volume, TreeId::Files, way, &mut seen);
    }
    walk(volume, TreeId::Space, WalkPart::default(), &mut MetNodes::default());
    if let Some(lost) = lost {
        return Err(CheckError::Missing(lost));
    }
    let places = firsts.iter().flat_map(|(at, of)| geometry.places_of_node(BlockNo(*at), *of));
    Ok(places.map(BlockRange::ends).collect())
}

impl View {
    /// The first difference to `other`, for people: this view's side first.
    pub fn difference(&self, other: &View) -> Option<String> {
        let counters = [
            ("last operation", self.lsn.0, other.lsn.0),
            ("next inode", self.inode_next.0, other.inode_next.0),
            ("number of inodes", self.inode_count, other.inode_count),
        ];
        if let Some((what, one, two)) = counters.into_iter().find(|(_, one, two)| one != two) {
            return Some(format!("the {what} is {one} and {two}"));
        }
        if let Some(what) =
            differ(&self.items, &other.items).or_else(|| differ(&self.lineage, &other.lineage))
        {
            return Some(what);
        }
        for id in self.branches.keys().chain(other.branches.keys()) {
            let none = BTreeMap::new();
            let [one, two] = [self, other].map(|view| view.branches.get(id).unwrap_or(&none));
            if let Some(what) = differ(one, two) {
                return Some(format!("branch {id}: {what}"));
            }
        }
        let mut data = self.data.iter().zip(&other.data);
        let wrong = data.find(|(one, two)| one != two);
        match wrong {
            Some((one, two)) => Some(format!("blocks in use: {one:?} and {two:?}")),
            None if self.data.len() != other.data.len() => {
                let (one, two) = (self.data.len(), other.data.len());
                Some(format!("{one} and {two} ranges of blocks in use"))
            }
            None => None,
        }
    }
}

/// The first key whose value differs.
fn differ(one: &BTreeMap<Key, Vec<u8>>, two: &BTreeMap<Key, Vec<u8>>) -> Option<String> {
    let key = one.keys().chain(two.keys()).filter(|key| one.get(key) != two.get(key)).min()?;
    let text = |items: &BTreeMap<Key, Vec<u8>>| match items.get(key) {
        Some(value) => crate::text::item(key, value),
        None => "nothing".into(),
    };
    Some(format!("{key:?} is {} and {}", text(one), text(two)))
}
