//! `holdfast info`: what a volume is, from its superblock, and what a recovery of it would take.
//!
//! Of a mounted volume the daemon knows the latter; what is in journal and
//! log of another one is read from it. Nothing is written, and nothing locked but to count branches and
//! snapshots of a volume that is not mounted.

use std::io;
use std::path::{Path, PathBuf};

use holdfast::VolumeOptions;
use holdfast::device::Device;
use holdfast_check::Summary;
use holdfast_daemon::report::{self, MountedTree, Report};
use holdfast_daemon::{mounts, opening, recovery, uring};
use holdfast_device::file::{PhysicalSector, Source};
use holdfast_service::moment::{ISO, utc};
use holdfast_service::outcome::not_whole;
use holdfast_service::{json, size};
use serde_json::Value;

use crate::outcome::{Context, Outcome, printable, printed};
use crate::peek::Peek;
use crate::udev;

/// Show size, space, label and options of a volume, and what mounting it would take.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// Print what udev wants to know of a filesystem, and nothing else.
    #[arg(long, conflicts_with = "json")]
    udev: bool,
    /// A file or a block device, which may be mounted, or a directory in which it is mounted.
    target: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.udev {
        return for_udev(&args.target);
    }
    let mount = mounts::or_none(mounts::find(&args.target)).context("/proc/self/mountinfo")?;
    let image = match &mount {
        // Not by a look at it: the daemon of the mount may answer nothing.
        Some(mount) if mount.dir == mounts::real_path(&args.target) => mount.source.clone(),
        _ => args.target.clone(),
    };
    let device = Peek::open(&image)?;
    let mut summary =
        holdfast_check::probe(&device).ok_or_else(|| opening::no_volume(&image, &device))?;
    let mounted_at = mount.as_ref().map(|mount| mount.dir.to_string_lossy().into_owned());
    let live = mount.as_ref().map(report::ask).transpose();
    let lineage = match &live {
        Ok(Some(report)) => report.mounted.clone(),
        Ok(None) => at_rest(&image),
        Err(_) => None,
    };
    // The superblock counts those of `main`.
    summary.inodes = lineage.as_ref().and_then(|it| it.files).unwrap_or(summary.inodes);
    // What others are just writing may look damaged.
    if lineage.is_none() || mount.is_some() {
        summary.recovery_missing.clear();
    }
    let physical = PhysicalSector::of(device.file(), 512);
    let mut out = std::io::stdout().lock();
    use std::io::Write;
    if args.json {
        let mut object =
            serde_json::to_value(&summary).expect("a summary is plain numbers and strings");
        object["device_bytes"] = device.len().into();
        object["mounted_at"] = mounted_at.into();
        object["physical_sector_bytes"] = physical.bytes.into();
        object["physical_sector_is_assumed"] = (physical.source == Source::Assumed).into();
        tell_lineage(&mut object, lineage.as_ref(), mount.is_some());
        (object["live"], object["transport"]) = (Value::Null, Value::Null);
        // What the file shows of a mounted volume is older than what its daemon says.
        if let Ok(Some(report)) = &live {
            tell_live(&mut object, report);
        }
        return printed(writeln!(out, "{}", json::text(&object))).map(|()| 0);
    }
    let block = holdfast_base::units::BLOCK_BYTES;
    let used = size::show(summary.used_blocks.saturating_mul(block));
    let all = size::show(summary.usable_blocks.saturating_mul(block));
    let recovery = recovery_line(&live, &summary);
    let copies = copies(&summary);
    let lines = [
        ("uuid", summary.uuid),
        ("label", summary.label),
        ("made", utc(summary.created_ns.div_euclid(1_000_000_000), ISO)),
        ("written by", summary.written_by),
        ("damage", damage(summary.fault, lineage.as_ref())),
        ("size", shown_size(&image, &device, summary.volume_bytes)),
        ("node size", size::show(summary.node_size)),
        ("copies", copies),
        ("log ring", size::show(summary.log_ring_bytes)),
        ("journal ring", size::show(summary.journal_ring_bytes)),
        ("phys. sector", sector(&physical)),
        ("used", format!("{used} of {all}")),
        ("inodes", summary.inodes.to_string()),
        ("checkpoint", summary.epoch.to_string()),
        recovery,
        ("mounted at", mounted_at.unwrap_or_else(|| "not mounted".into())),
    ];
    let mounted = lineage.as_ref().map(|it| ("mounted", it.name())).filter(|_| mount.is_some());
    let counts = lineage.iter().flat_map(counts);
    let transport = live
        .iter()
        .flatten()
        .filter_map(|report| report.activity.as_ref())
        .map(|activity| ("transport", uring::words(&activity.transport).to_owned()));
    for (name, value) in lines.into_iter().chain(mounted).chain(counts).chain(transport) {
        printed(writeln!(out, "{name:<13} {}", printable(&value)))?;
    }
    Ok(0)
}

/// What is stored twice, as it is given to mkfs.
fn copies(summary: &Summary) -> String {
    let (roots, leaves) = (summary.metadata_copies, summary.leaf_copies);
    super::mkfs::Copies::of(roots, leaves, summary.ring_copies).words.into()
}

/// Properties of a device. udev runs this as root for whatever is plugged in, so it reads the superblocks and nothing
/// that they point to.
fn for_udev(target: &Path) -> Outcome {
    use std::io::Write;
    let device = Peek::open(target)?;
    let superblock = holdfast_check::newest_superblock(&device)
        .ok_or_else(|| opening::no_volume(target, &device))?;
    let properties = udev::properties(&superblock.uuid.to_string(), &superblock.label);
    printed(std::io::stdout().write_all(properties.as_bytes())).map(|()| 0)
}

/// What the superblock, and the daemon of a mount, know to be damaged.
fn damage(fault: Option<(i64, String)>, mounted: Option<&MountedTree>) -> String {
    let not_whole = mounted.and_then(|it| it.missing.as_deref()).map(not_whole);
    let found = fault.map(|(when, what)| {
        let when = utc(when, ISO);
        format!("{what} (found {when}; `holdfast fsck -y -d` checks all, and forgets it)")
    });
    let known: Vec<String> = not_whole.into_iter().chain(found).collect();
    if known.is_empty() { "none known".into() } else { known.join("; ") }
}

/// What a recovery of it would take.
fn recovery_line(live: &io::Result<Option<Report>>, summary: &Summary) -> (&'static str, String) {
    match live {
        Ok(Some(report)) => {
            ("recovery now", recovery::now(|name| report.value(name)).unwrap_or_default())
        }
        Ok(None) => ("recovery", recovery::of_unopened(summary)),
        Err(error) => {
            let (needed, why) = (recovery::needed(summary), crate::outcome::plain_words(error));
            ("recovery", format!("{needed}; the daemon does not answer: {why}"))
        }
    }
}

/// The size of the volume, and what to do if it could have more.
fn shown_size(image: &Path, device: &Peek, bytes: u64) -> String {
    let shown = size::show(bytes);
    match opening::growth(image, device.len(), bytes) {
        Some(hint) => format!("{shown}; {hint}"),
        None => shown,
    }
}

/// Lines about branches and snapshots: how many there are, and which are not deleted though they should be.
fn counts(of: &MountedTree) -> Vec<(&'static str, String)> {
    let failed = of.failed_deletions.iter().map(|why| ("not deleted", why.clone()));
    let stopped = of.stopped.iter().map(|stopped| ("stopped", stopped.words()));
    stopped.chain([("branches", of.counts())]).chain(failed).collect()
}

/// How many branches and snapshots there are, and which is mounted.
fn tell_lineage(object: &mut Value, lineage: Option<&MountedTree>, is_mounted: bool) {
    let count = |of: fn(&MountedTree) -> u64| Value::from(lineage.map(of));
    object["branches"] = count(|it| it.branches);
    object["snapshots"] = count(|it| it.snapshots);
    object["stopped"] = serde_json::to_value(lineage.and_then(|it| it.stopped.as_ref()))
        .expect("a number and a sentence");
    object["missing"] = lineage.and_then(|it| it.missing.clone()).into();
    object["failed_deletions"] = lineage.map(|it| it.failed_deletions.clone()).into();
    let mounted = lineage.filter(|_| is_mounted);
    object["mounted_branch"] = mounted.map(|it| it.branch.clone()).into();
    object["mounted_snapshot"] = mounted.and_then(|it| it.snapshot.clone()).into();
}

/// What only the daemon of a mount knows.
fn tell_live(object: &mut Value, report: &Report) {
    let live = [
        "recovery_estimate_ns",
        "recovery_budget_ns",
        "recovery_kept_ns",
        "device_place_ns",
        "journal_bytes_used",
        "log_bytes_used",
    ];
    let live = live.map(|name| (name.to_string(), report.value(name).into()));
    object["transport"] = report.activity.as_ref().map(|it| it.transport.clone()).into();
    object["live"] = serde_json::Map::from_iter(live).into();
}

/// What a volume that is not mounted has, if it can be opened: it may be damaged, or in use.
fn at_rest(path: &Path) -> Option<MountedTree> {
    let volume = opening::open_volume(path, &VolumeOptions::new(), true).ok()?;
    let counts = volume.engine().ok().and_then(|fs| MountedTree::of(&fs));
    volume.close().ok()?;
    // What is missing of its last state says the line of its recovery.
    counts.map(|it| MountedTree { missing: None, ..it })
}

/// The physical sector below, how it is known, and what is wrong with it.
fn sector(physical: &PhysicalSector) -> String {
    let bytes = size::show(physical.bytes.into());
    let source = match physical.source {
        Source::Device => "the device says so",
        Source::DeviceBelow => "the device below says so",
        Source::Assumed => "assumed: nothing below says it",
    };
    match physical.danger() {
        Some(danger) => format!("{bytes}, {source}; {danger}"),
        None => format!("{bytes}, {source}"),
    }
}
