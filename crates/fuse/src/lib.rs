//! Floor 4: kernel requests become calls of the filesystem.
//!
//! A [`Session`] answers the kernel of a mount, which another process may have made, until it is unmounted, beside others. What a request means is decided in [`server`], in plain
//! structs ([`interface`]); how requests arrive and answers leave is the business of
//! a [`transport`]. So a second transport needs no second server.
//!
//! A thread that reads requests never waits for the device before another one
//! reads ([`transport`]).
//!
//! Knows nothing of the tree, the log or the device. Never touches its own
//! mount point: the kernel would ask the very threads that wait for it.

mod caller;
pub mod duplicate_requests;
pub mod connection;
mod flags;
mod fsyncs;
mod handles;
pub mod interface;
mod interrupts;
mod mount;
mod mount_point;
mod mountinfo;
mod notices;
pub mod owners;
mod quiescence;
pub mod options;
pub mod server;
pub mod session;
mod snapdir;
pub mod statistics;
mod threads;
mod troubles;
pub mod transport;
mod watch;

pub use duplicate_requests::DuplicateRequests;
pub use holdfast_base::switch::{Opens, SnapDir, Squash, Transport};
pub use holdfast_wire::ask::{PIECE, attribute};
pub use holdfast_wire::connection::{connect, unconnected};
pub use holdfast_wire::init::Agreed;
pub use interface::Controlled;
pub use mount::{Handed, Mounted, mount, remount};
pub use options::{Control, FuseOptions, Report, SLOW_FSYNC, SharedThreads};
pub use owners::Owners;
pub use server::{
    CHANGE_XATTR, CONTROL, FSYNC_XATTR, PENDING_XATTR, PERMIT, REMOUNT_XATTR, REPORT_XATTR,
    SHOWN_XATTR, SNAPSHOT_XATTR, STATS_XATTR, SYNC_XATTR,
};
pub use session::{Remote, Session, end_all};
pub use statistics::{BucketScale, Latency, Operation, Operations, RequestKind, Requests};
