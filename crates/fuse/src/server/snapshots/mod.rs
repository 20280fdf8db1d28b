//! The directory `.snapshots`: what is in it, and what changes there.
//!
//! `mkdir` takes a snapshot of the mounted branch, `rmdir` deletes one, `rename` renames one. Each is durable when it is answered (P12). The
//! directory belongs to the owner of the root directory, and no other user may write there.

mod counted;
mod opened;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_base::switch::SnapDir;
use holdfast_posix::{
    Attr, Caller, DirEntry, FileSystem, FileType, FsError, NameChange, ShowsSnapshots,
    SnapshotInfo, Which,
};
use parking_lot::Mutex;

use super::Server;
use crate::interface::{Answer, DirSink, Entry, Errno, NodeId, Request};
use crate::mountinfo;
use crate::notices::Notice;
use crate::options::FuseOptions;
use crate::snapdir::NAME;
use crate::snapdir::number::{self, DIRECTORY, Node, SHOWN_DIRECTORY, Slot};
use crate::statistics::Operation;

/// Permissions of the directory.
const PERM: u32 = 0o755;
/// Where to go on behind `.` and `..`; behind a snapshot it is the snapshot's number and this.
const AFTER_DOTS: u64 = 2;

/// What a mount has of its snapshots.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// Whether there is a directory of them, and whether it is listed.
    pub(crate) shown: SnapDir,
    pub(super) opened: opened::Opened,
    /// What is listed: a listing that goes on shows what its beginning found.
    listed: Mutex<Arc<Vec<SnapshotInfo>>>,
    /// What attributes of the directory say.
    counts: counted::Counts,
    /// The branch whose snapshots these are.
    branch: AtomicU64,
}

thread_local! {
    /// The server whose kernel has asked for what this thread does, as the address of it: that kernel knows.
    static ASKED_BY: Cell<usize> = const { Cell::new(0) };
}

impl Snapshots {
    /// As the root of `fs` shows them.
    pub(super) fn of(fs: &FileSystem, shown: SnapDir) -> Snapshots {
        let branch = if shown == SnapDir::Off { Ok(0) } else { fs.branch_number() };
        Snapshots {
            shown,
            opened: Default::default(),
            listed: Mutex::default(),
            counts: Default::default(),
            branch: AtomicU64::new(branch.unwrap_or_default()),
        }
    }
}

impl Server {
    /// What the mount has of its snapshots; `None`: no directory of them.
    pub(crate) fn snapdir(&self) -> Option<&Snapshots> {
        (self.snapshots.shown != SnapDir::Off).then_some(&self.snapshots)
    }

    /// Whether a number is that of the directory of snapshots, or of what lies in it.
    pub(crate) fn lies_in_snapdir(&self, inode: InodeNo) -> bool {
        self.snapdir().is_some() && !matches!(number::node(inode.0), Node::Live(_))
    }

    /// Whether the root directory has an entry of that name, which is what the name leads to then.
    pub(crate) fn is_snapdir_hidden_by_an_entry(&self) -> Answer<bool> {
        match self.fs()?.lookup(&Caller::root(), InodeNo::ROOT, NAME) {
            Ok(_) => Ok(true),
            Err(FsError::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Attributes of the directory, and how long they may be believed.
    pub(crate) fn snapdir_attr(&self) -> Answer<(Attr, Duration)> {
        let fs = self.fs()?;
        let counted = self.snapshots.counts.get(|| named(&fs))?;
        Ok((attr(&fs, counted)?, Duration::ZERO))
    }

    /// The kernel forgets the listing that a process which has died gave it: what came behind that may be untold.
    pub(crate) fn forget_listing_of_snapshots(&self) {
        if self.snapdir().is_some() {
            self.notices.note(Notice::Inode(DIRECTORY.0));
        }
    }

    /// Runs what the kernel has asked for.
    fn asked_by_kernel<R>(&self, act: impl FnOnce() -> R) -> R {
        let before = ASKED_BY.replace(std::ptr::from_ref(self).addr());
        let done = act();
        ASKED_BY.set(before);
        done
    }

    /// The directory, as a name leads to it.
    pub(crate) fn snapdir_entry(&self) -> Answer<Entry> {
        let (attr, ttl) = self.snapdir_attr()?;
        let node = NodeId { number: DIRECTORY.0, generation: 0 };
        Ok(Entry { node, attr: Some(attr), ttl })
    }

    /// Whether the caller may do what `mask` says with the directory. Only asked when the kernel does not check itself.
    pub(crate) fn access_snapdir(&self, request: &Request, mask: i32) -> Answer<()> {
        match mask & libc::W_OK {
            0 => Ok(()),
            _ => {
                let fs = self.fs()?;
                self.expect_to_write_snapdir(&fs, request)
            }
        }
    }

    /// What the name of a snapshot leads to.
    pub(crate) fn lookup_snapshot(&self, name: &[u8]) -> Answer<Entry> {
        let _timed = self.timed(Operation::Lookup);
        let fs = self.fs()?;
        match fs.find_snapshot(fs.branch_number()?, name) {
            Ok(found) => self.snapshot_entry(&fs, found.number),
            Err(error) => match error.errno() {
                libc::ENOENT => Ok(Entry::none(Duration::ZERO)),
                // No snapshot has such a name.
                libc::EINVAL => Err(Errno(libc::ENOENT)),
                _ => Err(error.into()),
            },
        }
    }

    /// Takes a snapshot.
    ///
    /// # Errors
    /// There is none behind any error, but for one that says that it could not be taken back (EIO).
    pub(crate) fn take_snapshot(&self, request: &Request, name: &[u8]) -> Answer<Entry> {
        let _timed = self.timed(Operation::Create);
        let fs = self.fs()?;
        self.expect_to_write_snapdir(&fs, request)?;
        let branch = fs.branch_number()?;
        let root = fs.getattr(InodeNo::ROOT)?;
        let number = self.asked_by_kernel(|| fs.snapshot_of(branch, name))?;
        let slot = match self.snapshots.opened.refer(number) {
            Ok(slot) => slot,
            Err(error) => {
                // The kernel cannot know it.
                fs.delete_snapshot(branch, number)?;
                return Err(error);
            }
        };
        // It is there, whether it can be opened now or not; then its root is as that of the branch was a moment ago.
        let opened = self.snapshot_of(&fs, slot).and_then(|of| of.getattr(InodeNo::ROOT));
        let attr = opened.map_or(root, |(attr, _)| attr);
        self.root_entry(slot, number, attr)
    }

    /// Deletes a snapshot, unless a mount has its very directory as its root or layer. What programs use of it, in whichever mount, they go on
    /// using.
    pub(crate) fn delete_snapshot(&self, request: &Request, name: &[u8]) -> Answer<()> {
        let _timed = self.timed(Operation::Remove);
        let fs = self.fs()?;
        self.expect_to_write_snapdir(&fs, request)?;
        // Linux shows the directory itself empty from then on to all who have it: a directory below it goes on.
        let root = Path::new("/").join(path_of(NAME)).join(path_of(name));
        if self.device.as_ref().is_some_and(|device| mountinfo::is_root(device, &root, request.pid))
        {
            return Err(Errno(libc::EBUSY));
        }
        let branch = fs.branch_number()?;
        Ok(self.asked_by_kernel(|| fs.delete_snapshot(branch, name))?)
    }

    /// Renames a snapshot. No other is replaced.
    pub(crate) fn rename_snapshot(
        &self,
        request: &Request,
        name: &[u8],
        new_name: &[u8],
        flags: u32,
    ) -> Answer<()> {
        let _timed = self.timed(Operation::Rename);
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let fs = self.fs()?;
        self.expect_to_write_snapdir(&fs, request)?;
        let branch = fs.branch_number()?;
        Ok(self.asked_by_kernel(|| fs.rename_snapshot(branch, name, new_name))?)
    }

    /// Gives the entries after `cookie` to `sink` until it is full.
    pub(crate) fn list_snapshots(&self, cookie: u64, sink: &mut dyn DirSink) -> Answer<()> {
        let _timed = self.timed(Operation::List);
        let fs = self.fs()?;
        for (at, name, inode) in
            [(1, &b"."[..], SHOWN_DIRECTORY), (AFTER_DOTS, b"..", InodeNo::ROOT)]
        {
            let entry = DirEntry { inode, file_type: FileType::Directory, name, cookie: at };
            if cookie < at && !sink.add(&entry, None) {
                return Ok(());
            }
        }
        let listed = {
            let mut listed = self.snapshots.listed.lock();
            if cookie <= AFTER_DOTS {
                *listed = Arc::new(named(&fs)?);
            }
            Arc::clone(&listed)
        };
        let seen = listed.partition_point(|of| of.number.saturating_add(AFTER_DOTS) <= cookie);
        for of in listed.iter().skip(seen) {
            let slot = self.snapshots.opened.slot(of.number)?;
            let entry = DirEntry {
                inode: self.shown_in_snapshot(slot, InodeNo::ROOT)?,
                file_type: FileType::Directory,
                name: &of.name,
                cookie: of.number.saturating_add(AFTER_DOTS),
            };
            if !sink.add(&entry, None) {
                break;
            }
        }
        Ok(())
    }

    /// What answers requests about a snapshot.
    pub(crate) fn snapshot(&self, slot: Slot) -> Answer<Arc<Server>> {
        let fs = self.fs()?;
        self.snapshot_of(&fs, slot)
    }

    /// Takes back references to what lies in a snapshot.
    pub(crate) fn forget_in_snapshot(&self, slot: Slot, inode: InodeNo, count: u64) {
        if let Some(of) = self.snapshots.opened.find(slot) {
            of.forget(inode, count);
        }
        if self.snapshots.opened.forget(slot, count)
            && let Ok(fs) = self.fs()
        {
            fs.go_on_with_deletions();
        }
    }

    fn snapshot_of(&self, fs: &FileSystem, slot: Slot) -> Answer<Arc<Server>> {
        self.snapshots.opened.server(slot, |snapshot| self.open_view(fs, snapshot))
    }

    /// As a view: it is in no call's way.
    fn open_view(&self, fs: &FileSystem, snapshot: u64) -> Answer<Server> {
        let branch = Which::Numbered(fs.branch_number()?);
        match fs.view(branch, Some(Which::Numbered(snapshot))) {
            Ok(opened) => Ok(self.beside(Arc::new(opened))),
            Err(error) if error.errno() == libc::ENOENT => Err(Errno(libc::ESTALE)),
            Err(error) => Err(error.into()),
        }
    }

    /// The root directory of a snapshot, as a name leads to it.
    fn snapshot_entry(&self, fs: &FileSystem, snapshot: u64) -> Answer<Entry> {
        let slot = self.snapshots.opened.refer(snapshot)?;
        let found = self.snapshot_of(fs, slot).and_then(|of| of.getattr(InodeNo::ROOT));
        match found {
            Ok((attr, _)) => self.root_entry(slot, snapshot, attr),
            Err(error) => {
                // The kernel does not get it.
                self.snapshots.opened.forget(slot, 1);
                Err(error)
            }
        }
    }

    /// The root directory of a snapshot, to which the kernel has a reference by now.
    fn root_entry(&self, slot: Slot, snapshot: u64, mut attr: Attr) -> Answer<Entry> {
        attr.inode = self.shown_in_snapshot(slot, InodeNo::ROOT)?;
        let number = number::inside(slot, InodeNo::ROOT)?;
        let node = NodeId { number, generation: snapshot as u32 };
        Ok(Entry { node, attr: Some(attr), ttl: Duration::ZERO })
    }

    /// The number of an inode of a snapshot, for programs.
    pub(crate) fn shown_in_snapshot(&self, slot: Slot, inode: InodeNo) -> Answer<InodeNo> {
        self.snapshots.opened.shown(slot, inode)
    }

    /// The kernel gets so many references to what lies in a snapshot.
    pub(crate) fn refer_to_snapshot(&self, slot: Slot, count: u64) {
        self.snapshots.opened.refer_again(slot, count);
    }

    /// The kernel has checked it, unless it checks nothing. What is mounted read-only, or for a user without the right to write, changes
    /// nothing, whatever the kernel lets through.
    fn expect_to_write_snapdir(&self, fs: &FileSystem, request: &Request) -> Answer<()> {
        if fs.options().read_only {
            return Err(Errno(libc::EROFS));
        }
        let caller = self.caller(fs, request)?;
        let is_allowed =
            caller.trusted || caller.uid == 0 || fs.getattr(InodeNo::ROOT)?.uid == caller.uid;
        match is_allowed {
            true => Ok(()),
            false => Err(Errno(libc::EACCES)),
        }
    }

    /// A server for what is open beside this one's filesystem, in the same mount.
    fn beside(&self, fs: Arc<FileSystem>) -> Server {
        let FuseOptions { owners, default_permissions, noxattr, ttl, .. } = self.options;
        let requests = Arc::clone(self.requests());
        let options = FuseOptions {
            owners,
            default_permissions,
            noxattr,
            ttl,
            requests,
            slow_fsync: None,
            snapdir: SnapDir::Off,
            ..FuseOptions::default()
        };
        let troubles = Arc::clone(&self.troubles);
        let kernel_opens = Arc::clone(&self.kernel_opens);
        Server { troubles, kernel_opens, ..Server::new(fs, options) }
    }
}

impl ShowsSnapshots for Server {
    fn keep(&self, snapshot: u64) {
        // The request that deletes may hold the filesystem: a waiter to drop it waits for both.
        let fs = self.fs.read_recursive();
        let Some(fs) = fs.as_ref() else { return };
        if let Err(Errno(error)) = self.snapshots.opened.keep(snapshot, |of| self.open_view(fs, of))
        {
            tracing::warn!("what programs use of snapshot {snapshot} is stale (error {error})");
        }
    }

    /// The kernel keeps much that is unused.
    fn tidy(&self) {
        let kept = self.snapshots.opened.kept();
        if !kept.is_empty() && self.kernel.get().is_some() {
            self.notices.note(Notice::Unwanted(kept));
        }
    }

    fn named(&self, what: &NameChange) {
        let branch = &self.snapshots.branch;
        let of = match what {
            NameChange::Snapshot(one) => one.branch,
            NameChange::Joined { from, to } => {
                // The mounted snapshot is another branch's now.
                let _ = branch.compare_exchange(*from, *to, Ordering::Relaxed, Ordering::Relaxed);
                *to
            }
        };
        if of != branch.load(Ordering::Relaxed) {
            return;
        }
        self.snapshots.counts.named(what);
        let is_known = ASKED_BY.get() == std::ptr::from_ref(self).addr();
        if is_known || self.kernel.get().is_none() {
            return;
        }
        // What the name leads to, and then what the kernel has of the listing.
        let was = match what {
            NameChange::Snapshot(one) => &one.was[..],
            NameChange::Joined { .. } => b"",
        };
        let name = (!was.is_empty()).then(|| Notice::Name(DIRECTORY.0, was.into()));
        self.notices.note_all(name.into_iter().chain([Notice::Inode(DIRECTORY.0)]));
    }
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// The snapshots that have names, in the order of their numbers.
fn named(fs: &FileSystem) -> Answer<Vec<SnapshotInfo>> {
    let mut snapshots = fs.snapshots()?;
    snapshots.retain(|of| !of.name.is_empty());
    snapshots.sort_by_key(|of| of.number);
    Ok(snapshots)
}

fn attr(fs: &FileSystem, counted: counted::Counted) -> Answer<Attr> {
    let root = fs.getattr(InodeNo::ROOT)?;
    let changed = counted.changed.unwrap_or(root.btime);
    Ok(Attr {
        inode: SHOWN_DIRECTORY,
        file_type: FileType::Directory,
        perm: PERM,
        // As with directories that do not count theirs: `find` looks into each.
        nlink: 1,
        uid: root.uid,
        gid: root.gid,
        size: counted.number,
        blocks: 0,
        rdev: 0,
        atime: changed,
        mtime: changed,
        ctime: changed,
        btime: root.btime,
    })
}
