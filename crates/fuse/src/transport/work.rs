//! What all threads that serve requests share.
//!
//! A panic ends the request with EIO (its reply is dropped unsent) and all
//! later ones, too: something may be half done. It does not end the thread,
//! since without readers the mount would hang.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::requests::Kind;
use crate::server::Server;

/// Serves requests on whatever thread has one.
pub(crate) struct Work {
    server: Arc<Server>,
}

impl Work {
    /// Requests to `server`.
    pub(crate) fn new(server: Arc<Server>) -> Arc<Work> {
        Arc::new(Work { server })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Counts a request. To be called once for each.
    pub(crate) fn count(&self, kind: Kind) {
        self.server.requests().count(kind);
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
    use holdfast_base::InodeNo;

    use super::*;
    use crate::ops::{Errno, FileId};
    use crate::server::fresh;

    fn work() -> Arc<Work> {
        Work::new(Arc::new(fresh::server(&fresh::mount(&fresh::volume()))))
    }

    #[test]
    fn a_panic_ends_all_requests_but_no_thread() {
        let work = work();
        assert!(work.server().getattr(InodeNo::ROOT).is_ok());
        assert_eq!(work.guarded(|_| panic!("as wanted by the test")), None::<()>);
        let after = work.guarded(|server| server.getattr(InodeNo::ROOT));
        assert_eq!(after.unwrap().unwrap_err(), Errno(libc::EIO));
    }

    #[test]
    fn a_closed_server_has_let_go() {
        let work = work();
        let server = work.server();
        server.close();
        assert_eq!(server.getattr(InodeNo::ROOT).unwrap_err(), Errno(libc::EIO));
        let file = FileId { inode: InodeNo(17), fh: 0, flags: 0 };
        assert_eq!(server.read(file, 0, &mut [0]).unwrap_err(), Errno(libc::EIO));
        server.release(0);
        server.forget(InodeNo(17), 3);
        server.close();
    }
}
