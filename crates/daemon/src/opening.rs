//! Opening the file of a volume that another process may hold, and what is said of one that does not open.

use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast::device::{Device, DeviceError, FileDevice, OpenMode};
use holdfast::{Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;
use holdfast_service::outcome::{Context, Failure, plain_words};
use holdfast_service::size;

use crate::control_socket;
use crate::mounts::processes::{command_of, is_ending};
use crate::mounts::{self, Mount};

/// How long to wait for a daemon that is closing the volume.
const CLOSING_MAX: Duration = Duration::from_secs(120);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes below which a larger volume would have no block more.
const GROWS_BY: u64 = 64 << 10;

/// Opens and locks a file or block device.
pub fn open_device(path: &Path, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
    let opened = open_file(path, read_only);
    opened.map(|device| device as Arc<dyn Device>).map_err(|failure| failure.with_code(1))
}

/// The code of a failure of [`open_file`] because another process has the volume open.
pub const IN_USE: u8 = 75;

/// As [`open_device`].
pub fn open_file(path: &Path, read_only: bool) -> Result<Arc<FileDevice>, Failure> {
    let found = std::fs::metadata(path).context(path.display())?;
    if found.is_dir() {
        return Err(Failure::plain(format!("{} is a directory", path.display())));
    }
    let mode = match read_only {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    patiently(|| FileDevice::open(path, mode), || holder(path)).map(Arc::new)
}

/// The holder of a volume that could not be locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A daemon without a mount: umount(8) has returned, and the daemon still writes what it holds, or it has not mounted yet. Both end
    /// soon, and then the answer is another one.
    Closing,
    /// Not to be seen: it has just let go, or is in another pid namespace.
    Unseen,
    Other,
}

/// Opens by `open`, which is tried again while `holder` says that the volume is about to be free.
fn patiently<T>(
    mut open: impl FnMut() -> Result<T, DeviceError>,
    mut holder: impl FnMut() -> Holder,
) -> Result<T, Failure> {
    let since = Stopwatch::start();
    let mut was_unseen = false;
    loop {
        let error = match open() {
            Ok(device) => return Ok(device),
            Err(error @ DeviceError::InUse { .. }) => error,
            Err(error) => return Err(Failure::plain(error.to_string())),
        };
        match holder() {
            Holder::Closing if since.elapsed() < CLOSING_MAX => was_unseen = false,
            // A holder that let go is not there the next time either.
            Holder::Unseen if !was_unseen => was_unseen = true,
            _ => return Err(Failure::new(IN_USE, error.to_string())),
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a supervisor has opened and locked for this process.
pub(crate) fn inherited(
    locked: (OwnedFd, Vec<OwnedFd>),
    path: &Path,
    read_only: bool,
) -> Result<Arc<FileDevice>, Failure> {
    let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let opened = FileDevice::inherited(locked, path, mode);
    opened.map(Arc::new).map_err(|error| Failure::plain(error.to_string()))
}

/// See [`Holder`].
fn holder(path: &Path) -> Holder {
    match holdfast_device::holding_process(path) {
        None => Holder::Unseen,
        Some(pid) if is_ending(pid) || is_without_a_mount(path, pid) => Holder::Closing,
        Some(_) => Holder::Other,
    }
}

/// Whether a process is a daemon that has no mount of the volume at `path`, and does not linger.
fn is_without_a_mount(path: &Path, pid: u32) -> bool {
    if command_of(&pid.to_string()).as_deref() != Some(b"mount") {
        return false;
    }
    // In the namespace of the daemon, or here if this user may not look there.
    let text = std::fs::read(format!("/proc/{pid}/mountinfo"))
        .or_else(|_| std::fs::read("/proc/self/mountinfo"))
        .unwrap_or_default();
    // A volume that cannot be seen may be this one, unless the kernel says whose mount it is. That alone is not enough: another mount
    // may have the number of one that is gone.
    let connections = connections(pid);
    let may_be_this = |mount: &Mount| {
        let is_of_daemon = connections.as_ref().is_none_or(|all| all.contains(&mount.device));
        is_of_daemon && file_id(&mount.source).is_none_or(|other| Some(other) == file_id(path))
    };
    !mounts::parse(&text).iter().any(may_be_this) && !control_socket::lingers(path)
}

/// The device and the inode that a path leads to.
pub fn file_id(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether no other user has made what was found.
pub fn is_ours(found: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&found.uid())
}

/// The devices of the mounts that a process serves, as a list of mounts names them. `None`: the kernel says nothing of that, as older ones do,
/// or not to this user.
fn connections(pid: u32) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let is_fuse = std::fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse"));
        if !is_fuse {
            continue;
        }
        let number = entry.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", number.to_str()?);
        let info = std::fs::read_to_string(info).ok()?;
        let said = info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
        let connection: u32 = said.trim().parse().ok()?;
        found.push(format!("0:{connection}"));
    }
    Some(found)
}

/// Opens the volume in a file or block device.
pub fn open_volume(
    path: &Path,
    options: &VolumeOptions,
    read_only: bool,
) -> Result<Volume, Failure> {
    let device = open_device(path, read_only)?;
    options
        .clone()
        .read_only(read_only)
        .open_device(device.clone())
        .map_err(|error| not_opened(path, &*device, &error))
}

/// The sentence for a volume that does not open: what it is if it is something else, otherwise why.
pub(crate) fn not_opened(path: &Path, device: &dyn Device, error: &io::Error) -> Failure {
    match foreign(device).filter(|_| holdfast_check::probe(device).is_none()) {
        Some(kind) => not_ours(path, Some(kind)),
        None => Failure::plain(format!("{}: {}", path.display(), plain_words(error))),
    }
}

/// The sentence for a device without a valid superblock: what it holds instead, or what to do with an older volume.
pub fn no_volume(path: &Path, device: &dyn Device) -> Failure {
    let shown = path.display();
    match holdfast_check::older(device) {
        Some(older) => Failure::plain(format!("{shown}: {older}")),
        None if holdfast_check::has_far_copy_alone(device) => Failure::plain(format!(
            "{shown}: both superblocks are damaged, but the far copy is whole: `holdfast fsck -y` writes it back"
        )),
        None => not_ours(path, foreign(device)),
    }
}

/// What a device without a valid superblock holds instead of a volume, as far as it can be recognised.
pub fn foreign(device: &dyn Device) -> Option<&'static str> {
    holdfast_check::identify(device).filter(|kind| *kind != holdfast_check::OURS)
}

/// The sentence for what is no volume, or one without a valid superblock.
pub(crate) fn not_ours(path: &Path, foreign: Option<&str>) -> Failure {
    let shown = path.display();
    match foreign {
        Some(kind) => Failure::plain(format!("{shown}: not a Holdfast volume, but {kind}")),
        None => {
            let why = format!("{shown}: not a Holdfast volume, or both superblocks are damaged");
            Failure::plain(why).with_hint_about("holdfast salvage --list", path)
        }
    }
}

/// What to do about a file or device that is larger than the volume in it, by hand, by its volume manager, or by a `resize` that was cut
/// short; `None` if nothing is gained.
pub fn growth(path: &Path, device_bytes: u64, volume_bytes: u64) -> Option<String> {
    let more = device_bytes.checked_sub(volume_bytes)?;
    (more >= GROWS_BY).then(|| {
        let (path, has) = (path.display(), size::show(device_bytes));
        format!("{path} has {has}, more than the volume: `holdfast resize {path} max` uses that")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon may let go between the attempt to lock and the look for its holder.
    #[test]
    fn a_volume_that_nobody_is_seen_to_have_is_tried_once_more() {
        let attempts = |free_after: usize, holders: &[Holder]| {
            let (mut attempts, mut holders) = (0, holders.iter().copied());
            let open = || {
                attempts += 1;
                let (path, holder) = ("v".into(), "another program".into());
                if attempts > free_after {
                    Ok(())
                } else {
                    Err(DeviceError::InUse { path, holder })
                }
            };
            let opened = patiently(open, || holders.next().expect("nobody asks again"));
            (attempts, opened.map_err(|failure| failure.code))
        };
        use Holder::{Closing, Other, Unseen};
        assert_eq!(attempts(1, &[Unseen]), (2, Ok(())));
        assert_eq!(attempts(4, &[Unseen, Closing, Closing, Unseen]), (5, Ok(())));
        // One of another pid namespace is never seen.
        assert_eq!(attempts(9, &[Unseen, Unseen]), (2, Err(IN_USE)));
        assert_eq!(attempts(9, &[Other]), (1, Err(IN_USE)));
    }

    #[test]
    fn only_what_is_worth_it_is_told() {
        let path = Path::new("v.img");
        assert_eq!(growth(path, 1 << 30, 1 << 30), None);
        assert_eq!(growth(path, 1 << 29, 1 << 30), None, "cut short is told elsewhere");
        assert_eq!(growth(path, (1 << 30) + 4096, 1 << 30), None);
        let told = growth(path, 2 << 30, 1 << 30).unwrap();
        assert!(told.contains("2.0 GiB") && told.contains("resize v.img max"), "{told}");
    }
}
