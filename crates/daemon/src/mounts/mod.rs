//! What is mounted, from `/proc/self/mountinfo`, without touching any mount point: the daemon of one may be dead.

pub mod namespaces;
pub mod orphan;
pub mod processes;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_service::outcome::{Failure, plain_words};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The type that our mounts have.
pub const TYPE: &str = "fuse.holdfast";

/// One of our mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Of all mounts that are there now, it alone has this number.
    id: u64,
    /// `major:minor`, which `stat` shows as the device of every file there.
    pub device: String,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// The file or block device that holds the volume, as the user of the mount says.
    pub source: PathBuf,
    /// The user of the mount, as the kernel says.
    pub owner: u32,
}

/// All Holdfast mounts, oldest first.
pub fn list() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// What was found, or nothing where no /proc is mounted, as in a root that holds the program alone. For commands on images: there
/// they cannot ask a daemon, and the lock of a volume in use refuses them all the same.
pub fn or_none<T: Default>(found: io::Result<T>) -> io::Result<T> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        found => found,
    }
}

/// The newest mount at `dir`, or of the volume at `dir`.
pub fn find(dir: &Path) -> io::Result<Option<Mount>> {
    Ok(find_all(dir)?.into_iter().next())
}

/// The newest mount at `dir`; or all of the volume at `dir`, newest first.
pub fn find_all(dir: &Path) -> io::Result<Vec<Mount>> {
    let dir = real_path(dir);
    let mounts = list()?;
    if let Some(found) = mounts.iter().rev().find(|mount| mount.dir == dir) {
        return Ok(vec![found.clone()]);
    }
    Ok(all_of_volume(&mounts, &dir).cloned().collect())
}

/// The words that the kernel shows of a mount and of what is mounted.
pub fn words(mount: &Mount) -> io::Result<Vec<String>> {
    let fields = fields(mount)?;
    let both = [fields.get(5), fields.last()].into_iter().flatten();
    let words = both.flat_map(|list| list.split(|&b| b == b','));
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Whether a mount shows all of what is mounted, from the root on: `mount --bind` may show a part elsewhere.
pub fn is_whole(mount: &Mount) -> io::Result<bool> {
    Ok(fields(mount)?.get(3).is_some_and(|root| root == b"/"))
}

/// What the kernel's list has of a mount.
fn fields(mount: &Mount) -> io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let mut lines = text.split(|&b| b == b'\n').rev();
    let found = lines.find(|it| line(it).as_ref() == Some(mount)).ok_or(io::ErrorKind::NotFound)?;
    Ok(found.split(|&b| b == b' ').map(<[u8]>::to_vec).collect())
}

/// Whether its directory leads to a mount: what is mounted over it, or over a directory above, hides it. The mount is not asked.
pub fn is_in_sight(mount: &Mount) -> io::Result<bool> {
    has(mount, &mount.dir)
}

/// Whether a path leads into a mount, and into nothing that is mounted in it or over it.
pub fn has(mount: &Mount, path: &Path) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(id_of_mount(held)? == Some(mount.id))
}

/// The number of the mount in which it was opened.
fn id_of_mount(held: impl AsFd) -> io::Result<Option<u64>> {
    let number = held.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    Ok(id.and_then(|id| id.trim().parse().ok()))
}

/// Whether a server in a program answers for what is held, which may never answer. Nothing is asked but the kernel's lists.
pub(crate) fn is_of_a_server(held: impl AsFd) -> io::Result<bool> {
    let id = id_of_mount(held)?.map(|id| id.to_string());
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    let found = mounts.lines().find(|line| line.split(' ').next() == id.as_deref());
    let kind = found.and_then(|line| line.split_once(" - ")).map(|(_, behind)| behind);
    // What is not in the list is unknown.
    Ok(kind.is_none_or(|kind| kind.starts_with("fuse")))
}

/// Those of the volume at `path`, newest first. The source that a stranger's mount names proves nothing.
fn all_of_volume<'a>(mounts: &'a [Mount], path: &Path) -> impl Iterator<Item = &'a Mount> {
    let may_open = [
        Some(0),
        Some(rustix::process::geteuid().as_raw()),
        std::fs::metadata(path).ok().map(|found| found.uid()),
    ];
    mounts
        .iter()
        .rev()
        .filter(move |mount| mount.source == path && may_open.contains(&Some(mount.owner)))
}

/// One mount of each other branch and snapshot of the volume of `mount`.
pub fn beside(mount: &Mount) -> io::Result<Vec<Mount>> {
    let mounts = list()?;
    let mut found: Vec<Mount> = Vec::new();
    for other in all_of_volume(&mounts, &mount.source) {
        if other.device != mount.device && found.iter().all(|it| it.device != other.device) {
            found.push(other.clone());
        }
    }
    Ok(found)
}

/// Whether an error of a call inside a mount says that it has no daemon any more. Requests that were on their way
/// through a ring when the daemon died are cancelled or aborted; later ones are not served.
pub fn is_dead(error: &io::Error) -> bool {
    let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    Errno::from_io_error(error).is_some_and(|errno| dead.contains(&errno))
}

/// The sentence for a daemon that is dead or stuck, or does not obey this user, of which `rule` tells.
pub fn no_answer(mount: &Mount, error: &io::Error, rule: &str) -> Failure {
    let dir = mount.dir.display();
    let words = plain_words(error);
    Failure::plain(match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{dir}: {words}; only {rule}"),
        io::ErrorKind::TimedOut => {
            format!("the daemon of {dir} does not answer; it may be waiting for its device")
        }
        _ if is_dead(error) => {
            let ended = Failure::plain(format!("the daemon of {dir} has ended"));
            return ended.with_hint_about("holdfast umount", &mount.dir);
        }
        io::ErrorKind::InvalidData => {
            format!("the daemon of {dir} gives no answer that is understood: {words}")
        }
        _ => format!("the daemon of {dir}: {words}"),
    })
}

/// With what helps, if it was met in a mount whose daemon is dead.
pub fn with_help(failure: Failure) -> Failure {
    let cause = failure.cause.as_ref().filter(|cause| {
        failure.hint.is_none() && is_dead(&io::Error::from_raw_os_error(cause.errno))
    });
    match cause.and_then(|cause| around(&cause.what).ok().flatten()) {
        Some(mount) => {
            let sentence = format!("{}, its daemon has ended", failure.sentence);
            Failure { sentence, ..failure }.with_hint_about("holdfast umount", &mount.dir)
        }
        None => failure,
    }
}

/// Whether a mount has not gone since it was found.
pub fn is_there(mount: &Mount) -> io::Result<bool> {
    Ok(list()?.contains(mount))
}

/// The mount in which `path` is.
pub fn around(path: &Path) -> io::Result<Option<Mount>> {
    let path = real_path(path);
    let mounts = list()?.into_iter().filter(|mount| path.starts_with(&mount.dir));
    Ok(mounts.max_by_key(|mount| mount.dir.as_os_str().len()))
}

/// The path without links, also if its last part is a mount whose daemon is dead.
pub fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => match parent.canonicalize() {
            Ok(parent) => parent.join(name),
            Err(_) => absolute,
        },
        _ => absolute,
    }
}

pub(crate) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&b| b == b'\n').filter_map(line).collect()
}

/// `id parent major:minor root dir options [tags] - type source super`
fn line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = fields.iter().skip(6).position(|f| *f == b"-")? + 6;
    if *fields.get(dash + 1)? != TYPE.as_bytes() {
        return None;
    }
    Some(Mount {
        id: std::str::from_utf8(fields[0]).ok()?.parse().ok()?,
        device: String::from_utf8(fields[2].to_vec()).ok()?,
        dir: unescape(fields[4]),
        source: unescape(fields.get(dash + 2)?),
        owner: owner(fields.get(dash + 3)?)?,
    })
}

/// `rw,user_id=0,group_id=0,...`
fn owner(options: &[u8]) -> Option<u32> {
    let mut options = std::str::from_utf8(options).ok()?.split(',');
    options.find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
}

/// Undoes `\040` and its kin.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field
            .get(at + 1..at + 4)
            .filter(|d| field[at] == b'\\' && d.iter().all(|b| (b'0'..b'8').contains(b)));
        match octal {
            Some(d) => {
                let value = d.iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
                out.push(value as u8);
                at += 4;
            }
            None => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_mounts_and_with_their_real_names() {
        let text = b"22 1 254:0 / / rw - ext4 /dev/root rw\n\
            30 22 0:44 / /mnt/my\\040files rw,nosuid shared:7 - fuse.holdfast /img/a\\134b rw,user_id=0\n\
            31 22 0:45 / /mnt/x rw - fuse.other y rw\n\
            32 22 0:46 / /mnt/y rw - fuse.holdfast /img/c rw,user_id=1000,group_id=7\n";
        assert_eq!(
            parse(text),
            [
                Mount {
                    id: 30,
                    device: "0:44".into(),
                    dir: "/mnt/my files".into(),
                    source: "/img/a\\b".into(),
                    owner: 0,
                },
                Mount {
                    id: 32,
                    device: "0:46".into(),
                    dir: "/mnt/y".into(),
                    source: "/img/c".into(),
                    owner: 1000,
                },
            ]
        );
    }

    #[test]
    fn a_mount_is_believed_of_users_that_may_open_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let image = dir.path().join("img");
        std::fs::write(&image, "").unwrap();
        let mount = |dir: &str, owner| Mount {
            id: 30,
            device: "0:44".into(),
            dir: dir.into(),
            source: image.clone(),
            owner,
        };
        let mounts = [mount("/mnt/real", me), mount("/home/stranger/fake", me + 4711)];
        assert_eq!(all_of_volume(&mounts, &image).collect::<Vec<_>>(), [&mounts[0]]);
        assert_eq!(all_of_volume(&mounts[1..], &image).next(), None);
    }
}
