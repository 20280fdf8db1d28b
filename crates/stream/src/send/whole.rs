//! All of a snapshot: directory by directory, each with all below it before what comes behind it.

use holdfast_base::InodeNo;
use holdfast_posix::FileType;

use super::Sender;
use crate::Result;
use crate::error::Doing;
use crate::frame::Sink;
use crate::record::ROOT;

/// Names that are read at once.
const PORTION: usize = 256;

/// A directory on the way down.
struct Level {
    id: u64,
    /// Behind the last name that was read.
    cookie: u64,
    /// Names that were read, backwards.
    names: Vec<(Vec<u8>, u64, FileType)>,
    all_read: bool,
}

impl<O: Sink> Sender<'_, O> {
    pub(super) fn whole(&mut self) -> Result<()> {
        let level = |id| Level { id, cookie: 0, names: Vec::new(), all_read: false };
        let mut levels = vec![level(ROOT)];
        while let Some(here) = levels.last_mut() {
            let Some((name, id, file_type)) = here.names.pop() else {
                if !here.all_read {
                    self.read_names(here)?;
                    continue;
                }
                let id = here.id;
                levels.pop();
                self.end_directory(id, false)?;
                continue;
            };
            let dir = here.id;
            self.make_room()?;
            self.know(dir)?;
            let attr = self.expect(id)?;
            match file_type {
                FileType::Directory => {
                    self.make(&attr, Some((dir, &name)))?;
                    levels.push(level(id));
                }
                _ if attr.nlink > 1 => self.link(&attr, dir, &name)?,
                _ => self.make_whole(&attr, Some((dir, &name)))?,
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
                names.push((entry.name.to_vec(), entry.inode.0, entry.file_type));
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
