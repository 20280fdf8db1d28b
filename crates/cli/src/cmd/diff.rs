//! `holdfast diff`: what became of the files of a volume between two moments.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};

use holdfast_daemon::dispatch::Located;
use holdfast_service::work::diff::{DiffFormat, TROUBLE};
use holdfast_service::work::{Tree, Work};

use crate::branches::{Origin, TreeLocation, place};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::out;
use crate::target::holds_volume;

/// Show what became of each file from one snapshot or branch to another.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PLACE is a volume in a file or block device, mounted or not, or a directory in which one is mounted.
A and B are written
  BRANCH@SNAPSHOT   a snapshot of a branch
  @SNAPSHOT         a snapshot of the branch in PLACE: of `main`, or of what is mounted there
  BRANCH            a branch as it is now
or each as a place of its own: IMAGE@SNAPSHOT, IMAGE:BRANCH, DIRECTORY, DIRECTORY@SNAPSHOT. Without
B, the branch in PLACE as it is now is compared with A. What is compared as it is now has each write
that had returned; of what is mounted the daemon tells, and nothing is unmounted.

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
  holdfast diff mnt@monday mnt
  holdfast diff volume.img@monday volume.img@tuesday --stat
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
    /// replaced in `path` and all of them in hexadecimal in `path_hex`.
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
    /// A volume, with `:BRANCH` if snapshots of another branch than `main` are meant; or A itself, with `@SNAPSHOT`.
    #[arg(value_name = "PLACE")]
    place: OsString,
    /// What was: BRANCH@SNAPSHOT, @SNAPSHOT, BRANCH or a place. If PLACE is a snapshot: what it is compared with.
    a: Option<OsString>,
    /// What is, in the same form.
    b: Option<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    // A reader that has gone is no trouble.
    let trouble = |failure: Failure| match failure.code {
        0 => failure,
        _ => failure.with_code(TROUBLE),
    };
    asked(args).map_err(trouble)
}

fn asked(args: &Args) -> Outcome {
    let (located, old, new) = trees(&args.place, args.a.as_deref(), args.b.as_deref())?;
    let how = DiffFormat {
        ranges: args.ranges,
        stat: args.stat,
        name_only: args.name_only,
        patch: args.patch,
        json: args.json,
        null: args.null,
        exit_code: args.exit_code,
        quiet: args.quiet,
        is_terminal: io::stdout().is_terminal(),
    };
    located.run(Work::Diff { old, new, how }, out())
}

/// The volume, and the trees that are compared.
fn trees(
    place: &OsStr,
    a: Option<&OsStr>,
    b: Option<&OsStr>,
) -> Result<(Located, Tree, Tree), Failure> {
    let place = TreeLocation::parse(place);
    std::fs::metadata(&place.path).context(place.path.display())?;
    let located = place.located()?;
    let first = located.tree();
    let operand = |text| operand(&located, text);
    let [a, b] = [a.map(operand).transpose()?, b.map(operand).transpose()?];
    let is_tree = place.snapshot.is_some() || b.is_none() && matches!(a, Some(Operand::Place(_)));
    let now = Tree { snapshot: None, ..first.clone() };
    let (old, new) = match (is_tree, a, b) {
        (false, Some(a), b) => (a.tree(&first), b.map_or(now, |b| b.tree(&first))),
        (true, a, None) => (first.clone(), a.map_or(now, |a| a.tree(&first))),
        (true, _, Some(_)) => {
            return Err(Failure::plain("two trees are compared, and three are named"));
        }
        (false, None, _) => {
            let why =
                format!("say with what it is compared: {place}@SNAPSHOT, or {place} @SNAPSHOT");
            return Err(Failure::plain(why));
        }
    };
    Ok((located, old, new))
}

/// What a text means.
enum Operand {
    /// A place in this volume.
    Place(Tree),
    /// What is said beside the first tree.
    Beside(Origin),
}

impl Operand {
    fn tree(self, first: &Tree) -> Tree {
        match self {
            Operand::Place(tree) => tree,
            Operand::Beside(origin) => origin.beside(first),
        }
    }
}

fn operand(located: &Located, text: &OsStr) -> Result<Operand, Failure> {
    // A snapshot alone is of the first place, wherever this command is called.
    if !text.as_encoded_bytes().starts_with(b"@") {
        let place = TreeLocation::parse(text);
        let other = place.path.exists().then(|| place.located().ok()).flatten();
        if let Some(other) = other.filter(|other| located.has(other)) {
            return Ok(Operand::Place(other.tree()));
        }
        // A name of a branch that is a file as well means the branch.
        if (place.branch.is_some() || place.snapshot.is_some()) && holds_volume(&place.path) {
            return Err(Failure::plain(format!("{place}: only trees of one volume are compared")));
        }
    }
    let text = text.to_str().ok_or_else(|| Failure::plain("a name is not UTF-8"))?;
    place::origin(text).map(Operand::Beside).map_err(Failure::plain)
}
