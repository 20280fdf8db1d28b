//! Work on whole trees: what compares, sends, receives, merges, exports, imports, lists, copies and removes them. One function for each, which knows the
//! volume and where bytes go, and not which process it is in.

pub mod diff;
mod ends;
mod export;
pub mod files;
mod import;
mod in_place;
pub mod list;
pub mod merge;
pub mod names;
mod receive;
pub mod remove;
pub mod resize;
pub mod scrub;
pub mod send;
mod tree;
mod trim;
pub mod tune;

use std::fmt::Display;
use std::io::{self, Write};

use holdfast::Volume;
use serde::{Deserialize, Serialize};

pub use self::ends::{Ends, In, Out};
pub use self::in_place::{AtRest, Heads, InPlace, Remembers};
pub use self::tree::{At, Tree};
use crate::branches::{Ask, Name};
use crate::json;
use crate::outcome::{Context, NOT_WHOLE, Outcome, not_whole, printed};
use crate::rights::Requirement;

/// Work on one volume.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Job {
    /// What the volume is called in messages.
    pub volume: String,
    /// The mount by which the volume was named. What that says of its source proves nothing: the daemon looks whether it serves it.
    pub at: Option<At>,
    /// A program reads the answer. A command of an older version does not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
    /// What is to be done.
    pub work: Work,
}

/// What is to be done.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum Work {
    /// Say what became of each file.
    Diff { old: Tree, new: Tree, how: diff::DiffFormat },
    /// Write a snapshot as a stream.
    Send(send::SendSource),
    /// Make a snapshot of a stream.
    Receive { branch: Option<Name> },
    /// Say where a stream was cut that came into this fork, or into the only one.
    Token { branch: Option<Name> },
    /// Do in a fork what was done in another one.
    Merge(merge::MergeTrees),
    /// Write a tree as an archive, or what has changed in it.
    Export { tree: Tree, since: Option<Tree>, layer: bool },
    /// Put archives into a branch, one behind the other; the names are those of files, for messages.
    Import { tree: Tree, layer: bool, files: Vec<String> },
    /// List a directory.
    List { tree: Tree, path: Name, how: list::ListFormat },
    /// Write a file out.
    Print { tree: Tree, path: Name },
    /// Give free space back, in ranges of so many bytes at least.
    Trim { least: u64 },
    /// Read everything that is in use, and judge it.
    Scrub(scrub::ScrubOptions),
    /// Make the volume larger.
    Resize(resize::To),
    /// Change what the volume says of itself, or what a branch may refer to.
    Tune { tree: Tree, to: tune::To },
    /// Remove files and directories.
    Remove(remove::Removal),
    /// Make directories and links, move, and set attributes.
    Names(names::NamespaceChange),
    /// Read files, or make some, as a command asks for them.
    Files(files::FileAccess),
    /// Answer what is asked of branches and snapshots, in JSON; about this tree, if it names no branch.
    Lineage { tree: Tree, ask: Ask },
}

impl Work {
    /// The trees that it is about.
    pub fn trees(&mut self) -> Vec<&mut Tree> {
        match self {
            Work::Diff { old, new, .. } => vec![old, new],
            Work::Send(send::SendSource::Tree { tree, since }) => {
                [Some(tree), since.as_mut()].into_iter().flatten().collect()
            }
            Work::Merge(merge::MergeTrees { base, fork, theirs, .. }) => vec![base, fork, theirs],
            Work::Export { tree, since, .. } => {
                [Some(tree), since.as_mut()].into_iter().flatten().collect()
            }
            Work::Import { tree, .. }
            | Work::List { tree, .. }
            | Work::Print { tree, .. }
            | Work::Remove(remove::Removal { tree, .. })
            | Work::Names(names::NamespaceChange { tree, .. })
            | Work::Files(files::FileAccess { tree, .. })
            | Work::Tune { tree, .. }
            | Work::Lineage { tree, .. } => vec![tree],
            Work::Send(send::SendSource::Rest(_))
            | Work::Receive { .. }
            | Work::Token { .. }
            | Work::Trim { .. }
            | Work::Scrub(_)
            | Work::Resize(_) => Vec::new(),
        }
    }

    /// What it takes to have it done.
    pub fn needs(&self) -> Requirement {
        match self {
            Work::Lineage { ask, .. } => ask.into(),
            Work::Diff { .. }
            | Work::Send(send::SendSource::Rest(_))
            | Work::Token { .. }
            | Work::Export { .. }
            | Work::List { .. }
            | Work::Print { .. } => Requirement::Read,
            // Of a branch a snapshot is taken.
            Work::Send(send::SendSource::Tree { tree, .. }) if tree.snapshot.is_some() => {
                Requirement::Read
            }
            Work::Files(files::FileAccess { writes: false, .. }) => Requirement::Read,
            Work::Scrub(scrub::ScrubOptions { changes_nothing: true, .. }) => {
                Requirement::Unwritten
            }
            Work::Tune { to: tune::To { uuid: Some(_), .. }, .. } => Requirement::AtRest(
                "the id of a volume that is in use does not change; unmount it first",
            ),
            Work::Send(send::SendSource::Tree { .. })
            | Work::Receive { .. }
            | Work::Merge(_)
            | Work::Import { .. }
            | Work::Trim { .. }
            | Work::Scrub(_)
            | Work::Resize(_)
            | Work::Tune { .. }
            | Work::Remove(_)
            | Work::Names(_)
            | Work::Files(_) => Requirement::Write,
        }
    }
}

/// Stops the volume if work panics that changes it, as any other change does: it may be half done.
struct StopOnPanic<'a>(&'a Volume);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(fs) = self.0.engine()
        {
            fs.stop("work for a command has panicked");
        }
    }
}

/// Carries it out on a volume of which something is open. Where its last state is not whole, what is read says so, also by
/// its exit code.
///
/// # Errors
/// It is not done, or not to its end; what is said of it names the volume or the file.
pub fn carry_out(job: &Job, door: &Volume, heads: &dyn Heads, ends: &dyn Ends) -> Outcome {
    // A scrub judges the rings itself.
    let missing = door.missing().filter(|_| !matches!(job.work, Work::Scrub(_)));
    if let Some(why) = &missing {
        ends.note(&format!("{}: {}", job.volume, not_whole(why)));
    }
    let _stop = job.work.needs().changes().then(|| StopOnPanic(door));
    let code = work(job, door, heads, ends)?;
    Ok(if missing.is_some() { code.max(NOT_WHOLE) } else { code })
}

/// Prints the answer of work.
fn told(answer: &(impl Display + Serialize), for_programs: bool, ends: &dyn Ends) -> Outcome {
    printed(writeln!(Out(ends), "{}", json::answer(answer, for_programs))).map(|()| 0)
}

fn work(job: &Job, door: &Volume, heads: &dyn Heads, ends: &dyn Ends) -> Outcome {
    let (volume, json) = (&job.volume, job.json);
    match &job.work {
        Work::Diff { old, new, how } => diff::run(door, volume, [old, new], how, ends),
        Work::Send(what) => send::run(door, volume, what, ends),
        Work::Receive { branch } => receive::run(door, volume, branch.as_ref(), json, ends),
        Work::Token { branch } => receive::token(door, volume, branch.as_ref(), json, ends),
        Work::Merge(what) => merge::run(door, volume, what, ends),
        Work::Export { tree, since, layer } => {
            export::run(door, volume, (tree, since.as_ref()), *layer, ends)
        }
        Work::Import { tree, layer, files } => {
            import::run(door, volume, tree, (*layer, files), json, ends)
        }
        Work::List { tree, path, how } => list::run(door, volume, (tree, path), how, ends),
        Work::Print { tree, path } => list::print(door, volume, (tree, path), ends),
        Work::Trim { least } => trim::run(door, volume, *least, json, ends),
        Work::Scrub(what) => scrub::run(door, volume, what, ends),
        Work::Resize(to) => resize::run(door, volume, *to, json, ends),
        Work::Tune { tree, to } => tune::run(door, volume, (tree, to), json, ends),
        Work::Remove(what) => remove::run(heads, volume, what, ends),
        Work::Names(what) => names::run(heads, volume, what, ends),
        Work::Files(what) => files::run(door, heads, volume, what, ends),
        Work::Lineage { ask, .. } => {
            let reply = serde_json::to_vec(&heads.answer(ask)?).map_err(io::Error::from);
            ends.last(&reply.context(volume)?);
            Ok(0)
        }
    }
}
