//! Making, mounting and leaving a volume.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::counters::Counters;
use holdfast_base::{InodeNo, Timestamp, prng};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::superblock::LABEL_MAX;
use holdfast_format::{Geometry, Key};
use holdfast_store::{
    CreateOptions, Device, Guarding, Identity, OpenOptions, Store, StoreError, Transaction, page,
    restore_superblock,
};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::committer::Committer;
use crate::core::Core;
use crate::data::background::Background;
use crate::data::complete::Completer;
use crate::directory_log::DirectoryLog;
use crate::inode::InodeTable;
use crate::*;

/// Data that an fsync puts into the log unless the mount says otherwise, in bytes: what databases and mail write at
/// a time. In a small log it must find room for several threads.
fn usual_log_data(geometry: &Geometry) -> usize {
    let log = geometry.log().bytes().unwrap_or(u64::MAX);
    (log / 64).min(16 << 10) as usize
}

impl FileSystem {
    /// Makes an empty volume with a root directory (mode 755) on the whole device.
    pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<()> {
        if options.label.len() > LABEL_MAX {
            return Err(FsError::Invalid("the label is longer than 64 bytes"));
        }
        let geometry =
            options.geometry(device.len()).map_err(|why| StoreError::Refused(why.to_string()))?;
        let create = CreateOptions {
            geometry,
            uuid: options.uuid.map_or_else(Uuid::new_v4, Uuid::from_bytes),
            label: options.label.clone(),
            hash_seed: prng::entropy(),
            node_tag: prng::entropy().to_le_bytes(),
            created: Timestamp::now(),
        };
        let mut first = Transaction::new();
        first.put(Key::inode(InodeNo::ROOT), root(options.owner).encode());
        first.count_inodes(1);
        Store::create_with(device, &create, first)?;
        Ok(())
    }

    /// Opens the store, carries out what is left of holes, collects orphans, and starts the background commit.
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<FileSystem> {
        let counters = Arc::new(Counters::default());
        let open = OpenOptions {
            read_only: options.read_only,
            cache_bytes: options.cache_bytes,
            dirty: options.dirty,
            accounting: options.accounting,
            batching: options.batching,
            recover: options.recover,
            threads: options.threads,
            guard: Guarding::default(),
        };
        let store = Store::open(device, &open, counters.clone())?;
        let usual = usual_log_data(&store.superblock().geometry);
        let core = Arc::new(Core {
            log_data_bytes: options.log_data_bytes.unwrap_or(usual),
            hash_seed: store.superblock().hash_seed,
            inodes: InodeTable::new(options.inode_cache),
            data: crate::delayed::Shared::new(&store, &options),
            renames: Mutex::new(()),
            last_move: Default::default(),
            directory_log: DirectoryLog::new(options.rename_log),
            atime: times::Policy::new(options.atime),
            watcher: OnceLock::new(),
            leaving: Default::default(),
            atimes: Mutex::default(),
            #[cfg(test)]
            hash_mask: holdfast_sync::atomic::AtomicU64::new(u64::MAX),
            store,
            counters,
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
        let options = &core.options;
        let committer = if options.read_only {
            None
        } else {
            orphan::collect_all(&core)?;
            match options.commit_secs {
                0 => None,
                secs => {
                    let every = Duration::from_secs(secs.into());
                    Some(Committer::start(&core, every)?)
                }
            }
        };
        let background = match core.options.read_only || !core.options.threads {
            true => None,
            false => Some(Background::start(core.clone())?),
        };
        let completer = Completer::start(&core)?;
        Ok(FileSystem { core, committer, background, completer })
    }

    /// Writes everything, makes it durable and ends the threads. Dropping without this is like a crash.
    ///
    /// Files that are still open are of no use afterwards; those without a name are removed.
    pub fn unmount(self) -> Result<()> {
        let FileSystem { core, committer, background, completer } = self;
        drop((committer, background));
        let written = if core.options.read_only {
            Ok(())
        } else {
            orphan::collect_all(&core)
                .and_then(|()| atime::write_all(&core))
                .and_then(|()| core.commit())
        };
        Completer::end(completer);
        let mut core = core;
        let core = loop {
            // A handle that is just being dropped holds the volume for a moment.
            match Arc::try_unwrap(core) {
                Ok(core) => break core,
                Err(shared) => core = shared,
            }
            holdfast_sync::thread::yield_now();
        };
        let closed = {
            let core = core;
            core.store.close()
        };
        // After this, no thread is left to give it back step by step.
        page::give_back();
        written?;
        closed?;
        Ok(())
    }

    /// Gives the volume another id or label, in both superblocks.
    pub fn set_identity(&self, uuid: Option<[u8; 16]>, label: Option<&str>) -> Result<()> {
        if label.is_some_and(|label| label.len() > LABEL_MAX) {
            return Err(FsError::Invalid("the label is longer than 64 bytes"));
        }
        let to = Identity {
            uuid: uuid.map(Uuid::from_bytes),
            label: label.map(str::to_owned),
            clear_fault: false,
        };
        Ok(self.core.store.change_identity(&to)?)
    }

    /// Forgets what was found damaged, in both superblocks.
    pub fn clear_fault(&self) -> Result<()> {
        Ok(self
            .core
            .store
            .change_identity(&Identity { clear_fault: true, ..Identity::default() })?)
    }

    /// Writes the far copy of the superblock into its slot, on a device that has lost both slots.
    pub fn restore_superblock(device: &dyn Device) -> Result<()> {
        restore_superblock(device)?;
        Ok(())
    }

    /// The statistics.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.core.counters
    }

    /// Bytes of written data that are not on the device yet.
    pub fn dirty_bytes(&self) -> usize {
        self.core.data.totals.bytes()
    }

    /// Sets the callback for each inode whose content and attributes have changed although no call asked for that:
    /// written data was lost, and the file is what it was before. Caches of either must drop it. `tell` runs on any
    /// thread, under locks of the file: it must not wait, nor call this filesystem. The first callback stays.
    pub fn watch(&self, tell: impl Fn(InodeNo) + Send + Sync + 'static) {
        let _ = self.core.watcher.set(Box::new(tell));
    }

    /// Why the volume turned read-only after an error (P7), if it did.
    pub fn stop_reason(&self) -> Option<String> {
        self.core.store.stop_reason()
    }

    /// How it was mounted.
    pub fn options(&self) -> &MountOptions {
        &self.core.options
    }

    /// Stops the volume (P7): nothing is written any more, and what is in memory can be read. For a caller that has
    /// found that memory cannot be trusted, as after a panic.
    pub fn stop(&self, reason: &str) {
        self.core.store.stop(reason);
    }

    /// The present superblock.
    pub fn superblock(&self) -> holdfast_format::Superblock {
        self.core.store.superblock()
    }
}

/// Fails if a new inode could get the number of one that exists: it would replace it (P10).
fn check_next_inode(core: &Core) -> Result<()> {
    let next = core.store.superblock().inode_next;
    let mut last = InodeNo(0);
    // Items are in the order of their inodes.
    core.store.scan_back(&Key::MIN, &Key::MAX, |key, _| {
        last = key.inode;
        ControlFlow::Break(())
    })?;
    if last.0 >= next.0 {
        let why = format!("inode {last} is not below the next number {next}; run fsck");
        return Err(StoreError::Refused(why).into());
    }
    Ok(())
}

fn root((uid, gid): (u32, u32)) -> InodeItem {
    InodeItem {
        mode: FileType::Directory.mode_bits() | 0o755,
        uid,
        gid,
        nlink: 2,
        parent: InodeNo::ROOT,
        ..crate::inode::blank(FileType::Directory, Timestamp::now())
    }
}
