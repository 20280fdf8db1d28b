//! `holdfast fsck`: what is wrong with a volume, read without the engine.
//!
//! Exit codes are those of fsck(8): 0 clean, 1 all errors are gone, 4 errors left, 8 the check could
//! not be made, 16 usage. A volume that crashed needs no fsck: opening it
//! recovers it. So `-p`, as at boot, does what a mount does first, and repairs only if that fails and nothing is lost by it.

mod repair;
mod undo;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast::device::Device;
use holdfast_base::show::count;
use holdfast_check::reading::VolumeReading;
use holdfast_check::{CheckError, Issue, Options, Progress, Report, Severity};
use holdfast_daemon::{mounts, opening};
use holdfast_device::Front;
use holdfast_service::{json, size};

use crate::outcome::{self, Context, Failure, Outcome, complain, shown};
use crate::peek::Peek;
use crate::pipes::Bar;

/// fsck(8): errors were found and are gone.
const CORRECTED: u8 = 1;
/// fsck(8): errors were found and are still there.
const ERRORS_LEFT: u8 = 4;
const OPERATIONAL: u8 = 8;
const USAGE: u8 = 16;

/// Check a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes are those of fsck(8): 0 nothing is wrong, 1 all that was is repaired, 4 something is
left, 8 it could not be done, 16 usage.")]
pub(crate) struct Args {
    /// Take no lock and change nothing; of what is wrong, say what -y would do and what would be lost by it. Works on a mounted volume, where
    /// what is just being written may look wrong.
    #[arg(short = 'n', conflicts_with_all = ["preen", "yes"])]
    no_changes: bool,
    /// As at boot: only see whether the volume can be opened; if it cannot, repair it as long as nothing is lost by that. -f checks
    /// everything all the same.
    #[arg(short = 'p', short_alias = 'a')]
    preen: bool,
    /// Repair everything that can be repaired. What is done, and what is lost by it, is printed before it is done. A power cut leaves
    /// the volume as it was or as it is repaired. Not where another filesystem begins by now.
    #[arg(short = 'y')]
    yes: bool,
    /// Write back a superblock that is lost, also where another filesystem begins by now, which does not survive it.
    #[arg(long, conflicts_with_all = ["no_changes", "preen"])]
    repair_superblock: bool,
    /// With -y or -p, and with -n for what they would do: go on where something that was durable, or may be read another time, is lost by a repair: cut a damaged journal
    /// or log at the last good batch, leave out nodes that the device cannot read, give up a branch or snapshot, its root directory or all that it has.
    #[arg(long)]
    accept_loss: bool,
    /// With -y or -p: keep what a repair overwrites in a new file, which must not lie in the volume. With --undo it can be put back.
    #[arg(short = 'z', long, value_name = "FILE", conflicts_with_all = ["no_changes", "repair_superblock"])]
    undo_file: Option<PathBuf>,
    /// Put back what -z has kept: the volume becomes what it was before that repair, bit for bit. Refused if it has been written to since. May
    /// be repeated if it was cut short.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_changes", "preen", "yes", "repair_superblock", "undo_file", "accept_loss", "data"])]
    undo: Option<PathBuf>,
    /// Check everything, also with -p.
    #[arg(short, long)]
    force: bool,
    /// Read all data of files too, and verify its checksums. Takes as long as reading the volume.
    #[arg(long, short = 'd')]
    data: bool,
    /// Print what was counted as well.
    #[arg(short, long)]
    verbose: bool,
    /// The volume has this size, as `holdfast salvage --list` says it: where its beginning is lost, and the file or device has become longer
    /// since, so that the superblock at the volume's end is not at the device's.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "undo")]
    size: Option<u64>,
    /// Show a progress bar on a terminal. The number is for fsck(8) and not used.
    #[arg(short = 'C', value_name = "FD", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    progress: Option<i32>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A file or a block device.
    target: PathBuf,
}

/// fsck(8) and its like write the descriptor of `-C` behind it, `-C0` or `-C 0`, and people omit it. The arguments with
/// all of these as the one way that the declaration above takes.
pub(crate) fn with_one_c(args: Vec<OsString>) -> Vec<OsString> {
    let is_number = |text: &str| text.parse::<i32>().is_ok();
    let mut out: Vec<OsString> = Vec::with_capacity(args.len());
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        match text.strip_prefix("-C") {
            Some("") => {
                let fd = args.next_if(|next| next.to_str().is_some_and(is_number));
                out.push(fd.map_or(arg, |fd| format!("-C={}", fd.to_string_lossy()).into()));
            }
            Some(fd) if is_number(fd) => out.push(format!("-C={fd}").into()),
            _ if text == "--" => {
                out.push(arg);
                out.extend(args.by_ref());
            }
            _ => out.push(arg),
        }
    }
    out
}

pub(crate) fn run(args: &Args) -> Outcome {
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    if let Some(file) = &args.undo {
        return undo::run(args, file);
    }
    let is_about_one = args.yes || args.preen || args.no_changes && args.undo_file.is_none();
    if (args.undo_file.is_some() || args.accept_loss) && !is_about_one {
        let why = "-z and --accept-loss are about a repair: say -y or -p as well";
        return Err(Failure::new(USAGE, why));
    }
    let device = device(args).map_err(operational)?;
    if args.preen && !args.force {
        return match preen(args, &device) {
            Ok(()) => can_be_mounted(args),
            Err(failure) => repair::at_boot(args, device, failure),
        };
    }
    let report = check(args, &*device)?;
    if !args.json {
        print(args, &report)?;
    }
    // Where a superblock is lost: that the other slot is not valid either says no more.
    let only = |issue: Issue, beside: Option<Issue>| {
        let errors = report.findings.iter().filter(|finding| finding.severity > Severity::Note);
        let ids =
            errors.map(|finding| finding.id).filter(|id| Some(*id) != beside.map(Issue::number));
        report.omitted == 0 && ids.eq([issue.number()])
    };
    // A fault that the copy tells of goes with it.
    let is_lost = [Issue::NoSuperblock, Issue::NewestSuperblockLost]
        .into_iter()
        .any(|issue| only(issue, Some(Issue::Fault)));
    let has_superblock = report.facts.superblock.is_some();
    // Of a planned repair an undo can be kept, and a program is told in one document.
    let is_planned = args.undo_file.is_some() || (args.json && !args.repair_superblock);
    if !is_planned && (args.yes || args.repair_superblock) && is_lost && has_superblock {
        if !args.repair_superblock {
            refuse_another(args, &*device)?;
        }
        return repaired(args, device, &report, "the superblock was written back", |device| {
            holdfast::restore_superblock(&*device)
        });
    }
    let notes = [Issue::SuperblockInvalid, Issue::FarCopyInvalid].map(Issue::number);
    let is_noted = report.is_clean() && report.findings.iter().any(|it| notes.contains(&it.id));
    let is_only_fault = args.data && only(Issue::Fault, None);
    let has_ring_places = holdfast_repair::has_bad_ring_places(&report);
    if !is_planned && args.yes && is_noted && !has_ring_places {
        if !args.repair_superblock {
            refuse_another(args, &*device)?;
        }
        let done = "the superblock's copies were written anew";
        return repaired(args, device, &report, done, |device| {
            holdfast::set_identity(device, None, None)
        });
    }
    if !is_planned && args.yes && is_only_fault && !has_ring_places {
        let done = "the fault was forgotten";
        return repaired(args, device, &report, done, holdfast::clear_fault);
    }
    let wrong = !holdfast_repair::is_repaired(&report);
    let would_repair = wrong || is_noted || is_only_fault || has_ring_places;
    if (wrong && args.preen) || (would_repair && args.yes) {
        return repair::run(args, device);
    }
    // Of a mounted volume what only looks wrong is nothing to plan for; and people need not be told what becomes of a note.
    let is_worth_it = if args.json { would_repair } else { wrong };
    if is_worth_it && args.no_changes && has_superblock && !is_mounted(&args.target) {
        repair::preview(args, &*device, &report)?;
    } else if args.json {
        print(args, &report)?;
    }
    Ok(report.exit_code())
}

/// What is found, while a bar shows how far that is.
fn check(args: &Args, device: &dyn Device) -> Result<Report, Failure> {
    let is_wanted = args.progress.is_some();
    let bar = Bar::new(is_wanted, "{msg:>12} {wide_bar} {human_pos}/{human_len}");
    let show = |at: Progress| bar.show(at.done, at.total, at.pass);
    let options = Options { data: args.data, progress: Some(&show) };
    let report = holdfast_check::check(device, &options);
    bar.clear();
    report.map_err(|error| {
        let failure = Failure::plain(format!("{}: {error}", args.target.display()));
        let failure = failure.with_code(OPERATIONAL);
        match error {
            CheckError::NotHoldfast { found: None } if args.size.is_none() => {
                failure.with_hint_about("holdfast salvage --list", &args.target)
            }
            _ => failure,
        }
    })
}

/// What the volume has of a device, where it is said that this is not all.
fn sized(args: &Args, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Failure> {
    let Some(bytes) = args.size else { return Ok(device) };
    if holdfast_check::probe(&*device).is_some() {
        let target = args.target.display();
        return Err(Failure::plain(format!(
            "{target}: a superblock at its beginning says the size of the volume; leave --size out"
        )));
    }
    let front = Front::of(device, bytes)
        .map_err(|error| Failure::plain(format!("{}: {error}", args.target.display())))?;
    Ok(Arc::new(front))
}

/// The volume, to be changed.
fn writable(args: &Args) -> Result<Arc<dyn Device>, Failure> {
    sized(args, opening::open_device(&args.target, false)?)
}

/// Fails if something else begins where the volume began: it may be wanted.
fn refuse_another(args: &Args, device: &dyn Device) -> Result<(), Failure> {
    let Some(found) = holdfast_check::identify_other(device) else { return Ok(()) };
    let target = args.target.display();
    Err(Failure::new(
        ERRORS_LEFT,
        format!(
            "{target} holds {found} by now, and nothing was written; if that is not wanted any more, \
             `holdfast fsck --repair-superblock {target}` writes the superblock of the Holdfast volume back all the same"
        ),
    ))
}

/// Changes the volume, which was locked for reading until now.
fn repaired(
    args: &Args,
    read_only: Arc<dyn Device>,
    report: &Report,
    done: &str,
    change: impl FnOnce(Arc<dyn Device>) -> io::Result<()>,
) -> Outcome {
    drop(read_only);
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    let device = writable(args).map_err(operational)?;
    change(device).context(args.target.display()).map_err(operational)?;
    if args.json {
        // Its size is in the superblock by now.
        let target = &args.target;
        let after = check(args, &*opening::open_device(target, true).map_err(operational)?)?;
        repair::superblock_document(report, done, &after)?;
        return Ok(CORRECTED);
    }
    let mut out = io::stdout().lock();
    printed(writeln!(out, "{}: {done}", shown(&args.target)))?;
    Ok(CORRECTED)
}

/// A caller that cannot be told, or does not listen to the end, must not take the code for that of a clean or a repaired volume.
fn printed(result: io::Result<()>) -> Result<(), Failure> {
    outcome::printed(result).map_err(|failure| failure.with_code(OPERATIONAL))
}

/// Prints one object, for programs.
fn told(object: &impl serde::Serialize) -> Result<(), Failure> {
    printed(writeln!(io::stdout().lock(), "{}", json::text(object)))
}

/// The volume: locked, unless `-n` says that a look is enough.
fn device(args: &Args) -> Result<Arc<dyn Device>, Failure> {
    let opened = opening::open_file(&args.target, true);
    match opened.map(|device| device as Arc<dyn Device>) {
        Err(_) if args.no_changes => {
            let peek = Peek::open(&args.target)?;
            if is_mounted(&args.target) {
                complain(&format!(
                    "{} is mounted; what is being written now may look wrong",
                    args.target.display()
                ));
            }
            sized(args, Arc::new(peek))
        }
        Err(failure) if failure.code == opening::IN_USE => {
            Err(Failure::plain(format!("{}; or look with -n", failure.sentence)))
        }
        opened => sized(args, opened?),
    }
}

fn is_mounted(target: &Path) -> bool {
    mounts::find(target).is_ok_and(|mount| mount.is_some())
}

/// What a mount does first, read-only: the superblock, journal and log, the groups, the root directory.
fn preen(args: &Args, device: &Arc<dyn Device>) -> Result<(), Failure> {
    if holdfast_check::probe(&**device).is_none() {
        return Err(opening::no_volume(&args.target, &**device).with_code(OPERATIONAL));
    }
    let opened = holdfast::VolumeOptions::new().read_only(true).open_device(device.clone());
    let cannot = |why: &dyn std::fmt::Display| {
        let why = format!("{} cannot be mounted: {why}", args.target.display());
        Failure::new(ERRORS_LEFT, why)
    };
    // What is only looked at opens as far as it is whole, a volume that is to be written does not.
    let looked = opened.and_then(|volume| volume.metadata("/").map(|_| volume.missing()));
    if let Some(why) = looked.map_err(|error| cannot(&error))? {
        return Err(cannot(&why));
    }
    let reading = VolumeReading::open(&**device, false);
    let missing = reading.map_or_else(|_| Vec::new(), |reading| reading.missing_of_rings());
    missing.first().map_or(Ok(()), |why| Err(cannot(why)))
}

/// At boot no reader is told of a volume that is as it should be, but for a program that asks.
fn can_be_mounted(args: &Args) -> Outcome {
    if args.json {
        let object = serde_json::json!({ "can_be_mounted": true, "findings": [] });
        told(&object)?;
    }
    Ok(0)
}

fn print(args: &Args, report: &Report) -> Result<(), Failure> {
    if args.json {
        return told(report);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for finding in &report.findings {
        printed(writeln!(out, "{finding}"))?;
    }
    if report.omitted > 0 {
        printed(writeln!(out, "and {} more", report.omitted))?;
    }
    let facts = &report.facts;
    if args.verbose {
        let block = holdfast_base::units::BLOCK_BYTES;
        printed(writeln!(
            out,
            "{}, {}, {}, {} of data, {} of nodes",
            count(facts.of_branches.inodes, "inode"),
            count(facts.of_branches.dentries, "name"),
            count(facts.of_branches.extents, "extent"),
            size::show(facts.data_blocks * block),
            size::show(facts.node_blocks * block)
        ))?;
        let listed = count(facts.snapshots - facts.nameless_snapshots, "snapshot");
        let nameless = match facts.nameless_snapshots {
            0 => String::new(),
            some => format!(", and {some} without a name, of which forks or deletions are left"),
        };
        printed(writeln!(out, "{}, {listed}{nameless}", count(facts.branches, "branch")))?;
    }
    let verdict = match report.is_clean() {
        true => "clean".to_string(),
        false => count(report.findings.len() as u64 + report.omitted, "finding"),
    };
    let files = count(facts.of_branches.files, "file");
    let directories = count(facts.of_branches.directories, "directory");
    let branches = match facts.branches {
        0 | 1 => String::new(),
        some => format!(" in {}", count(some, "branch")),
    };
    printed(writeln!(out, "{}: {verdict}, {files}, {directories}{branches}", shown(&args.target)))?;
    printed(out.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_of_c_may_stand_anywhere() {
        let of = |args: &[&str]| {
            let args = with_one_c(args.iter().map(OsString::from).collect());
            args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["-a", "-C0", "img"]), ["-a", "-C=0", "img"]);
        assert_eq!(of(&["-C", "12", "img"]), ["-C=12", "img"]);
        assert_eq!(of(&["-C", "img"]), ["-C", "img"]);
        assert_eq!(of(&["-C=3", "-C-1"]), ["-C=3", "-C=-1"]);
        assert_eq!(of(&["--", "-C", "0"]), ["--", "-C", "0"]);
    }
}
