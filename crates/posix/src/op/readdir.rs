//! The names of a directory.
//!
//! An entry's cookie is the offset of its key, which never changes while the
//! entry lives. Entries are copied out in portions, and none of the tree's
//! locks is held while they are shown.
//!
//! No name is given twice, whatever a damaged volume holds: a walk by names finds each directory in another once (P10).

use std::ops::{ControlFlow, Range};

use holdfast_base::InodeNo;
use holdfast_format::item::dentry::{self, DentryHead};
use holdfast_format::item::{Dentry, FileType};
use holdfast_format::{ItemKind, Key, Malformed};

use crate::core::Core;
use crate::error::damaged_item;
use crate::*;

/// Entries copied at once: some KiB, read under one lock.
const PORTION: usize = 128;
/// The cookie after `.`.
const AFTER_DOT: u64 = 1;
/// The cookie after `..`.
const AFTER_DOTS: u64 = 2;

/// Copied entries. The names lie one after the other in `text`.
#[derive(Default)]
struct Portion {
    text: Vec<u8>,
    entries: Vec<(u64, InodeNo, FileType, Range<usize>)>,
}

impl FileSystem {
    /// Calls `visit` for the entries after `cookie` (0: from the start), until it answers false. Every entry that exists all the time is seen once; others may be. `visit` may call the filesystem.
    pub fn readdir(
        &self,
        dir: InodeNo,
        cookie: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let core = &*self.core;
        let inode = core.inode(dir)?;
        inode.expect_directory()?;
        let parent = {
            let state = inode.state.read();
            state.expect_alive()?;
            state.attr.parent
        };
        atime::touch(core, &inode);
        for (at, name, inode) in [(AFTER_DOT, &b"."[..], dir), (AFTER_DOTS, &b".."[..], parent)] {
            let entry = DirEntry { inode, file_type: FileType::Directory, name, cookie: at };
            if cookie < at && !visit(entry) {
                return Ok(());
            }
        }
        let mut portion = Portion::default();
        let mut after = cookie.max(AFTER_DOTS);
        loop {
            portion.fill(core, dir, after)?;
            for (cookie, inode, file_type, name) in &portion.entries {
                after = *cookie;
                let name = &portion.text[name.clone()];
                let (inode, file_type, cookie) = (*inode, *file_type, *cookie);
                if !is_first(core, dir, name, cookie)? {
                    continue;
                }
                if !visit(DirEntry { inode, file_type, name, cookie }) {
                    return Ok(());
                }
            }
            if portion.entries.len() < PORTION {
                return Ok(());
            }
        }
    }
}

/// Whether a search for the name of an entry, which lies where its hash says, finds this one. It does if no other lies before it.
fn is_first(core: &Core, dir: InodeNo, name: &[u8], offset: u64) -> Result<bool> {
    if offset == core.slot(name) {
        return Ok(true);
    }
    Ok(names::find(core, dir, name)?.entry.is_some_and(|found| found.offset == offset))
}

impl Portion {
    /// Copies the first entries after the cookie `after`.
    fn fill(&mut self, core: &Core, dir: InodeNo, after: u64) -> Result<()> {
        self.text.clear();
        self.entries.clear();
        let Some(first) = after.checked_add(1) else {
            return Ok(());
        };
        let from = Key::new(dir, ItemKind::Dentry, first);
        let (_, to) = Key::span(dir, ItemKind::Dentry);
        let mut damage = None;
        core.store.scan(&from, &to, |key, value| {
            match Dentry::decode(value) {
                Ok(entry) if dentry::slot_of(key.offset) != core.slot(entry.name) => {
                    let why = format!("it lies at {:#x}, where its hash does not lead", key.offset);
                    damage = Some(Malformed::new(DentryHead::TITLE, why));
                }
                Ok(entry) => {
                    let start = self.text.len();
                    self.text.extend_from_slice(entry.name);
                    let name = start..self.text.len();
                    self.entries.push((key.offset, entry.inode, entry.file_type, name));
                }
                Err(source) => damage = Some(source),
            }
            if damage.is_none() && self.entries.len() < PORTION {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        match damage {
            None => Ok(()),
            Some(source) => {
                let what = format!("an entry of {}", core.called(dir));
                Err(damaged_item(&core.store, what, source).into())
            }
        }
    }
}
