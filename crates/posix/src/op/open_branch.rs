//! Opening a branch or a snapshot, as the first of a volume or beside others.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_format::{Geometry, Key};
use holdfast_store::{Branch, StoreError};
use parking_lot::Mutex;

use crate::committer::Committer;
use crate::core::Core;
use crate::data::background::Background;
use crate::data::complete::Completer;
use crate::delayed::losses::LossesSeen;
use crate::directory_log::DirectoryLog;
use crate::inode::InodeTable;
use crate::open_volume::OpenVolume;
use crate::volume::Volume;
use crate::*;

/// Data that an fsync puts into the log unless the mount says otherwise, in bytes: what databases and mail write at
/// a time. In a small log it must find room for several threads.
fn usual_log_data(geometry: &Geometry) -> usize {
    let log = geometry.log().bytes().unwrap_or(u64::MAX);
    (log / 64).min(16 << 10) as usize
}

impl FileSystem {
    /// Opens a branch beside this one: all branches of a volume share its store, its space and its history. It is not
    /// open already. `options` hold for the branch; what they say of the volume is settled. [`MountOptions::branch`] and
    /// [`MountOptions::snapshot`] are not looked at.
    pub fn open_branch<'a>(
        &self,
        branch: impl Into<Which<'a>>,
        options: MountOptions,
    ) -> Result<FileSystem> {
        let branch = branch.into();
        self.open_beside(options, || self.branch_no(branch))
    }

    /// Opens a snapshot of a branch beside this one. It is only read, whatever `options` say.
    pub fn open_snapshot<'a, 'b>(
        &self,
        branch: impl Into<Which<'a>>,
        snapshot: impl Into<Which<'b>>,
        options: MountOptions,
    ) -> Result<FileSystem> {
        let (branch, snapshot) = (branch.into(), snapshot.into());
        self.open_beside(options, || self.snapshot_no(branch, snapshot))
    }

    fn open_beside(
        &self,
        options: MountOptions,
        find: impl FnOnce() -> Result<u64>,
    ) -> Result<FileSystem> {
        open_beside(&self.volume, options, find)
    }

    /// Opens a branch or snapshot of an open volume.
    pub(crate) fn open_number(
        volume: &Arc<OpenVolume>,
        number: u64,
        options: MountOptions,
    ) -> Result<FileSystem> {
        open_beside(volume, options, || Ok(number))
    }

    /// The first that is opened of a volume.
    pub(crate) fn first(volume: Volume, options: MountOptions) -> Result<FileSystem> {
        let volume = Arc::new(volume);
        let (branch, snapshot) = (options.branch.clone(), options.snapshot.clone());
        let number = options.number;
        let core = open(&volume, options, || {
            let store = volume.store.clone();
            Ok(match (number, branch) {
                (Some(number), _) => Branch::open_number(store, number)?,
                (None, Some(name)) => Branch::open(store, &name, snapshot.as_deref())?,
                (None, None) => Branch::open_first(store, snapshot.as_deref())?,
            })
        })?;
        let committer = match (volume.options.read_only, volume.options.commit_secs) {
            (true, _) | (_, 0) => None,
            (_, secs) => Some(Committer::start(&volume, Duration::from_secs(secs.into()))?),
        };
        start(core, Arc::new(OpenVolume { committer, volume }))
    }
}

fn open_beside(
    of: &Arc<OpenVolume>,
    options: MountOptions,
    find: impl FnOnce() -> Result<u64>,
) -> Result<FileSystem> {
    let volume = &of.volume;
    let options = MountOptions { branch: None, snapshot: None, ..options };
    let core = open(volume, options, || Ok(Branch::open_number(volume.store.clone(), find()?)?))?;
    start(core, of.clone())
}

/// Numbers that inodes may have had which died with the process that made them. The kernel may know them by another request
/// than the one that made them, and must not meet other inodes by them. There is at most one for each request under way that made one;
/// and where nothing of the process became durable, the next one begins at the same number, so it leaves out more.
const LOST_INODES: u64 = 1 << 16;
/// Of 44 bits, which numbers in snapshots have.
const LOST_INODES_MAX: u64 = 1 << 28;

/// Loads a branch, carries out what is left of holes, and collects orphans.
fn open(
    volume: &Arc<Volume>,
    options: MountOptions,
    find: impl FnOnce() -> Result<Branch>,
) -> Result<Arc<Core>> {
    let _one = volume.lock_opening();
    // Nothing is deleted meanwhile.
    let store = find()?;
    volume.expect_closed(&store)?;
    let core = load(volume, options, store)?;
    volume.opened(&core);
    Ok(core)
}

/// As [`open`], of a tree that is there and stays, without saying that it is open.
pub(super) fn load(
    volume: &Arc<Volume>,
    mut options: MountOptions,
    store: Branch,
) -> Result<Arc<Core>> {
    options.read_only |= volume.options.read_only || store.is_snapshot();
    let usual = usual_log_data(&store.superblock().geometry);
    let resumed = options.resumed > 0 && !options.read_only;
    let known_below = if resumed { store.inode_counter() } else { InodeNo(0) };
    if resumed {
        store.skip_inodes(LOST_INODES.saturating_mul(options.resumed).min(LOST_INODES_MAX));
    }
    let losses = LossesSeen::of(&volume.losses, store.number());
    let core = Arc::new(Core {
        gate: Default::default(),
        deletions: volume.deletions.clone(),
        log_data_bytes: options.log_data_bytes.unwrap_or(usual),
        hash_seed: store.superblock().hash_seed,
        inodes: InodeTable::new(options.inode_cache, known_below),
        data: crate::delayed::Shared::new(&store, &options, losses),
        renames: Mutex::new(()),
        last_move: Default::default(),
        directory_log: DirectoryLog::new(options.rename_log),
        atime: times::Policy::new(options.atime),
        watcher: OnceLock::new(),
        rolled_back: OnceLock::new(),
        turns: Default::default(),
        left: Mutex::default(),
        leaving: Default::default(),
        atimes: Mutex::default(),
        #[cfg(test)]
        hash_mask: holdfast_sync::atomic::AtomicU64::new(u64::MAX),
        store,
        counters: volume.counters.clone(),
        options,
    });
    match core.inode(InodeNo::ROOT) {
        Ok(root) => root.expect_directory(),
        Err(FsError::NotFound) => Err(FsError::NotFound),
        Err(error) => return Err(error),
    }
    .map_err(|_| StoreError::Refused("the volume has no root directory; run fsck".into()))?;
    if !core.options.read_only {
        check_next_inode(&core)?;
    }
    crate::data::punch::recover(&core)?;
    match (core.options.read_only, core.options.resumed > 0) {
        (true, _) => {}
        (false, true) => orphan::keep_all(&core)?,
        (false, false) => orphan::collect_all(&core)?,
    }
    Ok(core)
}

/// Starts the threads of a branch.
pub(super) fn start(core: Arc<Core>, volume: Arc<OpenVolume>) -> Result<FileSystem> {
    let background = match core.options.read_only || !core.options.threads {
        true => None,
        false => Some(Background::start(core.clone())?),
    };
    let completer = Completer::start(&core)?;
    Ok(FileSystem { core, background, completer, volume, pin: None })
}

/// Fails if a new inode could get the number of one that exists: it would replace it (P10).
fn check_next_inode(core: &Core) -> Result<()> {
    let next = core.store.inode_counter();
    let mut last = InodeNo(0);
    // Items are in the order of their inodes. What a later program has put there counts for itself.
    core.store.scan_back(&Key::MIN, &Key::MAX, |key, _| {
        if key.kind.asks().is_some() {
            return ControlFlow::Continue(());
        }
        last = key.inode;
        ControlFlow::Break(())
    })?;
    if last.0 >= next.0 {
        let why = format!("inode {last} is not below the next number {next}; run fsck");
        return Err(StoreError::Refused(why).into());
    }
    Ok(())
}
