//! Where a volume is mounted, from /proc/thread-self/mountinfo, without touching a mount point: the daemon of one may be stuck.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use holdfast_device::HostFile;

/// The type that our mounts have.
const TYPE: &[u8] = b"fuse.holdfast";

/// A mount of a whole branch or snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VolumeMount {
    /// Its number, which another mount at the same place does not have.
    pub(super) mount: u64,
    /// The number that each file of it has as its device.
    pub(super) device: u64,
    pub(crate) dir: PathBuf,
    /// As the kernel has its path.
    pub(super) source: PathBuf,
    user: u32,
    /// What was looked for.
    pub(super) file: HostFile,
    /// Neither the place nor the mount is read-only.
    pub(super) is_writable: bool,
}

/// The newest mount of the volume at `path` that this user sees and may trust.
pub(crate) fn newest(path: &Path) -> Option<PathBuf> {
    covering(path).into_iter().next().map(|found| found.dir)
}

/// All of them, newest first.
pub(crate) fn covering(path: &Path) -> Vec<VolumeMount> {
    let Some(volume) = Identity::of(path) else { return Vec::new() };
    let mounts = std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    // Any user may name any source. These could open the volume.
    let may_open = [0, rustix::process::geteuid().as_raw(), volume.owner];
    let mut found = parse(&mounts, volume.is);
    // A volume may be mounted many times, and is looked at once.
    let mut seen: HashMap<PathBuf, bool> = HashMap::new();
    found.retain(|mount| {
        let is_it = |source: &Path| Identity::of(source).is_some_and(|it| it.is == volume.is);
        may_open.contains(&mount.user)
            && *seen.entry(mount.source.clone()).or_insert_with_key(|source| is_it(source))
    });
    found
}

/// Which file or block device a path leads to now. That of a mount's source may have been another one when it was mounted, which its daemon
/// says.
#[derive(Debug)]
struct Identity {
    is: HostFile,
    owner: u32,
}

impl Identity {
    fn of(path: &Path) -> Option<Identity> {
        let found = std::fs::metadata(path).ok()?;
        let is_block_device = found.file_type().is_block_device();
        let (device, inode) = match is_block_device {
            // It may have several nodes.
            true => (found.rdev(), 0),
            false => (found.dev(), found.ino()),
        };
        let is = HostFile { device, inode, is_block_device };
        Some(Identity { is, owner: found.uid() })
    }
}

/// All whole mounts of ours in a text such as /proc/self/mountinfo, newest first:
/// `id parent major:minor root dir options [tags] - type source super`.
fn parse(mounts: &[u8], file: HostFile) -> Vec<VolumeMount> {
    mounts.split(|&b| b == b'\n').rev().filter_map(|text| line(text, file)).collect()
}

fn line(line: &[u8], file: HostFile) -> Option<VolumeMount> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let (kind, source) = (fields.get(dash + 1)?, fields.get(dash + 2)?);
    let options = std::str::from_utf8(fields.get(dash + 3)?).ok()?;
    let here = std::str::from_utf8(fields[5]).ok()?;
    let user = options.split(',').find_map(|word| word.strip_prefix("user_id="))?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields[2]).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    // `mount --bind` may show a part elsewhere.
    let is_whole = fields[3] == b"/";
    let is_writable = here.split(',').chain(options.split(',')).all(|word| word != "ro");
    let mount = std::str::from_utf8(fields[0]).ok()?.parse().ok()?;
    (*kind == TYPE && is_whole).then(|| VolumeMount {
        mount,
        device,
        dir: unescape(fields[4]),
        source: unescape(source),
        user,
        file,
        is_writable,
    })
}

/// Undoes `\040` and its kin.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut left = field;
    while let Some((&first, rest)) = left.split_first() {
        let octal = rest
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(first));
        left = if octal.is_some() { &rest[3..] } else { rest };
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_mounts_of_ours_count_and_with_their_real_names() {
        let mounts = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            50 1 0:50 / /mnt/old rw shared:1 - fuse.holdfast /a\\040b/work.img rw,user_id=0,group_id=0\n\
            51 1 0:51 / /mnt/my\\040files ro,nosuid - fuse.holdfast /a\\040b/work.img rw,user_id=7,group_id=0\n\
            73 1 0:50 /part /mnt/part rw - fuse.holdfast /a\\040b/work.img rw,user_id=0,group_id=0\n\
            74 1 0:52 / /mnt/other rw - fuse.sshfs /a\\040b/work.img rw,user_id=0,group_id=0\n";
        let file = HostFile { device: 1, inode: 2, is_block_device: false };
        let of = |minor: u32, dir: &str, user| VolumeMount {
            mount: minor.into(),
            device: rustix::fs::makedev(0, minor),
            dir: dir.into(),
            source: "/a b/work.img".into(),
            user,
            file,
            is_writable: user == 0,
        };
        assert_eq!(parse(mounts, file), [of(51, "/mnt/my files", 7), of(50, "/mnt/old", 0)]);
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
    }

    #[test]
    fn one_file_is_the_same_by_any_name_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other, link] = ["one", "other", "link"].map(|name| dir.path().join(name));
        std::fs::write(&one, "").unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&one, &link).unwrap();
        let is = |path: &Path| Identity::of(path).unwrap().is;
        assert_eq!(is(&one), is(&link));
        assert_ne!(is(&one), is(&other));
        assert!(Identity::of(&dir.path().join("none")).is_none());
    }
}
