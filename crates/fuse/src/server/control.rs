//! Commands for a mount, which a program carries out inside the daemon: snapshots, forks, rollbacks.
//!
//! A rollback changes everything behind the kernel's back. Of inodes the filesystem says which the kernel may know, and each is
//! told to it. Names are void as a whole, where the kernel understands that (Linux 6.16). Elsewhere each name is told that was
//! there before or is there now: of others the kernel can know only that they were missing, and they still are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_posix::{FileSystem, FileType, OpenFlags};
use holdfast_wire::ask::PIECE;
use parking_lot::{Mutex, RwLock};

use super::Server;
use crate::interface::{Answer, Controlled, Errno, NewHead, Request, Told};
use crate::notices::Notice;
use crate::siblings::Sibling;

/// What a program asks by ioctl(2), as it asks for an attribute, is a command if it begins so.
pub const CONTROL: &[u8] = b"system.holdfast.control ";

/// Writing it announces a command that changes something: its value is a permit of the caller's choice, of [`PERMIT`] bytes, that
/// stands in front of the command with a space behind it. The kernel refuses it where the mount is read-only, be it
/// only in one place (a bind mount); of an ioctl it asks nothing.
pub const CHANGE_XATTR: &[u8] = b"system.holdfast.change";
/// Bytes of a permit: hexadecimal digits.
pub const PERMIT: usize = 32;
/// Permits that wait for their commands; others push them out.
const PERMITS: usize = 256;

/// Permits that were written and not used.
#[derive(Debug, Default)]
pub(super) struct Permits(Mutex<VecDeque<[u8; PERMIT]>>);

impl Permits {
    /// One is written.
    pub(super) fn add(&self, permit: &[u8]) -> Answer<()> {
        let permit = permit.try_into().map_err(|_| Errno(libc::EINVAL))?;
        let mut waiting = self.0.lock();
        if waiting.len() >= PERMITS {
            waiting.pop_front();
        }
        waiting.push_back(permit);
        Ok(())
    }

    /// Takes the permit off a command; whether it was written before, and the command.
    fn take<'a>(&self, command: &'a [u8]) -> (bool, &'a [u8]) {
        let Some((permit, rest)) = command.split_at_checked(PERMIT) else {
            return (false, command);
        };
        let Some((b' ', rest)) = rest.split_first() else { return (false, command) };
        if !permit.iter().all(u8::is_ascii_hexdigit) {
            return (false, command);
        }
        let mut waiting = self.0.lock();
        let at = waiting.iter().position(|it| it == permit);
        (at.and_then(|at| waiting.remove(at)).is_some(), rest)
    }
}

/// How long a rollback waits until the kernel has forgotten what was. Pages that programs are reading may take a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// A mount with a request under way.
struct Mount<'a> {
    server: &'a Server,
    fs: &'a FileSystem,
    may_change: bool,
    /// How long a rollback waits until the kernel knows everything.
    patience: Duration,
}

/// Stops the volume if a command panics, as any other change does: it may be half done.
struct StopOnPanic<'a>(&'a FileSystem);

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
        // It does no harm before, and says whether the kernel understands it.
        let by_epoch = kernel.is_none_or(|kernel| kernel.all_names_changed());
        let before = if by_epoch { Vec::new() } else { names(self.fs)? };
        head.give(self.fs, self.fs.branch_number()?)?;
        if by_epoch {
            kernel.map(|kernel| kernel.all_names_changed());
        } else {
            let after = names(self.fs).unwrap_or_default();
            before.into_iter().chain(after).for_each(|name| self.server.notices.note(name));
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
    // Who waits to drop the filesystem may wait for a rollback, which waits for this.
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

/// All names, each as a notice.
fn names(fs: &FileSystem) -> holdfast_posix::Result<Vec<Notice>> {
    let (mut all, mut waiting) = (Vec::new(), vec![InodeNo::ROOT]);
    while let Some(dir) = waiting.pop() {
        fs.readdir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                all.push(Notice::Name(dir.0, entry.name.into()));
                if entry.file_type == FileType::Directory {
                    waiting.push(entry.inode);
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
        fs.watch_rollback(move |known, turn| {
            // Of the same content, what the kernel has in memory is true; unless it may be mapped, which only shows where a file
            // is open, and where the kernel opens files not even that. Of the others also those that are not open: a program may
            // open one before the kernel has heard, and finds its old pages.
            let may_be_mapped = kernel_opens.load(Ordering::Relaxed);
            let void = || known.iter().filter(|of| !of.is_same || may_be_mapped);
            rolled_back.turned(void().map(|of| of.inode), turn);
            notices.note_all(void().map(|of| Notice::Turned {
                inode: of.inode.0,
                turn,
                size: of.size.filter(|_| of.is_open),
            }));
        });
    }

    /// Gives the branch of this mount another head, and says what its kernel knows of it; for a command that came by another
    /// mount of the volume. `None`: this mount is over.
    ///
    /// # Errors
    /// As of [`NewHead::give`]: the branch is what it was.
    pub(crate) fn give_head(&self, head: NewHead<'_>) -> Option<holdfast_posix::Result<Told>> {
        // The command may have come by this mount, and holds the filesystem: who waits to drop it waits for both.
        let fs = self.fs.read_recursive();
        let fs = fs.as_ref()?;
        let _stop = StopOnPanic(fs);
        let mount = Mount { server: self, fs, may_change: true, patience: PATIENCE };
        Some(mount.give_head(head))
    }

    /// Carries out a command, and returns what is answered.
    pub(super) fn control(&self, request: &Request, command: &[u8]) -> Answer<Vec<u8>> {
        if !self.is_owner(request) {
            return Err(Errno(libc::EACCES));
        }
        let control = self.control.get().ok_or(Errno(libc::EOPNOTSUPP))?;
        let fs = self.fs()?;
        let _stop = StopOnPanic(&fs);
        // One that programs only looked at is not in use.
        self.close_idle_snapshots();
        let (may_change, command) = self.permits.take(command);
        let mount = Mount { server: self, fs: &fs, may_change, patience: PATIENCE };
        let answer = control.carry_out(&mount, command);
        match answer.len() <= PIECE {
            true => Ok(answer),
            false => Err(Errno(libc::E2BIG)),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_posix::{Caller, RenameFlags, SetAttr};

    use super::*;
    use crate::interface::{FileId, Kernel, Mode, Write};
    use crate::options::Control;
    use crate::server::fresh;

    /// A kernel that writes down what it is told.
    struct Listener {
        knows_epochs: bool,
        heard: Mutex<Vec<String>>,
    }

    impl Kernel for Listener {
        fn attr_changed(&self, inode: u64) {
            self.heard.lock().push(format!("attributes {inode}"));
        }

        fn content_changed(&self, inode: u64) {
            self.heard.lock().push(format!("inode {inode}"));
        }

        fn bytes_changed(&self, _: u64, _: u64, _: u64) {}

        fn grown(&self, inode: u64, size: u64, last: u8) {
            self.heard.lock().push(format!("grown {inode} {size} {last}"));
        }

        fn name_changed(&self, parent: u64, name: &[u8]) {
            self.heard.lock().push(format!("{parent}/{}", String::from_utf8_lossy(name)));
        }

        fn all_names_changed(&self) -> bool {
            if self.knows_epochs {
                self.heard.lock().push("all names".into());
            }
            self.knows_epochs
        }
    }

    /// What a kernel hears of a rollback that takes a new file away and brings an old name back.
    fn heard(knows_epochs: bool) -> Vec<String> {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let kernel = Arc::new(Listener { knows_epochs, heard: Mutex::default() });
        server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        server.set_control(Control::new(|mount, command| {
            match command {
                b"take" => mount.fs().snapshot(b"s").map(drop).unwrap(),
                _ => assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All),
            }
            b"done".to_vec()
        }));
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let make = |name: &[u8]| {
            let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
            let entry = server.mknod(&root, InodeNo::ROOT, name, mode, 0).unwrap();
            entry.attr.unwrap().inode
        };
        let old = make(b"old");
        assert_eq!(server.control(&root, b"take"), Ok(b"done".to_vec()));
        fs.rename(
            &Caller::root(),
            InodeNo::ROOT,
            b"old",
            InodeNo::ROOT,
            b"moved",
            RenameFlags::empty(),
        )
        .unwrap();
        let new = make(b"new");
        assert_eq!(server.control(&root, b"go back"), Ok(b"done".to_vec()));
        let heard = kernel.heard.lock().clone();
        for inode in [old, new] {
            let wanted = format!("inode {}", inode.0);
            assert!(heard.contains(&wanted), "{wanted}: {heard:?}");
        }
        server.close();
        heard
    }

    /// Which inodes a kernel hears of behind a rollback, of many files that it remembers. The last is changed, the first open.
    fn heard_of_many(kernel_opens: bool) -> (Vec<u64>, Vec<u64>) {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let kernel = Arc::new(Listener { knows_epochs: true, heard: Mutex::default() });
        server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        if kernel_opens {
            server.set_kernel_opens();
        }
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let mut files = Vec::new();
        for n in 0..500 {
            let made = server.mknod(&root, InodeNo::ROOT, format!("{n}").as_bytes(), mode, 0);
            files.push(made.unwrap().attr.unwrap().inode);
        }
        let opened = fs.lend(files[0], OpenFlags::READ).unwrap();
        fs.snapshot(b"s").unwrap();
        let to = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        fs.setattr(&Caller::root(), files[499], None, to).unwrap();
        let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
        assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
        let said = kernel.heard.lock().clone();
        let heard = said.iter().filter_map(|word| word.strip_prefix("inode ")?.parse().ok());
        drop(opened);
        server.close();
        (files.into_iter().map(|inode| inode.0).collect(), heard.collect())
    }

    /// What costs a notice each is bounded by what has changed, not by what the kernel remembers.
    #[test]
    fn a_kernel_hears_of_inodes_that_have_changed_or_are_open() {
        let (files, heard) = heard_of_many(false);
        assert!(heard.contains(&files[0]) && heard.contains(&files[499]), "{heard:?}");
        // With those that lie beside it in the tree.
        assert!(heard.len() < 100, "{}", heard.len());
    }

    /// Where nobody says which files are open, any may have been mapped and stored into.
    #[test]
    fn a_kernel_that_opens_files_hears_of_all() {
        let (files, heard) = heard_of_many(true);
        assert!(files.iter().all(|file| heard.contains(file)), "{} of 500", heard.len());
    }

    /// A mapping of an open file ends where the kernel believes that the file ends; it hears of that while what is stored into the
    /// mapping is still void, or it would put a byte over one that a program has just stored.
    #[test]
    fn a_kernel_hears_that_a_file_has_grown_before_its_pages_count_again() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let kernel = Arc::new(Listener { knows_epochs: true, heard: Mutex::default() });
        server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let made = server.create(&root, InodeNo::ROOT, b"f", mode, libc::O_RDWR, false).unwrap();
        let (inode, opened) = (made.0.attr.unwrap().inode, made.1);
        let file = FileId { inode, fh: opened.fh, flags: libc::O_RDWR };
        let write =
            Write { file, offset: 0, bytes: &[7; 9000], kill_suid_sgid: false, is_cached: false };
        server.write(&root, &write).unwrap();
        fs.snapshot(b"s").unwrap();
        let to = SetAttr { size: Some(10), ..SetAttr::default() };
        fs.setattr(&Caller::root(), inode, None, to).unwrap();
        let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
        assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
        let heard = kernel.heard.lock().clone();
        let of_file: Vec<_> = heard.iter().filter(|it| it.contains(&format!(" {inode}"))).collect();
        assert_eq!(of_file, [&format!("grown {inode} 9000 7"), &format!("inode {inode}")]);
        server.release(opened.fh);
        server.close();
    }

    /// What the kernel has in memory of a file is not kept by an open that comes before it has heard.
    #[test]
    fn a_file_that_is_opened_before_the_kernel_has_heard_keeps_no_pages() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let kernel = Arc::new(Stuck(Mutex::default()));
        server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let made = server.mknod(&root, InodeNo::ROOT, b"f", mode, 0).unwrap();
        let inode = made.attr.unwrap().inode;
        let opened = || server.open(&root, inode, libc::O_RDONLY, false).unwrap().keep_cache;
        assert!(opened());
        fs.snapshot(b"s").unwrap();
        let to = SetAttr { size: Some(10), ..SetAttr::default() };
        fs.setattr(&Caller::root(), inode, None, to).unwrap();
        let waits = kernel.0.lock();
        let roll_back = |patience| {
            let mount = Mount { server: &server, fs: &fs, may_change: true, patience };
            mount.roll_back(b"s", None).unwrap()
        };
        assert_eq!(roll_back(Duration::ZERO), Told::NotYet);
        assert!(!opened());
        drop(waits);
        assert!(server.notices.drain_within(PATIENCE));
        assert!(opened());
        server.close();
    }

    /// What is remembered of files over a rollback goes when the kernel forgets them.
    #[test]
    fn nothing_is_remembered_of_files_that_the_kernel_has_forgotten() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        fs.snapshot(b"s").unwrap();
        let kernel = Arc::new(Listener { knows_epochs: true, heard: Mutex::default() });
        server.set_kernel(kernel).unwrap();
        let mut files = Vec::new();
        for n in 0..100 {
            let made = server.mknod(&root, InodeNo::ROOT, format!("{n}").as_bytes(), mode, 0);
            files.push(made.unwrap().attr.unwrap().inode);
        }
        server.lookup(&root, InodeNo::ROOT, b"7").unwrap();
        let mount = Mount { server: &server, fs: &fs, may_change: true, patience: PATIENCE };
        assert_eq!(mount.roll_back(b"s", None).unwrap(), Told::All);
        assert_eq!(server.rolled_back.len(), 100);
        files.iter().for_each(|inode| server.forget(*inode, 1));
        assert_eq!(server.rolled_back.len(), 1, "one is referred to twice");
        server.forget(files[7], 1);
        assert_eq!(server.rolled_back.len(), 0);
        server.close();
    }

    #[test]
    fn a_kernel_hears_that_all_names_are_void_after_the_rollback_too() {
        let heard = heard(true);
        let epochs = heard.iter().filter(|word| *word == "all names").count();
        assert_eq!(epochs, 2, "one would come before: {heard:?}");
        assert!(!heard.iter().any(|word| word.contains('/')), "{heard:?}");
    }

    #[test]
    fn an_older_kernel_hears_each_name_that_was_and_each_that_is() {
        let heard = heard(false);
        for name in ["1/old", "1/moved", "1/new"] {
            assert!(heard.iter().any(|word| word == name), "{name}: {heard:?}");
        }
    }

    #[test]
    fn a_permit_is_for_one_command() {
        let permits = Permits::default();
        let permit = [b'a'; PERMIT];
        let command = [&permit[..], b" do it"].concat();
        assert_eq!(permits.take(&command), (false, &b"do it"[..]));
        assert_eq!(permits.add(b"short"), Err(Errno(libc::EINVAL)));
        assert_eq!(permits.add(&permit), Ok(()));
        assert_eq!(permits.take(b"{}"), (false, &b"{}"[..]));
        assert_eq!(permits.take(&command[1..]), (false, &command[1..]));
        assert_eq!(permits.take(&command), (true, &b"do it"[..]));
        assert_eq!(permits.take(&command), (false, &b"do it"[..]));
        (0..2 * PERMITS).for_each(|_| permits.add(&permit).unwrap());
        assert_eq!(permits.0.lock().len(), PERMITS);
    }

    /// P13: two rollbacks at once, of files that are longer again, come one after the other.
    #[test]
    fn rollbacks_at_once_do_not_wait_for_each_other() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let kernel = Arc::new(Listener { knows_epochs: true, heard: Mutex::default() });
        server.set_kernel(kernel).unwrap();
        server.set_control(Control::new(|mount, _| {
            let _ = mount.roll_back(b"s", None).unwrap();
            b"done".to_vec()
        }));
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        let made = (0..20u8).map(|n| {
            let made = server.create(&root, InodeNo::ROOT, &[b'a' + n], mode, libc::O_RDWR, false);
            let (entry, opened) = made.unwrap();
            FileId { inode: entry.attr.unwrap().inode, fh: opened.fh, flags: libc::O_RDWR }
        });
        let files: Vec<_> = made.collect();
        for &file in &files {
            let write = Write {
                file,
                offset: 0,
                bytes: &[7; 9000],
                kill_suid_sgid: false,
                is_cached: false,
            };
            server.write(&root, &write).unwrap();
        }
        fs.snapshot(b"s").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..30 {
                        for file in &files {
                            let to = SetAttr { size: Some(0), ..SetAttr::default() };
                            fs.setattr(&Caller::root(), file.inode, None, to).unwrap();
                        }
                        assert_eq!(server.control(&root, b"go back"), Ok(b"done".to_vec()));
                    }
                });
            }
        });
        for file in &files {
            assert_eq!(fs.getattr(file.inode).unwrap().size, 9000);
        }
        files.iter().for_each(|file| server.release(file.fh));
        server.close();
    }

    /// A kernel that waits for a program in the middle of a page.
    struct Stuck(Mutex<()>);

    impl Kernel for Stuck {
        fn attr_changed(&self, _: u64) {}

        fn content_changed(&self, _: u64) {
            drop(self.0.lock());
        }

        fn bytes_changed(&self, _: u64, _: u64, _: u64) {}

        fn grown(&self, _: u64, _: u64, _: u8) {}

        fn name_changed(&self, _: u64, _: &[u8]) {}

        fn all_names_changed(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_rollback_says_whether_the_kernel_knows_of_it() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        fs.remember(InodeNo::ROOT, 1);
        fs.snapshot(b"s").unwrap();
        let roll_back = |patience| {
            fs.mkdir(&Caller::root(), InodeNo::ROOT, b"d", 0o755).unwrap();
            let mount = Mount { server: &server, fs: &fs, may_change: true, patience };
            mount.roll_back(b"s", None).unwrap()
        };
        assert_eq!(roll_back(Duration::ZERO), Told::All, "nobody has to be told");
        let kernel = Arc::new(Stuck(Mutex::default()));
        server.set_kernel(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
        let waits = kernel.0.lock();
        assert_eq!(roll_back(Duration::ZERO), Told::NotYet);
        drop(waits);
        assert_eq!(roll_back(PATIENCE), Told::All);
        server.close();
    }

    /// What was read before a rollback may be of the head that is gone.
    #[test]
    fn the_kernel_does_not_keep_what_was_found_before_a_rollback() {
        let fs = fresh::mount(&fresh::volume());
        let ttl = Duration::from_secs(1);
        let server = Server::new(Arc::clone(&fs), true, ttl, Arc::default(), None);
        fs.snapshot(b"s").unwrap();
        let before = fs.turns();
        let attr = fs.getattr(InodeNo::ROOT).unwrap();
        assert_ne!(server.entry(&fs, before, attr).ttl, Duration::ZERO);
        fs.rollback(b"s", None).unwrap();
        assert_eq!(server.entry(&fs, before, attr).ttl, Duration::ZERO);
        assert_ne!(server.entry(&fs, fs.turns(), attr).ttl, Duration::ZERO);
        server.close();
    }

    #[test]
    fn strangers_command_nothing_and_nothing_is_commanded_where_nothing_obeys() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        let me = rustix::process::getuid().as_raw();
        let request = |uid| Request { uid, gid: uid, pid: 0 };
        assert_eq!(server.control(&request(me), b"x"), Err(Errno(libc::EOPNOTSUPP)));
        server.set_control(Control::new(|_, command| command.repeat(PIECE)));
        assert_eq!(server.control(&request(me + 4711), b"x"), Err(Errno(libc::EACCES)));
        assert_eq!(server.control(&request(me), b"x").map(|said| said.len()), Ok(PIECE));
        assert_eq!(server.control(&request(me), b"xy"), Err(Errno(libc::E2BIG)));
        server.close();
    }
}
