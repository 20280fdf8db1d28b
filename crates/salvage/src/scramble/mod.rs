//! Other names in place of those of a volume, in a copy of its metadata.
//!
//! A key of a directory entry or an attribute has a hash of the name, and so has that of a branch or snapshot. With the volume's seed a
//! hash tells a reader of the copy whether a guessed name is right. So the copy has another seed, new names drawn by chance, and keys that
//! hash like those. They are chosen such that they order like the old ones ([`solve`]): then every item stays in its node, and all nodes
//! stay as they are but for the bytes of names and keys. All that is left of a name is its length.
//!
//! One pass over the nodes notes every key with such a hash, wherever it stands: in items, between nodes, in inodes that know their
//! name, and in deletions on their way. Each gets one place in the order, for all trees together, as trees share nodes.
//!
//! Memory: about 120 bytes for each name, in all trees together.

mod draw;
mod solve;

use holdfast_base::prng::{Prng, entropy};
use holdfast_format::item::dentry::{self, Dentry};
use holdfast_format::item::hold::{HoldHead, HoldItem};
use holdfast_format::item::lineage::{LINEAGE, MAIN_NAME, TreeHead, WalkItem, name_key};
use holdfast_format::item::{InodeItem, TreeItem, TreeKind, Xattr};
use holdfast_format::{ItemKind, Key, NodeView, Superblock};

use crate::error::SalvageError;
use draw::{Hashing, Shape};
use solve::{Solver, Unit};

/// A key that was met, and the name at it, if there is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Met {
    inode: u64,
    kind: ItemKind,
    offset: u64,
    /// Tells names apart.
    ident: u64,
    shape: Shape,
    /// Whether the key is one of the name.
    is_right: bool,
    /// A name that stays.
    is_fixed: bool,
}

impl Met {
    fn key(&self) -> Key {
        Key::new(holdfast_base::InodeNo(self.inode), self.kind, self.offset)
    }
}

/// What takes the place of what was met.
struct Replaced {
    met: Met,
    offset: u64,
    draw: u64,
}

/// Collects the keys of names.
pub(crate) struct Gathering {
    /// The seed of the volume.
    seed: u64,
    /// Of this run: what names are told apart by.
    secret: u64,
    met: Vec<Met>,
    /// As many were sorted, without those that came twice.
    sorted: usize,
}

/// Notes are sorted when so many have come since the last time, or as many as there were then.
const SORT_FROM: usize = 1 << 16;

/// Seeds that are tried.
const SEEDS: u32 = 6;

impl Gathering {
    pub(crate) fn new(superblock: &Superblock) -> Gathering {
        Gathering { seed: superblock.hash_seed, secret: entropy(), met: Vec::new(), sorted: 0 }
    }

    /// Notes the names of a sound node.
    pub(crate) fn node(&mut self, node: &NodeView<'_>) {
        for (key, value) in node.items() {
            match node.level() {
                0 => self.item(&key, value),
                _ => self.key(&key),
            }
        }
        if self.met.len() > 2 * self.sorted + SORT_FROM {
            self.sort();
        }
    }

    fn item(&mut self, key: &Key, value: &[u8]) {
        match key.kind {
            ItemKind::Dentry => match Dentry::decode(value) {
                Ok(dentry) => self.named(key, dentry.name, Shape::of(dentry.name)),
                Err(_) => self.key(key),
            },
            ItemKind::Xattr => match Xattr::decode(value) {
                Ok(xattr) => self.named(key, xattr.name, Shape::of_attribute(xattr.name)),
                Err(_) => self.key(key),
            },
            ItemKind::Inode => {
                if let Ok(inode) = InodeItem::decode(value) {
                    self.key(&Key::new(inode.parent, ItemKind::Dentry, inode.parent_slot));
                }
            }
            ItemKind::Walk => {
                if let Some(key) = walk_key(value) {
                    self.key(&key);
                }
            }
            ItemKind::Tree => {
                if let Some((key, item)) = name_of(value) {
                    let shape = Shape { branch: item.branch, ..Shape::of(&item.name) };
                    self.named(&key, &item.name, shape);
                }
            }
            ItemKind::Hold => match tag_of(key, value) {
                Some((hold, shape)) => self.named(key, &hold.tag, shape),
                None => self.key(key),
            },
            _ => self.key(key),
        }
    }

    /// A key that may be one of a name.
    fn key(&mut self, key: &Key) {
        if is_hashed(key) {
            self.met.push(Met {
                inode: key.inode.0,
                kind: key.kind,
                offset: key.offset,
                ident: 0,
                shape: Shape::default(),
                is_right: false,
                is_fixed: false,
            });
        }
    }

    fn named(&mut self, key: &Key, name: &[u8], shape: Shape) {
        let is_fixed = is_fixed(key.kind, shape, name);
        let is_right = is_summed(key.kind) || dentry::slot(self.seed, name) == key.offset & !0xff;
        self.met.push(Met {
            inode: key.inode.0,
            kind: key.kind,
            offset: key.offset,
            ident: ident(self.secret, name),
            shape,
            is_right,
            is_fixed,
        });
    }

    fn sort(&mut self) {
        self.met.sort_unstable();
        self.met.dedup();
        self.sorted = self.met.len();
    }

    /// Finds a name for each. Whether there are enough short ones in the order that is wanted is a matter of the seed: others are tried.
    pub(crate) fn solve(mut self) -> Result<Scrambled, SalvageError> {
        self.sort();
        for _ in 1..SEEDS {
            match self.with_seed(entropy()) {
                Err(SalvageError::NamesStay(_)) => {}
                done => return done,
            }
        }
        self.with_seed(entropy())
    }

    fn with_seed(&self, seed: u64) -> Result<Scrambled, SalvageError> {
        let prng = || Prng::seeded(entropy());
        let mut slots = Solver::new(Hashing::Slots(seed), prng());
        let mut sums = Solver::new(Hashing::Sums, prng());
        let mut replaced = Vec::with_capacity(self.met.len());
        for group in self.met.chunk_by(|a, b| (a.inode, a.kind) == (b.inode, b.kind)) {
            let (solver, hashing) = match group[0].kind {
                kind if is_summed(kind) => (&mut sums, Hashing::Sums),
                _ => (&mut slots, Hashing::Slots(seed)),
            };
            replace(group, solver, hashing, &mut replaced)?;
        }
        Ok(Scrambled { old_seed: self.seed, seed, secret: self.secret, replaced })
    }
}

/// Finds keys and names for all keys of one kind of one inode.
fn replace(
    group: &[Met],
    solver: &mut Solver,
    hashing: Hashing,
    replaced: &mut Vec<Replaced>,
) -> Result<(), SalvageError> {
    // Keys of one hash are of one name, which may stand there twice where a volume is damaged. Names that differ have one hash
    // only if they were made to.
    let mut units: Vec<(u64, Option<u64>, Unit)> = Vec::new();
    let mut unit_of = Vec::with_capacity(group.len());
    let mut before = None;
    for met in group {
        let hash = met.offset >> hashing.probe_bits();
        let is_at_key = before == Some(met.offset);
        before = Some(met.offset);
        let ident = (met.is_right && met.shape.len > 0).then_some(met.ident);
        let fits = |unit: &(u64, Option<u64>, Unit)| {
            unit.0 == hash
                && (is_at_key || ident.is_none() || unit.1.is_none_or(|it| Some(it) == ident))
        };
        if !units.last().is_some_and(fits) {
            let unit = Unit { shape: Shape::default(), fixed: None };
            units.push((hash, None, unit));
        }
        let at = units.len() - 1;
        let unit = &mut units[at];
        if ident.is_some() && unit.1.is_none() {
            let fixed = met.is_fixed.then_some(hash);
            (unit.1, unit.2) = (ident, Unit { shape: met.shape, fixed });
        }
        unit_of.push(at);
    }
    let wanted: Vec<Unit> = units.iter().map(|(.., unit)| *unit).collect();
    let Some(drawn) = solver.solve(&wanted) else {
        return Err(SalvageError::NamesStay(group[0].inode));
    };
    for (met, at) in group.iter().zip(unit_of) {
        let is_own = met.is_right && units[at].1 == Some(met.ident);
        let draw = match is_own || met.shape.len == 0 {
            true => drawn[at].draw,
            // As wrong as it was.
            false => solver.draw_beside(met.shape, drawn[at].hash),
        };
        let probe = met.offset & ((1 << hashing.probe_bits()) - 1);
        let offset = drawn[at].hash << hashing.probe_bits() | probe;
        replaced.push(Replaced { met: *met, offset, draw });
    }
    Ok(())
}

/// Whether the offset of a key is made of a name.
fn is_hashed(key: &Key) -> bool {
    let is_kind = matches!(key.kind, ItemKind::Dentry | ItemKind::Xattr | ItemKind::Hold)
        || key.kind == ItemKind::Name && key.inode.0 == LINEAGE;
    // Ends of ranges, and an inode that knows no name.
    is_kind && key.offset != 0 && key.offset != u64::MAX
}

/// Whether the offsets of these keys are sums of a number and a name.
fn is_summed(kind: ItemKind) -> bool {
    matches!(kind, ItemKind::Name | ItemKind::Hold)
}

/// The hold in an item that stands at the key of its tag.
fn tag_of(key: &Key, value: &[u8]) -> Option<(HoldItem, Shape)> {
    let (hold, id) = (HoldItem::decode(value).ok()?, key.inode.0.checked_sub(LINEAGE)?);
    let shape = Shape { branch: id, ..Shape::of(&hold.tag) };
    (*key == HoldItem::key(id, &hold.tag)).then_some((hold, shape))
}

/// `main` is called so in every volume.
fn is_fixed(kind: ItemKind, shape: Shape, name: &[u8]) -> bool {
    kind == ItemKind::Name && shape.branch == 0 && name == MAIN_NAME
}

fn ident(secret: u64, name: &[u8]) -> u64 {
    dentry::slot(secret, name) >> 8
}

/// The key of the name of a branch or snapshot, if it has one.
fn name_of(value: &[u8]) -> Option<(Key, TreeItem)> {
    let mut item = TreeItem::decode(value).ok().filter(|item| !item.name.is_empty())?;
    if item.kind == TreeKind::Branch {
        item.branch = 0;
    }
    Some((name_key(item.branch, &item.name), item))
}

/// The key at which a deletion goes on.
fn walk_key(value: &[u8]) -> Option<Key> {
    WalkItem::decode(value).ok()?;
    Key::decode(value).ok()
}

/// What takes the place of each name and of each key of one.
pub(crate) struct Scrambled {
    old_seed: u64,
    seed: u64,
    secret: u64,
    /// Upwards by what was met.
    replaced: Vec<Replaced>,
}

/// Bytes and where they go.
pub(crate) type Edits = Vec<(usize, Vec<u8>)>;

/// Where the offset stands in a key.
const OFFSET_AT: usize = 8;

impl Scrambled {
    /// The seed in the place of another: where superblocks disagree they do so in the copy.
    pub(crate) fn seed(&self, of: u64) -> u64 {
        self.seed ^ self.old_seed ^ of
    }

    /// What to write over the record at `start`. What of its value is not known is not kept by the caller.
    pub(crate) fn record(&self, start: usize, key: &Key, value: Option<&[u8]>, edits: &mut Edits) {
        if let Some(offset) = self.offset(key) {
            edits.push((start + OFFSET_AT, offset.to_le_bytes().into()));
        }
        let at = start + Key::SIZE;
        let Some(value) = value else { return };
        match key.kind {
            ItemKind::Dentry => {
                if let Ok(dentry) = Dentry::decode(value) {
                    let shape = Shape::of(dentry.name);
                    let name = self.name(key, dentry.name, shape);
                    edits.push((at + dentry::DentryHead::SIZE, name));
                }
            }
            ItemKind::Xattr => {
                if let Ok(xattr) = Xattr::decode(value) {
                    let name = self.name(key, xattr.name, Shape::of_attribute(xattr.name));
                    edits.push((at + holdfast_format::item::xattr::XattrHead::SIZE, name));
                }
            }
            ItemKind::Inode => {
                if let Ok(mut inode) = InodeItem::decode(value) {
                    let known = Key::new(inode.parent, ItemKind::Dentry, inode.parent_slot);
                    if let Some(offset) = self.offset(&known) {
                        inode.parent_slot = offset;
                        edits.push((at, inode.encode()));
                    }
                }
            }
            ItemKind::Walk => {
                let offset = walk_key(value).and_then(|key| self.offset(&key));
                edits.extend(offset.map(|offset| (at + OFFSET_AT, offset.to_le_bytes().into())));
            }
            ItemKind::Tree => {
                if let Some((key, item)) = name_of(value) {
                    let shape = Shape { branch: item.branch, ..Shape::of(&item.name) };
                    let name = self.name(&key, &item.name, shape);
                    edits.push((at + TreeHead::SIZE, name));
                }
            }
            ItemKind::Hold => {
                if let Some((hold, shape)) = tag_of(key, value) {
                    edits.push((at + HoldHead::SIZE, self.name(key, &hold.tag, shape)));
                }
            }
            _ => {}
        }
    }

    fn offset(&self, key: &Key) -> Option<u64> {
        let of = |it: &Replaced| it.met.key();
        let at = self.replaced.partition_point(|it| of(it) < *key);
        self.replaced.get(at).filter(|it| of(it) == *key).map(|it| it.offset)
    }

    /// What takes the place of `name`, of the same length. Letters that mean nothing where that was not met before, as a
    /// device says something else each time.
    fn name(&self, key: &Key, name: &[u8], shape: Shape) -> Vec<u8> {
        if is_fixed(key.kind, shape, name) {
            return name.to_vec();
        }
        let wanted = (*key, ident(self.secret, name));
        let of = |it: &Replaced| (it.met.key(), it.met.ident);
        let at = self.replaced.partition_point(|it| of(it) < wanted);
        let draw = self.replaced.get(at).filter(|it| of(it) == wanted).map_or(0, |it| it.draw);
        let mut drawn = Vec::new();
        shape.name(draw, &mut drawn);
        drawn
    }
}
