//! Volumes named on the command line, and paths inside them: `IMAGE:/path`, and the same in a branch or snapshot:
//! `IMAGE:BRANCH:/path`, `IMAGE@SNAPSHOT:/path`, `IMAGE:BRANCH@SNAPSHOT:/path`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::{Volume, VolumeOptions};
use holdfast_daemon::ask;
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::opening::open_volume;

use crate::branches::place::holds_bytes;
use crate::branches::{Name, TreeLocation};
use crate::outcome::{Context, Failure};
use crate::peek::Peek;

/// The directory of a mount that has the snapshots of its branch.
const SNAPSHOTS: &str = ".snapshots";
/// How long a mount may take to say of which snapshot something is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What help says of paths.
pub(crate) const PATHS: &str = "\
A path in a volume is written IMAGE:/path, where IMAGE is a file or a block device. A branch, a
snapshot or both may stand before the second colon, otherwise `main` is meant:
  data.holdfast:/etc/fstab
  data.holdfast:work:/etc/fstab
  data.holdfast@before-upgrade:/etc/fstab
  data.holdfast:work@monday:/etc/fstab
A file of the whole name wins. A directory where something is mounted may stand for IMAGE.";

/// And of commands that take paths in volumes alone.
pub(crate) const PLAIN_PATHS: &str =
    "Any path in such a directory, also below .snapshots, may stand for IMAGE:/path.";

/// A path, in a volume or on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path on the host.
    Host(PathBuf),
    /// A path inside the volume in a file or block device.
    Inside {
        /// The file or block device, and the branch or snapshot in it.
        place: TreeLocation,
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
            let place = TreeLocation::parse(head);
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
            let path = TreeLocation::parse(head).path;
            if holds_volume(&path) || is_mounted(&path) {
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

    /// The place and the path in it. Like [`Target::parse`]; a place alone means its root, and any path in a mount itself.
    pub fn inside(text: impl AsRef<OsStr>) -> Result<(TreeLocation, PathBuf), Failure> {
        let text = text.as_ref();
        match Target::parse(text) {
            Target::Inside { place, path } => Ok((place, path)),
            Target::Host(host) => {
                let place = TreeLocation::parse(host.as_os_str());
                // A file in a mount may be a volume itself.
                if place.path == host
                    && !is_mounted(&host)
                    && !holds_volume(&host)
                    && let Some(inside) = in_mount(&host)?
                {
                    return Ok(inside);
                }
                if holds_bytes(&place.path) || is_mounted(&place.path) {
                    return Ok((place, "/".into()));
                }
                // Say what is missing: the image, or the colon.
                let bytes = text.as_bytes();
                let end = bytes.windows(2).position(|two| two == b":/").unwrap_or(bytes.len());
                let image = Path::new(OsStr::from_bytes(&bytes[..end]));
                let (found, host) =
                    (std::fs::metadata(image).context(image.display())?, host.display());
                Err(Failure::plain(match found.is_dir() {
                    true => format!(
                        "nothing is mounted at {host}; for a path in a volume write IMAGE:/path"
                    ),
                    false => format!("{host} is not a volume; write IMAGE:/path"),
                }))
            }
        }
    }
}

/// The mount in which a path of the host is, and the path there. The last name is not followed if it is a link. `None`: it is in no mount.
///
/// # Errors
/// The mount shows a part of what is mounted.
pub(crate) fn in_mount(host: &Path) -> Result<Option<(TreeLocation, PathBuf)>, Failure> {
    let real = match (host.parent(), host.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent == Path::new("") { Path::new(".") } else { parent };
            parent.canonicalize().map(|parent| parent.join(name))
        }
        _ => host.canonicalize(),
    };
    let Ok(real) = real else { return Ok(None) };
    // What is mounted at it is its own; where a link leads is not, and is not looked at.
    let listed = mounts::or_none(mounts::list()).context("/proc/self/mountinfo")?;
    let root = listed.into_iter().rfind(|mount| mount.dir == real);
    let parent = real.parent().unwrap_or(&real);
    let (mount, held) = match root {
        Some(root) => (Some(root), real.as_path()),
        None => (mounts::or_none(mounts::around(parent)).context("/proc/self/mountinfo")?, parent),
    };
    let Some(mount) = mount else { return Ok(None) };
    // What is mounted in it, or over it, hides what the volume has there.
    if !mounts::has(&mount, held).context(held.display())? {
        return Ok(None);
    }
    let dir = mount.dir.display();
    if !mounts::is_whole(&mount).context(&dir)? {
        return Err(Failure::plain(format!(
            "{dir} shows a part of a mount (mount --bind); name the path where the volume is mounted"
        )));
    }
    let below = real.strip_prefix(&mount.dir).unwrap_or(Path::new(""));
    let (snapshot, below) = match in_snapshot(&mount, below) {
        Some((snapshot, below)) => (Some(snapshot), below),
        None => (None, below),
    };
    let path = Path::new("/").join(below);
    Ok(Some((TreeLocation { path: mount.dir, branch: None, snapshot }, path)))
}

/// The snapshot and the path in it, of a path below `.snapshots` of a mounted branch. The volume itself may have a directory of that name.
fn in_snapshot<'a>(mount: &Mount, path: &'a Path) -> Option<(Name, &'a Path)> {
    let mut names = path.strip_prefix(SNAPSHOTS).ok()?.components();
    let name = names.next()?;
    // No link, and nothing that is mounted there.
    let is_of_one = |dir: &Path| {
        dir.symlink_metadata().is_ok_and(|found| found.is_dir())
            && mounts::has(mount, dir).unwrap_or(false)
            && ask::attribute(dir, ask::SNAPSHOT, PATIENCE).is_ok()
    };
    // All of a mounted snapshot is of that one.
    let is_of_this = is_of_one(&mount.dir.join(SNAPSHOTS).join(name)) && !is_of_one(&mount.dir);
    is_of_this.then(|| (Name::of(name.as_os_str().into()), names.as_path()))
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

/// Whether a file or block device is a volume.
pub(crate) fn holds_volume(path: &Path) -> bool {
    Peek::open(path).is_ok_and(|device| holdfast_check::newest_superblock(&device).is_some())
}

/// Whether a volume is mounted at a directory.
fn is_mounted(path: &Path) -> bool {
    path.is_dir()
        && matches!(mounts::find(path), Ok(Some(mount)) if mount.dir == mounts::real_path(path))
}

/// Opens what stands in front of a path: a volume, or a branch or snapshot of it.
pub(crate) fn open_place(place: &TreeLocation, read_only: bool) -> Result<Volume, Failure> {
    let mut options = VolumeOptions::new();
    if let Some(branch) = &place.branch {
        options = options.branch(branch.utf8()?);
    }
    if let Some(snapshot) = &place.snapshot {
        options = options.snapshot(snapshot.utf8()?);
    }
    open_volume(&place.path, &options, read_only)
}

#[cfg(test)]
mod tests;
