//! All of a snapshot: directory by directory, each with all below it before what comes behind it.

use holdfast_base::InodeNo;
use holdfast_posix::FileType;

use super::Sender;
use crate::error::Doing;
use crate::frame::Sink;
use crate::record::ROOT;
use crate::{Result, StreamError};

/// Names that are read at once.
const PORTION: usize = 256;
/// Directories on the way down that may have read names ahead; then those are read again.
const AHEAD_MAX: usize = 256;
/// Directories on the way down.
const LEVELS_MAX: usize = 1 << 20;

/// A directory on the way down.
struct Level {
    id: u64,
    /// Behind the last name that was read.
    cookie: u64,
    /// Behind the last name that was taken.
    taken: u64,
    /// Names that were read, backwards.
    names: Vec<Name>,
    all_read: bool,
}

/// A name, and what is behind it.
struct Name {
    name: Vec<u8>,
    id: u64,
    file_type: FileType,
    cookie: u64,
}

impl Level {
    fn of(id: u64) -> Level {
        Level { id, cookie: 0, taken: 0, names: Vec::new(), all_read: false }
    }

    /// Forgets names that were read ahead.
    fn let_go(&mut self) {
        self.all_read &= self.names.is_empty();
        (self.names, self.cookie) = (Vec::new(), self.taken);
    }
}

impl<O: Sink> Sender<'_, O> {
    pub(super) fn whole(&mut self) -> Result<()> {
        let mut levels = vec![Level::of(ROOT)];
        while let Some(here) = levels.last_mut() {
            let Some(Name { name, id, file_type, cookie }) = here.names.pop() else {
                if !here.all_read {
                    self.read_names(here)?;
                    continue;
                }
                let id = here.id;
                levels.pop();
                self.end_directory(id, false)?;
                continue;
            };
            here.taken = cookie;
            let dir = here.id;
            self.make_room()?;
            self.know(dir)?;
            if file_type == FileType::Directory {
                let attr = self.new.below(dir, &name)?;
                self.make(&attr, Some((dir, &name)))?;
                if levels.len() >= LEVELS_MAX {
                    return StreamError::refused(format!("inode {id} lies too deep to be sent"));
                }
                if levels.len() % AHEAD_MAX == 0 {
                    levels.iter_mut().for_each(Level::let_go);
                }
                levels.push(Level::of(attr.inode.0));
                continue;
            }
            let attr = self.expect(id)?;
            match attr.nlink > 1 {
                true => self.link(&attr, dir, &name)?,
                false => self.make_whole(&attr, Some((dir, &name)))?,
            }
        }
        Ok(())
    }

    fn read_names(&self, here: &mut Level) -> Result<()> {
        let (names, cookie) = (&mut here.names, &mut here.cookie);
        let mut is_full = false;
        let read = self.new.fs.readdir(InodeNo(here.id), *cookie, &mut |entry| {
            *cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                let (name, cookie) = (entry.name.to_vec(), entry.cookie);
                names.push(Name { name, id: entry.inode.0, file_type: entry.file_type, cookie });
            }
            is_full = names.len() >= PORTION;
            !is_full
        });
        read.doing(|| self.new.called(here.id))?;
        here.names.reverse();
        here.all_read = !is_full;
        Ok(())
    }

    /// What a directory is, when nothing in it changes any more.
    pub(super) fn end_directory(&mut self, id: u64, had_some: bool) -> Result<()> {
        self.make_room()?;
        self.know(id)?;
        let attr = self.expect(id)?;
        self.xattrs(id, had_some)?;
        self.attributes(&attr)
    }
}
