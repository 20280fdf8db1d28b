//! Branches and snapshots: how the trees of a volume grew out of one another.
//!
//! All of it lies in the space tree, behind the block groups. A branch or snapshot has a number that nothing else of the
//! volume ever had; branch 1 is `main`, whose root stands in the superblock and in commits. A volume without such items has
//! that branch alone.

use holdfast_base::{Epoch, InodeNo, Lsn, Timestamp};

use crate::checksum::crc64;
use crate::codec::Reader;
use crate::feature::Carried;
use crate::key::RawKey;
use crate::limits::{COUNTER_MAX, TREE_LEVELS_MAX};
use crate::node::{NodePointer, check_device};
use crate::{ItemKind, Key, Malformed};

/// Number of the branch that mkfs makes.
pub const MAIN: u64 = 1;
/// Its name as long as it has no item.
pub const MAIN_NAME: &[u8] = b"main";
/// The inode of keys that belong to no single branch or snapshot. Behind it come theirs; no block group has so large a number.
pub const LINEAGE: u64 = 1 << 62;
/// Longest name of a branch or snapshot, in bytes.
pub const NAME_MAX: usize = 255;

record! {
    /// A branch or snapshot; its name follows, if it has one.
    pub struct TreeHead("tree", 96 bytes) {
        /// Snapshot that it grew from, or 0.
        parent: u64,
        /// Of a snapshot: its branch. Of a branch that goes: the one that has its snapshots now, 0: deleted.
        branch: u64,
        /// Its epoch; nothing in it is younger.
        epoch: u64,
        /// Last operation before it.
        lsn: u64,
        /// When made.
        created: Timestamp,
        /// 1: branch. 2: snapshot. 3: branch that goes.
        kind: u8,
        /// Level of its root.
        level: u8,
        /// 0: no name.
        name_len: u8,
        /// Zero.
        pad: u8,
        /// Its root: block.
        root_block: u64,
        /// Its root: epoch.
        root_epoch: u64,
        /// Its inodes.
        inode_count: u64,
        /// Blocks that it refers to.
        referenced_blocks: u64,
        /// Of a branch: most blocks to refer to; 0: no limit.
        limit: u64,
        /// Zero.
        reserved: [u8; 8],
    }
}

record! {
    /// Where the tree of a branch other than `main` begins.
    pub struct RootItem("root", 40 bytes) {
        /// Its root: block.
        block: u64,
        /// Its root: epoch.
        epoch: u64,
        /// Its inodes.
        inode_count: u64,
        /// Blocks that it refers to.
        referenced_blocks: u64,
        /// Level of its root.
        level: u8,
        /// Zero.
        reserved: [u8; 7],
    }
}

record! {
    /// How far the deletion of a snapshot has come: what lies before this place is freed, or left to the child.
    pub struct WalkItem("walk", 32 bytes) {
        /// Key of the place, as in a node.
        key: [u8; 24],
        /// Level of the place, 255 for an item.
        level: u8,
        /// Zero.
        reserved: [u8; 7],
    }
}

record! {
    /// What all branches and snapshots share.
    pub struct LineageItem("lineage", 16 bytes) {
        /// Next number of a branch or snapshot.
        next: u64,
        /// Zero.
        reserved: [u8; 8],
    }
}

/// What a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeKind {
    /// A writable tree.
    Branch,
    /// The tree of one moment.
    Snapshot,
    /// A branch that is gone, whose snapshots follow it step by step: they are deleted as well, or another branch's, whatever their items and names
    /// say still.
    Going,
}

/// A branch or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeItem {
    /// What it is.
    pub kind: TreeKind,
    /// The snapshot that it grew out of; 0: none.
    pub parent: u64,
    /// Of a snapshot: the branch that it is of. Of a branch that goes: the one that its snapshots are of now; 0: they are deleted.
    pub branch: u64,
    /// Of a snapshot: nothing in it is younger.
    pub epoch: Epoch,
    /// The last operation before it was made.
    pub lsn: Lsn,
    /// When it was made.
    pub created: Timestamp,
    /// Of a snapshot: its root.
    pub root: NodePointer,
    /// Of a snapshot: level of its root.
    pub level: u8,
    /// Of a snapshot: inodes in it.
    pub inode_count: u64,
    /// Of a snapshot: blocks that it refers to.
    pub referenced_blocks: u64,
    /// Of a branch: most blocks that it may refer to; 0: no limit.
    pub limit: u64,
    /// Empty: it has none, or not any more.
    pub name: Vec<u8>,
    /// What a feature has put behind the name.
    pub tail: Vec<u8>,
}

impl TreeItem {
    /// Most bytes that features may put behind the name.
    pub const TAIL_MAX: usize = 512;

    /// Fails if the item has bytes that no feature of the volume brought.
    pub fn check_carried(&self, carried: Carried) -> Result<(), Malformed> {
        match self.tail.is_empty() || carried.is_any() {
            true => Ok(()),
            false => TreeHead::fail("it has bytes of a feature that the volume has not"),
        }
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.name.len() <= NAME_MAX, "names are judged when they come in");
        let head = TreeHead {
            parent: self.parent,
            branch: self.branch,
            epoch: self.epoch.0,
            lsn: self.lsn.0,
            created: self.created,
            kind: match self.kind {
                TreeKind::Branch => 1,
                TreeKind::Snapshot => 2,
                TreeKind::Going => 3,
            },
            level: self.level,
            name_len: self.name.len() as u8,
            pad: 0,
            root_block: self.root.block.0,
            root_epoch: self.root.epoch.0,
            inode_count: self.inode_count,
            referenced_blocks: self.referenced_blocks,
            limit: self.limit,
            reserved: [0; 8],
        };
        let bytes = TreeHead::SIZE + self.name.len() + self.tail.len();
        let mut out = Vec::with_capacity(bytes);
        head.write(&mut out);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.tail);
        out
    }

    /// Reads and judges a branch or snapshot. Whether its root lies inside the volume, and whether the volume may have its tail, is the
    /// caller's to check.
    pub fn decode(bytes: &[u8]) -> Result<TreeItem, Malformed> {
        let mut reader = Reader::new(TreeHead::TITLE, bytes);
        let head = TreeHead::read(&mut reader)?;
        let name = reader.bytes(head.name_len.into())?.to_vec();
        let tail = reader.rest().to_vec();
        if tail.len() > TreeItem::TAIL_MAX {
            return TreeHead::fail(format!("{} bytes behind its name are too many", tail.len()));
        }
        let kind = match head.kind {
            1 => TreeKind::Branch,
            2 => TreeKind::Snapshot,
            3 if bytes != TreeItem::going(head.branch).encode() => {
                return TreeHead::fail("a branch that goes has something");
            }
            3 => TreeKind::Going,
            kind => return TreeHead::fail(format!("kind {kind} is unknown")),
        };
        if head.pad != 0 || head.reserved != [0; 8] {
            return TreeHead::fail("its reserved bytes are set");
        }
        let counts = [
            head.parent,
            head.branch,
            head.epoch,
            head.lsn,
            head.root_epoch,
            head.inode_count,
            head.referenced_blocks,
        ];
        if counts.iter().any(|count| *count > COUNTER_MAX) {
            return TreeHead::fail("one of its numbers cannot be");
        }
        if let Err(why) = judge_name(&name)
            && !name.is_empty()
        {
            return TreeHead::fail(why);
        }
        let root = NodePointer {
            block: holdfast_base::BlockNo(head.root_block),
            epoch: Epoch(head.root_epoch),
        };
        match kind {
            TreeKind::Snapshot => {
                judge_root(TreeHead::TITLE, root, head.level)?;
                if head.root_epoch > head.epoch || head.branch == 0 || head.limit != 0 {
                    return TreeHead::fail("its root is younger than it, or it is of no branch");
                }
            }
            TreeKind::Going => {}
            TreeKind::Branch => {
                let unused = [
                    head.branch,
                    head.epoch,
                    head.root_block,
                    head.root_epoch,
                    head.inode_count,
                    head.referenced_blocks,
                ];
                if unused != [0; 6] || head.level != 0 {
                    return TreeHead::fail("a branch has what only snapshots have");
                }
            }
        }
        Ok(TreeItem {
            kind,
            parent: head.parent,
            branch: head.branch,
            epoch: Epoch(head.epoch),
            lsn: Lsn(head.lsn),
            created: head.created,
            root,
            level: head.level,
            inode_count: head.inode_count,
            referenced_blocks: head.referenced_blocks,
            limit: head.limit,
            name,
            tail,
        })
    }

    /// A branch that goes: its snapshots are another one's now, or, with 0, are deleted.
    pub fn going(to: u64) -> TreeItem {
        TreeItem { kind: TreeKind::Going, branch: to, name: Vec::new(), ..TreeItem::first() }
    }

    /// The branch that mkfs makes, as long as it has no item.
    pub fn first() -> TreeItem {
        TreeItem {
            kind: TreeKind::Branch,
            parent: 0,
            branch: 0,
            epoch: Epoch(0),
            lsn: Lsn(0),
            created: Timestamp::default(),
            root: NodePointer { block: holdfast_base::BlockNo(0), epoch: Epoch(0) },
            level: 0,
            inode_count: 0,
            referenced_blocks: 0,
            limit: 0,
            name: MAIN_NAME.to_vec(),
            tail: Vec::new(),
        }
    }

    /// The key of number `id`.
    pub const fn key(id: u64) -> Key {
        Key::new(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Tree, 0)
    }
}

impl RootItem {
    /// The root of a branch.
    pub fn of(root: NodePointer, level: u8, inode_count: u64, referenced_blocks: u64) -> RootItem {
        let (block, epoch) = (root.block.0, root.epoch.0);
        RootItem { block, epoch, inode_count, referenced_blocks, level, reserved: [0; 7] }
    }

    /// Where it lies.
    pub fn pointer(&self) -> NodePointer {
        NodePointer { block: holdfast_base::BlockNo(self.block), epoch: Epoch(self.epoch) }
    }

    /// Reads and judges a root. Whether it lies inside the volume is the caller's to check.
    pub fn decode(bytes: &[u8]) -> Result<RootItem, Malformed> {
        let item = RootItem::exactly(bytes)?;
        judge_root(RootItem::TITLE, item.pointer(), item.level)?;
        let counted = item.inode_count.max(item.referenced_blocks);
        if item.reserved != [0; 7] || counted > COUNTER_MAX {
            return RootItem::fail("one of its counts cannot be, or reserved bytes are set");
        }
        Ok(item)
    }

    /// The key of the root of branch `id`.
    pub const fn key(id: u64) -> Key {
        Key::new(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Root, 0)
    }
}

fn judge_root(what: &'static str, root: NodePointer, level: u8) -> Result<(), Malformed> {
    check_device(root.block).map_err(|why| Malformed::new(what, why))?;
    if level >= TREE_LEVELS_MAX || root.epoch.0 == 0 || root.epoch.0 > COUNTER_MAX {
        return Err(Malformed::new(
            what,
            format!("no root is of level {level} and epoch {}", root.epoch),
        ));
    }
    Ok(())
}

/// A place in the order of a walk through a tree: items at their keys, a node behind all that is below it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WalkPlace {
    /// The key of an item; of a node, the first key behind its range.
    pub key: RawKey,
    /// The level of a node; [`WalkPlace::ITEM`] for an item.
    pub level: u8,
}

impl WalkPlace {
    /// An item comes behind the nodes that end before it.
    pub const ITEM: u8 = u8::MAX;

    /// The place of an item, or of the block of data that it would begin with.
    pub fn item(key: &Key) -> WalkPlace {
        WalkPlace { key: key.raw(), level: WalkPlace::ITEM }
    }

    /// The place of a node of `level` whose range ends at `end`; `None`: nowhere.
    pub fn node(end: Option<RawKey>, level: u8) -> WalkPlace {
        WalkPlace { key: end.unwrap_or(Key::MAX.raw()), level }
    }

    /// Where a walk begins: before everything.
    pub fn start() -> WalkPlace {
        WalkPlace { key: Key::MIN.raw(), level: 0 }
    }
}

impl WalkItem {
    /// The item of a walk that goes on at `place`.
    pub fn at(place: &WalkPlace) -> WalkItem {
        WalkItem { key: place.key.encode(), level: place.level, reserved: [0; 7] }
    }

    /// Reads and judges a walk.
    pub fn decode(bytes: &[u8]) -> Result<WalkPlace, Malformed> {
        let item = WalkItem::exactly(bytes)?;
        let key = Key::decode(&item.key)?;
        let is_level = item.level < TREE_LEVELS_MAX || item.level == WalkPlace::ITEM;
        if item.reserved != [0; 7] || !is_level {
            return WalkItem::fail("its level or its reserved bytes make no sense");
        }
        Ok(WalkPlace { key: key.raw(), level: item.level })
    }

    /// The key of the walk that deletes snapshot `id`.
    pub const fn key(id: u64) -> Key {
        Key::new(InodeNo(LINEAGE), ItemKind::Walk, id)
    }
}

impl LineageItem {
    /// Its key.
    pub const KEY: Key = Key::new(InodeNo(LINEAGE), ItemKind::Lineage, 0);

    /// Reads and judges it. The value of [`LineageItem::KEY`].
    pub fn decode(bytes: &[u8]) -> Result<LineageItem, Malformed> {
        let item = LineageItem::exactly(bytes)?;
        if item.next <= MAIN || item.next > COUNTER_MAX || item.reserved != [0; 8] {
            return LineageItem::fail(format!("the next number cannot be {}", item.next));
        }
        Ok(item)
    }
}

/// The key that says of snapshot `parent` that `child` grew out of it; of 0, that `child` is a branch that goes, and of a branch, that the snapshots
/// of that are its own. Its value is empty.
pub const fn child_key(parent: u64, child: u64) -> Key {
    Key::new(InodeNo(LINEAGE.saturating_add(parent)), ItemKind::Child, child)
}

/// The key under which the numbers stand of all whose names have this hash: branches with `branch` 0, snapshots of a branch.
/// The value is a list of them, eight bytes each, upwards. The branch comes last: names have one hash in all branches, or in none.
pub fn name_key(branch: u64, name: &[u8]) -> Key {
    let bytes = [name, &branch.to_le_bytes()].concat();
    Key::new(InodeNo(LINEAGE), ItemKind::Name, crc64(&bytes))
}

/// Why this cannot be the name of a branch or snapshot.
pub fn judge_name(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err("a name has 1 to 255 bytes");
    }
    if name.iter().any(|byte| b"/@:".contains(byte)) || has_control(name) {
        return Err("a name has no `/`, `@`, `:` or control character");
    }
    if name == b"." || name == b".." {
        return Err("`.` and `..` are no names");
    }
    Ok(())
}

/// Whether a name has a control character: a byte of ASCII, or one of the 32 behind it, which many terminals obey as well and which are
/// two bytes in UTF-8.
fn has_control(name: &[u8]) -> bool {
    name.iter().any(u8::is_ascii_control)
        || name.windows(2).any(|pair| matches!(pair, [0xc2, 0x80..=0x9f]))
}

/// The numbers in the value of a [`name_key`].
pub fn decode_numbers(bytes: &[u8]) -> Result<Vec<u64>, Malformed> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() || numbers.is_empty() {
        return Err(Malformed::new(
            "names",
            format!("{} bytes are no list of numbers", bytes.len()),
        ));
    }
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
    if !numbers.is_sorted_by(|a, b| a < b) {
        return Err(Malformed::new("names", "its numbers do not go up"));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::BlockNo;

    fn snapshot() -> TreeItem {
        TreeItem {
            kind: TreeKind::Snapshot,
            parent: 2,
            branch: MAIN,
            epoch: Epoch(9),
            lsn: Lsn(70),
            created: Timestamp { secs: 5, nanos: 6 },
            root: NodePointer { block: BlockNo(4096), epoch: Epoch(8) },
            level: 1,
            inode_count: 3,
            referenced_blocks: 21,
            limit: 0,
            name: b"before-upgrade".to_vec(),
            tail: Vec::new(),
        }
    }

    #[test]
    fn items_survive_the_round_trip() {
        let item = snapshot();
        assert_eq!(TreeItem::decode(&item.encode()), Ok(item));
        for going in [0, MAIN, 7].map(TreeItem::going) {
            assert_eq!(TreeItem::decode(&going.encode()), Ok(going));
        }
        let root = RootItem::of(snapshot().root, 2, 7, 40);
        assert_eq!(RootItem::decode(&root.bytes()), Ok(root));
        let place = WalkPlace::item(&Key::new(InodeNo(7), ItemKind::Extent, 4096));
        for place in [place, WalkPlace::start(), WalkPlace::node(None, 3)] {
            assert_eq!(WalkItem::decode(&WalkItem::at(&place).bytes()), Ok(place));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let young =
            TreeItem { root: NodePointer { epoch: Epoch(10), ..snapshot().root }, ..snapshot() };
        assert!(TreeItem::decode(&young.encode()).is_err(), "its root is younger than it");
        let branch = TreeItem { kind: TreeKind::Branch, ..snapshot() };
        assert!(TreeItem::decode(&branch.encode()).is_err(), "a branch has its root elsewhere");
        for going in [
            TreeItem { name: b"a".to_vec(), ..TreeItem::going(0) },
            TreeItem { parent: 2, ..TreeItem::going(0) },
            TreeItem { lsn: Lsn(1), ..TreeItem::going(MAIN) },
            TreeItem::going(COUNTER_MAX + 1),
        ] {
            assert!(TreeItem::decode(&going.encode()).is_err(), "a branch that goes has nothing");
        }
        let named = TreeItem { name: b"a/b".to_vec(), ..snapshot() };
        assert!(TreeItem::decode(&named.encode()).is_err());
        assert!(
            TreeItem::decode(&snapshot().encode()[..TreeHead::SIZE]).is_err(),
            "its name is missing"
        );
        let tail = |bytes| TreeItem { tail: vec![7; bytes], ..snapshot() };
        assert_eq!(TreeItem::decode(&tail(512).encode()), Ok(tail(512)));
        assert!(TreeItem::decode(&tail(513).encode()).is_err());
        let feature = Carried { compat: true, ro_compat: false };
        assert!(tail(1).check_carried(Carried::NOTHING).is_err(), "nobody brought it");
        assert!(
            tail(1).check_carried(feature).is_ok()
                && tail(0).check_carried(Carried::NOTHING).is_ok()
        );
        assert!(decode_numbers(&[0; 12]).is_err());
        assert!(decode_numbers(&[1; 16]).is_err(), "twice the same");
    }

    #[test]
    fn a_node_comes_behind_all_that_is_below_it() {
        let key = |no| Key::inode(InodeNo(no));
        let end = Some(key(20).raw());
        let places = [
            WalkPlace::start(),
            WalkPlace::item(&key(10)),
            WalkPlace::node(end, 0),
            WalkPlace::node(end, 1),
            WalkPlace::item(&key(20)),
            WalkPlace::node(None, 0),
        ];
        assert!(places.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn all_control_characters_of_unicode_are_found() {
        let mut bytes = [0; 4];
        for c in '\0'..='\u{3ff}' {
            assert_eq!(has_control(c.encode_utf8(&mut bytes).as_bytes()), c.is_control(), "{c:?}");
        }
        assert!(has_control(b"\xe3\xc2\x9b31m") && !has_control(b"\x9b\xc2"));
    }

    #[test]
    fn names_have_rules() {
        const C1: &[u8] = "\u{9b}31m".as_bytes();
        for name in ["agent-17", "größe 日本"] {
            assert_eq!(judge_name(name.as_bytes()), Ok(()));
        }
        for name in [&b""[..], b"a/b", b"a@b", b"a:b", b"a\nb", b"..", &[b'a'; 256], C1] {
            assert!(judge_name(name).is_err(), "{name:?}");
        }
    }
}
