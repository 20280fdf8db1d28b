//! What programs did with a mount, on its way from the daemon to `holdfast stats`.

use holdfast::StatFs;
use holdfast_fuse::{BucketScale, Latency, Operation, Operations};
use serde::{Deserialize, Serialize};

use crate::log;
pub use crate::log::LoggedErrors;
use holdfast_service::outcome::printable;

/// The threads of rings are called so, and a number.
const RING_THREAD: &str = "holdfast-ring-";

/// What programs did since the volume was mounted, and what it holds. A daemon of another version may leave fields out.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct Activity {
    /// What the buckets mean, see [`BucketScale`].
    pub unit_ns: u64,
    /// The same.
    pub grouping_power: u8,
    /// Kinds of operations in their order, each with those buckets of its times that are not empty.
    pub operations: Vec<(String, Vec<(u32, u64)>)>,
    /// Bytes that reads returned and that writes took.
    pub read_bytes: u64,
    /// See `read_bytes`.
    pub written_bytes: u64,
    /// What fsyncs took.
    pub fsyncs: Fsyncs,
    /// What is in the volume.
    pub space: Space,
    /// Bytes of files that are not written yet.
    pub dirty_bytes: u64,
    /// How requests of the kernel come: `rings` or `device`.
    pub transport: String,
    /// Errors that the daemon has logged.
    pub errors: LoggedErrors,
}

impl Default for Activity {
    fn default() -> Activity {
        let BucketScale { unit_ns, grouping_power } = BucketScale::default();
        Activity {
            unit_ns,
            grouping_power,
            operations: Vec::new(),
            read_bytes: 0,
            written_bytes: 0,
            fsyncs: Fsyncs::default(),
            space: Space::default(),
            dirty_bytes: 0,
            transport: String::new(),
            errors: LoggedErrors::default(),
        }
    }
}

/// Totals of fsyncs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Fsyncs {
    /// All of them.
    pub count: u64,
    /// Those that had nothing to write, or failed.
    pub free: u64,
    /// Writes to the device that they made.
    pub writes: u64,
    /// Flushes of it.
    pub flushes: u64,
    /// Bytes of these writes.
    pub bytes: u64,
}

/// What is in the volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Space {
    /// Bytes that files and metadata can have.
    pub size_bytes: u64,
    /// Bytes that are in use.
    pub used_bytes: u64,
    /// Bytes that programs can still write.
    pub available_bytes: u64,
    /// Files, directories and all else that has an inode.
    pub files: u64,
}

impl Activity {
    /// What there is to say now.
    pub(crate) fn now(operations: &Operations, space: &StatFs, dirty_bytes: u64) -> Activity {
        let of = |kind: &Operation| (kind.name().into(), operations.latency(*kind).buckets());
        let fsyncs = &operations.fsyncs;
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        Activity {
            operations: Operation::ALL.iter().map(of).collect(),
            read_bytes: operations.read_bytes.get(),
            written_bytes: operations.written_bytes.get(),
            fsyncs: Fsyncs {
                // Before the count, which is raised first: or more could be free than there were.
                free: fsyncs.free.get(),
                count: fsyncs.count.get(),
                writes: fsyncs.writes.get(),
                flushes: fsyncs.flushes.get(),
                bytes: fsyncs.bytes.get(),
            },
            space: Space {
                size_bytes: bytes(space.blocks),
                used_bytes: bytes(space.blocks.saturating_sub(space.blocks_free)),
                available_bytes: bytes(space.blocks_available),
                files: space.inodes.saturating_sub(space.inodes_free),
            },
            dirty_bytes,
            transport: transport().into(),
            errors: log::errors(),
            ..Activity::default()
        }
    }

    fn scale(&self) -> BucketScale {
        BucketScale { unit_ns: self.unit_ns, grouping_power: self.grouping_power }
    }

    /// Half as many buckets, each twice as wide; false if there are no fewer.
    pub(crate) fn coarsen(&mut self) -> bool {
        let Some(power) = self.grouping_power.checked_sub(1) else { return false };
        let scale = self.scale();
        for (_, buckets) in &mut self.operations {
            if let Some(coarser) = Latency::from_buckets(scale, buckets).coarser(power) {
                *buckets = coarser.buckets();
            }
        }
        self.grouping_power = power;
        true
    }

    /// The times of the operations of a kind.
    pub fn latency(&self, kind: &str) -> Latency {
        let found = self.operations.iter().find(|(name, _)| name == kind);
        Latency::from_buckets(self.scale(), found.map_or(&[], |(_, buckets)| buckets))
    }

    /// What a stranger sent can be shown.
    pub(crate) fn make_printable(&mut self) {
        let names = self.operations.iter_mut().map(|(name, _)| name);
        for text in names.chain([&mut self.transport]).chain(&mut self.errors.last) {
            *text = printable(text).into_owned();
        }
    }
}

/// How requests come to this process: only its threads tell, since the kernel may refuse rings late.
pub(super) fn transport() -> &'static str {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return "device" };
    let has_rings = threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.starts_with(RING_THREAD))
    });
    if has_rings { "rings" } else { "device" }
}
