//! Names that are drawn by chance, and the hashes by which trees order them.

use holdfast_format::item::dentry::slot;
use holdfast_format::item::lineage::name_key;

/// Letters that names are drawn from: each takes six bits of a draw.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Letters of a name that differ by chance; those behind them repeat these. Sixty bits are enough to meet any hash.
const DRAWN: usize = 10;
/// Set in a draw whose name has any bytes that a name may have.
const ANY_BYTES: u64 = 1 << 63;
/// Bytes that a name in a directory may have.
const BYTES: u64 = 254;
/// Names of so few bytes are listed rather than drawn: there may be one left that fits.
pub(super) const LISTED_MAX: usize = 2;
/// Namespaces of attributes, which stay.
const NAMESPACES: [&[u8]; 5] = [b"", b"user.", b"trusted.", b"security.", b"system."];

/// How the keys of names come about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hashing {
    /// Entries of a directory and attributes: the upper 55 bits of a hash with this seed.
    Slots(u64),
    /// Branches and snapshots: a sum of the branch and the name.
    Sums,
}

impl Hashing {
    /// Hashes are above 0 and below this.
    pub(super) fn end(self) -> u64 {
        match self {
            Hashing::Slots(_) => 1 << 55,
            Hashing::Sums => u64::MAX,
        }
    }

    /// Low bits of a key's offset that are no part of the hash.
    pub(super) fn probe_bits(self) -> u32 {
        match self {
            Hashing::Slots(_) => 8,
            Hashing::Sums => 0,
        }
    }

    pub(super) fn of(self, shape: Shape, name: &[u8]) -> u64 {
        match self {
            Hashing::Slots(seed) => slot(seed, name) >> 8,
            Hashing::Sums => name_key(shape.branch, name).offset,
        }
    }
}

/// What stays of a name.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Shape {
    /// Bytes in all; 0: a key without a name.
    pub(super) len: u8,
    /// Number of its namespace in [`NAMESPACES`].
    pub(super) namespace: u8,
    /// Of a snapshot's name the branch.
    pub(super) branch: u64,
}

impl Shape {
    pub(super) fn of(name: &[u8]) -> Shape {
        Shape { len: name.len() as u8, ..Shape::default() }
    }

    pub(super) fn of_attribute(name: &[u8]) -> Shape {
        let is_in = |space: &&[u8]| name.len() > space.len() && name.starts_with(space);
        let namespace = NAMESPACES.iter().rposition(is_in).unwrap_or(0) as u8;
        Shape { namespace, ..Shape::of(name) }
    }

    fn prefix(self) -> &'static [u8] {
        NAMESPACES.get(usize::from(self.namespace)).copied().unwrap_or_default()
    }

    /// Bytes that are drawn.
    pub(super) fn free(self) -> usize {
        usize::from(self.len).saturating_sub(self.prefix().len())
    }

    /// How many names of [`LISTED_MAX`] bytes or fewer there are.
    pub(super) fn listed(self, is_any: bool) -> u64 {
        let each = if is_any { BYTES } else { LETTERS.len() as u64 };
        each.pow(self.free().min(LISTED_MAX) as u32)
    }

    /// The draw of the name of this number, of those that are listed.
    pub(super) fn draw_of(self, number: u64, is_any: bool) -> u64 {
        if !is_any {
            return number;
        }
        ANY_BYTES | (number / BYTES) << 8 | (number % BYTES)
    }

    /// Makes a random number a draw.
    pub(super) fn draw(self, random: u64, is_any: bool) -> u64 {
        // Where they are enough, letters are easier to read.
        if is_any && self.free() <= LISTED_MAX + 1 {
            random | ANY_BYTES
        } else {
            random & !ANY_BYTES
        }
    }

    /// The name of a draw.
    pub(super) fn name(self, draw: u64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(self.prefix());
        let byte = |index: usize| match draw & ANY_BYTES {
            0 => LETTERS[(draw >> (6 * (index % DRAWN)) & 63) as usize],
            // All but NUL and `/`.
            _ => match (draw >> (8 * (index % 7)) & 0xff) % BYTES + 1 {
                byte if byte >= u64::from(b'/') => byte as u8 + 1,
                byte => byte as u8,
            },
        };
        into.extend((0..self.free()).map(byte));
        // The only names that a directory refuses of these.
        if matches!(into.as_slice(), b"." | b"..") {
            into.fill(b'_');
        }
    }
}
