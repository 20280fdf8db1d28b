//! The state of a volume without a superblock that leads to it: that of the newest roots that prove one.

use holdfast_base::{Epoch, TreeId};
use holdfast_check::reading::{NodePlace, Rings, VolumeReading};
use holdfast_format::{NodePointer, Superblock};

use super::{Choice, Chosen, unproven};
use crate::cover::Root;
use crate::error::SalvageError;
use crate::index::Index;
use crate::proof::{Bitmaps, grew_out_of, proven_bitmaps};
use crate::roots::roots;
use crate::scan::FoundNode;
use crate::tolerant::Tolerant;

/// Of roots of files trees that are younger than what is proven so many are looked at.
const YOUNGER_ROOTS_MAX: usize = 64;

pub(super) fn by_roots<'d>(
    device: &'d Tolerant<'_>,
    mut made: Superblock,
    index: Index,
    choice: &Choice,
) -> Result<Chosen<'d>, SalvageError> {
    let limit = choice.epoch.unwrap_or(u64::MAX);
    let read =
        |made: &Superblock| VolumeReading::with_superblock(device, made.clone(), Rings::Ignored);
    let mut reading = read(&made)?;
    let files = roots(&reading, &index, TreeId::Files, limit);
    let spaces = roots(&reading, &index, TreeId::Space, limit);
    let (bitmaps, is_proven) = bitmaps(device, &made, &index, &spaces, choice)?;
    if let Some(bitmaps) = &bitmaps {
        (made.space, made.space_level) = (bitmaps.root.pointer(), bitmaps.root.level);
        reading = read(&made)?;
    }
    let proven = bitmaps.as_ref().filter(|_| is_proven);
    // Roots of branches and snapshots are said to be theirs; that of `main` is among the others, unless it did not change since its
    // last snapshot.
    let others: Vec<NodePointer> =
        reading.trees().iter().filter(|tree| !tree.is_main()).map(|tree| tree.root).collect();
    let own: Vec<FoundNode> =
        files.into_iter().filter(|root| !others.contains(&root.pointer())).collect();
    // A younger root than those may be that of any branch.
    let mut is_guessed = false;
    let root = match (choice.root, proven) {
        (Some(block), _) => {
            let node = index.nodes.iter().find(|node| node.block == block && node.tree == 1);
            Some(*node.ok_or(SalvageError::NoSuchRoot)?)
        }
        (None, Some(proven)) => {
            let of_it = own.partition_point(|root| root.epoch > proven.root.epoch);
            let mut younger = own[..of_it].iter().take(YOUNGER_ROOTS_MAX);
            let grown = younger.find(|root| grew_out_of(&reading, &index, root, proven));
            is_guessed = grown.is_some();
            grown.copied().or_else(|| of_main(&reading, &index, &own[of_it..], Some(proven)))
        }
        (None, None) => of_main(&reading, &index, &own, bitmaps.as_ref()),
    };
    // Each change of a tree changes its root: one that is older than a node of the tree is not the last.
    let newest = match proven {
        Some(bitmaps) => bitmaps.newest_in_use(&index, TreeId::Files).unwrap_or(0),
        None => index.newest_of(TreeId::Files, limit),
    };
    let is_last = |root: &FoundNode| {
        newest <= others.iter().map(|other| other.epoch.0).fold(root.epoch, u64::max)
    };
    let root = root.filter(|root| choice.root.is_some() || is_last(root));
    let epoch = Epoch(root.map_or(newest, |root| root.epoch));
    if let Some(root) = root {
        (made.files, made.files_level) = (root.pointer(), root.level);
        reading = read(&made)?;
    }
    let mut notes = notes(&reading, choice, root.is_some(), is_guessed);
    if *choice == (Choice { volume: choice.volume, ..Choice::default() }) {
        let known = proven.map_or(0, |bitmaps| bitmaps.root.epoch).max(epoch.0);
        match proven {
            Some(_) if index.newest() > known => notes.push(unproven(index.newest())),
            Some(_) => {}
            None => notes.push(NOTHING_PROVES.into()),
        }
    }
    let by = match root {
        Some(root) => format!("the root at block {} of epoch {epoch}", root.block),
        None => format!("leaves up to epoch {epoch} alone: the last root is lost"),
    };
    let main = root
        .map(|root| Root { place: NodePlace::root(root.pointer(), root.level), is_said: false });
    Ok(Chosen { reading, index, main, epoch, by, notes, superblocks: Vec::new() })
}

const NOTHING_PROVES: &str =
    "no space tree proves which state is the last: this is the youngest, and --list shows others";

fn notes(
    reading: &VolumeReading<'_>,
    choice: &Choice,
    has_root: bool,
    is_guessed: bool,
) -> Vec<String> {
    let mut notes = vec![
        "no superblock leads to the last state: what was changed after its checkpoint is lost"
            .to_string(),
    ];
    let has_branches = reading.trees().iter().any(|of| !of.is_main() && of.snapshot.is_none());
    let is_unsure = is_guessed || has_branches || !reading.is_lineage_whole();
    if has_root && choice.root.is_none() && is_unsure {
        notes.push(
            "which root is that of `main` is not known for sure: --list shows others, --root takes one".into(),
        );
    }
    notes
}

/// The newest bitmaps that prove a state, and `true`; where none does, or a certain state is wanted, the newest.
fn bitmaps(
    device: &Tolerant<'_>,
    made: &Superblock,
    index: &Index,
    spaces: &[FoundNode],
    choice: &Choice,
) -> Result<(Option<Bitmaps>, bool), SalvageError> {
    if choice.epoch.is_none() && choice.root.is_none() {
        let is_proof = |bitmaps: &Bitmaps| bitmaps.newest_in_use(index, TreeId::Files).is_some();
        let proven = proven_bitmaps(device, made, spaces.iter().copied(), is_proof)?;
        if proven.is_some() {
            return Ok((proven, true));
        }
    }
    let newest = spaces.first().map(|root| Bitmaps::read(device, made, root));
    Ok((newest.transpose()?, false))
}

/// The root of `main`: the newest of `roots` that is in use by the bitmaps; or that of the last snapshot of `main`. Where the bitmaps
/// are older than a root, or do not read, the newer of the two.
fn of_main(
    reading: &VolumeReading<'_>,
    index: &Index,
    roots: &[FoundNode],
    bitmaps: Option<&Bitmaps>,
) -> Option<FoundNode> {
    let newest = roots.first().copied();
    let snapshots = reading.trees().iter().filter(|tree| tree.name.starts_with("main@"));
    let last = snapshots.max_by_key(|tree| tree.snapshot);
    let shared = last.and_then(|tree| index.get(tree.root)).copied();
    let is_newer = |bitmaps: &&Bitmaps| {
        !bitmaps.is_empty() && newest.is_none_or(|root| root.epoch <= bitmaps.root.epoch)
    };
    match bitmaps.filter(is_newer) {
        Some(bitmaps) => {
            let in_use = roots.iter().find(|root| bitmaps.has(root.block));
            in_use.copied().or(shared).or(newest)
        }
        None => newest.into_iter().chain(shared).max_by_key(|root| root.epoch),
    }
}
