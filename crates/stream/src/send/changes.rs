//! What makes one snapshot another.
//!
//! The difference comes in no useful order, so it is gone through three times, and only names of what is left to do are kept:
//!
//! ```text
//!  1  names that go: what stays alive is parked
//!  2  directories: new ones are made, from above; those that were renamed leave the parking place
//!  3  everything else: made, renamed, changed
//!  4  attributes of directories, when nothing in them changes any more
//! ```
//!
//! Behind the first pass each name that comes is free. In the second the directories that have a place are those of the new tree,
//! so that none comes to lie in itself.

use holdfast::{Change, ChangeKind, Diff};
use holdfast_posix::FileType;
use roaring::RoaringTreemap;

use super::Sender;
use crate::error::Doing;
use crate::frame::Sink;
use crate::record::{Gone, Named3, Record};
use crate::{Result, StreamError};

/// What is remembered from one pass to the next, by their inodes. Of ten million directories, which have numbers near each
/// other, that is 20 MB; far apart, each costs some twenty bytes.
#[derive(Default)]
struct Directories {
    /// Those that are new and made.
    made: RoaringTreemap,
    /// Those whose attributes are sent in the end.
    touched: RoaringTreemap,
}

fn is_directory(change: &Change) -> bool {
    change.file_type == FileType::Directory
}

/// A path that a change of its kind has.
fn path(path: &Option<Vec<u8>>) -> Result<&[u8]> {
    path.as_deref().ok_or_else(|| StreamError::Refused("a difference without a path".into()))
}

impl<O: Sink> Sender<'_, O> {
    pub(super) fn changes(&mut self) -> Result<()> {
        let mut of = Directories::default();
        self.pass(false, &mut of, Sender::names_that_go)?;
        self.pass(false, &mut of, Sender::directory)?;
        self.pass(true, &mut of, Sender::other)?;
        for id in of.touched {
            if self.new.has(id)? {
                let had_some = self.base_has(id)?;
                self.end_directory(id, had_some)?;
            }
        }
        Ok(())
    }

    fn pass(
        &mut self,
        ranges: bool,
        of: &mut Directories,
        mut act: impl FnMut(&mut Self, &Change, &mut Directories) -> Result<()>,
    ) -> Result<()> {
        for change in self.diff(ranges)? {
            let change = change.doing(|| "what has changed".into())?;
            self.make_room()?;
            act(self, &change, of)?;
        }
        Ok(())
    }

    fn diff(&self, ranges: bool) -> Result<Diff> {
        let Some(base) = &self.base else {
            return StreamError::refused("a difference needs two snapshots");
        };
        self.new.diff_from(base, ranges)
    }

    fn base_has(&self, id: u64) -> Result<bool> {
        self.base.as_ref().map_or(Ok(false), |base| base.has(id))
    }

    fn names_that_go(&mut self, change: &Change, of: &mut Directories) -> Result<()> {
        let is_renamed = change.kind == ChangeKind::Renamed;
        if !is_renamed && change.kind != ChangeKind::Removed {
            return Ok(());
        }
        let Some(base) = &mut self.base else { return Ok(()) };
        let (dir, name) = base.place_of_path(path(&change.old_path)?)?;
        let stays = is_renamed || is_directory(change) || change.new_size.is_some();
        let park = stays.then_some(change.inode.0);
        self.know(dir)?;
        of.touched.insert(dir);
        self.put(&Record::Gone(Gone { dir, name: &name, park }))
    }

    fn directory(&mut self, change: &Change, of: &mut Directories) -> Result<()> {
        if !is_directory(change) || change.kind == ChangeKind::Removed {
            return Ok(());
        }
        let id = change.inode.0;
        of.touched.insert(id);
        match change.kind {
            ChangeKind::Created => self.make_directory(id, of),
            ChangeKind::Renamed => {
                let (dir, name) = self.new.place(id)?;
                self.directory_above(dir, of)?;
                self.know(id)?;
                self.put(&Record::Move(Named3 { id, dir, name: &name }))
            }
            _ => Ok(()),
        }
    }

    /// Makes a new directory, and new ones above it first.
    fn make_directory(&mut self, id: u64, of: &mut Directories) -> Result<()> {
        let mut way = Vec::new();
        let mut at = id;
        while !of.made.contains(at) && !self.base_has(at)? {
            of.made.insert(at);
            let (dir, name) = self.new.place(at)?;
            way.push((at, dir, name));
            at = dir;
        }
        for (id, dir, name) in way.into_iter().rev() {
            self.make_room()?;
            self.know(dir)?;
            of.touched.extend([id, dir]);
            let attr = self.expect(id)?;
            self.make(&attr, Some((dir, &name)))?;
        }
        Ok(())
    }

    /// A directory in which something is about to get a name.
    fn directory_above(&mut self, dir: u64, of: &mut Directories) -> Result<()> {
        self.make_directory(dir, of)?;
        of.touched.insert(dir);
        self.know(dir)
    }

    fn other(&mut self, change: &Change, of: &mut Directories) -> Result<()> {
        if is_directory(change) || change.kind == ChangeKind::Removed {
            return Ok(());
        }
        let id = change.inode.0;
        let attr = self.expect(id)?;
        if change.kind == ChangeKind::Created {
            let (dir, name) = self.new.place_of_path(path(&change.new_path)?)?;
            self.directory_above(dir, of)?;
            if !change.is_link {
                return self.make_whole(&attr, Some((dir, &name)));
            }
            if !self.base_has(id)? {
                return self.link(&attr, dir, &name);
            }
            self.know(id)?;
            self.put(&Record::Link(Named3 { id, dir, name: &name }))?;
            return self.attributes(&attr);
        }
        self.know(id)?;
        if change.kind == ChangeKind::Renamed {
            let (dir, name) = self.new.place_of_path(path(&change.new_path)?)?;
            self.directory_above(dir, of)?;
            self.put(&Record::Move(Named3 { id, dir, name: &name }))?;
        }
        if change.parts.content && attr.file_type == FileType::Regular {
            self.changed_content(&attr, change.old_size.unwrap_or(0), &change.ranges)?;
        }
        if change.parts.xattrs {
            self.xattrs(id, true)?;
        }
        self.attributes(&attr)
    }
}
