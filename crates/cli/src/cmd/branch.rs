//! `holdfast branch`: the branches of a volume.

use holdfast_control::Branch;
use holdfast_service::branches::by_time::Purpose;
use holdfast_service::size;
use holdfast_service::work::tune::Limit;

use super::tune;
use crate::branches::{Ask, Name, TreeLocation, arguments, show};
use crate::outcome::{Outcome, each};

/// List, delete, rename, limit, promote the branches of a volume.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
A branch is a tree of files that can be changed. A new volume has one, `main`; `holdfast fork` makes
others. PLACE is a mounted directory, or a volume: a file or block device, mounted or not.

  holdfast branch list volume.img
  holdfast mount volume.img:work mnt
  holdfast branch delete volume.img try")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: BranchCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BranchCommand {
    List(List),
    Delete(Delete),
    Rename(Rename),
    Limit(LimitTo),
    Promote(Promote),
}

/// List the branches of a volume, in the order in which they were made.
///
/// A branch refers to its tree and the blocks of its files; what it shares with other branches and snapshots counts in full.
/// Deletions that have failed follow, with the reason: they keep their space.
#[derive(Debug, clap::Args)]
struct List {
    /// Print one JSON object, for programs: whole numbers, sizes in bytes, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: TreeLocation,
}

/// Delete branches with their snapshots; their space comes back in the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A branch that is mounted, the one that the volume was made with, and one with a snapshot that is
held or that another branch grew out of are not deleted. With a branch that a refused transaction
has left (txn- and the time) goes the snapshot of the same name that it began with.

Exit code: 1 if one could not be deleted; the others are.")]
struct Delete {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: TreeLocation,
    /// The branches.
    #[arg(required = true, value_parser = arguments::branch())]
    names: Vec<Name>,
}

/// One of them.
#[derive(Debug, clap::Args)]
struct Of {
    /// A mounted directory or a volume.
    #[arg(value_parser = arguments::volume_place())]
    place: TreeLocation,
    /// The branch.
    #[arg(value_parser = arguments::branch())]
    name: Name,
}

/// Give a branch another name.
#[derive(Debug, clap::Args)]
struct Rename {
    #[command(flatten)]
    of: Of,
    /// Its new name.
    #[arg(value_parser = arguments::name())]
    new_name: Name,
}

/// Limit how much a branch may refer to.
///
/// That is its tree and the blocks of its files, those included that it shares with other branches and snapshots. What would make it more is refused
/// (EDQUOT): new files and data, but not what removes, shrinks, renames, or takes the place of old data. A limit
/// below what the branch has lets nothing grow until it has shrunk. `df` shows it.
#[derive(Debug, clap::Args)]
struct LimitTo {
    #[command(flatten)]
    of: Of,
    /// A size such as 512M or 8G, rounded up to whole blocks of 4 KiB, or `none`.
    #[arg(value_parser = tune::limit)]
    limit: Limit,
}

/// Promote a fork: the branch becomes what the fork is, in one step.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fork is no branch of its own any more, and its snapshots are those of the branch. If the branch
has changed since the fork was made, nothing happens, unless --force is given. What the branch was
is kept as a snapshot, `before-promote-` and the time; --keep gives it another name; with --discard
it is deleted. The fork must not be mounted.

A mounted branch changes under the programs that use it, as with `holdfast snapshot rollback`; so
does the exit code 3.

  holdfast fork mnt try
  holdfast cp -r new volume.img:try:/
  holdfast branch promote mnt try")]
struct Promote {
    /// Also if the branch has changed meanwhile.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    keep: arguments::Keep,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// The fork that it becomes.
    #[arg(value_parser = arguments::branch())]
    fork: Name,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        BranchCommand::List(args) => return list(args),
        BranchCommand::Delete(Delete { place, names }) => {
            return each(names, |name| {
                place.done(&Ask::DeleteBranch { name: name.into(), number: None }).map(drop)
            });
        }
        BranchCommand::Rename(Rename { of: Of { place, name }, new_name }) => {
            place.done(&Ask::RenameBranch { name: name.into(), new_name: new_name.clone() })?;
        }
        BranchCommand::Limit(LimitTo { of: Of { place, name }, limit }) => {
            place.done(&Ask::LimitBranch { name: name.into(), blocks: limit.0 })?;
        }
        BranchCommand::Promote(args) => return promote(args),
    }
    Ok(0)
}

fn list(args: &List) -> Outcome {
    let (branches, failed) = args.place.located()?.branches()?;
    if args.json {
        let list: Vec<_> = branches.iter().map(show::branch).collect();
        let failed = show::failed_json(&failed);
        let object = [("branches".into(), list.into()), ("failed_deletions".into(), failed)];
        return show::json(object.into_iter().collect());
    }
    let head = ["NAME", "MADE (UTC)", "OUT OF", "SNAPSHOTS", "REFERENCED", "LIMIT", ""];
    show::table(&head, branches.iter().map(row))?;
    show::failed(&failed)
}

fn row(of: &Branch) -> [String; 7] {
    let made = of.created_ns.map(show::time).unwrap_or_default();
    let origin = of.origin.as_ref().map(show::origin).unwrap_or_default();
    let referenced = size::show(of.referenced_bytes);
    let limit = of.limit_bytes.map(size::show).unwrap_or_default();
    let mounted = if of.mounted { "mounted" } else { "" };
    let (name, snapshots) = (of.name.to_string(), of.snapshots.to_string());
    [name, made, origin, snapshots, referenced, limit, mounted.into()]
}

fn promote(args: &Promote) -> Outcome {
    let keep = args.keep.name(Purpose::BeforePromote);
    let (branch, fork) = (args.place.which(), (&args.fork).into());
    let question = Ask::Promote { branch, fork, keep: keep.clone(), unchanged: !args.force };
    let (from, said) = (("fork", &args.fork), |_: &Name| format!("is what {} was", args.fork));
    show::new_head(&args.place, &question, args.json, from, keep.as_ref(), said)
}
