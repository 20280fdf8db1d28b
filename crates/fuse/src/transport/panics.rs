//! A request that panics.
//!
//! A panic ends the request with EIO (its reply is dropped unsent). It does not end the thread, since without readers
//! the mount would hang. If the request was to change something, that may be half done: the volume stops (P7), so that
//! none of it becomes durable, and what is there can still be read and copied. A request that only reads leaves nothing
//! half done but what the store and its nodes repair themselves; others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_wire::abi;

use super::effect::Effect;
use crate::server::Server;

impl Server {
    /// Runs `body`, which serves a request with this header and effect, and returns its answer; `None` if it has panicked.
    pub(super) fn guarded<T>(
        &self,
        header: &abi::InHeader,
        effect: Effect,
        body: impl FnOnce() -> T,
    ) -> Option<T> {
        let (done, code) = (catch_unwind(AssertUnwindSafe(body)), header.opcode);
        if done.is_err() {
            match effect == Effect::Looks {
                true => tracing::error!("a request (opcode {code}) has panicked and failed"),
                false => self.stop(&format!("a request (opcode {code}) has panicked")),
            }
        }
        done.ok()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::InodeNo;
    use holdfast_wire::Op;

    use super::super::effect::effect;
    use super::*;
    use crate::interface::{Answer, Entry, Errno, FileId, Mode, Request};
    use crate::server::fresh;

    /// Serves `op` by `body`.
    fn serve<T>(server: &Server, op: Op<'_>, body: impl FnOnce() -> T) -> Option<T> {
        let header = abi::InHeader { nodeid: InodeNo::ROOT.0, ..Default::default() };
        server.guarded(&header, effect(&header, &op), body)
    }

    const RMDIR: Op<'static> = Op::Rmdir { name: b"a" };

    fn mkdir(server: &Server, name: &[u8]) -> Answer<Entry> {
        let request = Request { uid: 0, gid: 0, pid: 0 };
        server.mkdir(&request, InodeNo::ROOT, name, Mode { mode: 0o755, umask: 0 })
    }

    #[test]
    fn a_panic_of_a_request_that_looks_ends_that_one_alone() {
        let server = fresh::server(&fresh::mount(&fresh::volume()));
        assert_eq!(
            serve(&server, Op::Read(Default::default()), || panic!("as the test wants")),
            None::<()>
        );
        assert!(serve(&server, Op::Getattr, || server.getattr(InodeNo::ROOT)).is_some());
        assert!(mkdir(&server, b"a").is_ok());
    }

    #[test]
    fn a_panic_of_a_request_that_changes_ends_all_changes_but_no_look_and_no_thread() {
        let fs = fresh::mount(&fresh::volume());
        let server = fresh::server(&fs);
        assert!(mkdir(&server, b"a").is_ok());
        assert_eq!(serve(&server, RMDIR, || panic!("as the test wants")), None::<()>);
        assert!(fs.stop_reason().is_some_and(|why| why.contains("panicked")));
        assert_eq!(mkdir(&server, b"b").unwrap_err(), Errno(libc::EIO));
        assert_eq!(server.fsyncdir(InodeNo::ROOT), Err(Errno(libc::EIO)));
        assert!(server.getattr(InodeNo::ROOT).is_ok(), "what is there can be read");
    }

    #[test]
    fn a_closed_server_has_let_go() {
        let server = fresh::server(&fresh::mount(&fresh::volume()));
        server.close();
        assert_eq!(server.getattr(InodeNo::ROOT).unwrap_err(), Errno(libc::EIO));
        let file = FileId { inode: InodeNo(17), fh: 0, flags: 0 };
        assert_eq!(server.read(file, 0, &mut [0]).unwrap_err(), Errno(libc::EIO));
        server.release(0);
        server.forget(InodeNo(17), 3);
        server.close();
    }
}
