//! Opening: the newest valid superblock, what the journal says beyond it, the groups, and what the log says.
//!
//! Everything is read and judged, in memory, before the first byte is written.
//! What cannot be counts as the end, for an opening that only reads; an opening
//! for writing is refused for it, and leaves the volume as it was.

// Its numbers come from the disk: each sum says what it does where it does not fit. In a release nothing else would.
#![deny(clippy::arithmetic_side_effects)]

use holdfast_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::BlockNo;
use holdfast_base::clock::Stopwatch;
use holdfast_base::counters::Counters;
use holdfast_base::stop::Stop;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, Sticky};
use holdfast_format::Superblock;
use holdfast_format::limits::COUNTER_MAX;
use holdfast_format::superblock::RO_COMPAT_KNOWN;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::bitmaps;
use crate::cache::Cache;
use crate::discard::Discarder;
use crate::freezes::Freezes;
use crate::guard::{Guarded, Keeper};
use crate::host::MADE;
use crate::journal::replay::Replayed;
use crate::journal::{Journal, recover};
use crate::load;
use crate::log::replay::{Broken, Logged};
use crate::log::{self, LogPosition, Logging, PendingLog, Ring};
use crate::log_resident::LogResident;
use crate::mend::Mends;
use crate::shape::Shape;
use crate::space::alloc::Space;
use crate::throttle::Throttle;
use crate::throttle::access_times::AccessTimes;
use crate::tree::open::OpenTrees;
use crate::tree::{Forest, Root, TreeNo};
use crate::{Inner, OpenOptions, Result, StoreError, superblock};

pub(crate) fn open(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    counters: Arc<Counters>,
) -> Result<Inner> {
    let guarded = Guarded::over(&device, options.read_only, &options.guard);
    let device = guarded.clone().map_or(device, |guarded| guarded as Arc<dyn Device>);
    // A checkpoint and a commit flush side by side: no failure of one may pass the other by (P7).
    let stop: Arc<Stop> = Arc::default();
    let device: Arc<dyn Device> = Arc::new(Sticky::new(device, stop.clone()));
    let Some(guarded) = guarded else {
        return open_alone(&device, stop, options, counters);
    };
    // Before anything else is read: what another program writes until it is asked is not to be mixed with it.
    let uuid = superblock::newest(&*device, false, &AccessTimes::default())?.superblock.uuid;
    let mut keeper =
        Keeper::start(guarded, (&device, &stop), uuid, &options.guard, options.threads)?;
    match open_alone(&device, stop, options, counters) {
        Ok(inner) => Ok(Inner { guard: Some(keeper), ..inner }),
        Err(error) => {
            keeper.not_opened();
            Err(error)
        }
    }
}

/// Opens what no other program writes to.
fn open_alone(
    device: &Arc<dyn Device>,
    stop: Arc<Stop>,
    options: &OpenOptions,
    counters: Arc<Counters>,
) -> Result<Inner> {
    let places = Arc::new(AccessTimes::default());
    let superblock::Newest { superblock, fault, is_of_two_sizes } =
        superblock::newest(&**device, options.read_only, &places)?;
    check_volume(&superblock, &**device, options)?;
    let time = Stopwatch::start();
    let mut replayed = recover::read(&**device, &superblock, &counters, options.read_only)?;
    let hole = recover::hole(&replayed);
    for why in hole.iter().chain(&replayed.lost) {
        refuse_to_write(why, options)?;
    }
    let mut logged = read_log(&**device, &mut replayed, hole.is_some());
    let mut took = time.nanos();
    // Until the whole log is in memory, the nodes of the journal stand in front of the device, and nothing is
    // written: an opening refused for its log leaves the volume as it was (P9).
    let mut nodes = std::mem::take(&mut replayed.nodes);
    let (mut inner, read) = loop {
        if let Some(damage) = &logged.damage {
            refuse_to_write(damage, options)?;
        }
        let mut inner =
            at((device, &stop), options, &counters, &replayed.superblock, nodes, &places);
        let unknown =
            inner.load_groups().map(|()| None).or_else(|error| without_bitmaps(&inner, error))?;
        inner.load_first_bitmaps(bitmaps::AT_ONCE.min(options.bitmaps));
        inner.find_ancestry_of_main()?;
        let time = Stopwatch::start();
        let done = inner.replay_log(&replayed.superblock, &logged);
        took = took.saturating_add(time.nanos());
        match done {
            Ok(left_out) => break (inner, unknown.into_iter().chain(left_out)),
            // A device that refuses may answer later.
            Err(Broken { error: error @ StoreError::Device(_), .. }) if !options.read_only => {
                return Err(error);
            }
            // It can be read as if the log ended before it.
            Err(broken) => logged.end_before(broken),
        }
        nodes = std::mem::take(&mut inner.overlay);
    };
    if fault.is_some() {
        *inner.fault.lock() = fault;
    }
    let missing = hole.into_iter().chain(replayed.lost.take()).chain(logged.damage.clone());
    inner.missing = missing.chain(read).reduce(|one, other| format!("{one}; {other}"));
    check_counters(&inner, &replayed.superblock, &logged, options)?;
    let is_recovered = replayed.commits > 0 || !logged.batches.is_empty();
    if options.read_only {
        inner.opened_from = Some(superblock.clone());
    } else {
        let is_new = superblock.epoch == MADE && !is_recovered && logged.walked == 0;
        inner.take_rings_from_host(is_new)?;
        // Nothing refuses the volume any more.
        inner.begin_mends();
        let (time, threads) = (Stopwatch::start(), options.threads);
        recover::write(&*inner.device, &stop, &superblock, &replayed, &inner.overlay, threads)?;
        inner.overlay = BTreeMap::new();
        inner.finish_log(logged, replayed.before)?;
        if is_of_two_sizes {
            end_change_of_size(&inner, &superblock)?;
        }
        took = took.saturating_add(time.nanos());
        inner.hide_from_host();
    }
    if is_recovered {
        inner.counters.recovery_ns.set(took);
    }
    update_limits(&inner, options);
    Ok(inner)
}

/// What the log holds behind the commits.
fn read_log(device: &dyn Device, replayed: &mut Replayed, has_hole: bool) -> Logged {
    let mut logged = match has_hole {
        // The log goes on behind commits that are gone: their blocks may serve others since.
        true => Logged::nothing(replayed.superblock.log),
        false => log::replay::read(device, replayed),
    };
    logged.names_what_is_there(&mut replayed.superblock.log);
    logged.last_birth = replayed.last_epoch.next();
    logged
}

/// Refuses a volume that its device does not hold, or that this program cannot write.
fn check_volume(superblock: &Superblock, device: &dyn Device, options: &OpenOptions) -> Result<()> {
    let volume_blocks = superblock.geometry.volume_blocks;
    if volume_blocks > device.len() / BLOCK_BYTES {
        return Err(StoreError::Refused(format!(
            "the volume has {volume_blocks} blocks of 4 KiB, but the device only {}; it was cut short",
            device.len() / BLOCK_BYTES
        )));
    }
    // It keeps something for each group.
    superblock.geometry.check_own().map_err(|malformed| StoreError::Refused(malformed.why))?;
    let unknown = superblock.features_ro_compat & !RO_COMPAT_KNOWN;
    if unknown != 0 && !options.read_only {
        return Err(StoreError::Refused(format!(
            "the volume has features ({unknown:#x}) that this program cannot write; mount it read-only"
        )));
    }
    Ok(())
}

/// Updates the limits of a recovery, and warns if it may take more than was asked for.
fn update_limits(inner: &Inner, options: &OpenOptions) {
    let limits = inner.throttle.update(&inner.counters);
    let [kept, asked] = [limits.kept, limits.budget].map(|of| format!("{:.1} s", of.as_secs_f64()));
    // A difference that the words do not show is none.
    if limits.kept > limits.budget && kept != asked && !options.read_only {
        tracing::warn!(
            "the device takes {} ms for a random place: a recovery may take {kept}, and not the {asked} that were asked for",
            limits.place.as_millis(),
        );
    }
}

/// Refuses to write to a volume that has counted so far that what is written could not be opened again. No
/// volume ever does: these are numbers of a hostile one (P10).
fn check_counters(
    inner: &Inner,
    superblock: &Superblock,
    logged: &Logged,
    options: &OpenOptions,
) -> Result<()> {
    let counters = [
        superblock.epoch.0,
        superblock.journal.commit.0,
        logged.mark.batch.0,
        inner.lsn.load(Ordering::Acquire),
        inner.inode_next.load(Ordering::Acquire),
        inner.space.lock().inodes,
    ];
    match counters.iter().find(|count| **count > COUNTER_MAX / 2) {
        Some(count) => refuse_to_write(&format!("the volume has counted to {count}"), options),
        None => Ok(()),
    }
}

/// A damaged volume is opened for reading, and says so; it is not opened for writing: what is missing was
/// acknowledged, and would be lost for good.
fn refuse_to_write(why: &str, options: &OpenOptions) -> Result<()> {
    if options.read_only {
        tracing::error!("{why}; what was done before it can be read");
        return Ok(());
    }
    Err(StoreError::Refused(format!("{why}; mount it read-only to copy what is left")))
}

/// A reader needs to know nothing of what is free, and the root of `main` is known. Returns what is missing then.
fn without_bitmaps(inner: &Inner, error: StoreError) -> Result<Option<String>> {
    if !inner.read_only {
        return Err(error);
    }
    let why = error.as_reason();
    let why = format!("bitmaps, and perhaps branches and snapshots, do not read: {why}");
    tracing::error!("{why}");
    let superblock = inner.superblock.lock();
    let Superblock { geometry, used_blocks, inode_count, .. } = *superblock;
    *inner.space.lock() = Space::unknown(geometry, used_blocks, inode_count);
    Ok(Some(why))
}

/// Both slots say the size before anything is used.
fn end_change_of_size(inner: &Inner, found: &Superblock) -> Result<()> {
    if inner.superblock.lock().epoch == found.epoch {
        inner.first_checkpoint()?;
    }
    Ok(())
}

/// A volume that stands at `superblock`, with `nodes` in front of the device, which `stop` keeps from being written.
pub(crate) fn at(
    (device, stop): (&Arc<dyn Device>, &Arc<Stop>),
    options: &OpenOptions,
    counters: &Arc<Counters>,
    superblock: &Superblock,
    nodes: BTreeMap<BlockNo, Vec<u8>>,
    places: &Arc<AccessTimes>,
) -> Inner {
    let geometry = superblock.geometry;
    let mut space = Space::new(geometry);
    space.groups.keep_at_most(options.bitmaps);
    let mut trees = OpenTrees::new(
        Root { pointer: superblock.space, level: superblock.space_level },
        Root { pointer: superblock.files, level: superblock.files_level },
    );
    trees.get_mut(TreeNo::MAIN).referenced = superblock.referenced_blocks;
    let cache = Cache::new(options.cache_bytes, geometry, options.dirty, counters.clone());
    let volume = superblock.nodes();
    let epoch = superblock.epoch.next();
    let place = LogPosition::at(superblock.log);
    let ring = Ring::new(superblock, &**device);
    Inner {
        log_resident: LogResident::default(),
        pending: PendingLog::new(superblock.lsn, superblock.log, stop.clone()),
        logging: Logging::new(ring, place, options.batching),
        committed: AtomicU64::new(superblock.lsn.0),
        unwrote: AtomicU64::new(0),
        device: device.clone(),
        counters: counters.clone(),
        stop: stop.clone(),
        read_only: options.read_only,
        shape: Shape::new(geometry),
        accounting: options.accounting,
        forest: RwLock::new(Forest::new(trees, cache, epoch, volume, &geometry)),
        space: Arc::new(Mutex::new(space)),
        host_answered: Condvar::new(),
        rings: Default::default(),
        host_said: Default::default(),
        discarder: Discarder::new(options, device.discards(), device.room().is_some()),
        lsn: AtomicU64::new(superblock.lsn.0),
        durable: AtomicU64::new(superblock.lsn.0),
        inode_next: AtomicU64::new(superblock.inode_next.0),
        journal: Mutex::new(Journal::new(&geometry, superblock.ring_tag, superblock.journal)),
        overlay: nodes,
        regions: load::regions(),
        superblock: Mutex::new(superblock.clone()),
        opened_from: None,
        missing: None,
        fault: Mutex::new(superblock.fault.clone()),
        lineage: Mutex::default(),
        pins: Mutex::default(),
        scrubbing: Arc::default(),
        lineage_changes: AtomicU64::default(),
        name_listener: Default::default(),
        one_checkpoint: Mutex::new(()),
        mends: Mends::default(),
        left_over: Mutex::default(),
        throttle: Throttle::new(&geometry, options, counters, places.clone()),
        idle: Arc::default(),
        freezes: Mutex::new(Freezes::default()),
        guard: None,
    }
}
