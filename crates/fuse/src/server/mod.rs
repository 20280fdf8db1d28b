//! Every request, as a call of the filesystem. One file per family.
//!
//! Always true: each [`Entry`] with an inode has been counted as one more reference (`remember`), and each forget gives
//! back the number that it names. No lock of ours is held while the filesystem or the kernel is called, but the one
//! that keeps the filesystem from being dropped during a request.
//!
//! After [`Server::close`] no request touches the filesystem any more; that is the only way to get it back whole while
//! the kernel may still ask.
//!
//! What the kernel caches stays true without a message from us, as every change goes through it: after each call it
//! forgets or updates what that call changed (names, both inodes of a rename, parents, link counts). The only
//! exceptions are set-id bits that a write clears, see `privileges`, what lost data takes with it, see `notices`, a branch
//! that is rolled back, see `new_head`, access times that an open moves, see `files`, and what others change beside this server, see `beside`.

mod attrs;
mod beside;
mod control;
mod data;
mod dirs;
mod file_flags;
mod files;
#[cfg(test)]
pub(crate) mod fresh;
mod generations;
mod names;
mod new_head;
#[cfg(test)]
mod new_head_tests;
mod permits;
mod privileges;
mod remount;
mod rolled_back;
mod snapshots;
mod trim;
#[cfg(test)]
mod timing_tests;
mod xattrs;

pub(crate) use file_flags::FlagsIoctl;
pub use holdfast_wire::ask::{CHANGE_XATTR, CONTROL, PERMIT};
pub use remount::REMOUNT_XATTR;
pub use xattrs::{
    FSYNC_XATTR, PENDING_XATTR, REPORT_XATTR, SHOWN_XATTR, SNAPSHOT_XATTR, STATS_XATTR, SYNC_XATTR,
};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{Attr, Caller, FileSystem, OpenFile, Whereabouts};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::caller::{Capability, caller, is_capable, is_owner};
use crate::connection::{Connection, Watchdog};
use crate::fsyncs::Fsyncs;
use crate::handles::Handles;
use crate::interface::{Answer, Entry, Errno, Kernel, NodeId, Request};
use crate::interrupts::Interrupts;
use crate::notices::{Notice, Notices};
use crate::options::FuseOptions;
use crate::quiescence::PageWrites;
use crate::statistics::Requests;
use crate::statistics::{Operation, Timed};
use crate::troubles::{self, Troubles};

/// The filesystem, held for the time of one request, and of the fsyncs that it makes batches for.
type Held<'a> = MappedRwLockReadGuard<'a, Arc<FileSystem>>;

/// An open file.
#[derive(Debug)]
struct Handle {
    file: Arc<OpenFile>,
    /// It was opened with O_DIRECT: writes come one by one, and the kernel may not send an fsync after them.
    direct: bool,
}

/// Answers the requests of one mount.
pub struct Server {
    fs: Arc<RwLock<Option<Arc<FileSystem>>>>,
    handles: Handles<Handle>,
    /// How the volume is shown.
    pub(crate) options: FuseOptions,
    /// Where threads that read requests say whether they may hold a write.
    pub(crate) page_writes: Arc<PageWrites>,
    /// Requests that can be interrupted.
    pub(crate) interrupts: Interrupts,
    fsyncs: Arc<Fsyncs>,
    troubles: Arc<Troubles>,
    kernel: OnceLock<Arc<dyn Kernel>>,
    /// What tells the kernel of changes that it did not ask for.
    notices: Arc<Notices>,
    /// What watches over this process while the kernel is told of pages, and the mount's connection.
    pub(crate) watchdog: Option<(Watchdog, Arc<Connection>)>,
    permits: permits::Permits,
    synchronous: remount::Synchronous,
    rolled_back: Arc<rolled_back::RolledBack>,
    generations: Arc<generations::Generations>,
    /// Held over a rollback, with all that the kernel is told of it.
    one_rollback: Mutex<()>,
    /// The last one leaves no name certain, and the kernel is not told of that yet.
    all_names_void: Arc<AtomicBool>,
    /// The device of the mount, as /proc/self/mountinfo shows it, if this process sees it.
    pub(crate) device: Option<String>,
    /// What lies in `.snapshots`.
    snapshots: snapshots::Snapshots,
    /// The kernel does not know that directories need no handle.
    needs_opendir: AtomicBool,
    /// The kernel opens regular files without asking, and there are no handles.
    kernel_opens: Arc<AtomicBool>,
    /// What is asked for in pieces.
    asked: Mutex<xattrs::Asked>,
}

holdfast_base::opaque!(Server);

impl Server {
    /// A server for `fs`, which is shown as `options` say.
    pub fn new(fs: Arc<FileSystem>, options: FuseOptions) -> Server {
        let server = Server {
            handles: Handles::new(),
            page_writes: Arc::default(),
            interrupts: Interrupts::default(),
            fsyncs: Arc::new(Fsyncs::new(options.slow_fsync)),
            troubles: Arc::default(),
            kernel: OnceLock::new(),
            notices: Arc::default(),
            watchdog: None,
            permits: Default::default(),
            synchronous: Default::default(),
            rolled_back: Arc::default(),
            generations: Arc::default(),
            one_rollback: Mutex::default(),
            all_names_void: Arc::default(),
            device: None,
            snapshots: snapshots::Snapshots::of(&fs, options.snapdir),
            // A kernel that opens directories itself lists them from its memory, unseen by the server.
            needs_opendir: AtomicBool::new(options.strictatime && !options.nodiratime),
            kernel_opens: Arc::default(),
            asked: Mutex::default(),
            fs: Arc::new(RwLock::new(Some(fs))),
            options,
        };
        server.set_synchronous(server.options.sync, server.options.dirsync);
        server.set_handover(server.options.handover);
        server
    }

    /// Sets the kernel to tell about changes behind its back, by a thread of [`SharedThreads`](crate::SharedThreads). The first one
    /// stays.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn set_kernel(&self, kernel: Arc<dyn Kernel>) -> std::io::Result<()> {
        if self.kernel.set(Arc::clone(&kernel)).is_err() {
            return Ok(());
        }
        let watchdog = self.watchdog.clone();
        let (rolled_back, fs) = (Arc::clone(&self.rolled_back), Arc::clone(&self.fs));
        self.notices.start(&self.options.shared.tellers, move |some| {
            let _watched =
                watchdog.as_ref().map(|(watchdog, connection)| watchdog.start(connection));
            some.iter().for_each(|notice| match notice {
                Notice::Inode(inode) => kernel.content_changed(*inode),
                Notice::Turned { inode, turn, size } => {
                    // While what programs store is void: the byte may be older than what they have written meanwhile.
                    let grown = size.and_then(|size| new_head::grown(&fs, InodeNo(*inode), size));
                    if let Some((size, last)) = grown {
                        kernel.grown(*inode, size, last);
                    }
                    kernel.content_changed(*inode);
                    rolled_back.told(InodeNo(*inode), *turn);
                }
                Notice::Bytes(inode, at, len) => kernel.bytes_changed(*inode, *at, *len),
                Notice::Attributes(inode) => kernel.attr_changed(*inode),
                Notice::Name(parent, name) => kernel.name_changed(*parent, name),
                Notice::Unwanted(inodes) => kernel.unwanted(inodes),
            });
        })?;
        if let Ok(fs) = self.fs() {
            let notices = Arc::clone(&self.notices);
            fs.watch(move |inode| notices.note(Notice::Inode(inode.0)));
            self.watch_rollback(&fs);
        }
        Ok(())
    }

    /// Whether access control lists are obeyed, and shown.
    pub(crate) fn has_lists(&self) -> bool {
        !self.options.owners.is_view()
    }

    /// The user of the mount.
    pub(crate) fn owner(&self) -> u32 {
        self.options.owner.unwrap_or_else(|| rustix::process::getuid().as_raw())
    }

    /// Whether a request comes from root or from the user of the mount.
    fn is_owner(&self, request: &Request) -> bool {
        is_owner(request, self.owner())
    }

    /// The kernel cannot do without handles of directories.
    pub(crate) fn set_kernel_needs_opendir(&self) {
        self.needs_opendir.store(true, Ordering::Relaxed);
    }

    /// Whether it cannot.
    pub(crate) fn kernel_needs_opendir(&self) -> bool {
        self.needs_opendir.load(Ordering::Relaxed)
    }

    /// From now on the kernel opens regular files itself: it must check permissions, too, and asks neither to open nor
    /// to create and open a file once it has been refused.
    pub fn set_kernel_opens(&self) {
        assert!(self.is_trusting(), "nobody would check permissions");
        self.kernel_opens.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(crate) fn kernel_opens(&self) -> bool {
        self.kernel_opens.load(Ordering::Relaxed)
    }

    /// Whether there are any.
    pub(crate) fn has_xattrs(&self) -> bool {
        !self.options.noxattr
    }

    /// Whether the kernel checks permissions, access control lists included.
    pub fn is_trusting(&self) -> bool {
        self.options.is_checked_by_kernel()
    }

    /// The counts of requests.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.options.requests
    }

    /// Whether a program has a file open. Where the kernel opens files itself, that is not known.
    pub(crate) fn has_open_files(&self) -> bool {
        !self.handles.is_empty()
    }

    /// Waits for requests under way and drops the filesystem and all open files. Fsyncs with a completion callback are
    /// over by then as well: a leader goes on under its own request, and no new callback is registered while this
    /// waits. Those that can be interrupted are. Requests that come later are answered with EIO.
    pub fn close(&self) {
        self.interrupts.end();
        let fs = self.fs.write().take();
        // Files before the filesystem: the last handle of an unlinked file frees its blocks.
        drop(self.handles.drain());
        drop(fs);
        // None is opened any more.
        self.snapshots.opened.close();
        self.fsyncs.end();
        self.notices.end();
    }

    /// Stops the volume: something may be half done, and none of it shall become durable.
    pub(crate) fn stop(&self, reason: &str) {
        if let Some(fs) = &*self.fs.read() {
            fs.stop(reason);
        }
    }

    /// A request of this kind is about to be answered with EIO.
    pub(crate) fn fails(&self, kind: &str, inode: InodeNo) {
        // What a volume that has stopped refuses was said when it stopped.
        if self.fs().is_ok_and(|fs| fs.stop_reason().is_some()) {
            return;
        }
        let place = || self.fs().map_or(Whereabouts::Unknown, |fs| fs.whereabouts(inode));
        self.troubles.failed(kind, inode, &troubles::why(), place);
    }

    /// Measures an operation that begins now and ends when the answer is dropped.
    fn timed(&self, operation: Operation) -> Timed<'_> {
        self.requests().operations().time(operation)
    }

    fn fs(&self) -> Answer<Held<'_>> {
        RwLockReadGuard::try_map(self.fs.read(), Option::as_ref).map_err(|_| Errno(libc::EIO))
    }

    /// The acting user, by the numbers of the volume: what is made belongs to it, and where the kernel does not check permissions, or
    /// checks those of the user who is squashed, they are checked for it.
    fn caller(&self, fs: &FileSystem, request: &Request) -> Answer<Caller> {
        let owners = &self.options.owners;
        let is_squashed = owners.squashes(request.uid);
        if !is_squashed && owners.uid.is_none() && owners.gid.is_none() {
            return Ok(caller(request, self.is_trusting()));
        }
        let root = fs.getattr(InodeNo::ROOT)?;
        if is_squashed {
            let (uid, gid) = (root.uid, root.gid);
            return Ok(Caller { uid, gid, groups: Vec::new(), trusted: false });
        }
        let mut caller = caller(request, self.is_trusting());
        caller.uid = owners.uid.map_or(caller.uid, |_| root.uid);
        caller.gid = owners.gid.map_or(caller.gid, |_| root.gid);
        Ok(caller)
    }

    /// Whether the caller has a capability; a user that acts as another has none.
    fn is_capable(&self, request: &Request, capability: Capability) -> bool {
        !self.options.owners.squashes(request.uid) && is_capable(request, capability)
    }

    /// An entry for a name that exists, found behind so many turns: counts the reference that the kernel gets with it.
    fn entry(&self, fs: &FileSystem, turn: u64, attr: Attr) -> Entry {
        fs.remember(attr.inode, 1);
        Entry { node: self.node(attr.inode), attr: Some(attr), ttl: self.ttl_since(fs, turn) }
    }

    /// By what the kernel knows an inode of what this serves.
    pub(crate) fn node(&self, inode: InodeNo) -> NodeId {
        NodeId { number: inode.0, generation: self.generations.of(inode) }
    }

    /// The number of the branch or snapshot that this serves.
    pub(crate) fn tree_number(&self) -> Answer<u64> {
        Ok(self.fs()?.tree_number())
    }

    /// How long the kernel may believe what was found behind so many turns. If the branch was rolled back since, it may be of
    /// the head that was, and the kernel has heard already that it is void. An inode that is remembered now is told from
    /// now on.
    fn ttl_since(&self, fs: &FileSystem, turn: u64) -> Duration {
        if fs.turns() == turn { self.options.ttl } else { Duration::ZERO }
    }
}
