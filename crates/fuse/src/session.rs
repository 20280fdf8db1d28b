//! From mount to unmount.
//!
//! ```text
//! mount --> handshake --> ready() --> serve --+-- unmounted by another process ----> let go
//!                                             +-- stop --> unmount --+-- worked -------^
//!                                                                    +-- busy --> let go, abort
//! ```
//! Let go: all requests under way are over, and no thread holds the filesystem any more, so that
//! the caller can unmount it, even if the kernel still has open files. What was promised to
//! callers is durable by their own fsyncs, not by what happens here.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_posix::FileSystem;
use parking_lot::{Condvar, Mutex};

use crate::mount::{self, Mounted};
use crate::options::FuseOptions;
use crate::server::Server;
use crate::threads;
use crate::transport::readers::Readers;
use crate::transport::work::Work;
use crate::transport::{self, Ways};

/// Most threads that wait for the device at once: each may hold the megabyte of a write. So there is one for each of
/// these bytes that written data may have in memory, and no more than the second of these numbers.
const BYTES_OF_A_WAITING_THREAD: usize = 4 << 20;
const WAITING: std::ops::RangeInclusive<usize> = 8..=64;
/// How long files that are just being closed may keep a mount busy before it is torn away.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long reader threads get to notice that the connection has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why other users cannot come in where the kernel does not check permissions.
const STRANGERS_UNCHECKED: &str = "other users may come in only if the kernel checks permissions: leave out \
     allow_other, or leave out nodefault_permissions";

/// Ends [`serve`] from another thread. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stopper {
    /// A new switch.
    pub fn new() -> Stopper {
        Stopper::default()
    }

    /// Has [`serve`] unmount and return. May be called before it starts, and more than once.
    pub fn stop(&self) {
        *self.0.stopped.lock() = true;
        self.0.changed.notify_all();
    }

    /// Waits until stopped or `ended`.
    fn wait(&self, ended: &AtomicBool) {
        let mut stopped = self.0.stopped.lock();
        while !*stopped && !ended.load(Ordering::Acquire) {
            self.0.changed.wait(&mut stopped);
        }
    }

    /// Waits until `ended`, but not longer than `time`. Says whether it has.
    fn wait_ended(&self, ended: &AtomicBool, time: Duration) -> bool {
        let until = Deadline::after(time);
        let mut stopped = self.0.stopped.lock();
        while !ended.load(Ordering::Acquire) {
            if self.0.changed.wait_for(&mut stopped, until.left()).timed_out() {
                return ended.load(Ordering::Acquire);
            }
        }
        true
    }

    fn set_ended(&self, ended: &AtomicBool) {
        // Under the lock, so that no waiter misses it between looking and sleeping.
        let _stopped = self.0.stopped.lock();
        ended.store(true, Ordering::Release);
        self.0.changed.notify_all();
    }
}

/// Mounts `fs` at `dir`, calls `ready` once it can be used, and serves the kernel until it is unmounted or `stop` is
/// thrown; then unmounts, by force if files are still open. When it returns, all requests are over and only the caller
/// holds `fs`, and should unmount it then.
///
/// # Errors
/// The directory cannot be mounted on, the connection to the kernel broke, or other users were to come in unchecked.
pub fn serve(
    fs: Arc<FileSystem>,
    dir: &Path,
    options: &FuseOptions,
    ready: impl FnOnce(),
    stop: Stopper,
) -> io::Result<()> {
    let ring_bytes = transport::MAX_WRITE as usize;
    let ways = Ways { transport: options.transport, opens: options.opens, ring_bytes };
    serve_on(ways, fs, dir, options, ready, stop)
}

fn serve_on(
    ways: Ways,
    fs: Arc<FileSystem>,
    dir: &Path,
    options: &FuseOptions,
    ready: impl FnOnce(),
    stop: Stopper,
) -> io::Result<()> {
    if options.allow_other && !options.default_permissions {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, STRANGERS_UNCHECKED));
    }
    let (fd, mut mounted) = mount::mount(dir, options)?;
    let readers = options.readers();
    let waiting = fs.options().dirty_bytes / BYTES_OF_A_WAITING_THREAD;
    let waiting = waiting.clamp(*WAITING.start(), *WAITING.end());
    let mut server = Server::new(
        fs,
        options.default_permissions,
        options.ttl,
        Arc::clone(&options.requests),
        options.slow_fsync,
    );
    server.set_snapdir(options.snapdir);
    let server = Arc::new(server);
    server.set_synchronous(options.sync, options.dirsync);
    if options.noxattr {
        server.set_no_xattrs();
    }
    if let Some(report) = &options.report {
        server.set_report(report.clone());
    }
    if let Some(control) = &options.control {
        server.set_control(control.clone());
    }
    if let (Some(watchdog), Some(connection)) = (&options.watchdog, mounted.connection()) {
        server.set_watchdog(watchdog.clone(), connection);
    }
    let work = Work::new(Arc::clone(&server));
    let readers = Readers::new(readers, waiting, options.spin);
    // Whatever happens from here on, the filesystem is dropped.
    let outcome = connect_and_serve(fd, &mut mounted, (&work, &readers), ways, ready, &stop);
    server.close();
    readers.drain(FAREWELL);
    outcome
}

fn connect_and_serve(
    fd: std::os::fd::OwnedFd,
    mounted: &mut Mounted,
    (work, readers): (&Arc<Work>, &Arc<Readers>),
    ways: Ways,
    ready: impl FnOnce(),
    stop: &Stopper,
) -> io::Result<()> {
    let run = transport::connect(fd, work, readers, ways)?;
    mounted.raise_read_ahead();
    let ended = Arc::new(AtomicBool::new(false));
    let thread = threads::start("holdfast-fuse", "the connection", {
        let (stop, ended) = (stop.clone(), Arc::clone(&ended));
        move || {
            let result = run();
            stop.set_ended(&ended);
            result
        }
    })?;
    ready();
    stop.wait(&ended);
    if !ended.load(Ordering::Acquire) && !leave(mounted, (work.server(), readers), stop, &ended) {
        tracing::warn!("the kernel keeps the connection open; its threads are left behind");
        return Ok(());
    }
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the session has panicked")))
}

/// Unmounts. Says whether the session has ended.
fn leave(
    mounted: &mut Mounted,
    (server, readers): (&Server, &Readers),
    stop: &Stopper,
    ended: &AtomicBool,
) -> bool {
    let until = Deadline::after(PATIENCE);
    loop {
        match mounted.unmount() {
            // Ended, unless another mount namespace has a copy of the mount.
            Ok(()) => {
                if stop.wait_ended(ended, PATIENCE) {
                    return true;
                }
                break;
            }
            Err(rustix::io::Errno::BUSY) if !until.is_over() => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => {
                tracing::info!("the mount is in use ({error}); tearing it away");
                break;
            }
        }
    }
    // First every answer, then the end of the connection: callers hear of what was done.
    server.close();
    readers.drain(FAREWELL);
    if let Err(error) = mounted.abort() {
        tracing::warn!("the mount could not be torn away: {error}");
    }
    stop.wait_ended(ended, FAREWELL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::switch::{Opens, Transport};

    use crate::server::fresh;

    /// The kernel offers rings and refuses them only when they are registered, after the handshake.
    #[test]
    fn rings_that_are_refused_late_are_done_without_or_missed() {
        let offered = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
        let is_offered = offered.is_ok_and(|word| word.trim() == "Y");
        if !is_offered || !rustix::process::geteuid().is_root() {
            holdfast_base::skip::skipped("needs root, and a kernel that offers rings");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let options = FuseOptions::default();
        let mount = |transport, ready: &dyn Fn()| {
            // With less room than for the longest request.
            let ways = Ways { transport, opens: Opens::Server, ring_bytes: 4096 };
            let (fs, stop) = (fresh::mount(&fresh::volume()), Stopper::new());
            let done = serve_on(ways, Arc::clone(&fs), dir.path(), &options, ready, {
                // What `ready` does is all that is wanted.
                stop.stop();
                stop
            });
            assert_eq!(Arc::strong_count(&fs), 1, "it was let go");
            done
        };
        let file = dir.path().join("f");
        let ready = || {
            std::fs::write(&file, b"through the device").unwrap();
            assert_eq!(std::fs::read(&file).unwrap(), b"through the device");
        };
        mount(Transport::Auto, &ready).unwrap();
        let refused = mount(Transport::Rings, &|| panic!("ready although there are no rings"));
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("refuses rings"), "{why}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left mounted");
    }

    #[test]
    fn a_switch_thrown_early_is_not_missed() {
        let stop = Stopper::new();
        stop.clone().stop();
        stop.wait(&AtomicBool::new(false));
    }

    #[test]
    fn the_end_of_a_session_wakes_the_waiter() {
        let stop = Stopper::new();
        let ended = Arc::new(AtomicBool::new(false));
        let other = {
            let (stop, ended) = (stop.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                stop.set_ended(&ended);
            })
        };
        stop.wait(&ended);
        assert!(stop.wait_ended(&ended, Duration::ZERO));
        other.join().unwrap();
        let never = AtomicBool::new(false);
        assert!(!stop.wait_ended(&never, Duration::from_millis(10)));
    }
}
