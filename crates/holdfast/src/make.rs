//! Making a volume, and opening one, as options say.

use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use holdfast_device::{Device, FileDevice, OpenMode};
use holdfast_posix::FileSystem;

use crate::error::{device_error, refusal, volume_error};
use crate::in_use::with_mount;
use crate::mounted::{Mount, Wanted};
use crate::options::{CreateOptions, VolumeOptions};
use crate::volume::Volume;

impl Volume {
    /// Makes a file of `size` bytes, an empty volume in it, and opens it. The file must not exist, as for
    /// [`std::fs::File::create_new`]. [`CreateOptions`] decides more.
    pub fn create_new(path: impl AsRef<Path>, size: u64) -> io::Result<Volume> {
        CreateOptions::new().size(size).create(path)
    }

    /// Opens a volume with the default [`VolumeOptions`]. After a crash this recovers it first: all
    /// promises hold again when it returns (P1 to P5, P9), in time bounded by the rings. One that is mounted here is reached through its mount, with
    /// the same promises ([`VolumeOptions::through_mount`]).
    ///
    /// # Errors
    /// `NotFound`; `ResourceBusy` if it is in use and no mount of the branch can be reached, with the holder's name, and why; `InvalidData` if it
    /// is no volume or damaged (P10).
    pub fn open(path: impl AsRef<Path>) -> io::Result<Volume> {
        VolumeOptions::new().open(path)
    }

    /// An empty volume of `size` bytes in memory, for tests and examples. It is gone when it is closed.
    pub fn in_memory(size: u64) -> io::Result<Volume> {
        let device: Arc<dyn Device> = Arc::new(holdfast_device::MemoryDevice::new(size));
        CreateOptions::new().format(&device)?;
        VolumeOptions::new().open_device(device)
    }
}

impl CreateOptions {
    /// Whether a volume of `bytes` can be made with these options: to be asked before anything is changed.
    ///
    /// # Errors
    /// `InvalidInput` when it is too small or too large.
    pub fn check_size(&self, bytes: u64) -> io::Result<()> {
        match self.mkfs.geometry(bytes) {
            Ok(_) => Ok(()),
            Err(malformed) => Err(io::Error::new(io::ErrorKind::InvalidInput, malformed.why)),
        }
    }

    /// Makes a new file with an empty volume in it and opens it. Nothing is left behind if that fails.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidInput` without a size, `StorageFull`, and what the host says.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<Volume> {
        let path = path.as_ref();
        let size = self.size.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a new volume needs a size")
        })?;
        // A user who may read this file can read every file in it.
        let options = std::fs::File::options().write(true).create_new(true).mode(0o600).clone();
        let host = options.open(path)?;
        let made = host.set_len(size).and_then(|()| open_device(path, false)).and_then(|device| {
            self.format(&device)?;
            VolumeOptions::new().open_device(device)
        });
        if made.is_err() {
            // The file was ours from the first moment, so no other process can miss it.
            let _ = std::fs::remove_file(path);
        } else {
            // The name becomes as durable as the content; a host that cannot do this is no reason to fail.
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = std::fs::File::open(dir.unwrap_or(Path::new(".")));
            let _ = dir.and_then(|dir| dir.sync_all());
        }
        made
    }

    /// Makes an empty volume on the whole device. What was there is lost: the caller has asked whether it may be.
    pub fn format(&self, device: &Arc<dyn Device>) -> io::Result<()> {
        FileSystem::mkfs(device, &self.mkfs).map_err(volume_error)
    }
}

impl VolumeOptions {
    /// Opens the volume in a file or block device, or through its mount. See [`Volume::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Volume> {
        let path = path.as_ref();
        // Looked for first: a device that is in use is waited for a while.
        let why = match self.mount_of(path) {
            Ok(mount) => return Volume::through(mount, self.caller.clone()),
            Err(why) => why,
        };
        match open_device(path, self.mount.read_only) {
            Ok(device) => self.open_device(device),
            Err(error) => Err(with_mount(path, error, why.as_deref())),
        }
    }

    /// The mount through which the volume is reached, or why there is none, if one was looked for.
    fn mount_of(&self, path: &Path) -> Result<Mount, Option<String>> {
        if !self.through_mount {
            return Err(None);
        }
        let wanted = Wanted::new(&self.mount, &self.caller);
        Mount::of(path, &wanted, self.mount.read_only).map_err(Some)
    }

    /// Opens the volume on a device of any kind.
    pub fn open_device(&self, device: Arc<dyn Device>) -> io::Result<Volume> {
        Volume::start(device, self.mount.clone(), self.caller.clone())
    }
}

/// Opens and locks the file or block device at `path`.
fn open_device(path: &Path, read_only: bool) -> io::Result<Arc<dyn Device>> {
    // Asked first, because "no such file" should say so in its kind.
    let found = std::fs::metadata(path).map_err(|error| {
        let sentence = format!("{}: {error}", path.display());
        match error.raw_os_error() {
            Some(number) => refusal(number, sentence),
            // A path with a 0 in it.
            None => io::Error::new(error.kind(), sentence),
        }
    })?;
    let mode = match read_only {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    let device = FileDevice::open(path, mode).map_err(|error| {
        let error = device_error(error);
        // The refusal of the host is a sentence by now. Its number is wanted as well: permission denied, too many open files.
        let again = || match found.file_type() {
            of if of.is_dir() => Some(libc::EISDIR),
            // Opening a fifo would wait for a process at its other end.
            of if !of.is_file() && !of.is_block_device() => None,
            _ => {
                let opened = std::fs::File::options().read(true).write(!read_only).open(path);
                opened.err().and_then(|why| why.raw_os_error())
            }
        };
        match error.kind() {
            io::ErrorKind::Other => match again() {
                Some(number) => refusal(number, error.to_string()),
                None => error,
            },
            _ => error,
        }
    })?;
    Ok(Arc::new(device))
}
