//! The branch of a mount gets another head: a rollback, or a fork that is promoted.
//!
//! That changes files behind the kernel's back. The filesystem says which inodes the kernel may know, and which of them and of their names
//! differ: these are told, each. The kernel drops a file's pages with its last name, so no other name may be void.
//!
//! Only where the heads are far apart all names are void, as a whole, where the kernel understands that (Linux 6.16). Elsewhere each name is told that was
//! there before or is there now, in directories that the kernel knows: of others it can know only that they were missing, and they still are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{
    Affected, Caller, Differs, FileSystem, FileType, NewHead, OpenFlags, Told, Turned,
};
use parking_lot::RwLock;

use super::Server;
use crate::interface::Controlled;
use crate::notices::Notice;

/// How long a rollback waits until the kernel has forgotten what was. Pages that programs are reading may take a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A mount with a request under way.
pub(super) struct Mount<'a> {
    pub(super) server: &'a Server,
    pub(super) fs: &'a FileSystem,
    pub(super) may_change: bool,
    /// How long a rollback waits until the kernel knows everything.
    pub(super) patience: Duration,
}

/// Stops the volume if a command panics, as any other change does: it may be half done.
pub(super) struct StopOnPanic<'a>(pub(super) &'a FileSystem);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop("a command has panicked");
        }
    }
}

impl Controlled for Mount<'_> {
    fn fs(&self) -> &FileSystem {
        self.fs
    }

    fn may_change(&self) -> bool {
        self.may_change
    }

    fn give_head(&self, head: NewHead<'_>) -> holdfast_posix::Result<Told> {
        let kernel = self.server.kernel.get();
        let _one = self.server.one_rollback.lock();
        let is_whole = kernel.is_none_or(|kernel| kernel.takes_all_names());
        let before = if is_whole { Vec::new() } else { names(self.fs)? };
        head.give(self.fs, self.fs.branch_number()?)?;
        if self.server.all_names_void.swap(false, Ordering::Relaxed) {
            if is_whole {
                kernel.inspect(|kernel| kernel.all_names_changed());
            } else {
                let after = names(self.fs).unwrap_or_default();
                self.server.notices.note_all(before.into_iter().chain(after));
            }
        }
        match kernel.is_none() || self.server.notices.drain_within(self.patience) {
            true => Ok(Told::All),
            false => {
                tracing::warn!("the kernel takes long to forget what was before a rollback");
                Ok(Told::NotYet)
            }
        }
    }
}

/// The size of an open file that is longer than before, and its last byte. Waits for a rollback that is under way.
pub(super) fn grown(
    fs: &RwLock<Option<Arc<FileSystem>>>,
    inode: InodeNo,
    before: u64,
) -> Option<(u64, u8)> {
    // A waiter to drop the filesystem may wait for a rollback, which waits for this.
    let fs = fs.read_recursive();
    let fs = fs.as_ref()?;
    let size = fs.getattr(inode).ok()?.size;
    if size <= before {
        return None;
    }
    let file = fs.lend(inode, OpenFlags::READ | OpenFlags::NOATIME).ok()?;
    let mut last = [0];
    fs.read(&file, size - 1, &mut last).ok()?;
    Some((size, last[0]))
}

/// All names that the kernel may know, each as a notice. It knows none in a directory that it does not know.
fn names(fs: &FileSystem) -> holdfast_posix::Result<Vec<Notice>> {
    let (mut all, mut waiting) = (Vec::new(), vec![InodeNo::ROOT]);
    while let Some(dir) = waiting.pop() {
        fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                all.push(Notice::Name(dir.0, entry.name.into()));
                // By its name: of a damaged volume no directory is gone into twice.
                if entry.file_type == FileType::Directory
                    && fs.is_remembered(entry.inode)
                    && let Ok(attr) = fs.lookup(&Caller::root(), dir, entry.name)
                {
                    waiting.push(attr.inode);
                }
            }
            true
        })?;
    }
    Ok(all)
}

impl Server {
    /// From now on the kernel is told of rollbacks.
    pub(super) fn watch_rollback(&self, fs: &FileSystem) {
        let (rolled_back, notices) = (Arc::clone(&self.rolled_back), Arc::clone(&self.notices));
        let kernel_opens = Arc::clone(&self.kernel_opens);
        let generations = Arc::clone(&self.generations);
        let all_names_void = Arc::clone(&self.all_names_void);
        fs.watch_rollback(move |&Turned { number: turn, known, names }| {
            generations.turned(known.iter().filter(|of| of.is_dead).map(|of| of.inode), turn);
            all_names_void.store(names.is_none(), Ordering::Relaxed);
            let names = names.unwrap_or_default().iter();
            let names = names.map(|(dir, name)| Notice::Name(dir.0, name.clone()));
            // Of the same content, what the kernel has in memory is true; unless it may be mapped, which only shows where a file
            // is open, and where the kernel opens files not even that. Of the others also those that are not open: a program may
            // open one before the kernel has heard, and finds its old pages.
            let may_be_mapped = kernel_opens.load(Ordering::Relaxed);
            let is_void = |of: &&Affected| of.differs == Differs::Anywhere || may_be_mapped;
            let void = || known.iter().filter(is_void);
            let accessed = known.iter().filter(|of| of.differs == Differs::InAccessTime);
            let accessed = accessed.map(|of| Notice::Attributes(of.inode.0));
            rolled_back.turned(void().map(|of| of.inode), turn);
            let pages = void().map(|of| Notice::Turned {
                inode: of.inode.0,
                turn,
                size: of.size.filter(|_| of.is_open),
            });
            notices.note_all(names.chain(accessed).chain(pages));
        });
    }

    /// Gives the branch of this mount another head, and says what its kernel knows of it; for a command that came by another
    /// mount of the volume. `None`: this mount is over.
    ///
    /// # Errors
    /// As of [`NewHead::give`]: the branch is what it was.
    pub(crate) fn give_head(&self, head: NewHead<'_>) -> Option<holdfast_posix::Result<Told>> {
        // The command may have come by this mount, and holds the filesystem: a waiter to drop it waits for both.
        let fs = self.fs.read_recursive();
        let fs = fs.as_ref()?;
        let _stop = StopOnPanic(fs);
        let mount = Mount { server: self, fs, may_change: true, patience: PATIENCE };
        Some(mount.give_head(head))
    }
}
