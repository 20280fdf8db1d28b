//! What is mounted where, from /proc/self/mountinfo.
//!
//! The one way to look at our own mount that sends no request to ourselves.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u64,
    parent: u64,
    /// `major:minor` of the filesystem.
    pub(crate) device: String,
    pub(crate) point: PathBuf,
    /// Type with subtype.
    pub(crate) fs_type: String,
    /// The user that has mounted, as the kernel says of mounts of FUSE.
    pub(crate) owner: Option<u32>,
}

/// The mount that one sees at `point`, if something is mounted there.
pub(crate) fn topmost(point: &Path) -> Option<Mount> {
    topmost_in(&std::fs::read("/proc/self/mountinfo").ok()?, point)
}

/// Where `mount` is now: its point may have been renamed. `None` if it is there no more. One that came later may have its numbers.
pub(crate) fn now(mount: &Mount) -> Option<Mount> {
    now_in(&std::fs::read("/proc/self/mountinfo").ok()?, mount)
}

/// The mount that has the point of `mount`: a look at that point asks its filesystem.
pub(crate) fn below(mount: &Mount) -> Option<Mount> {
    below_in(&std::fs::read("/proc/self/mountinfo").ok()?, mount)
}

/// Whether a mount that this process or process `pid` sees has the directory `root` of the filesystem `device` as its own root, or an
/// overlay has it as a layer. Layers are known by the path with which they were mounted, whose end is compared.
pub(crate) fn is_root(device: &str, root: &Path, pid: u32) -> bool {
    let seen = ["/proc/self/mountinfo".into(), format!("/proc/{pid}/mountinfo")];
    let mut seen = seen.iter().filter_map(|path| std::fs::read(path).ok());
    seen.any(|text| text.split(|byte| *byte == b'\n').any(|line| has_root(line, device, root)))
}

fn has_root(line: &[u8], device: &str, root: &Path) -> bool {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let is_here = fields.next() == Some(device.as_bytes());
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(unescape(bytes)));
    if is_here && fields.next().is_some_and(|field| path(field) == root) {
        return true;
    }
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    if fields.next() != Some(b"overlay") {
        return false;
    }
    let Ok(end) = root.strip_prefix("/") else { return false };
    let options = fields.nth(1).unwrap_or_default().split(|byte| *byte == b',');
    let layers = [&b"lowerdir="[..], b"lowerdir+=", b"datadir+="];
    let mut layers = options.filter_map(|of| layers.iter().find_map(|word| of.strip_prefix(*word)));
    layers.any(|of| of.split(|byte| *byte == b':').any(|layer| path(layer).ends_with(end)))
}

fn below_in(text: &[u8], mount: &Mount) -> Option<Mount> {
    let mut all = text.split(|byte| *byte == b'\n').filter_map(parse);
    all.find(|it| it.id == mount.parent && it.id != mount.id)
}

fn now_in(text: &[u8], mount: &Mount) -> Option<Mount> {
    let mut all = text.split(|byte| *byte == b'\n').filter_map(parse);
    let is_it = |it: &Mount| {
        let is_same = (&it.device, &it.fs_type) == (&mount.device, &mount.fs_type);
        is_same && (it.id, it.owner) == (mount.id, mount.owner)
    };
    all.find(is_it)
}

fn topmost_in(text: &[u8], point: &Path) -> Option<Mount> {
    let here: Vec<Mount> = text
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .filter(|mount| mount.point == point)
        .collect();
    here.iter().find(|mount| here.iter().all(|other| other.parent != mount.id)).cloned()
}

/// `id parent major:minor root point options [tags...] - type source superoptions`
fn parse(line: &[u8]) -> Option<Mount> {
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).ok();
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let parent = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.next()?)?;
    let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = text(fields.next()?)?;
    let options = fields.nth(1).and_then(text).unwrap_or_default();
    let owner = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    Some(Mount { id, parent, device, point, fs_type, owner })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) => {
                let value = digits.iter().fold(0u32, |value, d| value * 8 + u32::from(d - b'0'));
                out.push(value as u8);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:35 / /mnt/a\\040b rw - tmpfs tmpfs rw\n\
        41 40 0:36 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse.holdfast /img rw,user_id=0\n\
        50 22 0:40 / /mnt/c rw - fuse.holdfast x rw\n\
        nonsense\n";

    #[test]
    fn the_upper_one_of_two_mounts_is_found() {
        let mount = topmost_in(TEXT, Path::new("/mnt/a b")).unwrap();
        assert_eq!(mount.device, "0:36");
        assert_eq!((mount.fs_type.as_str(), mount.owner), ("fuse.holdfast", Some(0)));
        assert_eq!(topmost_in(TEXT, Path::new("/mnt/c")).unwrap().device, "0:40");
        assert_eq!(topmost_in(TEXT, Path::new("/mnt")), None);
    }

    #[test]
    fn what_is_the_root_of_a_mount_or_a_layer_is_found() {
        const MORE: &[u8] = b"60 22 0:40 /.snapshots/a\\040b /bound rw shared:9 - fuse.holdfast x rw\n\
            61 22 0:50 / /merged rw - overlay o rw,lowerdir=/x:m/.snapshots/s,upperdir=u,workdir=w\n\
            62 22 0:51 / /other rw - overlay o rw,lowerdir+=/m/.snapshots/t,lowerdir+=/y\n\
            63 22 0:52 / /below rw - overlay o rw,lowerdir=m/.snapshots/u/base";
        let has = |name: &str| {
            let root = Path::new("/.snapshots").join(name);
            MORE.split(|byte| *byte == b'\n').any(|line| has_root(line, "0:40", &root))
        };
        assert!(["a b", "s", "t"].into_iter().all(has));
        assert!(!["a", "b", "u", "base", "x"].into_iter().any(has));
        assert!(
            !MORE
                .split(|byte| *byte == b'\n')
                .any(|line| { has_root(line, "0:41", Path::new("/.snapshots/a b")) })
        );
        assert!(!is_root("0:40", Path::new("/no such"), 1));
    }

    #[test]
    fn what_has_the_point_of_a_mount_is_found() {
        let upper = topmost_in(TEXT, Path::new("/mnt/a b")).unwrap();
        let lower = below_in(TEXT, &upper).unwrap();
        assert_eq!(lower.fs_type, "tmpfs");
        assert_eq!(below_in(TEXT, &lower).unwrap().point, Path::new("/"));
        assert_eq!(below_in(TEXT, &Mount { parent: 99, ..upper }), None);
    }

    #[test]
    fn a_mount_is_found_where_its_point_was_moved() {
        let before = topmost_in(TEXT, Path::new("/mnt/c")).unwrap();
        let moved = String::from_utf8_lossy(TEXT).replace("/mnt/c", "/else/where");
        assert_eq!(now_in(moved.as_bytes(), &before).unwrap().point, Path::new("/else/where"));
        let other = moved.replace("0:40", "0:41");
        assert_eq!(now_in(other.as_bytes(), &before), None);
    }

    #[test]
    fn the_real_root_is_found() {
        let root = topmost(Path::new("/")).unwrap();
        assert_eq!(now(&root), Some(root));
    }
}
