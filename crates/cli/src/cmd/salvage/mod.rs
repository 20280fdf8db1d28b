//! `holdfast salvage`: files out of a volume that cannot be mounted any more, to a directory of the host.
//!
//! The volume is only read. What is found, and how far it is proven, is the business of `holdfast-salvage`.

mod host;
mod list;
mod report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast::device::Device;
use holdfast_daemon::opening;
use holdfast_salvage::{
    Choice, CopyOptions, Counts, FileNote, Progress, SalvageError, Salvaged, Scan, Tag, Tolerant,
    TreeFound, tag,
};
use holdfast_service::outcome::without_number;
use host::HostTree;
use report::Report;
use serde::Serialize;

use crate::host_tree::HostEntry;
use crate::outcome::{Context, Failure, Outcome, printed, shown};
use crate::peek::Peek;
use crate::pipes::Bar;

/// Something is missing.
const NOT_WHOLE: u8 = 1;
/// Where it writes to takes no more.
const CUT_SHORT: u8 = 4;
/// Nothing was found, or nothing could be done.
const OPERATIONAL: u8 = 8;

/// Copy files out of a volume that cannot be mounted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The volume is only read, and read whole: take an image of a failing disk first. It may have lost its
superblocks, its beginning or end, any of its blocks; where it does not read counts as lost.

Each file is said to be whole or not. Of a whole one each byte is as it was in the state that is
copied. What is missing of others is a hole, and is listed. Where a part of the tree is lost, older
nodes fill in, and files from there are said to be perhaps not of the last version. What no name
leads to comes to lost+found, called by its number. Data that does not match its checksum is never
written, unless --unproved asks for it.

The state is that of the newest superblock, with journal and log; without one, the newest that
roots prove by what they reach; without a root, what leaves alone tell. Where no superblock says
which root it is, no file is called whole.

OUT is made, or is an empty directory of this user. Device nodes are not made, and set-id bits and
attributes of security are not set, as the volume may be a stranger's; it is said of each.
Memory: about 200 bytes for each node of a volume.

Exit codes: 0 all is whole; 1 something is missing or not proven, or the host does not take an
attribute; 4 OUT takes no more, so that files are missing there; 8 nothing was found.

  holdfast salvage --list broken.img
  holdfast salvage broken.img rescued
  holdfast salvage --branch main@monday --report report.txt broken.img rescued")]
pub(crate) struct Args {
    /// Only say what was found: volumes, branches and snapshots, checkpoints.
    #[arg(long, conflicts_with_all = ["branch", "all", "report", "unproved"])]
    list: bool,
    /// The branch or snapshot that is copied, like `work` or `main@monday`. Default: main.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    branch: Option<String>,
    /// Copy all branches and snapshots, each to a directory of its name in OUT.
    #[arg(long)]
    all: bool,
    /// Take the newest state that is not younger than this checkpoint, without journal and log.
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Take the node at this block for the root of main.
    #[arg(long, value_name = "BLOCK")]
    root: Option<u64>,
    /// Take the volume of this tag, where the device has had several.
    #[arg(long, value_name = "TAG", value_parser = read_tag)]
    volume: Option<Tag>,
    /// Write also data that does not match its checksum. It is said of its files.
    #[arg(long)]
    unproved: bool,
    /// Write a line for each file to this file. Without it, those that are not whole are printed.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write and print one JSON object in each line, for programs.
    #[arg(long)]
    json: bool,
    /// Show no progress bar. Elsewhere than on a terminal there is none anyway.
    #[arg(short, long)]
    quiet: bool,
    /// A file or a block device.
    image: PathBuf,
    /// The directory that files are copied to.
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    out: Option<PathBuf>,
}

/// What was done, as a program reads it.
#[derive(Serialize)]
struct Summary<'a> {
    state: &'a str,
    epoch: u64,
    notes: &'a [String],
    unreadable_blocks: u64,
    #[serde(flatten)]
    counts: Counts,
}

fn read_tag(digits: &str) -> Result<Tag, String> {
    tag(digits).ok_or_else(|| "a tag has sixteen digits, as --list shows it".into())
}

pub(crate) fn run(args: &Args) -> Outcome {
    // Also where only the reader of the output has gone: 0 would say that all is whole.
    salvage(args).map_err(|failure| match failure.code {
        CUT_SHORT => failure,
        _ => failure.with_code(OPERATIONAL),
    })
}

fn salvage(args: &Args) -> Outcome {
    let device = device(&args.image)?;
    // Before all of the device is read for nothing.
    if let Some(out) = args.out.as_deref().filter(|_| !args.list) {
        host::expect_place(&HostEntry::named(out)).context(out.display())?;
    }
    let tolerant = Tolerant::new(&*device);
    let bar = bar(args.quiet);
    let scan = Scan::read(&tolerant, &|at| show(&bar, at));
    bar.clear();
    let volumes = scan.volumes();
    let choice = Choice { volume: args.volume, epoch: args.epoch, root: args.root };
    let opened = scan.open(&tolerant, &choice);
    if args.list {
        if let (Err(error), true) = (&opened, volumes.is_empty()) {
            return Err(failure(args, error));
        }
        list::show(&volumes, &opened, args.json)?;
        return opened.map_or_else(|error| Err(failure(args, &error)), |_| Ok(0));
    }
    let salvaged = opened.map_err(|error| failure(args, &error))?;
    let out = args.out.as_deref().expect("clap asks for it");
    let mut report = Report::new(args.report.as_deref(), args.json)?;
    let counts = copy(args, &salvaged, out, &mut report, &bar);
    bar.clear();
    // A file that says nothing would only be in the way of the next try.
    let counts = counts.inspect_err(|_| report.forget_if_empty())?;
    let is_whole = counts.is_whole() && salvaged.notes.is_empty() && !report.is_short;
    report.end().context("the report")?;
    summary(args, &salvaged, tolerant.unreadable(), counts)?;
    match (counts.found, is_whole) {
        (0, _) => Ok(OPERATIONAL),
        (_, true) => Ok(0),
        (_, false) => Ok(NOT_WHOLE),
    }
}

fn failure(args: &Args, error: &SalvageError) -> Failure {
    let failure = Failure::plain(without_number(&format!("{}: {error}", args.image.display())));
    match error {
        SalvageError::Destination(_) => failure.with_code(CUT_SHORT),
        _ => failure,
    }
}

/// The device, locked where that is possible: what is written meanwhile would look torn.
pub(super) fn device(path: &Path) -> Result<Arc<dyn Device>, Failure> {
    match opening::open_file(path, true) {
        Ok(device) => Ok(device),
        Err(failure) if failure.code == opening::IN_USE => Err(failure),
        // Too short for a device, or not a multiple of its sectors: it is read as the file that it is.
        Err(_) => Ok(Arc::new(Peek::open(path)?)),
    }
}

/// Copies the trees that are asked for.
fn copy(
    args: &Args,
    salvaged: &Salvaged<'_>,
    out: &Path,
    report: &mut Report,
    bar: &Bar,
) -> Result<Counts, Failure> {
    let one = |tree: &TreeFound, to: &HostEntry, report: &mut Report| {
        let show = |at: Progress| show(bar, at);
        let options = CopyOptions { unproved: args.unproved, progress: Some(&show) };
        let mut line = |found: &FileNote| report.file(found);
        let mut host = HostTree::new(to, &mut line).context(to)?;
        salvaged.copy(tree, &mut host, &options).map_err(|error| failure(args, &error))
    };
    let to = HostEntry::named(out);
    if !args.all {
        let name = args.branch.as_deref().unwrap_or("main");
        let main = salvaged.trees().first().filter(|_| args.branch.is_none());
        let named = main.map_or_else(|| salvaged.tree(name), Ok);
        return one(named.map_err(|error| failure(args, &error))?, &to, report);
    }
    let mut counts = Counts::default();
    let dir = host::make_own(&to).context(&to)?;
    for tree in salvaged.trees() {
        report.tree = Some(tree.name.clone());
        counts.join(&one(tree, &HostEntry::of(&dir, directory(tree).as_ref()), report)?);
    }
    Ok(counts)
}

/// The directory of a tree: no name of a branch has a slash, but a hostile one may have been written.
fn directory(tree: &TreeFound) -> String {
    let is_plain = !tree.name.contains('/') && !tree.name.starts_with('.') && tree.name.len() < 200;
    match is_plain {
        true => tree.name.clone(),
        false => format!("#{}", tree.id),
    }
}

fn summary(
    args: &Args,
    salvaged: &Salvaged<'_>,
    unreadable: u64,
    counts: Counts,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if args.json {
        let summary = Summary {
            state: &salvaged.by,
            epoch: salvaged.epoch,
            notes: &salvaged.notes,
            unreadable_blocks: unreadable,
            counts,
        };
        return printed(writeln!(out, "{}", holdfast_service::json::text(&summary)));
    }
    for note in &salvaged.notes {
        printed(writeln!(out, "note: {}", crate::outcome::printable(note)))?;
    }
    if unreadable > 0 {
        let blocks = holdfast_base::show::count(unreadable, "block");
        printed(writeln!(out, "note: {blocks} of the device did not read"))?;
    }
    let image = shown(&args.image);
    printed(writeln!(out, "{image}: {}; state: {}", report::sentence(&counts), salvaged.by))
}

/// How far it is, on a terminal.
pub(super) fn bar(quiet: bool) -> Bar {
    Bar::new(!quiet, "{msg:>6} {wide_bar} {percent:>3}% {eta}")
}

pub(super) fn show(bar: &Bar, at: Progress) {
    bar.show(at.done, at.total, at.step);
}
