//! A tree that is read, by inode numbers.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast::{Diff, FileSystem, Snapshot, Volume};
use holdfast_base::InodeNo;
use holdfast_posix::{Attr, Caller, FileType, FsError};

use crate::error::Doing;
use crate::{Result, StreamError};

/// A directory and a name in it.
pub(super) type NameAt = (u64, Vec<u8>);

/// A tree that is read: a snapshot, or a view.
pub(crate) struct SentTree {
    /// What messages call it.
    what: String,
    /// Before the volume, which waits at its end until nothing else has the engine.
    pub(crate) fs: Arc<FileSystem>,
    volume: Volume,
    pub(super) caller: Caller,
    /// The last directory that was looked for, without a slash behind.
    last_dir: Option<(Vec<u8>, u64)>,
    /// Where files of several names are that do not know it, once that was asked.
    searched: Option<HashMap<u64, NameAt>>,
}

impl SentTree {
    pub(super) fn open(snapshot: &Snapshot) -> Result<SentTree> {
        let what = format!("snapshot {}", snapshot.name());
        let volume = snapshot.open().doing(|| what.clone())?;
        SentTree::of(volume, what)
    }

    /// What is open, and has no other writer; messages call it `what`.
    pub(crate) fn of(volume: Volume, what: String) -> Result<SentTree> {
        let fs = volume.engine().doing(|| what.clone())?;
        let caller = Caller::root();
        Ok(SentTree { what, volume, fs, caller, last_dir: None, searched: None })
    }

    pub(crate) fn close(self) -> Result<()> {
        let SentTree { what, volume, fs, .. } = self;
        drop(fs);
        volume.close().doing(|| what)
    }

    /// What became of each file from another tree of the volume to this one.
    pub(crate) fn diff_from(&self, older: &SentTree, ranges: bool) -> Result<Diff> {
        self.volume.diff_from(&older.volume, ranges).doing(|| "what has changed".into())
    }

    /// An inode as messages name it.
    pub(super) fn called(&self, id: u64) -> String {
        self.fs.whereabouts(InodeNo(id)).of(InodeNo(id))
    }

    /// The attributes of an inode that has a name; `None`: it is not here.
    pub(super) fn attr(&self, id: u64) -> Result<Option<Attr>> {
        match self.fs.getattr(InodeNo(id)) {
            Err(FsError::NotFound) => Ok(None),
            attr => {
                let attr = attr.doing(|| self.called(id))?;
                Ok(Some(attr).filter(|attr| attr.nlink > 0))
            }
        }
    }

    /// What a name in a directory leads to. Of directories only what says that it has this name: so a way down ends, also in a damaged tree.
    pub(super) fn below(&self, dir: u64, name: &[u8]) -> Result<Attr> {
        self.fs.lookup(&self.caller, InodeNo(dir), name).doing(|| self.called(dir))
    }

    pub(super) fn has(&self, id: u64) -> Result<bool> {
        Ok(self.attr(id)?.is_some())
    }

    /// Where an inode is that has a name and is not the root.
    pub(super) fn place(&mut self, id: u64) -> Result<NameAt> {
        let found = self.fs.place_of(InodeNo(id)).doing(|| self.called(id))?;
        if let Some((dir, name)) = found {
            return Ok((dir.0, name));
        }
        if self.searched.is_none() {
            self.searched = Some(self.search()?);
        }
        let found = self.searched.as_ref().and_then(|found| found.get(&id));
        found
            .cloned()
            .ok_or_else(|| StreamError::Refused(format!("no name leads to {}", self.called(id))))
    }

    /// A name of each file that has several and does not know where. It takes a look at all names.
    fn search(&self) -> Result<HashMap<u64, NameAt>> {
        let mut found = HashMap::new();
        let mut dirs = vec![1];
        while let Some(dir) = dirs.pop() {
            let mut failed = None;
            let read = self.fs.readdir(InodeNo(dir), 0, &mut |entry| {
                let id = entry.inode.0;
                if entry.name == b"." || entry.name == b".." {
                    return true;
                }
                if entry.file_type == FileType::Directory {
                    match self.below(dir, entry.name) {
                        Ok(attr) => dirs.push(attr.inode.0),
                        Err(error) => failed = Some(error),
                    }
                    return failed.is_none();
                }
                match self.fs.place_of(entry.inode).doing(|| self.called(id)) {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        found.entry(id).or_insert_with(|| (dir, entry.name.to_vec()));
                    }
                    Err(error) => failed = Some(error),
                }
                failed.is_none()
            });
            read.doing(|| self.called(dir))?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(found)
    }

    /// The directory and the name of a path.
    pub(super) fn place_of_path(&mut self, path: &[u8]) -> Result<NameAt> {
        let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let id = match &self.last_dir {
            Some((last, id)) if *last == dir => *id,
            _ => {
                let mut id = InodeNo(1);
                for name in dir.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                    let found = self.fs.lookup(&self.caller, id, name);
                    id = found.doing(|| String::from_utf8_lossy(path).into_owned())?.inode;
                }
                self.last_dir = Some((dir.to_vec(), id.0));
                id.0
            }
        };
        Ok((id, name.to_vec()))
    }

    /// The names of the extended attributes of an inode that are sent.
    pub(super) fn xattrs(&self, id: u64) -> Result<Vec<Vec<u8>>> {
        let mut names = self.fs.listxattr(&self.caller, InodeNo(id)).doing(|| self.called(id))?;
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn xattr(&self, id: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(&self.caller, InodeNo(id), name).doing(|| self.called(id))
    }
}
