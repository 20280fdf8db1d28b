//! A volume that stays open, whichever of its branches are open.

use std::io;

use holdfast_base::Timestamp;

use crate::error::volume_error;
use crate::options::VolumeOptions;
use crate::volume::{Volume, VolumeInfo};

/// A volume that stays open when its last branch is closed, so that others can be opened: for a server of many branches.
///
/// ```
/// use holdfast::{Volume, VolumeOptions};
///
/// # fn main() -> std::io::Result<()> {
/// let main = Volume::in_memory(64 << 20)?;
/// main.create_branch("work")?;
/// let kept = main.keep()?;
/// main.close()?;
/// let (work, _) = kept.find(&VolumeOptions::new().branch("work"))?;
/// let work = kept.open(work, &VolumeOptions::new())?;
/// work.write("/notes", b"as before")?;
/// work.close()?;
/// kept.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KeptVolume(holdfast_posix::Keeper);

impl Volume {
    /// Keeps the volume open until [`KeptVolume::close`].
    pub fn keep(&self) -> io::Result<KeptVolume> {
        self.shared().takes_the_volume("to keep it open", "its daemon does")?;
        self.shared().with_volume(|fs| Ok(KeptVolume(fs.keep())))
    }
}

impl KeptVolume {
    /// The numbers of the branch that `options` name, and of the snapshot of it.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn find(&self, options: &VolumeOptions) -> io::Result<(u64, Option<u64>)> {
        let (branch, snapshot) = (&options.mount.branch, &options.mount.snapshot);
        self.0.find(branch.as_deref(), snapshot.as_deref()).map_err(volume_error)
    }

    /// What the volume is: id, label, sizes.
    pub fn info(&self) -> VolumeInfo {
        VolumeInfo::of(self.0.superblock())
    }

    /// When and why the volume turned read-only, if a write or flush failed (P7).
    pub fn stopped(&self) -> Option<(Timestamp, String)> {
        self.0.stopped()
    }

    /// Opens the branch or snapshot of this number, whatever `options` name. What they say of the whole device is settled.
    ///
    /// # Errors
    /// `ResourceBusy` if it is a branch that is open, `NotFound` if it is there no more.
    pub fn open(&self, number: u64, options: &VolumeOptions) -> io::Result<Volume> {
        let fs = self.0.open(number, options.mount.clone()).map_err(volume_error)?;
        Volume::over(fs, options.caller.clone())
    }

    /// A view of the branch of this number as it is now, or of the snapshot of it, as of [`Branch::view`](crate::Branch::view).
    ///
    /// # Errors
    /// `NotFound` if it is there no more.
    pub fn view(
        &self,
        (branch, snapshot): (u64, Option<u64>),
        options: &VolumeOptions,
    ) -> io::Result<Volume> {
        let fs = self.0.view(branch, snapshot, options.mount.clone()).map_err(volume_error)?;
        Volume::over(fs, options.caller.clone())
    }

    /// The volume as a whole, for calls that are about no branch. It keeps no moment of one: what it shows of the first branch goes on
    /// changing, and others may have it open.
    pub fn door(&self, options: &VolumeOptions) -> io::Result<Volume> {
        let fs = self.0.door(options.mount.clone()).map_err(volume_error)?;
        Volume::over(fs, options.caller.clone())
    }

    /// Makes everything durable and releases the device; if branches are still open, the last of them does.
    ///
    /// # Errors
    /// What could not be made durable is lost; what was fsynced before is not (P1).
    pub fn close(self) -> io::Result<()> {
        self.0.close().map_err(volume_error)
    }
}
