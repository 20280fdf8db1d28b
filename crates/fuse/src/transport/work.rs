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
        if let Err(job) = self.pool.submit(Box::new(move || work.guarded(body))) {
            self.busy.fetch_add(1, Ordering::Relaxed);
            job();
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether no other reader is free now.
    pub(crate) fn is_last_reader(&self) -> bool {
        self.busy.load(Ordering::Relaxed) + 1 >= self.readers
    }

    /// Waits for all that the pool has taken, and lets it take no more.
    pub(crate) fn finish(&self) {
        self.pool.finish();
    }

    fn guarded(&self, body: impl FnOnce(&Server)) {
        if catch_unwind(AssertUnwindSafe(|| body(&self.server))).is_err() {
            self.server.set_broken();
            tracing::error!("a request has panicked; all further requests fail");
        }
    }
}
