//! A volume that cannot be opened because it is mounted: the refusal says where, so that its files are used there.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The type that our mounts have.
const TYPE: &[u8] = b"fuse.holdfast";
/// How refusals name a daemon.
const DAEMON: &str = "(holdfast)";

/// Adds to the refusal of what is in use at `path` how its files are reached.
pub(crate) fn with_mount(path: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return error;
    }
    let how = match mount_of(path) {
        Some(dir) => {
            let dir = dir.display();
            format!("it is mounted at {dir}: use its files there, or run `holdfast umount {dir}`")
        }
        None if error.to_string().contains(DAEMON) => {
            let path = path.display();
            format!("`holdfast mount {path} DIR` and `holdfast cp` work on it meanwhile")
        }
        None => return error,
    };
    io::Error::new(error.kind(), format!("{error} ({how})"))
}

/// The newest mount of the volume at `path` that this user sees and may trust.
fn mount_of(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    // Anybody may name any source. These could open the volume.
    let owner = std::fs::metadata(&path).ok()?.uid();
    let may_open = [0, rustix::process::geteuid().as_raw(), owner];
    find(&mounts, &path, &may_open)
}

/// The newest mount of `source` by one of `users` in a text such as /proc/self/mountinfo:
/// `id parent major:minor root dir options [tags] - type source super`.
fn find(mounts: &[u8], source: &Path, users: &[u32]) -> Option<PathBuf> {
    let lines = mounts.split(|&b| b == b'\n').rev();
    let dir = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        let of = unescape(fields.get(dash + 2)?);
        let user = std::str::from_utf8(fields.get(dash + 3)?).ok()?;
        let user = user.split(',').find_map(|word| word.strip_prefix("user_id="))?.parse().ok()?;
        let whole = fields[3] == b"/";
        (*fields.get(dash + 1)? == TYPE && of == source && whole && users.contains(&user))
            .then(|| unescape(fields[4]))
    };
    lines.into_iter().find_map(dir)
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
    fn a_mount_is_found_by_its_source_and_believed_by_its_user() {
        let mounts = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            70 1 0:50 / /mnt/old rw shared:1 - fuse.holdfast /a\\040b/work.img rw,user_id=0,group_id=0\n\
            71 1 0:50 / /mnt/my\\040files rw - fuse.holdfast /a\\040b/work.img rw,user_id=7,group_id=0\n\
            72 1 0:51 / /mnt/trap rw - fuse.holdfast /a\\040b/work.img rw,user_id=99,group_id=0\n\
            73 1 0:50 /part /mnt/part rw - fuse.holdfast /a\\040b/work.img rw,user_id=0,group_id=0\n\
            74 1 0:52 / /mnt/other rw - fuse.sshfs /a\\040b/work.img rw,user_id=0,group_id=0\n";
        let found = |users: &[u32]| find(mounts, Path::new("/a b/work.img"), users);
        assert_eq!(found(&[0, 7]), Some("/mnt/my files".into()));
        assert_eq!(found(&[0]), Some("/mnt/old".into()));
        assert_eq!(found(&[8]), None);
        assert_eq!(find(mounts, Path::new("/work.img"), &[0, 7, 99]), None);
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
    }
}
