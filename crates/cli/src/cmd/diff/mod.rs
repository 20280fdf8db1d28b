//! `holdfast diff`: what became of the files of a volume between two moments.

mod patch;
mod show;
mod text;

use std::io::{self, IsTerminal, Write};

use holdfast::{Change, ChangeKind, Diff, FileSystem, Moment, Volume, VolumeOptions};

use self::patch::Patches;
use self::show::{Counts, Format};
use crate::branches::place::Origin;
use crate::branches::{Name, Place, arguments, place};
use crate::outcome::{Context, Failure, Outcome, printed};
use crate::target;

/// The exit code for what cannot be compared: 1 may mean that there are differences.
const TROUBLE: u8 = 2;

/// Show what became of each file from one snapshot or branch to another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
IMAGE is a volume in a file or block device that is not mounted. A and B are written
  BRANCH@SNAPSHOT   a snapshot of a branch
  @SNAPSHOT         a snapshot of `main`, or of the branch in IMAGE:BRANCH
  BRANCH            a branch as it is now
Without B, that branch as it is now is compared with A.

Each line says what became of a file:
  created, removed
  renamed      it has another name, or is in another directory; what is below goes with it
  changed      its bytes are others, or its size
  attributes   its bytes are the same: mode, owner, times, xattrs (access control lists among
               them) or flags are others
What else is different of a file that was renamed or changed stands in brackets. A file of several
names is told by each name that came or went, and its content once. Access times, and the times of
directories whose names differ, are not told.

The cost is that of what differs, whatever else the volume holds; names are looked for in the whole
tree only if a file has several and lost its newest. A patch has no directories, owners, times and
hard links; paths in lines are printed as they are, and a name may hold a line feed: programs
should ask for -0 or --json.

Exit code: 0; with --exit-code 1 if anything differs; 2 if it cannot be compared.

  holdfast diff volume.img @before-upgrade
  holdfast diff volume.img @monday @tuesday --stat
  holdfast diff volume.img main@base agent-17 --patch
  holdfast diff volume.img @monday -0 --name-only | xargs -0 ls -ld")]
pub(crate) struct Args {
    /// Say which bytes of each file differ: blocks of 4 KiB, and the ends of files.
    #[arg(long, conflicts_with_all = ["stat", "name_only", "patch", "null", "quiet"])]
    ranges: bool,
    /// Say how many files of each kind there are, and how many bytes differ in files that are in both.
    #[arg(long, conflicts_with_all = ["name_only", "patch", "null", "quiet"])]
    stat: bool,
    /// Print paths alone: of what was removed the old one, of all else the new one.
    #[arg(long, conflicts_with_all = ["patch", "json", "quiet"])]
    name_only: bool,
    /// Print how text changed, as git(1) and patch(1) read it: files up to 4 MiB.
    #[arg(long, short, conflicts_with_all = ["json", "null", "quiet"])]
    patch: bool,
    /// Print one JSON object a line, for programs, in no order that means anything. A path that is not UTF-8 has its odd bytes
    /// replaced in `path` and all of them in hexadecimal in `path_bytes`.
    #[arg(long, conflicts_with_all = ["null", "quiet"])]
    json: bool,
    /// End each word and path with a zero byte, for programs: what became of it, the old path if it was renamed, the path.
    #[arg(short = '0', long = "null", conflicts_with = "quiet")]
    null: bool,
    /// Exit with 1 if anything differs.
    #[arg(long)]
    exit_code: bool,
    /// Print nothing; implies --exit-code.
    #[arg(long, short)]
    quiet: bool,
    /// A volume, and `:BRANCH` if snapshots of another branch than `main` are meant.
    #[arg(value_name = "IMAGE", value_parser = arguments::branch_place())]
    place: Place,
    /// What was: BRANCH@SNAPSHOT, @SNAPSHOT or BRANCH.
    #[arg(value_parser = place::origin)]
    a: Origin,
    /// What is, in the same form.
    #[arg(value_parser = place::origin)]
    b: Option<Origin>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // A reader that has gone is no trouble.
    let trouble = |failure: Failure| match failure.code {
        0 => failure,
        _ => failure.with_code(TROUBLE),
    };
    let differs = compare(args).map_err(trouble)?;
    Ok(u8::from(differs && (args.exit_code || args.quiet)))
}

/// A branch as it is now, or a snapshot of it.
struct Which {
    branch: Name,
    snapshot: Option<Name>,
}

impl Which {
    fn of(origin: &Origin, usual: &Name) -> Which {
        let branch = origin.branch.as_ref().unwrap_or(usual).clone();
        Which { branch, snapshot: origin.snapshot.clone() }
    }

    fn moment(&self) -> Moment<'_> {
        Moment { branch: &self.branch.0, snapshot: self.snapshot.as_ref().map(|name| &name.0[..]) }
    }

    /// Says what is missing, if anything is.
    fn check(&self, volume: &Volume) -> io::Result<()> {
        let branch = volume.branch(&self.branch.text())?;
        self.snapshot.as_ref().map_or(Ok(()), |name| branch.snapshot_named(&name.text()).map(drop))
    }
}

/// Prints what differs. Returns whether anything does.
fn compare(args: &Args) -> Result<bool, Failure> {
    let path = &args.place.path;
    target::refuse_mounted(path)?;
    let volume = target::open_volume(path, &VolumeOptions::new(), true)?;
    let usual = {
        let fs = volume.engine().context(path.display())?;
        Name(FileSystem::branch_name(&fs).map_err(|error| Failure::plain(error.to_string()))?)
    };
    let branch = args.place.branch.as_ref().unwrap_or(&usual);
    let now = Origin { branch: None, snapshot: None };
    let old = Which::of(&args.a, branch);
    let new = Which::of(args.b.as_ref().unwrap_or(&now), branch);
    [&old, &new].into_iter().try_for_each(|which| which.check(&volume)).context(path.display())?;
    let diff = volume
        .diff(old.moment(), new.moment(), args.ranges || args.stat)
        .context(path.display())?;
    let done = print(args, &volume, diff, (&old, &new));
    volume.close().context(path.display())?;
    done
}

fn print(
    args: &Args,
    volume: &Volume,
    diff: Diff,
    (old, new): (&Which, &Which),
) -> Result<bool, Failure> {
    let path = args.place.path.display();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let is_terminal = io::stdout().is_terminal();
    let format =
        Format { ranges: args.ranges, name_only: args.name_only, null: args.null, is_terminal };
    let mut counts = Counts::default();
    // For programs nothing is kept; people get an order.
    let is_sorted = !args.json && !args.null;
    let mut all: Vec<Change> = Vec::new();
    for change in diff {
        let change = change.context(&path)?;
        counts.add(&change);
        if args.quiet {
            break;
        }
        match (args.stat, is_sorted) {
            (true, _) => {}
            (false, true) => all.push(change),
            (false, false) if args.json => printed(show::json(&change, args.ranges, &mut out))?,
            (false, false) => printed(format.show(&change, &mut out))?,
        }
    }
    all.sort_by(|one, other| {
        let of =
            |change: &Change| (show::path(change).to_vec(), change.kind != ChangeKind::Removed);
        of(one).cmp(&of(other)).then(one.kind.cmp(&other.kind))
    });
    if args.patch {
        let mut patches = Patches::open(volume, old, new, is_terminal)?;
        patches.show(&all, &mut out)?;
        patches.close()?;
    } else {
        all.iter().try_for_each(|change| printed(format.show(change, &mut out)))?;
    }
    if args.stat {
        printed(counts.show(args.json, &mut out))?;
    }
    printed(out.flush())?;
    Ok(counts.any())
}
