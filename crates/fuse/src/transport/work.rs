//! On which thread a request is served.
//!
//! Reader threads serve most requests themselves: handing over costs a wake-up,
//! which is more than most requests. What certainly waits for the device goes
//! to the pool. What may wait (a read that misses all caches) goes there only
//! when every other reader is busy, so that one is always free to read.
//!
//! A panic ends the request with EIO (its reply is dropped unsent) and all
//! later ones, too: something may be half done. It does not end the thread,
//! since without readers the mount would hang.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pool::Pool;
use crate::requests::Kind;
use crate::server::Server;

/// Serves requests here or there.
pub(crate) struct Work {
    server: Arc<Server>,
    pool: Pool,
    readers: usize,
    busy: AtomicUsize,
}

impl Work {
    /// For `readers` threads that read requests and a pool of at most `most` others.
    pub(crate) fn new(server: Arc<Server>, readers: usize, most: usize) -> Arc<Work> {
        Arc::new(Work { server, pool: Pool::new(most), readers, busy: AtomicUsize::new(0) })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Counts a request. To be called once for each.
    pub(crate) fn count(&self, kind: Kind) {
        self.server.requests().count(kind);
    }

    /// Serves on this thread, which is a reader.
    pub(crate) fn here(&self, body: impl FnOnce(&Server)) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.guarded(body);
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Serves on the pool; here if the pool is full or finished.
    pub(crate) fn there(self: &Arc<Self>, body: impl FnOnce(&Server) + Send + 'static) {
        let work = Arc::clone(self);
        if let Err(job) = self.pool.submit(Box::new(move || {
            work.guarded(body);
        })) {
            self.busy.fetch_add(1, Ordering::Relaxed);
            job();
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Serves on this thread if another reader stays free, otherwise on the pool.
    pub(crate) fn somewhere(self: &Arc<Self>, body: impl FnOnce(&Server) + Send + 'static) {
        // Entered first and counted then: of two readers that come at once, one sees the other.
        let is_last = self.busy.fetch_add(1, Ordering::Relaxed) + 1 >= self.readers;
        match is_last {
            true => {
                self.busy.fetch_sub(1, Ordering::Relaxed);
                self.there(body);
            }
            false => {
                self.guarded(body);
                self.busy.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits for all that the pool has taken, and lets it take no more.
    pub(crate) fn finish(&self) {
        self.pool.finish();
    }

    /// What `body` answers; `None` if it has panicked.
    pub(super) fn guarded<T>(&self, body: impl FnOnce(&Server) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| body(&self.server)));
        if done.is_err() {
            self.server.set_broken();
            tracing::error!("a request has panicked; all further requests fail");
        }
        done.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use holdfast_base::InodeNo;
    use holdfast_device::{Device, MemoryDevice};
    use holdfast_posix::{FileSystem, MkfsOptions, MountOptions};

    use super::*;
    use crate::ops::Errno;

    fn work(readers: usize) -> Arc<Work> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let options =
            MkfsOptions { node_size: 4096, label: String::new(), uuid: None, owner: (0, 0) };
        FileSystem::mkfs(&device, &options).unwrap();
        let fs = FileSystem::mount(device, MountOptions::default()).unwrap();
        let server = Server::new(Arc::new(fs), true, Duration::ZERO, Arc::default(), None);
        Work::new(Arc::new(server), readers, 4)
    }

    #[test]
    fn a_panic_ends_all_requests_but_no_thread() {
        let work = work(2);
        assert!(work.server().getattr(InodeNo::ROOT).is_ok());
        work.here(|_| panic!("as wanted by the test"));
        assert_eq!(work.server().getattr(InodeNo::ROOT).unwrap_err(), Errno(libc::EIO));
        let (send, receive) = mpsc::channel();
        for _ in 0..8 {
            let send = send.clone();
            work.there(move |server| {
                send.send(server.getattr(InodeNo::ROOT).is_err()).unwrap();
                panic!("as wanted by the test");
            });
        }
        drop(send);
        assert_eq!(receive.iter().filter(|failed| *failed).count(), 8);
        work.finish();
    }

    #[test]
    fn the_last_free_reader_hands_over() {
        let work = work(2);
        let served_by = |work: &Arc<Work>| {
            let (send, receive) = mpsc::channel();
            work.somewhere(move |_| send.send(std::thread::current().id()).unwrap());
            receive.recv().unwrap()
        };
        let me = std::thread::current().id();
        assert_eq!(served_by(&work), me);
        // While another reader is busy, be it with a panic, this one is the last. (Panics are caught
        // there, so what was seen is judged out here.)
        let mut seen = None;
        work.here(|_| {
            seen = Some(served_by(&work));
            panic!("as wanted by the test");
        });
        assert!(seen.is_some_and(|thread| thread != me));
        assert_eq!(served_by(&work), me);
        // A request that may wait counts as well.
        let (send, receive) = mpsc::channel();
        let inner = Arc::clone(&work);
        work.somewhere(move |_| send.send(served_by(&inner)).unwrap());
        assert_ne!(receive.recv().unwrap(), me);
        work.finish();
    }

    #[test]
    fn a_closed_server_has_let_go() {
        let work = work(1);
        let server = work.server();
        server.close();
        assert_eq!(server.getattr(InodeNo::ROOT).unwrap_err(), Errno(libc::EIO));
        assert_eq!(server.read(0, 0, &mut [0]).unwrap_err(), Errno(libc::EIO));
        server.release(0);
        server.forget(InodeNo(17), 3);
        server.close();
    }
}
