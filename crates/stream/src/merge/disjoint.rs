//! Whether two differences from one tree touch a common path.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

use holdfast::{Change, ChangeKind};
use holdfast_posix::{FileType, Parts};

/// What one difference touches.
#[derive(Debug, Default)]
pub(super) struct Touched {
    inodes: HashSet<u64>,
    /// Paths, and whether a directory that was there has come to or gone from it: what lies below is touched with it.
    paths: BTreeMap<Vec<u8>, bool>,
    bytes: usize,
}

/// Where it was and is.
fn paths(change: &Change) -> impl Iterator<Item = &[u8]> {
    [&change.old_path, &change.new_path].into_iter().flatten().map(Vec::as_slice)
}

/// Whether all below it has other paths, or is gone.
fn moves_what_is_below(change: &Change) -> bool {
    change.file_type == FileType::Directory
        && matches!(change.kind, ChangeKind::Renamed | ChangeKind::Removed)
}

/// A directory in which names came and went again, or files were replaced by others of the same name: only its times tell.
fn is_only_times(change: &Change) -> bool {
    let times = Parts { times: true, ..Parts::default() };
    change.file_type == FileType::Directory
        && !matches!(change.kind, ChangeKind::Renamed | ChangeKind::Removed)
        && change.parts == times
}

/// The directories above a path, the nearest first, without the root.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..path.len()).rev().filter(|at| path[*at] == b'/').map(|at| &path[..at])
}

impl Touched {
    /// Files and paths that are remembered.
    pub(super) fn len(&self) -> usize {
        self.inodes.len().max(self.paths.len())
    }

    /// Bytes of the paths.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds what a change touches.
    pub(super) fn add(&mut self, change: &Change) {
        if is_only_times(change) {
            return;
        }
        self.inodes.insert(change.inode.0);
        let moves = moves_what_is_below(change);
        for path in paths(change) {
            self.bytes = self.bytes.saturating_add(path.len());
            *self.paths.entry(path.to_vec()).or_default() |= moves;
        }
    }

    /// A path of another difference's change that both touch, if there is one.
    pub(super) fn common<'a>(&self, change: &'a Change) -> Option<&'a [u8]> {
        let moved = |path: &[u8]| self.paths.get(path).copied().unwrap_or(false);
        if is_only_times(change) {
            return paths(change).find(|path| moved(path) || above(path).any(moved));
        }
        if self.inodes.contains(&change.inode.0) {
            // A file has a path: it was there, or is.
            return Some(paths(change).last().unwrap_or_default());
        }
        let moves = moves_what_is_below(change);
        paths(change).find(|path| {
            self.paths.contains_key(*path)
                || above(path).any(moved)
                || (moves && self.has_some_below(path))
        })
    }

    fn has_some_below(&self, dir: &[u8]) -> bool {
        let first = [dir, b"/"].concat();
        let range = (Bound::Included(first.as_slice()), Bound::Unbounded);
        let next = self.paths.range::<[u8], _>(range).next();
        next.is_some_and(|(path, _)| path.starts_with(&first))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::InodeNo;

    use super::*;

    fn change(kind: ChangeKind, inode: u64, is_dir: bool, from: &str, to: &str) -> Change {
        let path = |path: &str| (!path.is_empty()).then(|| path.as_bytes().to_vec());
        Change {
            kind,
            inode: InodeNo(inode),
            file_type: if is_dir { FileType::Directory } else { FileType::Regular },
            old_path: path(from),
            new_path: path(to),
            is_link: false,
            parts: Parts::default(),
            old_size: None,
            new_size: None,
            ranges: Vec::new(),
        }
    }

    #[test]
    fn a_common_path_is_one_file_one_name_or_lies_below_what_moves() {
        use ChangeKind::{Attributes, Changed, Created, Removed, Renamed};
        let mut theirs = Touched::default();
        for change in [
            change(Changed, 5, false, "f", "f"),
            change(Renamed, 6, true, "a/b", "c/d"),
            change(Created, 7, false, "", "new"),
            change(Removed, 8, true, "gone", ""),
            change(Attributes, 9, true, "dir", "dir"),
        ] {
            theirs.add(&change);
        }
        for (mine, common) in [
            (change(Removed, 5, false, "link-of-f", ""), Some("link-of-f")),
            (change(Created, 20, false, "", "new"), Some("new")),
            (change(Created, 20, false, "", "a/b/x/y"), Some("a/b/x/y")),
            (change(Changed, 21, false, "gone/z", "gone/z"), Some("gone/z")),
            (change(Renamed, 22, true, "a", "e"), Some("a")),
            (change(Renamed, 22, true, "e", "c/d/e"), Some("c/d/e")),
            (change(Created, 23, false, "", "dir/x"), None),
            (change(Created, 23, false, "", "a/bb"), None),
            (change(Created, 23, false, "", "a/b-"), None),
            (change(Attributes, 24, true, "a", "a"), None),
            (change(Changed, 25, false, "f2", "f2"), None),
            (change(Renamed, 26, true, "di", "d"), None),
        ] {
            let found = theirs.common(&mine).map(|path| String::from_utf8_lossy(path).into_owned());
            assert_eq!(found.as_deref(), common, "{mine:?}");
        }
    }
}
