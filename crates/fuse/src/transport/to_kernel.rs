//! What the kernel is told without having asked: what it keeps and is not so any more.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_wire::reply;
use rustix::io::Errno as Failed;

use crate::interface::Kernel;

/// Inodes in one message that they are not wanted.
const UNWANTED_MOST: usize = 256;

/// The kernel behind a connection.
pub(super) struct ToKernel {
    fuse: Arc<OwnedFd>,
    takes_all_names: bool,
}

impl ToKernel {
    /// Of a kernel that knows no name yet, so that it does no harm to try; of one that another process has served, `resumed`, no branch gets
    /// another head.
    pub(super) fn new(fuse: &Arc<OwnedFd>, resumed: bool) -> ToKernel {
        let takes_all_names =
            !resumed && rustix::io::write(fuse, &reply::all_names_changed()).is_ok();
        ToKernel { fuse: Arc::clone(fuse), takes_all_names }
    }

    fn tell(&self, inode: u64, message: &[u8]) {
        match rustix::io::write(&self.fuse, message) {
            // The kernel does not know the inode, or is gone.
            Ok(_) | Err(Failed::NOENT | Failed::NODEV | Failed::CONNABORTED) => {}
            Err(error) => tracing::warn!("telling the kernel about inode {inode} failed: {error}"),
        }
    }
}

impl Kernel for ToKernel {
    fn attr_changed(&self, inode: u64) {
        self.tell(inode, &reply::attributes_changed(inode));
    }

    fn content_changed(&self, inode: u64) {
        self.tell(inode, &reply::content_changed(inode));
    }

    fn bytes_changed(&self, inode: u64, offset: u64, len: u64) {
        self.tell(inode, &reply::bytes_changed(inode, offset, len));
    }

    fn grown(&self, inode: u64, size: u64, last: u8) {
        if let Some(at) = size.checked_sub(1) {
            self.tell(inode, &reply::stored(inode, at, &[last]));
        }
    }

    fn name_changed(&self, parent: u64, name: &[u8]) {
        self.tell(parent, &reply::name_changed(parent, name));
    }

    fn unwanted(&self, inodes: &[u64]) {
        for some in inodes.chunks(UNWANTED_MOST) {
            // Those before Linux 6.18 take no such message.
            let _ = rustix::io::write(&self.fuse, &reply::unwanted(some));
        }
    }

    fn takes_all_names(&self) -> bool {
        self.takes_all_names
    }

    fn all_names_changed(&self) {
        let _ = rustix::io::write(&self.fuse, &reply::all_names_changed());
    }
}
