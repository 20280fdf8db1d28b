//! What programs did with a mount, on its way from the daemon to `holdfast stats`.

use holdfast::StatFs;
use holdfast_fuse::{Latency, Operation, Operations};
use serde::{Deserialize, Serialize};

use super::log::{self, Logged};
use crate::outcome::printable;

/// The threads of rings are called so, and a number.
const RING_THREAD: &str = "holdfast-ring-";

/// What programs did since the volume was mounted, and what it holds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Activity {
    /// Kinds of operations in their order, each with those buckets of its times that are not empty.
    pub(crate) operations: Vec<(String, Vec<(u32, u64)>)>,
    /// Bytes that reads returned and that writes took.
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) fsyncs: Fsyncs,
    pub(crate) space: Space,
    /// How requests of the kernel come: `rings` or `device`.
    pub(crate) transport: String,
    pub(crate) errors: Logged,
}

/// Totals of fsyncs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Fsyncs {
    pub(crate) count: u64,
    /// Those that had nothing to write, or failed.
    pub(crate) free: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    pub(crate) bytes: u64,
}

/// What is in the volume.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Space {
    pub(crate) size_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) available_bytes: u64,
    /// Files, directories and all else that has an inode.
    pub(crate) files: u64,
}

impl Activity {
    /// What there is to say now.
    pub(crate) fn now(operations: &Operations, space: &StatFs) -> Activity {
        let of = |kind: &Operation| (kind.name().into(), operations.latency(*kind).buckets());
        let fsyncs = &operations.fsyncs;
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        Activity {
            operations: Operation::ALL.iter().map(of).collect(),
            read_bytes: operations.read_bytes.get(),
            written_bytes: operations.written_bytes.get(),
            fsyncs: Fsyncs {
                count: fsyncs.count.get(),
                free: fsyncs.free.get(),
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
            transport: transport().into(),
            errors: log::errors(),
        }
    }

    /// The times of the operations of a kind.
    pub(crate) fn latency(&self, kind: &str) -> Latency {
        let found = self.operations.iter().find(|(name, _)| name == kind);
        Latency::from_buckets(found.map_or(&[], |(_, buckets)| buckets))
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
