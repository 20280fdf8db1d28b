//! Where an inode is: its path, for messages.
//!
//! Each inode says which directory holds its newest name, and at which key. So a path takes two look-ups for each of its
//! names, and no search. What the inodes say is believed only as far as a name of the inode is there; directories of a
//! damaged volume may lead in a circle, so the way is bounded.
//!
//! A path is what was there a moment ago: nothing is locked, and moves go on meanwhile.

use std::sync::{Arc, Weak};

use holdfast_base::{InodeNo, show};
use holdfast_format::item::{Dentry, InodeItem};
use holdfast_format::{ItemKind, Key};

use crate::core::Core;
use crate::error::damaged_item;
use crate::{FileSystem, FsError, Result};

/// Names that a path may have.
const NAMES_MAX: usize = 4096;
/// Bytes that a path may have; it is for people to read.
const BYTES_MAX: usize = 1 << 14;
/// How often the way is tried again: something was moved meanwhile.
const TRIES: usize = 3;

/// Where an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// At this path, as people read it: with control characters, backslashes and what is not UTF-8 escaped.
    At(String),
    /// Its directories lead in a circle, or it lies deeper than any path is long.
    Endless,
    /// It has no name, or has several and does not know where they are, or what it says cannot be read.
    Unknown,
}

impl Whereabouts {
    /// The path, if it is known.
    pub fn path(&self) -> Option<&str> {
        match self {
            Whereabouts::At(path) => Some(path),
            Whereabouts::Endless | Whereabouts::Unknown => None,
        }
    }

    /// The inode as messages name it: `inode 17 (/a/b)`.
    pub fn of(&self, inode: InodeNo) -> String {
        match self {
            Whereabouts::At(path) => format!("inode {inode} ({path})"),
            Whereabouts::Endless => {
                format!(
                    "inode {inode} (its directories lead in a circle or are too many; run fsck)"
                )
            }
            Whereabouts::Unknown => format!("inode {inode}"),
        }
    }
}

/// Which nodes may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// All.
    Anywhere,
    /// Only those in memory: the caller must not wait for the device.
    InMemory,
}

impl FileSystem {
    /// Where `inode` is. Takes two look-ups for each name of the path, and no search.
    pub fn whereabouts(&self, inode: InodeNo) -> Whereabouts {
        find(&self.core, inode, Look::Anywhere)
    }

    /// The directory that holds the newest name of an inode, and the name. `None`: it has several names and does not know where
    /// they are, or it is the root.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if it does not exist, or has no name.
    pub fn place_of(&self, inode: InodeNo) -> Result<Option<(InodeNo, Vec<u8>)>> {
        let core = &*self.core;
        let bytes = core.store.get(&Key::inode(inode))?.ok_or(FsError::NotFound)?;
        let damaged = |source| damaged_item(&core.store, format!("inode {inode}"), source);
        let item = InodeItem::decode(&bytes).map_err(damaged)?;
        if item.nlink == 0 {
            return Err(FsError::NotFound);
        }
        if item.parent.0 == 0 || inode == InodeNo::ROOT {
            return Ok(None);
        }
        let key = Key::new(item.parent, ItemKind::Dentry, item.parent_slot);
        let Some(bytes) = core.store.get(&key)? else { return Ok(None) };
        let name = Dentry::decode(&bytes).map_err(damaged)?;
        Ok((name.inode == inode).then(|| (item.parent, name.name.to_vec())))
    }

    /// For what outlives a call: names inodes as long as the filesystem is there, and from memory only.
    pub fn names(&self) -> Names {
        Names(Arc::downgrade(&self.core))
    }
}

/// Names inodes without a wait for the device. See [`FileSystem::names`].
#[derive(Clone, Debug, Default)]
pub struct Names(Weak<Core>);

impl Names {
    /// Where `inode` is.
    pub fn whereabouts(&self, inode: InodeNo) -> Whereabouts {
        let core = self.0.upgrade();
        core.map_or(Whereabouts::Unknown, |core| find(&core, inode, Look::InMemory))
    }
}

impl Core {
    /// `inode` as messages name it, with its path if that is known.
    pub(crate) fn called(&self, inode: InodeNo) -> String {
        find(self, inode, Look::Anywhere).of(inode)
    }
}

/// Where `inode` is.
fn find(core: &Core, inode: InodeNo, look: Look) -> Whereabouts {
    find_by(inode, &|key: &Key| match look {
        Look::InMemory if !core.store.is_in_memory(key) => None,
        _ => core.store.get(key).ok().flatten(),
    })
}

/// Where `inode` is in a tree that `get` reads.
pub(crate) fn find_by(inode: InodeNo, get: &dyn Fn(&Key) -> Option<Vec<u8>>) -> Whereabouts {
    for _ in 1..TRIES {
        match climb(inode, get) {
            Some(found) => return found,
            None => holdfast_sync::thread::yield_now(),
        }
    }
    climb(inode, get).unwrap_or(Whereabouts::Unknown)
}

/// `None`: it was not where it says; something may have been moved.
fn climb(inode: InodeNo, get: &dyn Fn(&Key) -> Option<Vec<u8>>) -> Option<Whereabouts> {
    let mut names: Vec<String> = Vec::new();
    let (mut at, mut bytes) = (inode, 0);
    while at != InodeNo::ROOT {
        let Some(item) = get(&Key::inode(at)) else {
            return Some(Whereabouts::Unknown);
        };
        let Ok(InodeItem { parent, parent_slot, .. }) = InodeItem::decode(&item) else {
            return Some(Whereabouts::Unknown);
        };
        if parent.0 == 0 {
            return Some(Whereabouts::Unknown);
        }
        if names.len() >= NAMES_MAX || bytes >= BYTES_MAX {
            return Some(Whereabouts::Endless);
        }
        let name = get(&Key::new(parent, ItemKind::Dentry, parent_slot))?;
        let name = Dentry::decode(&name).ok().filter(|name| name.inode == at)?;
        let name = show::name(name.name);
        bytes += name.len() + 1;
        names.push(name);
        at = parent;
    }
    names.reverse();
    Some(Whereabouts::At(format!("/{}", names.join("/"))))
}
