//! One record after the other is obeyed.
//!
//! What a stream says is judged as a program's calls are: by the filesystem, which answers nonsense with an error. Here is judged
//! what only a stream can get wrong.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{
    Attr, FallocateFlags, FileType, FsError, NewNode, OpenFlags, RenameFlags, SetAttr, SetTime,
    WriteHow, XattrFlags,
};

use crate::error::Doing;
use crate::files::{Entry, Files};
use crate::record::{
    Attributes, Gone, Kind, Known, Make, Named3, ROOT, Record, TABLE_MAX, Time, Where,
};
use crate::{Result, StreamError};

fn file_type(of: Kind) -> FileType {
    match of {
        Kind::Fifo => FileType::Fifo,
        Kind::CharDevice => FileType::CharDevice,
        Kind::Directory => FileType::Directory,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Regular => FileType::Regular,
        Kind::Symlink => FileType::Symlink,
        Kind::Socket => FileType::Socket,
    }
}

fn time(of: Time) -> Timestamp {
    Timestamp { secs: of.secs, nanos: of.nanos }
}

/// What is parked is called after the sender's number.
fn parked(id: u64) -> Vec<u8> {
    id.to_string().into_bytes()
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// The result of obeying a record: an error is about that record.
type Obeyed<T> = std::result::Result<T, Why>;

enum Why {
    /// The stream makes no sense.
    Stream(String),
    /// The volume says no.
    Volume { what: String, error: FsError },
}

fn nonsense<T>(why: impl Into<String>) -> Obeyed<T> {
    Err(Why::Stream(why.into()))
}

trait About<T> {
    fn about(self, what: impl FnOnce() -> String) -> Obeyed<T>;
}

impl<T> About<T> for std::result::Result<T, FsError> {
    fn about(self, what: impl FnOnce() -> String) -> Obeyed<T> {
        self.map_err(|error| Why::Volume { what: what(), error })
    }
}

impl Files {
    /// Obeys a record that begins at byte `position` of the stream.
    pub(crate) fn apply(&mut self, position: u64, record: Record<'_>) -> Result<()> {
        self.is_broken = true;
        let done = match record {
            Record::Known(known) => self.known(&known),
            Record::Reset => {
                self.table.retain(|id, _| *id == ROOT);
                Ok(())
            }
            Record::Gone(gone) => self.gone(&gone),
            Record::Make(make) => self.make(&make),
            Record::Move(to) => self.move_to(&to),
            Record::Link(to) => self.link(&to),
            Record::Data { id, offset, bytes } => self.data(id, offset, bytes),
            Record::Hole { id, offset, len } => self.hole(id, offset, len),
            Record::Size { id, size } => self.size(id, size),
            Record::Xattr { id, name, value } => self.xattr(id, name, Some(value)),
            Record::NoXattr { id, name } => self.xattr(id, name, None),
            Record::Attributes(attributes) => self.attributes(&attributes),
            Record::Begin(_) | Record::End(_) => nonsense("it begins or ends twice"),
        };
        match done {
            Ok(()) => {
                self.is_broken = false;
                Ok(())
            }
            Err(Why::Stream(why)) => Err(StreamError::Malformed { position, why }),
            // Not the stream's fault, or perhaps: a name that is taken, a directory in itself.
            Err(Why::Volume { what, error }) => match error {
                FsError::Store(_) | FsError::Io(_) => Err(error).doing(|| what),
                error => {
                    let why = format!("{what}: {error}");
                    Err(StreamError::Malformed { position, why })
                }
            },
        }
    }

    fn entry(&self, id: u64) -> Obeyed<Entry> {
        match self.table.get(&id) {
            Some(entry) => Ok(*entry),
            None => nonsense(format!("it speaks of file {id}, which it has not named")),
        }
    }

    fn directory(&self, id: u64) -> Obeyed<InodeNo> {
        let entry = self.entry(id)?;
        match entry.file_type {
            FileType::Directory => Ok(entry.inode),
            _ => nonsense(format!("file {id} is no directory")),
        }
    }

    fn add(&mut self, id: u64, attr: &Attr) -> Obeyed<()> {
        if self.table.len() >= TABLE_MAX {
            return nonsense("it speaks of too many files at a time");
        }
        self.lift_flags(id, attr.inode)?;
        let entry = Entry { inode: attr.inode, file_type: attr.file_type };
        match self.table.insert(id, entry) {
            None => Ok(()),
            Some(_) => nonsense(format!("it names file {id} twice")),
        }
    }

    /// Nothing forbids to change a file of a merge: see [`crate::flags`].
    fn lift_flags(&mut self, id: u64, inode: InodeNo) -> Obeyed<()> {
        let Some(flags) = &mut self.flags else { return Ok(()) };
        flags.lift(&self.fs, id, inode).about(|| format!("the flags of file {id}"))
    }

    fn known(&mut self, of: &Known<'_>) -> Obeyed<()> {
        let about = || format!("file {} ({})", of.id, shown(of.name));
        let found = match of.at {
            Where::Parked => {
                self.fs.lookup(&self.caller, self.parking.inode, &parked(of.id)).about(about)?
            }
            at => {
                let dir = self.directory(of.dir)?;
                if of.name == b"." || of.name == b".." {
                    return nonsense("it goes through . or ..");
                }
                let fs = match (at, &self.base) {
                    (Where::Base, Some(base)) => base,
                    (Where::Base, None) => return nonsense("it speaks of a base and has none"),
                    _ => &self.fs,
                };
                fs.lookup(&self.caller, dir, of.name).about(about)?
            }
        };
        if found.inode == self.parking.inode {
            return nonsense("it speaks of the directory of the receive itself");
        }
        self.add(of.id, &found)
    }

    fn gone(&mut self, of: &Gone<'_>) -> Obeyed<()> {
        let dir = self.directory(of.dir)?;
        let about = || format!("the name {}", shown(of.name));
        self.expect_ours(of.name)?;
        if self.flags.is_some() {
            let inode = self.fs.lookup(&self.caller, dir, of.name).about(about)?.inode;
            self.lift_flags(inode.0, inode)?;
        }
        if let Some(id) = of.park {
            let (fs, flags) = (&self.fs, RenameFlags::NOREPLACE);
            match fs.rename(&self.caller, dir, of.name, self.parking.inode, &parked(id), flags) {
                // Another name of the same file was parked before.
                Err(FsError::Exists) => {}
                done => return done.about(about),
            }
        }
        self.fs.unlink(&self.caller, dir, of.name).about(about)
    }

    /// The parking directory itself stays where it is.
    fn expect_ours(&self, name: &[u8]) -> Obeyed<()> {
        match name == self.parking.name {
            true => nonsense("it speaks of the directory of the receive itself"),
            false => Ok(()),
        }
    }

    fn make(&mut self, of: &Make<'_>) -> Obeyed<()> {
        let name = match of.dir {
            Some(_) => of.name.to_vec(),
            None => parked(of.id),
        };
        let dir = of.dir.map_or(Ok(self.parking.inode), |dir| self.directory(dir))?;
        let about = || format!("the name {}", shown(&name));
        let file_type = file_type(of.kind);
        let made = match file_type {
            FileType::Symlink => self.fs.symlink(&self.caller, dir, &name, of.target),
            file_type => {
                let new = NewNode { file_type, perm: 0o600, rdev: of.rdev };
                self.fs.mknod(&self.caller, dir, &name, new)
            }
        };
        let made = made.about(about)?;
        // What it inherits from its directory is not the stream's.
        for name in self.fs.listxattr(&self.caller, made.inode).about(about)? {
            self.fs.removexattr(&self.caller, made.inode, &name).about(about)?;
        }
        self.files = self.files.saturating_add(1);
        self.add(of.id, &made)
    }

    fn move_to(&mut self, of: &Named3<'_>) -> Obeyed<()> {
        self.entry(of.id)?;
        let dir = self.directory(of.dir)?;
        let flags = RenameFlags::NOREPLACE;
        self.fs
            .rename(&self.caller, self.parking.inode, &parked(of.id), dir, of.name, flags)
            .about(|| format!("the name {}", shown(of.name)))
    }

    fn link(&mut self, of: &Named3<'_>) -> Obeyed<()> {
        let (inode, dir) = (self.entry(of.id)?.inode, self.directory(of.dir)?);
        match self.fs.link(&self.caller, inode, dir, of.name) {
            // What is parked has one name too many.
            Err(FsError::TooManyLinks) => self.move_to(of),
            done => done.map(drop).about(|| format!("the name {}", shown(of.name))),
        }
    }

    /// Runs `act` with a regular file that is open for writing.
    fn with_file(
        &mut self,
        id: u64,
        act: impl FnOnce(&Self, &holdfast_posix::OpenFile) -> std::result::Result<(), FsError>,
    ) -> Obeyed<()> {
        let entry = self.entry(id)?;
        if entry.file_type != FileType::Regular {
            return nonsense(format!("file {id} has no bytes"));
        }
        let about = || format!("file {id}");
        let open = match self.open.take().filter(|open| open.inode() == entry.inode) {
            Some(open) => open,
            None => self.fs.open(&self.caller, entry.inode, OpenFlags::WRITE).about(about)?,
        };
        let done = act(self, &open).about(about);
        self.open = Some(open);
        done
    }

    fn data(&mut self, id: u64, offset: u64, bytes: &[u8]) -> Obeyed<()> {
        self.data_bytes = self.data_bytes.saturating_add(bytes.len() as u64);
        self.with_file(id, |files, file| {
            let (mut at, mut rest) = (offset, bytes);
            while !rest.is_empty() {
                let how = WriteHow::default();
                let len = files.fs.write(&files.caller, file, at, rest, how)?;
                if len == 0 {
                    return Err(FsError::Store(holdfast_posix::StoreError::NoSpace));
                }
                at = at.checked_add(len as u64).ok_or(FsError::FileTooLarge)?;
                rest = rest.get(len..).unwrap_or_default();
            }
            Ok(())
        })
    }

    fn hole(&mut self, id: u64, offset: u64, len: u64) -> Obeyed<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.with_file(id, |files, file| files.fs.fallocate(file, flags, offset, len))
    }

    fn size(&mut self, id: u64, size: u64) -> Obeyed<()> {
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.with_file(id, |files, file| {
            files.fs.setattr(&files.caller, file.inode(), Some(file), change).map(drop)
        })
    }

    fn xattr(&mut self, id: u64, name: &[u8], value: Option<&[u8]>) -> Obeyed<()> {
        let inode = self.entry(id)?.inode;
        let done = match value {
            Some(value) => {
                let flags = XattrFlags::empty();
                self.fs.setxattr(&self.caller, inode, name, value, flags)
            }
            None => self.fs.removexattr(&self.caller, inode, name),
        };
        done.about(|| format!("the attribute {} of file {id}", shown(name)))
    }

    fn attributes(&mut self, of: &Attributes) -> Obeyed<()> {
        let entry = self.entry(of.id)?;
        let all = [of.accessed, of.modified, of.created];
        if of.perm > 0o7777 || all.iter().any(|time| time.nanos >= 1_000_000_000) {
            return nonsense(format!("the attributes of file {} cannot be", of.id));
        }
        let change = SetAttr {
            perm: Some(of.perm),
            uid: Some(of.uid),
            gid: Some(of.gid),
            atime: Some(SetTime::At(time(of.accessed))),
            mtime: Some(SetTime::At(time(of.modified))),
            btime: Some(time(of.created)),
            ..SetAttr::default()
        };
        let change = self.beside_theirs(entry, change)?;
        if of.id == ROOT {
            // Work in it is not over.
            self.root = change;
            return Ok(());
        }
        self.fs
            .setattr(&self.caller, entry.inode, None, change)
            .about(|| format!("file {}", of.id))?;
        if entry.file_type != FileType::Directory {
            self.table.remove(&of.id);
            self.open = None;
        }
        Ok(())
    }

    /// Of a directory that was there before, others may have changed what did not change here, and its names: it gets what
    /// has changed here, and of times the later ones.
    fn beside_theirs(&self, entry: Entry, change: SetAttr) -> Obeyed<SetAttr> {
        let (Some(base), Some(theirs)) = (&self.base, &self.theirs) else { return Ok(change) };
        if entry.file_type != FileType::Directory {
            return Ok(change);
        }
        let about = || format!("directory {}", entry.inode);
        let was = match base.getattr(entry.inode) {
            Err(FsError::NotFound) => return Ok(change),
            was => was.about(about)?,
        };
        let theirs = theirs.getattr(entry.inode).about(about)?;
        let later = |here: Option<SetTime>, was: Timestamp, there: Timestamp| match here {
            Some(SetTime::At(here)) if here != was => Some(SetTime::At(here.max(there))),
            _ => Some(SetTime::At(there)),
        };
        Ok(SetAttr {
            perm: change.perm.filter(|perm| *perm != was.perm),
            uid: change.uid.filter(|uid| *uid != was.uid),
            gid: change.gid.filter(|gid| *gid != was.gid),
            atime: later(change.atime, was.atime, theirs.atime),
            mtime: later(change.mtime, was.mtime, theirs.mtime),
            btime: change.btime.filter(|btime| *btime != was.btime),
            ..SetAttr::default()
        })
    }
}
