//! Keys as places on a line, so that ranges of them can be cut anywhere: behind a key there is always a next place.

use holdfast_base::InodeNo;
use holdfast_format::{ItemKind, Key};

/// A place among the keys of a tree. Not each is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    pub(crate) inode: u64,
    pub(crate) kind: u8,
    pub(crate) offset: u64,
}

impl Point {
    /// Not above any key.
    pub(crate) const MIN: Point = Point { inode: 0, kind: 0, offset: 0 };

    pub(crate) fn of(key: &Key) -> Point {
        Point { inode: key.inode.0, kind: key.kind.number(), offset: key.offset }
    }

    /// The first place of one kind of one inode.
    pub(crate) fn first(inode: InodeNo, kind: ItemKind) -> Point {
        Point { inode: inode.0, kind: kind.number(), offset: 0 }
    }

    /// The first place of an inode.
    pub(crate) fn inode(inode: u64) -> Point {
        Point { inode, kind: 0, offset: 0 }
    }

    /// The next place; `None` behind the last one.
    pub(crate) fn after(self) -> Option<Point> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Point { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Point { kind, offset: 0, ..self });
        }
        self.inode.checked_add(1).map(Point::inode)
    }

    /// The smallest key at or behind this place, to begin a search with; `None` if no key is.
    pub(crate) fn key(self) -> Option<Key> {
        let mut kind = self.kind;
        while ItemKind::from_raw(kind).is_none() {
            kind = match kind.checked_add(1) {
                Some(kind) => kind,
                None => return self.inode.checked_add(1).map(|inode| Key::inode(InodeNo(inode))),
            };
        }
        let offset = if kind == self.kind { self.offset } else { 0 };
        Some(Key::new(InodeNo(self.inode), ItemKind::from_raw(kind)?, offset))
    }
}

/// Whether `end`, which excludes itself, lies behind `point`. Without an end everything does.
pub(crate) fn ends_behind(end: Option<Point>, point: Point) -> bool {
    end.is_none_or(|end| point < end)
}

/// The smaller of two ends.
pub(crate) fn nearer(one: Option<Point>, two: Option<Point>) -> Option<Point> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_each_place_is_the_next_one() {
        let last_of_kind = Point { inode: 3, kind: 6, offset: u64::MAX };
        let next = Point { inode: 3, kind: 7, offset: 0 };
        assert_eq!(last_of_kind.after(), Some(next));
        let last_of_inode = Point { inode: 3, kind: u8::MAX, offset: u64::MAX };
        assert_eq!(last_of_inode.after(), Some(Point::inode(4)));
        assert_eq!(Point { inode: u64::MAX, ..last_of_inode }.after(), None);
        assert!(Point::of(&Key::MIN) >= Point::MIN);
        assert_eq!(Point::MIN.key(), Some(Key::MIN));
        assert_eq!(
            Point { inode: 3, kind: 9, offset: 7 }.key().map(|key| key.kind.number()),
            Some(16)
        );
        assert_eq!(last_of_inode.key(), Some(Key::inode(InodeNo(4))));
    }
}
