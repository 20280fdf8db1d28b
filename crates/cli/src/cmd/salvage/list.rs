//! What a device holds of volumes: `--list`.

use std::io::{self, Write};

use holdfast_base::show::count;
use holdfast_salvage::{EpochFound, SalvageError, Salvaged, TreeFound, VolumeFound};
use holdfast_service::moment::{ISO, utc};
use holdfast_service::size;
use serde::Serialize;

use crate::outcome::{Failure, printed};

/// Checkpoints that are shown to people; programs get all.
const EPOCHS_SHOWN: usize = 20;
/// Volumes that are shown to people.
const VOLUMES_SHOWN: usize = 20;

#[derive(Serialize)]
struct List<'a> {
    volumes: &'a [VolumeFound],
    /// The state that would be copied.
    state: Option<ListedState<'a>>,
}

#[derive(Serialize)]
struct ListedState<'a> {
    epoch: u64,
    by: &'a str,
    notes: &'a [String],
    trees: Vec<Tree<'a>>,
    epochs: Vec<EpochFound>,
}

#[derive(Serialize)]
struct Tree<'a> {
    name: &'a str,
    snapshot: bool,
    inodes: Option<u64>,
    epoch: u64,
}

/// Prints it.
pub(super) fn show(
    volumes: &[VolumeFound],
    opened: &Result<Salvaged<'_>, SalvageError>,
    json: bool,
) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if json {
        let state = opened.as_ref().ok().map(state);
        printed(writeln!(out, "{}", holdfast_service::json::text(&List { volumes, state })))?;
        return printed(out.flush());
    }
    printed(text(&mut out, volumes, opened))
}

fn state<'a>(salvaged: &'a Salvaged<'_>) -> ListedState<'a> {
    let tree = |tree: &'a TreeFound| Tree {
        name: &tree.name,
        snapshot: tree.is_snapshot,
        inodes: Some(tree.inodes).filter(|inodes| *inodes > 0),
        epoch: tree.epoch,
    };
    ListedState {
        epoch: salvaged.epoch,
        by: &salvaged.by,
        notes: &salvaged.notes,
        trees: salvaged.trees().iter().map(tree).collect(),
        epochs: salvaged.epochs(),
    }
}

fn text(
    out: &mut dyn Write,
    volumes: &[VolumeFound],
    opened: &Result<Salvaged<'_>, SalvageError>,
) -> io::Result<()> {
    for volume in volumes.iter().take(VOLUMES_SHOWN) {
        write!(out, "volume {}", volume.tag)?;
        if let Some(label) = volume.label.as_ref().filter(|label| !label.is_empty()) {
            write!(out, " {:?}", crate::outcome::printable(label))?;
        }
        write!(out, ": {} nodes", volume.nodes)?;
        if volume.nodes > 0 {
            write!(out, " of {}", size::show(volume.node_bytes))?;
        }
        if let Some((first, last)) = volume.epochs {
            write!(out, ", epochs {first} to {last}")?;
        }
        if let Some(changed) = volume.changed {
            write!(out, ", last change {}", utc(changed, ISO))?;
        }
        match &volume.superblocks[..] {
            [] => writeln!(out, ", no superblock")?,
            found => {
                let all: Vec<String> =
                    found.iter().map(|(block, epoch)| format!("{block} (epoch {epoch})")).collect();
                writeln!(out, ", superblocks at {}", all.join(", "))?;
                if let Some(bytes) = volume.bytes {
                    writeln!(out, "size: {bytes} bytes ({})", size::show(bytes))?;
                }
            }
        }
    }
    if volumes.len() > VOLUMES_SHOWN {
        writeln!(out, "and {} more", volumes.len() - VOLUMES_SHOWN)?;
    }
    if let Ok(salvaged) = opened {
        writeln!(out, "state: {}", salvaged.by)?;
        for note in &salvaged.notes {
            writeln!(out, "note: {}", crate::outcome::printable(note))?;
        }
        for tree in salvaged.trees() {
            let kind = if tree.is_snapshot { "snapshot" } else { "branch" };
            write!(out, "{kind} {}: ", tree.name)?;
            // Without a superblock they are not counted; each tree has its root.
            if tree.inodes > 0 {
                write!(out, "{}, ", count(tree.inodes, "inode"))?;
            }
            writeln!(out, "epoch {}", tree.epoch)?;
        }
        let epochs = salvaged.epochs();
        for epoch in epochs.iter().take(EPOCHS_SHOWN) {
            write!(out, "epoch {}: {}", epoch.epoch, count(epoch.nodes, "node"))?;
            if let Some(changed) = epoch.changed {
                write!(out, ", last change {}", utc(changed, ISO))?;
            }
            if epoch.has_superblock {
                write!(out, ", superblock")?;
            }
            for root in &epoch.roots {
                write!(out, ", root at {} of level {}", root.block, root.level)?;
            }
            writeln!(out)?;
        }
        if epochs.len() > EPOCHS_SHOWN {
            writeln!(out, "and {} older epochs", epochs.len() - EPOCHS_SHOWN)?;
        }
    }
    out.flush()
}
