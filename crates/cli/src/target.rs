//! Volumes named on the command line, and paths inside them: `IMAGE:/path`, and the same in a branch or snapshot:
//! `IMAGE:BRANCH:/path`, `IMAGE@SNAPSHOT:/path`, `IMAGE:BRANCH@SNAPSHOT:/path`.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast::device::{Device, DeviceError, FileDevice, OpenMode};
use holdfast::{Volume, VolumeOptions};
use holdfast_base::clock::Stopwatch;

use crate::branches::Place;
use crate::branches::place::holds_bytes;
use crate::control_socket;
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure};
use crate::peek::Peek;
use crate::processes::{command_of, is_ending};

/// How long to wait for a daemon that is closing the volume.
const CLOSING_MAX: Duration = Duration::from_secs(120);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// What help says of paths.
pub(crate) const PATHS: &str = "\
A path in a volume is written IMAGE:/path, where IMAGE is a file or a block device. A branch, a
snapshot or both may stand before the second colon, otherwise `main` is meant:
  data.holdfast:/etc/fstab
  data.holdfast:work:/etc/fstab
  data.holdfast@before-upgrade:/etc/fstab
  data.holdfast:work@monday:/etc/fstab
A file of the whole name wins. A directory where something is mounted may stand for IMAGE.";

/// A path, in a volume or on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path on the host.
    Host(PathBuf),
    /// A path inside the volume in a file or block device.
    Inside {
        /// The file or block device, and the branch or snapshot in it.
        place: Place,
        /// The path, from the root of the branch or snapshot.
        path: PathBuf,
    },
}

impl Target {
    /// Reads `IMAGE:/path`, where IMAGE is a file or block device that exists, maybe with a branch and a snapshot behind
    /// it; everything else is a host path. An existing path of the whole name wins, and so does an existing image: a host
    /// path with a colon after an existing file can be written as an existing path or with `./`.
    pub fn parse(text: impl AsRef<OsStr>) -> Target {
        let text = text.as_ref();
        let bytes = text.as_bytes();
        if !bytes.contains(&b':') || Path::new(text).symlink_metadata().is_ok() {
            return Target::Host(text.into());
        }
        let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':');
        for (at, _) in colons {
            let [head, path] = [&bytes[..at], &bytes[at + 1..]].map(OsStr::from_bytes);
            if !path.is_empty() && !path.as_bytes().starts_with(b"/") {
                continue;
            }
            let place = Place::parse(head);
            if holds_bytes(&place.path) || is_mounted(&place.path) {
                return Target::Inside { place, path: Path::new("/").join(path) };
            }
        }
        Target::Host(text.into())
    }

    /// As [`Target::parse`], for commands that take paths of the host as well: `IMAGE:name`, where IMAGE is or shows a volume and no file has
    /// the whole name, is an error. It would read or make a file of the host that is hardly meant; `./` or `//` in front says
    /// that it is meant.
    pub fn on_either_side(text: impl AsRef<OsStr>) -> Result<Target, Failure> {
        let target = Target::parse(&text);
        let Target::Host(host) = &target else { return Ok(target) };
        let bytes = host.as_os_str().as_bytes();
        let is_meant = bytes.starts_with(b"./") || bytes.starts_with(b"//");
        if is_meant || host.symlink_metadata().is_ok() {
            return Ok(target);
        }
        // The last one first: what stands between is a branch.
        for at in (0..bytes.len()).rev().filter(|at| bytes[*at] == b':') {
            let [head, name] = [&bytes[..at], &bytes[at + 1..]].map(OsStr::from_bytes);
            if has_volume(&Place::parse(head).path) {
                let as_host = if host.is_absolute() { "/" } else { "./" };
                let [head, name, text] = [head, name, host.as_os_str()].map(OsStr::display);
                return Err(Failure::plain(format!(
                    "{text} is no path in a volume: write {head}:/{name}; for a file of the host with this name, {as_host}{text}"
                )));
            }
        }
        expect_image(host)?;
        Ok(target)
    }

    /// The place and the path in it. Like [`Target::parse`], and a place alone means its root.
    pub fn inside(text: impl AsRef<OsStr>) -> Result<(Place, PathBuf), Failure> {
        let text = text.as_ref();
        match Target::parse(text) {
            Target::Inside { place, path } => Ok((place, path)),
            Target::Host(host) => {
                let place = Place::parse(host.as_os_str());
                if holds_bytes(&place.path) || is_mounted(&place.path) {
                    return Ok((place, "/".into()));
                }
                // Say what is missing: the image, or the colon.
                let bytes = text.as_bytes();
                let end = bytes.windows(2).position(|two| two == b":/").unwrap_or(bytes.len());
                let image = Path::new(OsStr::from_bytes(&bytes[..end]));
                std::fs::metadata(image).context(image.display())?;
                Err(Failure::plain(format!(
                    "{} is not a volume; write IMAGE:/path",
                    host.display()
                )))
            }
        }
    }
}

/// Fails if a path of the host that is not there, nor could be made, looks like one in a volume: says what of that is missing.
fn expect_image(host: &Path) -> Result<(), Failure> {
    let bytes = host.as_os_str().as_bytes();
    let Some(at) = bytes.windows(2).position(|two| two == b":/") else { return Ok(()) };
    let [image, first] = [&bytes[..at], &bytes[..=at]].map(OsStr::from_bytes).map(Path::new);
    // A directory of the host may have such a name.
    if image.as_os_str().is_empty() || first.symlink_metadata().is_ok() {
        return Ok(());
    }
    let [shown, text] = [image, host].map(Path::display);
    match std::fs::metadata(image) {
        Ok(found) if found.is_dir() => {
            Err(Failure::plain(format!("{text}: {shown} is not a mounted Holdfast volume")))
        }
        Ok(_) => Err(Failure::plain(format!("{text}: {shown} is not a volume"))),
        Err(error) => {
            let why = crate::outcome::plain_words(&error);
            Err(Failure::plain(format!("{text}: the image {shown} is missing: {why}")))
        }
    }
}

/// Whether there is a volume in a file or block device, or mounted at a directory.
fn has_volume(path: &Path) -> bool {
    holds_volume(path) || is_mounted(path)
}

/// Whether a file or block device is a volume.
pub(crate) fn holds_volume(path: &Path) -> bool {
    Peek::open(path).is_ok_and(|device| holdfast_check::newest_superblock(&device).is_some())
}

/// Whether a volume is mounted at a directory.
fn is_mounted(path: &Path) -> bool {
    path.is_dir()
        && matches!(mounts::find(path), Ok(Some(mount)) if mount.dir == mounts::real_path(path))
}

/// Opens and locks a file or block device.
pub(crate) fn open_device(path: &Path, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
    let opened = open_file(path, read_only);
    opened.map(|device| device as Arc<dyn Device>).map_err(|failure| failure.with_code(1))
}

/// The code of a failure of [`open_file`] because another process has the volume open.
pub(crate) const IN_USE: u8 = 75;

/// As [`open_device`].
pub(crate) fn open_file(path: &Path, read_only: bool) -> Result<Arc<FileDevice>, Failure> {
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
pub(crate) fn file_id(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
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
pub(crate) fn open_volume(
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

/// Opens what stands in front of a path: a volume, or a branch or snapshot of it.
pub(crate) fn open_place(place: &Place, read_only: bool) -> Result<Volume, Failure> {
    let mut options = VolumeOptions::new();
    if let Some(branch) = &place.branch {
        options = options.branch(branch.utf8()?);
    }
    if let Some(snapshot) = &place.snapshot {
        options = options.snapshot(snapshot.utf8()?);
    }
    open_volume(&place.path, &options, read_only)
}

/// The sentence for a volume that does not open: what it is if it is something else, otherwise why.
pub(crate) fn not_opened(path: &Path, device: &dyn Device, error: &io::Error) -> Failure {
    match foreign(device).filter(|_| holdfast_check::probe(device).is_none()) {
        Some(kind) => not_ours(path, Some(kind)),
        None => {
            Failure::plain(format!("{}: {}", path.display(), crate::outcome::plain_words(error)))
        }
    }
}

/// The sentence for a device without a valid superblock: what it holds instead, or what to do with an older volume.
pub(crate) fn no_volume(path: &Path, device: &dyn Device) -> Failure {
    match holdfast_check::older(device) {
        Some(older) => Failure::plain(format!("{}: {older}", path.display())),
        None => not_ours(path, foreign(device)),
    }
}

/// What a device without a valid superblock holds instead of a volume, as far as it can be recognised.
pub(crate) fn foreign(device: &dyn Device) -> Option<&'static str> {
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

#[cfg(test)]
mod tests;
