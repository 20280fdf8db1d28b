//! Room for what later programs bring: kinds of items and flags of inodes that this one does not know and carries along.
//!
//! A feature that adds such a thing sets a bit among the compat or the ro_compat features of the superblock. Without such
//! a bit nothing unknown may be there.

/// What the feature of an unknown kind or flag asks of a program that does not know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// Nothing: it keeps what it does not know as it is.
    Nothing,
    /// It must not write.
    NotToWrite,
}

/// Which unknown things a volume may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// The volume has an unknown compat feature.
    pub compat: bool,
    /// The volume has an unknown ro_compat feature.
    pub ro_compat: bool,
}

impl Carried {
    /// Nothing unknown.
    pub const NOTHING: Carried = Carried { compat: false, ro_compat: false };

    /// Whether something that `asks` this may be there.
    pub fn allows(self, asks: Asks) -> bool {
        match asks {
            Asks::Nothing => self.compat,
            Asks::NotToWrite => self.ro_compat,
        }
    }

    /// Whether anything unknown may be there.
    pub fn is_any(self) -> bool {
        self.compat || self.ro_compat
    }
}
