//! The plain filesystem in memory that is obviously right.
//!
//! Inodes in a map, directories as maps, everything done in the order in which
//! Linux checks it, called by root. Tests run hundreds of random scripts on it
//! and on filesystems of the host: that is how we know that it is right.
//!
//! Clones are cheap (unchanged inodes are shared), so an oracle can keep the
//! state after every operation. A crash loses nothing here but the handles: the
//! model shows the latest state that a crash may leave, and
//! [`Model::states`] shows the earlier ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bytes::Data;
use crate::content::Content;
use crate::errno::Errno;
use crate::op::*;
use crate::outcome::{Answer, Kind, Mtime, Outcome, Stat};
use crate::target::{Handles, Target};

type Answered = Result<Answer, Errno>;
type Number = u64;

const ROOT: Number = 1;
const NAME_MAX: usize = 255;
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: u64 = 65536;

/// What an inode is.
#[derive(Clone, Debug)]
enum Body {
    File(Content),
    Dir {
        entries: BTreeMap<Vec<u8>, Number>,
        parent: Number,
    },
    Symlink(Vec<u8>),
    Special(Kind, (u32, u32)),
}

#[derive(Clone, Debug)]
struct Inode {
    body: Body,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Names; for directories 2 and one for each directory in it.
    nlink: u32,
    mtime: Mtime,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A file without a name that may still get its first (O_TMPFILE).
    linkable: bool,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
struct Open {
    inode: Number,
    how: OpenHow,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<Number, Arc<Inode>>,
    next: Number,
    handles: Handles<Open>,
    open: BTreeMap<Number, u32>,
    /// Largest size of a file.
    size_max: u64,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// An empty filesystem: a root directory of mode 755.
    pub fn new() -> Model {
        let root = Inode {
            body: Body::Dir {
                entries: BTreeMap::new(),
                parent: ROOT,
            },
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: 2,
            mtime: Mtime::Now,
            xattrs: BTreeMap::new(),
            linkable: false,
        };
        Model {
            inodes: BTreeMap::from([(ROOT, Arc::new(root))]),
            next: ROOT + 1,
            handles: Handles::default(),
            open: BTreeMap::new(),
            size_max: i64::MAX as u64 - 4095,
        }
    }

    /// With another largest size of a file.
    pub fn with_size_max(mut self, size_max: u64) -> Model {
        self.size_max = size_max;
        self
    }

    /// The state after each operation: element 0 is the empty filesystem, element k what the
    /// first k operations leave.
    pub fn states(script: &Script) -> Vec<Model> {
        let mut states = vec![Model::new()];
        for op in script.ops() {
            let mut model = states[states.len() - 1].clone();
            model.apply(op);
            states.push(model);
        }
        states
    }

    /// Inodes that are in use, those without a name included.
    pub fn inode_count(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// The type of what `path` names.
    pub fn kind(&self, path: &Path) -> Result<Kind, Errno> {
        Ok(self.inode(self.find(path)?).kind())
    }

    /// The content that `path` names, if it is a regular file.
    pub fn content(&self, path: &Path) -> Option<&Content> {
        match &self.inode(self.find(path).ok()?).body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    // -- inodes ----------------------------------------------------------------------------------

    fn inode(&self, number: Number) -> &Inode {
        &self.inodes[&number]
    }

    fn inode_mut(&mut self, number: Number) -> &mut Inode {
        Arc::make_mut(
            self.inodes
                .get_mut(&number)
                .expect("a number that was just looked up"),
        )
    }

    fn entries(&mut self, dir: Number) -> &mut BTreeMap<Vec<u8>, Number> {
        match &mut self.inode_mut(dir).body {
            Body::Dir { entries, .. } => entries,
            _ => unreachable!("only directories are looked into"),
        }
    }

    fn file(&mut self, number: Number) -> &mut Content {
        match &mut self.inode_mut(number).body {
            Body::File(content) => content,
            _ => unreachable!("only regular files are opened"),
        }
    }

    /// Forgets an inode that has neither a name nor a handle.
    fn reap(&mut self, number: Number) {
        if self.inode(number).nlink == 0 && !self.open.contains_key(&number) {
            self.inodes.remove(&number);
        }
    }

    fn changed(&mut self, number: Number) {
        self.inode_mut(number).mtime = Mtime::Now;
    }

    // -- names -----------------------------------------------------------------------------------

    /// One step of a walk.
    fn lookup(&self, dir: Number, name: &[u8]) -> Result<Number, Errno> {
        match &self.inode(dir).body {
            Body::Dir { .. } if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            Body::Dir { entries, .. } => entries.get(name).copied().ok_or(Errno::ENOENT),
            Body::Symlink(_) => Err(Errno::ELOOP),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn find(&self, path: &Path) -> Result<Number, Errno> {
        path.names()
            .try_fold(ROOT, |dir, name| self.lookup(dir, name))
    }

    /// The directory that holds the last name, which need not exist. Names of the root cannot change: EBUSY.
    fn parent<'a>(&self, path: &'a Path) -> Result<(Number, &'a [u8]), Errno> {
        let (parent, name) = path.split().ok_or(Errno::EBUSY)?;
        let dir = self.find(&parent)?;
        match self.inode(dir).kind() {
            Kind::Dir => {}
            Kind::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::ENOTDIR),
        }
        Ok((dir, name))
    }

    /// A place for a new name.
    fn vacancy<'a>(&self, path: &'a Path) -> Result<(Number, &'a [u8]), Errno> {
        let (dir, name) = self.parent(path)?;
        match self.lookup(dir, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => Ok((dir, name)),
            Err(errno) => Err(errno),
        }
    }

    /// A new inode in `dir`; a set-group-id directory hands its group on.
    fn make(&mut self, dir: Number, body: Body, mode: u32) -> Number {
        let (parent_mode, parent_gid) = (self.inode(dir).mode, self.inode(dir).gid);
        let inherits = parent_mode & 0o2000 != 0;
        let is_dir = matches!(body, Body::Dir { .. });
        let inode = Inode {
            mode: if inherits && is_dir {
                mode | 0o2000
            } else {
                mode
            },
            uid: 0,
            gid: if inherits { parent_gid } else { 0 },
            nlink: if is_dir { 2 } else { 1 },
            mtime: Mtime::Now,
            xattrs: BTreeMap::new(),
            linkable: false,
            body,
        };
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Arc::new(inode));
        number
    }

    /// Puts a name into a directory.
    fn enter(&mut self, dir: Number, name: &[u8], number: Number) {
        self.entries(dir).insert(name.to_vec(), number);
        if let Body::Dir { parent, .. } = &mut self.inode_mut(number).body {
            *parent = dir;
            self.inode_mut(dir).nlink += 1;
        }
        self.changed(dir);
    }

    /// Takes a name out of a directory; the inode keeps its link count.
    fn leave(&mut self, dir: Number, name: &[u8]) -> Number {
        let number = self
            .entries(dir)
            .remove(name)
            .expect("the name was just looked up");
        if self.inode(number).kind() == Kind::Dir {
            self.inode_mut(dir).nlink -= 1;
        }
        self.changed(dir);
        number
    }

    fn create(&mut self, path: &Path, body: Body, mode: u32) -> Result<Number, Errno> {
        let (dir, name) = self.vacancy(path)?;
        let number = self.make(dir, body, mode);
        self.enter(dir, name, number);
        Ok(number)
    }

    /// What a removed or replaced inode loses.
    fn drop_link(&mut self, number: Number) {
        let inode = self.inode_mut(number);
        inode.nlink = if inode.kind() == Kind::Dir {
            0
        } else {
            inode.nlink - 1
        };
        self.reap(number);
    }

    fn is_empty_dir(&self, number: Number) -> bool {
        matches!(&self.inode(number).body, Body::Dir { entries, .. } if entries.is_empty())
    }

    fn unlink(&mut self, path: &Path) -> Answered {
        let (dir, name) = self.parent(path)?;
        let number = self.lookup(dir, name)?;
        if self.inode(number).kind() == Kind::Dir {
            return Err(Errno::EISDIR);
        }
        self.leave(dir, name);
        self.drop_link(number);
        Ok(Answer::Done)
    }

    fn rmdir(&mut self, path: &Path) -> Answered {
        let (dir, name) = self.parent(path)?;
        let number = self.lookup(dir, name)?;
        if self.inode(number).kind() != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        if !self.is_empty_dir(number) {
            return Err(Errno::ENOTEMPTY);
        }
        self.leave(dir, name);
        self.drop_link(number);
        Ok(Answer::Done)
    }

    fn link(&mut self, from: &Place, to: &Path) -> Answered {
        let number = self.place(from)?;
        let (dir, name) = self.vacancy(to)?;
        let inode = self.inode(number);
        if inode.kind() == Kind::Dir {
            return Err(Errno::EPERM);
        }
        if inode.nlink == 0 && !inode.linkable {
            return Err(Errno::ENOENT);
        }
        let inode = self.inode_mut(number);
        inode.nlink += 1;
        inode.linkable = false;
        self.enter(dir, name, number);
        Ok(Answer::Done)
    }

    /// Whether `dir` is `above` or lies below it.
    fn is_below(&self, mut dir: Number, above: Number) -> bool {
        loop {
            match &self.inode(dir).body {
                _ if dir == above => return true,
                Body::Dir { parent, .. } if dir != ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: &Path, to: &Path, how: RenameHow) -> Answered {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        let moved = self.lookup(old_dir, old_name)?;
        let target = match self.lookup(new_dir, new_name) {
            Ok(_) if how == RenameHow::NoReplace => return Err(Errno::EEXIST),
            Ok(number) => Some(number),
            Err(Errno::ENOENT) if how != RenameHow::Exchange => None,
            Err(errno) => return Err(errno),
        };
        if self.is_below(new_dir, moved) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target {
            if self.is_below(old_dir, target) {
                return Err(match how {
                    RenameHow::Exchange => Errno::EINVAL,
                    _ => Errno::ENOTEMPTY,
                });
            }
            if target == moved {
                return Ok(Answer::Done);
            }
        }
        match (target, how) {
            (Some(target), RenameHow::Exchange) => {
                self.leave(old_dir, old_name);
                self.leave(new_dir, new_name);
                self.enter(old_dir, old_name, target);
                self.enter(new_dir, new_name, moved);
                return Ok(Answer::Done);
            }
            (Some(target), _) => {
                match (self.inode(moved).kind(), self.inode(target).kind()) {
                    (Kind::Dir, Kind::Dir) if !self.is_empty_dir(target) => {
                        return Err(Errno::ENOTEMPTY);
                    }
                    (Kind::Dir, Kind::Dir) => {}
                    (Kind::Dir, _) => return Err(Errno::ENOTDIR),
                    (_, Kind::Dir) => return Err(Errno::EISDIR),
                    _ => {}
                }
                self.leave(new_dir, new_name);
                self.drop_link(target);
            }
            (None, _) => {}
        }
        self.leave(old_dir, old_name);
        self.enter(new_dir, new_name, moved);
        Ok(Answer::Done)
    }

    // -- open files ------------------------------------------------------------------------------

    fn open(&mut self, handle: &Handle, path: &Path, how: OpenHow) -> Answered {
        self.handles.check_free(handle)?;
        let found = match path.split() {
            None => Ok(ROOT),
            Some(_) => {
                let (dir, name) = self.parent(path)?;
                self.lookup(dir, name)
            }
        };
        let number = match found {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Ok(number) => {
                self.inode(number).kind().refuses_bytes()?;
                if how.truncate {
                    self.file(number).truncate(0);
                    self.changed(number);
                }
                number
            }
            Err(Errno::ENOENT) if how.create => {
                self.create(path, Body::File(Content::default()), 0o644)?
            }
            Err(errno) => return Err(errno),
        };
        self.handles.insert(handle, Open { inode: number, how });
        *self.open.entry(number).or_default() += 1;
        Ok(Answer::Done)
    }

    fn tmpfile(&mut self, handle: &Handle, dir: &Path, mode: u32) -> Answered {
        self.handles.check_free(handle)?;
        let dir = self.find(dir)?;
        match self.inode(dir).kind() {
            Kind::Dir => {}
            Kind::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::ENOTDIR),
        }
        let number = self.make(dir, Body::File(Content::default()), mode);
        let inode = self.inode_mut(number);
        inode.nlink = 0;
        inode.linkable = true;
        let how = OpenHow {
            read: true,
            write: true,
            ..OpenHow::default()
        };
        self.handles.insert(handle, Open { inode: number, how });
        self.open.insert(number, 1);
        Ok(Answer::Done)
    }

    fn closed(&mut self, number: Number) {
        match self.open.get_mut(&number) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.open.remove(&number);
                self.reap(number);
            }
        }
    }

    fn close_all(&mut self) {
        for open in self.handles.drain() {
            self.closed(open.inode);
        }
    }

    /// The inode that an operation on attributes means.
    fn place(&self, place: &Place) -> Result<Number, Errno> {
        match place {
            Place::Path(path) => self.find(path),
            Place::Handle(handle) => Ok(self.handles.get(handle)?.inode),
        }
    }

    /// The regular file that an operation on bytes means, opened as if for everything.
    fn opened(&self, place: &Place) -> Result<Open, Errno> {
        match place {
            Place::Handle(handle) => Ok(*self.handles.get(handle)?),
            Place::Path(path) => {
                let inode = self.find(path)?;
                self.inode(inode).kind().refuses_bytes()?;
                let how = OpenHow {
                    read: true,
                    write: true,
                    ..OpenHow::default()
                };
                Ok(Open { inode, how })
            }
        }
    }

    // -- bytes -----------------------------------------------------------------------------------

    fn write(&mut self, open: Open, offset: u64, data: &Data) -> Answered {
        if !open.how.write {
            return Err(Errno::EBADF);
        }
        let size_max = self.size_max;
        let content = self.file(open.inode);
        let offset = if open.how.append {
            content.size()
        } else {
            offset
        };
        if data.is_empty() {
            return Ok(Answer::Done);
        }
        if offset
            .checked_add(data.len())
            .is_none_or(|end| end > size_max)
        {
            return Err(Errno::EFBIG);
        }
        content.write(offset, &data.bytes());
        self.changed(open.inode);
        Ok(Answer::Done)
    }

    fn read(&mut self, place: &Place, offset: u64, len: u64) -> Answered {
        let open = self.opened(place)?;
        if !open.how.read {
            return Err(Errno::EBADF);
        }
        Ok(Answer::Bytes(self.file(open.inode).read(offset, len)))
    }

    fn sum(&mut self, place: &Place) -> Answered {
        let open = self.opened(place)?;
        if !open.how.read {
            return Err(Errno::EBADF);
        }
        let content = self.file(open.inode);
        Ok(Answer::Sum(content.size(), content.digest()))
    }

    fn truncate(&mut self, place: &Place, size: u64) -> Answered {
        let open = self.opened(place)?;
        if !open.how.write {
            return Err(Errno::EINVAL);
        }
        if size > self.size_max {
            return Err(Errno::EFBIG);
        }
        self.file(open.inode).truncate(size);
        self.changed(open.inode);
        Ok(Answer::Done)
    }

    fn fallocate(&mut self, place: &Place, how: Fallocate, offset: u64, len: u64) -> Answered {
        let open = self.opened(place)?;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        if !open.how.write {
            return Err(Errno::EBADF);
        }
        if offset
            .checked_add(len)
            .is_none_or(|end| end > self.size_max)
        {
            return Err(Errno::EFBIG);
        }
        let content = self.file(open.inode);
        if matches!(
            how,
            Fallocate::Punch | Fallocate::Zero | Fallocate::ZeroKeep
        ) {
            content.zero(offset, len);
        }
        if matches!(how, Fallocate::Allocate | Fallocate::Zero) && offset + len > content.size() {
            content.truncate(offset + len);
        }
        // tmpfs leaves the time alone where ext4 sets it.
        self.inode_mut(open.inode).mtime = Mtime::Unsure;
        Ok(Answer::Done)
    }

    fn seek(&mut self, place: &Place, whence: Whence, offset: u64) -> Answered {
        let open = self.opened(place)?;
        let content = self.file(open.inode);
        if offset >= content.size() {
            return Err(Errno::ENXIO);
        }
        match whence {
            Whence::Data => content
                .next_data(offset)
                .map(Answer::Position)
                .ok_or(Errno::ENXIO),
            Whence::Hole => Ok(Answer::Position(content.next_hole(offset))),
        }
    }

    // -- attributes ------------------------------------------------------------------------------

    fn chmod(&mut self, place: &Place, mode: u32) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        if inode.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.mode = mode;
        Ok(Answer::Done)
    }

    fn chown(&mut self, place: &Place, uid: Option<u32>, gid: Option<u32>) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        if inode.kind() != Kind::Dir {
            // Set-group-id without group execution once meant mandatory locking and stays.
            let group = if inode.mode & 0o2010 == 0o2010 {
                0o2000
            } else {
                0
            };
            inode.mode &= !(0o4000 | group);
        }
        Ok(Answer::Done)
    }

    fn utimes(&mut self, place: &Place, mtime: SetTime) -> Answered {
        let number = self.place(place)?;
        let inode = self.inode_mut(number);
        inode.mtime = match mtime {
            SetTime::Omit => inode.mtime,
            SetTime::Now => Mtime::Now,
            SetTime::At { secs, nanos } => Mtime::seen(secs, nanos),
        };
        Ok(Answer::Done)
    }

    /// Checks what Linux checks of an attribute's name. `absent` is said where the file cannot have user attributes.
    fn xattr(&self, place: &Place, name: &[u8], absent: Errno) -> Result<Number, Errno> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        let number = self.place(place)?;
        let kind = self.inode(number).kind();
        if name.starts_with(b"user.") && !matches!(kind, Kind::File | Kind::Dir) {
            return Err(absent);
        }
        if !name.starts_with(b"user.") && !name.starts_with(b"trusted.") {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(number)
    }

    fn setxattr(&mut self, place: &Place, name: &[u8], value: &Data, how: XattrHow) -> Answered {
        if name.len() <= XATTR_NAME_MAX && value.len() > XATTR_VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let number = self.xattr(place, name, Errno::EPERM)?;
        let inode = self.inode_mut(number);
        match how {
            XattrHow::Create if inode.xattrs.contains_key(name) => return Err(Errno::EEXIST),
            XattrHow::Replace if !inode.xattrs.contains_key(name) => return Err(Errno::ENODATA),
            _ => inode.xattrs.insert(name.to_vec(), value.bytes()),
        };
        Ok(Answer::Done)
    }

    fn getxattr(&mut self, place: &Place, name: &[u8]) -> Answered {
        let number = self.xattr(place, name, Errno::ENODATA)?;
        self.inode(number)
            .xattrs
            .get(name)
            .cloned()
            .map(Answer::Bytes)
            .ok_or(Errno::ENODATA)
    }

    fn removexattr(&mut self, place: &Place, name: &[u8]) -> Answered {
        let number = self.xattr(place, name, Errno::EPERM)?;
        self.inode_mut(number)
            .xattrs
            .remove(name)
            .map(|_| Answer::Done)
            .ok_or(Errno::ENODATA)
    }

    fn ls(&self, path: &Path) -> Answered {
        match &self.inode(self.find(path)?).body {
            Body::Dir { entries, .. } => Ok(Answer::Names(
                entries
                    .iter()
                    .map(|(name, &number)| (name.clone(), self.inode(number).kind()))
                    .collect(),
            )),
            Body::Symlink(_) => Err(Errno::ELOOP),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Files, directories and handles can be made durable.
    fn fsync(&self, place: &Place) -> Answered {
        match self.inode(self.place(place)?).kind() {
            Kind::Dir => Ok(Answer::Done),
            kind => kind.refuses_bytes().map(|()| Answer::Done),
        }
    }

    fn answer(&mut self, op: &Op) -> Answered {
        let dir = || Body::Dir {
            entries: BTreeMap::new(),
            parent: ROOT,
        };
        let done = |_| Answer::Done;
        match op {
            // The kernel takes the set-id bits of mkdir's mode away.
            Op::Mkdir { path, mode } => self.create(path, dir(), mode & 0o1777).map(done),
            Op::Mkfile { path, mode } => self
                .create(path, Body::File(Content::default()), *mode)
                .map(done),
            Op::Mknod { path, kind, mode } => {
                let (kind, device) = kind.parts();
                self.create(path, Body::Special(kind, device), *mode)
                    .map(done)
            }
            Op::Symlink { target, path } => {
                if target.is_empty() {
                    return Err(Errno::ENOENT);
                }
                if target.len() > 4095 {
                    return Err(Errno::ENAMETOOLONG);
                }
                self.create(path, Body::Symlink(target.clone()), 0o777)
                    .map(done)
            }
            Op::Readlink { path } => match &self.inode(self.find(path)?).body {
                Body::Symlink(target) => Ok(Answer::Target(target.clone())),
                _ => Err(Errno::EINVAL),
            },
            Op::Link { from, to } => self.link(from, to),
            Op::Unlink { path } => self.unlink(path),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Open { handle, path, how } => self.open(handle, path, *how),
            Op::Tmpfile { handle, dir, mode } => self.tmpfile(handle, dir, *mode),
            Op::Close { handle } => {
                let open = self.handles.remove(handle)?;
                self.closed(open.inode);
                Ok(Answer::Done)
            }
            Op::Write {
                place,
                offset,
                data,
            } => self.write(self.opened(place)?, *offset, data),
            Op::Append { path, data } => {
                let mut open = self.opened(&Place::Path(path.clone()))?;
                open.how.append = true;
                self.write(open, 0, data)
            }
            Op::Read { place, offset, len } => self.read(place, *offset, *len),
            Op::Sum { place } => self.sum(place),
            Op::Truncate { place, size } => self.truncate(place, *size),
            Op::Fallocate {
                place,
                how,
                offset,
                len,
            } => self.fallocate(place, *how, *offset, *len),
            Op::Seek {
                place,
                whence,
                offset,
            } => self.seek(place, *whence, *offset),
            Op::Stat { place } => {
                let number = self.place(place)?;
                Ok(Answer::Stat(self.inode(number).stat(number)))
            }
            Op::Chmod { place, mode } => self.chmod(place, *mode),
            Op::Chown { place, uid, gid } => self.chown(place, *uid, *gid),
            Op::Utimes { place, mtime, .. } => self.utimes(place, *mtime),
            Op::Setxattr {
                place,
                name,
                value,
                how,
            } => self.setxattr(place, name, value, *how),
            Op::Getxattr { place, name } => self.getxattr(place, name),
            Op::Removexattr { place, name } => self.removexattr(place, name),
            Op::Listxattr { place } => {
                let inode = self.inode(self.place(place)?);
                Ok(Answer::Attributes(inode.xattrs.keys().cloned().collect()))
            }
            Op::Ls { path } => self.ls(path),
            Op::Fsync { place } | Op::Fdatasync { place } => self.fsync(place),
            Op::Fsyncdir { path } => self.ls(path).map(done_with),
            Op::Sync | Op::Evict => Ok(Answer::Done),
            Op::Remount | Op::Crash => {
                self.close_all();
                Ok(Answer::Done)
            }
            Op::Tree => unreachable!("answered by apply"),
        }
    }
}

/// Whatever was seen, it only counts that it could be.
fn done_with(_: Answer) -> Answer {
    Answer::Done
}

impl Inode {
    fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    fn stat(&self, number: Number) -> Stat {
        let (size, device) = match &self.body {
            Body::File(content) => (content.size(), (0, 0)),
            Body::Symlink(target) => (target.len() as u64, (0, 0)),
            Body::Special(_, device) => (0, *device),
            Body::Dir { .. } => (0, (0, 0)),
        };
        Stat {
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size,
            device,
            mtime: self.mtime,
            inode: number,
        }
    }
}

impl Target for Model {
    fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Tree => match self.walk() {
                Ok(tree) => Outcome::Ok(Answer::Tree(Box::new(tree))),
                Err(_) => Outcome::Err(Errno::EIO),
            },
            op => self.answer(op).into(),
        }
    }
}
