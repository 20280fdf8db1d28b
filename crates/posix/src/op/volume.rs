//! Making, mounting and leaving a volume.

use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{InodeNo, Lsn, Timestamp, prng};
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::superblock::LABEL_MAX;
use holdfast_format::{Geometry, Key};
use holdfast_store::{
    CreateOptions, Device, Guarding, Identity, OpenOptions, Store, StoreError, Transaction, page,
    restore_superblock,
};
use uuid::Uuid;

use crate::data::complete::Completer;
use crate::open_volume::OpenVolume;
use crate::volume::Volume;
use crate::*;

/// Zeros that are written at a time.
const ZEROS_BYTES: usize = 1 << 20;

impl FileSystem {
    /// Makes an empty volume with a root directory (mode 755).
    pub fn mkfs(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<()> {
        if options.label.len() > LABEL_MAX {
            return Err(FsError::Invalid("the label is longer than 64 bytes"));
        }
        let geometry = options.geometry(options.bytes.unwrap_or(device.len()));
        let geometry = geometry.map_err(|why| StoreError::Refused(why.to_string()))?;
        if options.allocate {
            allocate(&**device, &geometry)?;
        }
        // What is not written costs only a host that gives space as it is asked for.
        let is_sparse = device.room().is_some();
        let create = CreateOptions {
            geometry: if is_sparse { geometry.with_first_rings() } else { geometry },
            uuid: options.uuid.map_or_else(Uuid::new_v4, Uuid::from_bytes),
            label: options.label.clone(),
            hash_seed: prng::entropy(),
            node_tag: prng::entropy().to_le_bytes(),
            created: Timestamp::now(),
        };
        let mut first = Transaction::new();
        first.put(Key::inode(InodeNo::ROOT), root(options.owner, options.root_mode).encode());
        first.count_inodes(1);
        Store::create_with(device, &create, first)?;
        Ok(())
    }

    /// Opens the store and the branch or snapshot of it that `options` name; see [`FileSystem::open_branch`].
    pub fn mount(device: Arc<dyn Device>, options: MountOptions) -> Result<FileSystem> {
        let counters = Arc::new(Counters::default());
        let open = OpenOptions {
            read_only: options.read_only,
            cache_bytes: options.cache_bytes,
            bitmaps: options.bitmaps,
            dirty: options.dirty,
            accounting: options.accounting,
            batching: options.batching,
            recover: options.recover,
            threads: options.threads,
            guard: Guarding::default(),
            discard: options.discard,
            discard_delay: options.discard_delay,
        };
        let store = Arc::new(Store::open(device, &open, counters.clone())?);
        // From here on changes are made, with numbers of those that were lost.
        if let Some(recovered) = &options.recovered {
            recovered.tell(store.recovered());
        }
        let volume = Volume::new(store, counters, options.clone());
        FileSystem::first(volume, options)
    }

    /// Writes everything and makes it durable; with the last branch that is open, ends the volume and its threads. Dropping
    /// without this is like a crash.
    ///
    /// Files that are still open are of no use afterwards; those without a name are removed.
    pub fn unmount(self) -> Result<()> {
        let FileSystem { core, background, completer, volume, pin } = self;
        drop(background);
        let written = if core.options.read_only {
            Ok(())
        } else {
            orphan::collect_all(&core)
                .and_then(|()| atime::write_all(&core))
                .and_then(|()| core.commit())
        };
        // Until here it counts as open: nothing opens it, or rolls it back, beside what it still writes. What has closed its gate
        // knows that it stays open.
        {
            let _inside = core.gate.enter();
            volume.volume.closed(&core);
        }
        volume.volume.wait_for_visit();
        Completer::end(completer);
        let mut core = core;
        let core = loop {
            // A handle that is just being dropped holds the branch for a moment.
            match Arc::try_unwrap(core) {
                Ok(core) => break core,
                Err(shared) => core = shared,
            }
            holdfast_sync::thread::yield_now();
        };
        drop(core);
        if let Some(pin) = pin {
            drop(pin);
            volume.volume.go_on_with_deletions();
        }
        let closed = Arc::into_inner(volume).map_or(Ok(()), OpenVolume::close);
        // After this, no thread is left to give it back step by step.
        page::give_back();
        written?;
        closed
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

    /// Makes the volume larger, with what holds it, and returns the bytes that it has then. All of its branches go on meanwhile.
    pub fn resize(&self, to: NewSize) -> Result<u64> {
        Ok(self.core.store.resize(to)?)
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

    /// Gives all free space in ranges of `least` bytes or more back to the device, or to the host of an image. `progress` hears
    /// how far that is, and says whether to go on.
    pub fn trim(&self, least: u64, progress: impl FnMut(&Trimmed) -> bool) -> Result<Trimmed> {
        self.trim_part(0..u64::MAX, least, progress)
    }

    /// As [`FileSystem::trim`], of those 128 MiB of the volume that begin in `part` of its bytes.
    pub fn trim_part(
        &self,
        part: std::ops::Range<u64>,
        least: u64,
        progress: impl FnMut(&Trimmed) -> bool,
    ) -> Result<Trimmed> {
        // What waits for a commit, or as a node for a checkpoint, is free then.
        self.core.store.checkpoint()?;
        self.core.store.trim_part(part, least, progress).map_err(|error| match error {
            StoreError::Device(error) if error.is_unsupported() => FsError::NotSupported,
            error => error.into(),
        })
    }

    /// Bytes that the host has given to an image; `None` if it has given all, or is no file.
    pub fn given(&self) -> Option<u64> {
        let device = self.core.store.device();
        device.room().map(|_| device.given())
    }

    /// Waits until nothing that became free is on its way back to the device by itself.
    pub fn wait_for_discards(&self) {
        self.core.store.wait_for_discards();
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

    /// The same, with the moment.
    pub fn stopped(&self) -> Option<(Timestamp, String)> {
        self.core.store.stopped_since().zip(self.core.store.stop_reason())
    }

    /// What is missing of its last state, if it is damaged and was opened to be read.
    pub fn missing(&self) -> Option<&str> {
        self.core.store.missing()
    }

    /// The last change that was there when the volume was opened: of those that a crash may have taken, all up to this one are
    /// there, and none behind it (P3).
    pub fn recovered(&self) -> Lsn {
        self.core.store.recovered()
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

/// Takes all of an image from its host, and writes the log: a host that must turn reserved blocks into written ones under
/// an fsync makes two flushes of one.
fn allocate(device: &dyn Device, geometry: &Geometry) -> Result<()> {
    device.take_room(0, device.len()).map_err(StoreError::from)?;
    if device.room().is_some() {
        let why =
            "the host of the image gives no space ahead of need; make the volume without that";
        return Err(StoreError::Refused(why.into()).into());
    }
    let zeros = vec![0; ZEROS_BYTES];
    for log in geometry.places_of_ring(geometry.log()) {
        let (start, len) = (log.start.0 * BLOCK_BYTES, log.count * BLOCK_BYTES);
        for at in (0..len).step_by(ZEROS_BYTES) {
            let part = (len - at).min(ZEROS_BYTES as u64) as usize;
            device.write(start + at, &zeros[..part]).map_err(StoreError::from)?;
        }
    }
    Ok(())
}

/// The root directory of a new tree.
pub(super) fn root((uid, gid): (u32, u32), mode: u32) -> InodeItem {
    InodeItem {
        mode: FileType::Directory.mode_bits() | mode & 0o7777,
        uid,
        gid,
        nlink: 2,
        parent: InodeNo::ROOT,
        ..InodeItem::blank(FileType::Directory, Timestamp::now())
    }
}
