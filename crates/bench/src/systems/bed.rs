//! The ground on which every filesystem is tested: a loop device over a file that was written before.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cleanup::{Cleanup, CleanupGuard, interrupted, run};
use super::meter::Blocks;

/// Bytes of zeros that are written at once.
const CHUNK: usize = 4 << 20;

/// A loop device with direct I/O over a file of its own. Both are gone when it is dropped.
#[derive(Debug)]
pub struct Bed {
    // The device first: it is dropped before its file.
    _attached: CleanupGuard,
    _file: CleanupGuard,
    device: PathBuf,
    dir: PathBuf,
    bytes: u64,
    is_direct: bool,
}

impl Bed {
    /// A device of `bytes` bytes with sectors of `sector` bytes, its file in `dir`, written from end to end.
    pub fn new(dir: &Path, bytes: u64, sector: u32) -> io::Result<Bed> {
        let path = dir.join(format!("holdfast-bench-{}.img", std::process::id()));
        let (mut file, file_guard) = CleanupGuard::make(|| {
            let mut options = std::fs::File::options();
            let file = options.write(true).create_new(true).mode(0o600).open(&path);
            Ok((file.map_err(|error| named(&path, error))?, Cleanup::File(path.clone())))
        })?;
        let zeros = vec![0; CHUNK];
        let mut left = bytes;
        while left > 0 {
            interrupted()?;
            let len = left.min(CHUNK as u64);
            file.write_all(&zeros[..len as usize]).map_err(|error| named(&path, error))?;
            left -= len;
        }
        file.sync_all()?;
        drop(file);
        let (device, attached) = CleanupGuard::make(|| {
            let mut command = Command::new("losetup");
            command.args(["--find", "--show", "--direct-io=on"]);
            command.arg(format!("--sector-size={sector}")).arg(&path);
            let device = PathBuf::from(run(&mut command)?.trim());
            Ok((device.clone(), Cleanup::Loop(device)))
        })?;
        let mut bed = Bed {
            _attached: attached,
            _file: file_guard,
            device,
            dir: dir.to_path_buf(),
            bytes,
            is_direct: false,
        };
        bed.is_direct = std::fs::read_to_string(bed.sys("loop/dio"))?.trim() == "1";
        // A discard would make holes in the file, which the host fills again during an fsync. If this
        // fails, the device has no discards anyway.
        let _ = std::fs::write(bed.sys("queue/discard_max_bytes"), "0");
        Ok(bed)
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The directory in which its file is; mount points are made there too.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it was asked for so far.
    pub fn blocks(&self) -> io::Result<Blocks> {
        Blocks::of(&self.name())
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

    fn name(&self) -> String {
        self.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn sys(&self, what: &str) -> PathBuf {
        Path::new("/sys/block").join(self.name()).join(what)
    }
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
