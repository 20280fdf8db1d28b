//! What became of the files of a volume between two moments.

mod patch;
mod show;
mod text;

use std::io::{self, BufWriter, Write};
use std::ops::Range;

use holdfast::{Change, ChangeKind, Diff, Volume};
use serde::{Deserialize, Serialize};

use self::patch::Patches;
use self::show::{Counts, Format};
use super::{Ends, Out, Tree};
use crate::outcome::{Context, Failure, Outcome, printed};

/// The exit code for what cannot be compared: 1 may mean that there are differences.
pub const TROUBLE: u8 = 2;

/// What is said of the differences.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub struct DiffFormat {
    /// Which bytes differ.
    pub ranges: bool,
    /// How many there are of each kind.
    pub stat: bool,
    pub name_only: bool,
    pub patch: bool,
    pub json: bool,
    /// With zero bytes behind words and paths.
    pub null: bool,
    /// The exit code is 1 if anything differs.
    pub exit_code: bool,
    /// Nothing but the exit code.
    pub quiet: bool,
    pub is_terminal: bool,
}

/// Says what became of each file from the first tree to the second. What is open of a branch is in it with each write that had
/// returned.
pub(super) fn run(
    door: &Volume,
    volume: &str,
    trees: [&Tree; 2],
    how: &DiffFormat,
    ends: &dyn Ends,
) -> Outcome {
    // A reader that has gone is no trouble.
    let trouble = |failure: Failure| match failure.code {
        0 => failure,
        _ => failure.with_code(TROUBLE),
    };
    let differs = compare(door, volume, trees, how, ends).map_err(trouble)?;
    Ok(u8::from(differs && (how.exit_code || how.quiet)))
}

fn compare(
    door: &Volume,
    volume: &str,
    [old, new]: [&Tree; 2],
    how: &DiffFormat,
    ends: &dyn Ends,
) -> Result<bool, Failure> {
    let old = old.view(door, volume)?;
    let new = new.view(door, volume)?;
    let diff = new.diff_from(&old, how.ranges || how.stat).context(volume)?;
    let done = print(volume, diff, [&old, &new], how, ends);
    [old, new].into_iter().try_for_each(Volume::close).context(volume)?;
    done
}

/// Prints what differs. Returns whether anything does.
fn print(
    volume: &str,
    diff: Diff,
    [old, new]: [&Volume; 2],
    how: &DiffFormat,
    ends: &dyn Ends,
) -> Result<bool, Failure> {
    let mut out = BufWriter::new(Out(ends));
    let format = Format {
        ranges: how.ranges,
        name_only: how.name_only,
        null: how.null,
        is_terminal: how.is_terminal,
    };
    let mut counts = Counts::default();
    // For programs nothing is kept; people get an order, as long as that takes no more memory than it may.
    let mut kept = (!how.json && !how.null && !how.stat).then(Kept::default);
    for change in diff {
        let change = change.context(volume)?;
        wanted(ends)?;
        counts.add(&change);
        if how.quiet {
            break;
        }
        match &mut kept {
            _ if how.stat => {}
            None if how.json => printed(show::json(&change, how.ranges, &mut out))?,
            None => printed(format.show(&change, &mut out))?,
            Some(all) => {
                all.add(change);
                if all.bytes > ends.most_bytes() {
                    if how.patch {
                        return Err(too_much(ends.most_bytes()));
                    }
                    for change in kept.take().unwrap_or_default().in_order() {
                        printed(format.show(&change, &mut out))?;
                    }
                    ends.note(&no_order(ends.most_bytes()));
                }
            }
        }
    }
    let kept = kept.unwrap_or_default().in_order();
    if how.patch {
        let mut patches = Patches::of(old, new, how.is_terminal);
        patches.show(&kept, &mut out)?;
        if let Some(said) = patches.left_out() {
            printed(out.flush())?;
            ends.note(&said);
        }
    } else {
        kept.iter().try_for_each(|change| printed(format.show(change, &mut out)))?;
    }
    if how.stat {
        printed(counts.show(how.json, &mut out))?;
    }
    printed(out.flush())?;
    Ok(counts.any())
}

/// Changes that wait for their turn.
#[derive(Default)]
struct Kept {
    all: Vec<Change>,
    bytes: usize,
}

impl Kept {
    fn add(&mut self, change: Change) {
        let path = |path: &Option<Vec<u8>>| path.as_ref().map_or(0, Vec::capacity);
        let ranges = change.ranges.capacity() * size_of::<Range<u64>>();
        let paths = path(&change.old_path) + path(&change.new_path);
        self.bytes += size_of::<Change>() + paths + ranges;
        self.all.push(change);
    }

    fn in_order(mut self) -> Vec<Change> {
        self.all.sort_by(|one, other| {
            let is_there = |change: &Change| change.kind != ChangeKind::Removed;
            let paths = show::path(one).cmp(show::path(other));
            paths.then(is_there(one).cmp(&is_there(other))).then(one.kind.cmp(&other.kind))
        });
        self.all
    }
}

/// Fails if no caller waits any more; a comparison may find much and say nothing for long.
fn wanted(ends: &dyn Ends) -> Result<(), Failure> {
    match ends.check() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => printed(Err(error)),
        other => other.context("the comparison"),
    }
}

fn too_much(most: usize) -> Failure {
    let mib = most >> 20;
    Failure::plain(format!(
        "what differs takes more than {mib} MiB of memory, which is too much for a patch; ask without --patch, or unmount the volume and try again"
    ))
}

fn no_order(most: usize) -> String {
    format!(
        "what differs takes more than {} MiB of memory; what follows is in no order",
        most >> 20
    )
}
