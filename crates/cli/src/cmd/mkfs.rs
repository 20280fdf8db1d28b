//! `holdfast mkfs`: an empty volume in a file or on a block device.
//!
//! Nothing is overwritten that could be in use: a filesystem of any known kind, or a file with content, needs
//! `--force`. A mounted volume is refused in any case.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast::device::{Device, DeviceStats};
use holdfast::{CreateOptions, ROOT_COPIES_MIN};
use holdfast_base::user_namespace::maker;
use holdfast_daemon::opening;
use holdfast_device::open_bytes;
use holdfast_service::owner::{self, Owner};
use holdfast_service::{json, mode, size};
use rustix::fs::OFlags;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::outcome::{Context, Failure, Outcome, complain, printable, printed, shown};
use crate::peek::Peek;
use crate::waiting::Waiting;

/// Make an empty volume.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Size of the volume, like 512M, 8G or 1T. A file is made with it, or gets it, and takes up room only as it is
    /// filled. Default: the size of the device or the existing file. `holdfast resize` makes it larger later.
    #[arg(long, short, value_parser = size::parse)]
    size: Option<u64>,
    /// Size of the pieces in which names, attributes and the places of data are stored: 4k, 16k or 64k. 64k suits
    /// volumes whose files are mostly made and read in bulk. It cannot be changed later.
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = size::parse)]
    node_size: u64,
    /// Size that the log may have, which fsync writes to: from 256k. Default: a 64th of the volume, at most 32M. A file takes up room for
    /// 1M of it with the first change of the volume, for more as it fills, and gives that back when it is not used. It cannot be changed later.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    log_size: Option<u64>,
    /// Size that the room may have from which a crash is recovered: from 256k. Default: a 32nd of the volume, at most 128M. A file
    /// takes up room for it as for the log. It cannot be changed later.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    journal_size: Option<u64>,
    /// What of the metadata (names, attributes, the places of data) is stored twice, far apart; a piece that is damaged on the device is
    /// read from the other place, and written again from it. `roots=2`: what much else is found by, which no fsync writes.
    /// `rings=2`: that, and what an fsync writes, which then is two writes and one flush instead of one and one. `nodes=2`: all pieces
    /// of it, but once what an fsync writes. `metadata=2`: both. `metadata=1`: nothing. Data of files is stored once in any case, but
    /// for what lies in the log. It cannot be changed later. Default: `roots=2` from 256M on, else `metadata=1`.
    #[arg(long, value_name = "WHAT=N", value_parser = Copies::parse)]
    copies: Option<Copies>,
    /// Take all of a file from its host at once: no change finds the host full later, unless the volume is trimmed or made
    /// larger. Default: a file takes up room as it is filled, and gives it back.
    #[arg(long)]
    allocate: bool,
    /// A name that `holdfast info` shows, at most 64 bytes.
    #[arg(long, short = 'L', default_value = "")]
    label: String,
    /// Id of the volume, a UUID. Default: a random one.
    #[arg(long, short = 'U')]
    uuid: Option<Uuid>,
    /// Whose the root directory is, by name or number: USER, USER:GROUP or :GROUP. Default: this user's; in a user namespace where
    /// there is nobody else (unshare -Ur), by the number outside.
    #[arg(long, value_name = "USER:GROUP", value_parser = owner::parse)]
    owner: Option<Owner>,
    /// Permission bits of the root directory, as chmod(1) takes them in octal.
    #[arg(long, value_name = "MODE", default_value = "755", value_parser = mode::octal)]
    mode: u32,
    /// Overwrite a filesystem or a file that is there already. All that is in it is lost.
    #[arg(long, short)]
    force: bool,
    /// Print what would be done, and write nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Print nothing unless it fails.
    #[arg(long, short)]
    quiet: bool,
    /// Print one JSON object, for programs.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// A file, which is made if it does not exist, or a block device.
    target: PathBuf,
}

/// What mkfs decides when it has seen the target.
#[derive(Clone, Copy)]
struct Shape {
    bytes: u64,
    copies: Copies,
}

/// What of the metadata is stored twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    /// As they are given to mkfs.
    pub(super) words: &'static str,
    /// How often all of it, what is near the roots, and rings are stored.
    counts: [u8; 3],
    told: &'static str,
}

impl Copies {
    const NOTHING: Copies = Copies::new("metadata=1", [1, 1, 1], "stored once");
    const ROOTS: Copies =
        Copies::new("roots=2", [1, 2, 1], "stored twice: what leads to the rest of the metadata");
    const ALL: [Copies; 5] = [
        Copies::NOTHING,
        Copies::ROOTS,
        Copies::new(
            "rings=2",
            [1, 2, 2],
            "stored twice: what leads to the rest of the metadata, and what an fsync writes",
        ),
        Copies::new(
            "nodes=2",
            [2, 2, 1],
            "stored twice: all of the metadata but what an fsync writes",
        ),
        Copies::new("metadata=2", [2, 2, 2], "stored twice: all of the metadata"),
    ];

    const fn new(words: &'static str, counts: [u8; 3], told: &'static str) -> Copies {
        Copies { words, counts, told }
    }

    /// What is near the roots, leaves and rings, by how often each is stored.
    pub(super) fn of(roots: u64, leaves: u64, rings: u64) -> Copies {
        let wanted = [leaves, roots, rings];
        let found = Copies::ALL.into_iter().find(|it| it.counts.map(u64::from) == wanted);
        found.unwrap_or(Copies::NOTHING)
    }

    fn parse(word: &str) -> Result<Copies, String> {
        let found = Copies::ALL.into_iter().find(|copies| copies.words == word);
        found.ok_or_else(|| Copies::ALL.map(|copies| copies.words).join(", or "))
    }
}

/// What was made, and what it cost.
struct Made {
    uuid: Uuid,
    cost: DeviceStats,
    /// What the host of a file has left, and the first change takes of that.
    room: Option<(u64, u64)>,
}

/// Content of a file, looked at from both ends: what mkfs would destroy lies there or is found by its data.
const PROBE_BYTES: u64 = 1 << 20;

pub(crate) fn run(args: &Args) -> Outcome {
    if ![4096, 16384, 65536].contains(&args.node_size) {
        return Err(Failure::plain("--node-size is 4k, 16k or 64k"));
    }
    if args.label.len() > 64 {
        return Err(Failure::plain("a label has at most 64 bytes"));
    }
    let existing = match std::fs::metadata(&args.target) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(args.target.display()),
    };
    if existing.as_ref().is_some_and(std::fs::Metadata::is_file)
        && let Some(device) = loop_device_over(&args.target)
    {
        let why = format!(
            "{} is behind {}, which would see it change under whatever uses it",
            args.target.display(),
            device.display()
        );
        return Err(Failure::plain(why).with_hint_about("losetup -d", &device));
    }
    let bytes = match &existing {
        None => args.size.ok_or_else(|| {
            Failure::plain(format!(
                "{} does not exist; give a --size and it will be made",
                args.target.display()
            ))
        })?,
        Some(found) => size_of_existing(args, found)?,
    };
    let copies = args.copies.unwrap_or_else(|| copies_by_default(args, bytes));
    let shape = Shape { bytes, copies };
    // Before anything is made longer or shorter: what is refused stays as it was.
    check_size(args, shape).map_err(|error| Failure::plain(error.to_string()))?;
    if args.dry_run {
        printed(report(args, "would make", shape, None))?;
        return Ok(0);
    }
    let made = if existing.is_none() { make_new(args, shape) } else { make_in_place(args, shape) }?;
    printed(report(args, "made", shape, Some(made)))?;
    Ok(0)
}

/// What is near the roots, where the places that are kept for that are a small share of the volume.
fn copies_by_default(args: &Args, bytes: u64) -> Copies {
    let copies = Copies::ROOTS;
    let has_room = || check_size(args, Shape { bytes, copies }).is_ok();
    if bytes >= ROOT_COPIES_MIN && has_room() { copies } else { Copies::NOTHING }
}

fn check_size(args: &Args, shape: Shape) -> io::Result<()> {
    options(args, shape, args.uuid.unwrap_or_default()).check_size(shape.bytes)
}

/// The size that the volume will have, if what is there may be overwritten.
fn size_of_existing(args: &Args, found: &std::fs::Metadata) -> Result<u64, Failure> {
    let target = &args.target;
    let peek = Peek::open(target)?;
    let (is_file, present) = (found.is_file(), peek.len());
    if !args.force {
        refuse_content(target, &peek, is_file)?;
    }
    match args.size {
        Some(size) if is_file => Ok(size),
        Some(size) if size > present => {
            Err(Failure::plain(format!("{} has only {}", target.display(), size::show(present))))
        }
        Some(size) if size < present => {
            Err(Failure::plain("a volume on a block device takes all of it; leave --size away"))
        }
        _ if present == 0 => {
            Err(Failure::plain(format!("{} is empty; give a --size", target.display())))
        }
        _ => Ok(present),
    }
}

/// Fails if there is a filesystem, or in a file any content at all.
fn refuse_content(target: &Path, peek: &Peek, is_file: bool) -> Result<(), Failure> {
    if let Some(kind) = holdfast_check::identify(peek) {
        return Err(Failure::plain(format!(
            "{} contains {kind}; --force overwrites it",
            target.display()
        )));
    }
    if is_file && has_content(peek.file(), peek.len()).context(target.display())? {
        return Err(Failure::plain(format!(
            "{} is not empty; --force overwrites it",
            target.display()
        )));
    }
    Ok(())
}

/// Whether a file holds anything but zeros, as far as its ends and its first data show.
fn has_content(file: &File, len: u64) -> io::Result<bool> {
    let first_data = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) {
        Ok(at) => at,
        Err(rustix::io::Errno::NXIO) => return Ok(false),
        Err(_) => 0,
    };
    let mut buffer = vec![0; PROBE_BYTES as usize];
    for at in [first_data, len.saturating_sub(PROBE_BYTES)] {
        let mut got = 0;
        while got < buffer.len() {
            match file.read_at(&mut buffer[got..], at + got as u64)? {
                0 => break,
                n => got += n,
            }
        }
        if buffer[..got].iter().any(|&b| b != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn options(args: &Args, shape: Shape, uuid: Uuid) -> CreateOptions {
    let own = maker();
    let asked = args.owner.unwrap_or(Owner { user: None, group: None });
    let owner = (asked.user.unwrap_or(own.0), asked.group.unwrap_or(own.1));
    let [all, roots, rings] = shape.copies.counts;
    let mut options = CreateOptions::new()
        .node_size(args.node_size as usize)
        .label(args.label.clone())
        .metadata_copies(all)
        .root_copies(roots)
        .ring_copies(rings)
        .uuid(*uuid.as_bytes())
        .owner(owner.0, owner.1)
        .root_mode(args.mode)
        .allocate(args.allocate);
    if let Some(bytes) = args.log_size {
        options = options.log_size(bytes);
    }
    if let Some(bytes) = args.journal_size {
        options = options.journal_size(bytes);
    }
    options
}

fn make_new(args: &Args, shape: Shape) -> Result<Made, Failure> {
    let target = &args.target;
    // Every user that may read this file can read every file in it.
    let options = File::options().write(true).create_new(true).mode(0o600).clone();
    let file = options.open(target).context(target.display())?;
    let made =
        file.set_len(shape.bytes).context(target.display()).and_then(|()| format(args, shape));
    if made.is_err() {
        // It was ours from the first moment.
        let _ = std::fs::remove_file(target);
    } else {
        keep_name(target);
    }
    made
}

/// Makes the name of a new file as durable as its content. Hosts that cannot are no reason to fail.
fn keep_name(target: &Path) {
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty());
    let _ = File::open(dir.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
}

fn make_in_place(args: &Args, shape: Shape) -> Result<Made, Failure> {
    let target = &args.target;
    let found = std::fs::metadata(target).context(target.display())?;
    if args.size.is_some() && found.is_file() {
        if found.len() >= holdfast_base::units::BLOCK_BYTES {
            // Locked first, so that a mounted volume does not lose its end.
            drop(opening::open_device(target, false)?);
        }
        let file = open_bytes(target, OFlags::WRONLY).context(target.display())?;
        file.set_len(shape.bytes).context(target.display())?;
    }
    format(args, shape)
}

fn format(args: &Args, shape: Shape) -> Result<Made, Failure> {
    let device = opening::open_device(&args.target, false)?;
    let uuid = args.uuid.unwrap_or_else(Uuid::new_v4);
    if args.allocate {
        take_room(&*device, args.quiet);
    }
    let options = options(args, shape, uuid);
    let first = options.first_change(shape.bytes);
    options.format(&device).context(args.target.display())?;
    let room = device.room().zip(first);
    if let Some((room, first)) = room.filter(|(room, first)| room < first) {
        let (room, first) = (size::show(room), size::show(first));
        complain(&format!(
            "warning: the first change of {} takes {first} of its filesystem, which has {room}: make room there, or nothing can be written",
            args.target.display()
        ));
    }
    Ok(Made { uuid, cost: device.stats(), room })
}

/// What is taken of the host in one call: a piece that takes a while where blocks are written for it.
const PIECE_BYTES: u64 = 64 << 20;

/// Takes all of an image from its host, piece by piece, so that how far it is can be shown. The engine asks for all of it once
/// more, and says what is wrong if the host refuses.
fn take_room(device: &dyn Device, quiet: bool) {
    let (mut waiting, len) = (Waiting::new(quiet), device.len());
    for at in (0..len).step_by(PIECE_BYTES as usize) {
        waiting.left(len - at, "still to take from the host");
        let piece = PIECE_BYTES.min(len - at);
        if device.take_room(at, piece).is_err() {
            break;
        }
    }
}

fn report(args: &Args, verb: &str, shape: Shape, made: Option<Made>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        return writeln!(out, "{}", json::text(&object(args, shape, made)));
    }
    if args.quiet {
        return Ok(());
    }
    let bytes = size::show(shape.bytes);
    writeln!(out, "{verb} a Holdfast volume of {bytes} in {}", shown(&args.target))?;
    writeln!(out, "  node size  {}", size::show(args.node_size))?;
    writeln!(out, "  copies     {} ({})", shape.copies.told, shape.copies.words)?;
    if let Some(uuid) = made.as_ref().map(|made| made.uuid).or(args.uuid) {
        writeln!(out, "  uuid       {uuid}")?;
    }
    if !args.label.is_empty() {
        writeln!(out, "  label      {}", printable(&args.label))?;
    }
    if let Some((_, first)) = made.as_ref().and_then(|made| made.room) {
        let first = size::show(first);
        writeln!(out, "  takes      {first} with the first change, then more as it is filled")?;
    }
    if let Some(Made { cost, .. }) = made {
        let written = size::show(cost.written_bytes);
        let (writes, flushes) = (cost.writes, cost.flushes);
        writeln!(out, "  written    {written} in {writes} writes and {flushes} flushes")?;
    }
    Ok(())
}

/// The same for programs; what `-n` does not know is null.
fn object(args: &Args, shape: Shape, made: Option<Made>) -> Map<String, Value> {
    let mut object = Map::new();
    json::put(&mut object, "volume", args.target.as_os_str().as_bytes());
    let uuid = made.as_ref().map(|made| made.uuid).or(args.uuid);
    let [leaves, roots, rings] = shape.copies.counts;
    let cost = |of: fn(&DeviceStats) -> u64| made.as_ref().map(|made| of(&made.cost));
    let first = made.as_ref().and_then(|made| made.room).map(|(_, first)| first);
    object.extend([
        ("made".into(), made.is_some().into()),
        ("uuid".into(), uuid.map(|uuid| uuid.to_string()).into()),
        ("label".into(), args.label.clone().into()),
        ("volume_bytes".into(), shape.bytes.into()),
        ("node_size".into(), args.node_size.into()),
        ("metadata_copies".into(), roots.into()),
        ("leaf_copies".into(), leaves.into()),
        ("ring_copies".into(), rings.into()),
        ("first_change_bytes".into(), first.into()),
        ("written_bytes".into(), cost(|it| it.written_bytes).into()),
        ("writes".into(), cost(|it| it.writes).into()),
        ("flushes".into(), cost(|it| it.flushes).into()),
    ]);
    object
}

/// The first loop device over the file at `path`, as far as the system tells: what is written into the file behind its back is an
/// unexpected change.
fn loop_device_over(path: &Path) -> Option<PathBuf> {
    let file = path.canonicalize().ok()?;
    let devices = fs::read_dir("/sys/block").ok()?.flatten().filter(|device| {
        let behind = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        behind.strip_suffix(b"\n") == Some(file.as_os_str().as_bytes())
    });
    let mut names: Vec<_> = devices.map(|device| device.file_name()).collect();
    names.sort_unstable();
    names.first().map(|name| Path::new("/dev").join(name))
}
