//! `holdfast snapshot`: the moments of a branch that are kept.

use std::io::Write;

use holdfast_control::Snapshot;
use holdfast_service::branches::by_time::Purpose;

use crate::branches::{Ask, Name, SnapshotName, TreeLocation, arguments, show};
use crate::outcome::{Failure, Outcome, each, printed};

/// Take, list, keep, delete snapshots of a branch, and go back to one.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
A snapshot is a branch as it was at one moment. It never changes. Taking one costs the same for an
empty volume and for one of ten million files, and programs go on writing meanwhile.

PLACE is a mounted directory, or a volume: a file or block device, mounted or not. The branch is
the one that is mounted, or `main`; PLACE:BRANCH says another one. A name has 1 to 255 bytes, and
no `/`, `@`, `:` or control character. A snapshot that is there may be written BRANCH@NAME, as it is
printed; in a mount :BRANCH is a PLACE, and `.` is one at its root.

  holdfast snapshot create mnt before-upgrade
  holdfast snapshot list mnt
  holdfast snapshot rollback mnt before-upgrade
  holdfast snapshot delete volume.img:work old
  holdfast mount volume.img@before-upgrade old-mnt")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: SnapshotCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SnapshotCommand {
    Create(Create),
    List(List),
    Show(Show),
    Delete(Delete),
    Rename(Rename),
    Rollback(Rollback),
    Hold(Hold),
    /// End the `hold` of a tag; after the last the snapshot can be deleted.
    Unhold(Hold),
}

/// Take a snapshot of a branch; programs that write there go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It holds every write that had returned when this was called. When this returns, it survives any
crash. Without NAME it is called by the time, such as 2026-11-24T141003.123Z.

  holdfast snapshot create mnt before-upgrade
  holdfast snapshot create volume.img:work")]
struct Create {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// Its name.
    #[arg(value_parser = arguments::name())]
    name: Option<Name>,
}

/// List the snapshots of a branch, in the order in which they were taken.
///
/// Deletions of its snapshots that have failed follow, with the reason: they keep their space.
#[derive(Debug, clap::Args)]
struct List {
    /// Print one JSON object, for programs: whole numbers, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    /// Those without a name, too: they are kept for what grew out of them.
    #[arg(long)]
    all: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
}

/// One of them.
#[derive(Debug, clap::Args)]
struct Of {
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// The snapshot.
    #[arg(value_parser = arguments::snapshot())]
    name: SnapshotName,
}

/// Show what is known of a snapshot.
#[derive(Debug, clap::Args)]
struct Show {
    /// Print one JSON object, for programs: whole numbers, times as strings of nanoseconds since 1970.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: Of,
}

/// Delete snapshots; their space comes back in the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One that is held or mounted is not deleted. If branches grew out of it, only its name goes, until
one of them is left.

Exit code: 1 if one could not be deleted; the others are.")]
struct Delete {
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// The snapshots.
    #[arg(required = true, value_parser = arguments::snapshot())]
    names: Vec<SnapshotName>,
}

/// Give a snapshot another name.
#[derive(Debug, clap::Args)]
struct Rename {
    #[command(flatten)]
    of: Of,
    /// Its new name.
    #[arg(value_parser = arguments::name())]
    new_name: Name,
}

/// Take a branch back to one of its snapshots.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What the branch was is kept as a snapshot, `before-rollback-` and the time, so nothing is lost by a
slip. --keep gives it another name; with --discard it is deleted.

A mounted branch goes back under the programs that use it: they see the files of the snapshot at
once. Files that they have open go on with what the snapshot has of them; those that it does not
have answer ESTALE. The exit code is 3 if the branch is rolled back, but the kernel has not
forgotten all that was within 30 seconds: programs may see some of it until it has.

  holdfast snapshot rollback mnt before-upgrade
  holdfast snapshot rollback --discard volume.img:work start")]
struct Rollback {
    #[command(flatten)]
    keep: arguments::Keep,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
    /// The snapshot to go back to.
    #[arg(value_parser = arguments::snapshot())]
    name: SnapshotName,
}

/// Keep a snapshot from being deleted.
///
/// A hold has a tag, which says whose it is; a snapshot can be deleted when the hold of each tag has ended.
#[derive(Debug, clap::Args)]
struct Hold {
    /// Whose hold it is.
    #[arg(long, value_parser = arguments::name(), default_value = "hold")]
    tag: Name,
    #[command(flatten)]
    of: Of,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let held = matches!(args.what, SnapshotCommand::Hold(_));
    match &args.what {
        SnapshotCommand::Create(args) => return create(args),
        SnapshotCommand::List(args) => return list(args),
        SnapshotCommand::Show(args) => return show(args),
        SnapshotCommand::Delete(Delete { place, names }) => {
            // None is deleted if one is of another branch than the place.
            let of = |name: &SnapshotName| Ok((place.of(name)?, name.name.clone()));
            let all = names.iter().map(of).collect::<Result<Vec<_>, Failure>>()?;
            return each(&all, |(place, name)| {
                let (name, branch) = (name.into(), place.which());
                place.done(&Ask::DeleteSnapshot { branch, name, number: None }).map(drop)
            });
        }
        SnapshotCommand::Rename(Rename { of: Of { place, name }, new_name }) => {
            let (place, name) = (place.of(name)?, (&name.name).into());
            let (branch, new_name) = (place.which(), new_name.clone());
            place.done(&Ask::RenameSnapshot { branch, name, new_name })?;
        }
        SnapshotCommand::Rollback(args) => return rollback(args),
        SnapshotCommand::Hold(Hold { tag, of: Of { place, name } })
        | SnapshotCommand::Unhold(Hold { tag, of: Of { place, name } }) => {
            let (place, name) = (place.of(name)?, (&name.name).into());
            let (branch, tag) = (place.which(), tag.clone());
            place.done(&Ask::Hold { branch, name, tag, held })?;
        }
    }
    Ok(0)
}

fn create(args: &Create) -> Outcome {
    let name = args.name.clone().unwrap_or_else(|| Purpose::Snapshot.new_name());
    let question = Ask::Take { branch: args.place.which(), name: name.clone() };
    let (branch, number) = args.place.done(&question)?;
    show::made(args.json, &branch, Some(&name), number)
}

fn list(args: &List) -> Outcome {
    let (branch, mut snapshots, failed) = args.place.located()?.snapshots()?;
    snapshots.retain(|it| args.all || !it.name.0.is_empty());
    if args.json {
        let list: Vec<_> = snapshots.iter().map(show::snapshot).collect();
        let mut object = show::named(&branch);
        object.insert("snapshots".into(), list.into());
        object.insert("failed_deletions".into(), show::failed_json(&failed));
        return show::json(object);
    }
    let head = ["NAME", "TAKEN (UTC)", "FILES", "HELD", "FORKS", ""];
    show::table(&head, snapshots.iter().map(row))?;
    show::failed(&failed)
}

fn row(of: &Snapshot) -> [String; 6] {
    let name = match of.name.0.is_empty() {
        true => format!("(no name, number {})", of.number),
        false => of.name.to_string(),
    };
    let held = show::holds(of);
    let mounted = if of.mounted { "mounted" } else { "" };
    [name, show::time(of.created_ns), of.inodes.to_string(), held, show::forks(of), mounted.into()]
}

fn show(args: &Show) -> Outcome {
    let (branch, snapshot) =
        args.of.place.of(&args.of.name)?.located()?.snapshot(&args.of.name.name)?;
    if args.json {
        let mut object = show::named(&branch);
        object.insert("snapshot".into(), show::snapshot(&snapshot).into());
        return show::json(object);
    }
    let held = match snapshot.holds.is_empty() {
        true => "no".into(),
        false => format!("by {}", show::holds(&snapshot)),
    };
    let lines = [
        ("name", snapshot.name.to_string()),
        ("branch", branch.to_string()),
        ("number", snapshot.number.to_string()),
        ("taken", format!("{} UTC", show::time(snapshot.created_ns))),
        ("operations", format!("{} before it", snapshot.lsn)),
        ("files", snapshot.inodes.to_string()),
        ("held", held),
        ("copy of", show::copy_of(&snapshot)),
        (
            "forks",
            Some(show::forks(&snapshot)).filter(|it| !it.is_empty()).unwrap_or("none".into()),
        ),
        ("mounted", if snapshot.mounted { "yes" } else { "no" }.into()),
    ];
    let mut out = std::io::stdout().lock();
    for (name, value) in lines {
        printed(writeln!(out, "{name:<11} {value}"))?;
    }
    Ok(0)
}

fn rollback(args: &Rollback) -> Outcome {
    let keep = args.keep.name(Purpose::BeforeRollback);
    let (place, name) = (args.place.of(&args.name)?, &args.name.name);
    let branch = place.which();
    let question = Ask::RollBack { branch, to: name.into(), keep: keep.clone() };
    let (from, said) = (("snapshot", name), |branch: &Name| format!("is as {branch}@{name}"));
    show::new_head(&place, &question, args.json, from, keep.as_ref(), said)
}
