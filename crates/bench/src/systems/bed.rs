//! The ground on which every filesystem is tested: a file that was written before, or a loop device over one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_device::DeviceStats;
use tempfile::TempDir;

use super::{meter, patiently};
use crate::undo::{Undo, run};
use crate::work::{named, zeros};

/// A place for one volume after the other. It is gone when this is dropped.
pub struct Bed {
    // The device first: it is dropped before its file.
    _attached: Option<Undo>,
    place: TempDir,
    device: PathBuf,
    bytes: u64,
    is_direct: bool,
}

impl Bed {
    /// A file of `bytes` bytes in a new directory of `dir`, written from end to end.
    pub fn file(dir: &Path, bytes: u64) -> io::Result<Bed> {
        let place = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(dir);
        let place = place.map_err(|error| named(dir, &error))?;
        let device = place.path().join("volume");
        zeros(&device, bytes)?;
        for mount in ["mnt", "below"] {
            std::fs::create_dir(place.path().join(mount))?;
        }
        Ok(Bed { _attached: None, place, device, bytes, is_direct: false })
    }

    /// A loop device with direct I/O over such a file, with sectors of `sector` bytes.
    pub fn new(dir: &Path, bytes: u64, sector: u32) -> io::Result<Bed> {
        let mut bed = Bed::file(dir, bytes)?;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]);
        let attach = attach.arg(format!("--sector-size={sector}")).arg(&bed.device);
        bed.device = PathBuf::from(run(attach)?.trim());
        let (device, attached) = (bed.device.clone(), bed.sys("loop/backing_file"));
        bed._attached = Some(Undo::new(move || {
            run(Command::new("losetup").arg("--detach").arg(device))?;
            // A device that is still used is detached by its last user.
            patiently(|| Ok(!attached.exists())).map(drop)
        }));
        bed.is_direct = std::fs::read_to_string(bed.sys("loop/dio"))?.trim() == "1";
        // A discard would make holes in the file, which the host fills again during an fsync. If this
        // fails, the device has no discards anyway.
        let _ = std::fs::write(bed.sys("queue/discard_max_bytes"), "0");
        Ok(bed)
    }

    /// The file, or the loop device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An empty directory to mount in.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    /// Another one, for what something else is mounted over.
    pub(super) fn below(&self) -> PathBuf {
        self.place.path().join("below")
    }

    /// What the loop device was asked so far.
    pub fn asked(&self) -> io::Result<DeviceStats> {
        meter::asked(&self.sys(""))
    }

    /// What it is, in a sentence for the head of a report.
    pub fn about(&self) -> String {
        let read = |what: &str| std::fs::read_to_string(self.sys(what)).unwrap_or_default();
        let sector = read("queue/logical_block_size");
        let cache = read("queue/write_cache");
        let fua = if read("queue/fua").trim() == "1" { "with FUA" } else { "no FUA" };
        let direct = if self.is_direct { "direct I/O" } else { "NO direct I/O" };
        format!(
            "a loop device of {} with {direct}, sectors of {} bytes, {} cache, {fua}, over a file that was written before",
            holdfast_base::show::bytes(self.bytes),
            sector.trim(),
            cache.trim()
        )
    }

    fn sys(&self, what: &str) -> PathBuf {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join(what)
    }
}
