//! How a volume is shown to the kernel, as the caller that mounts it says.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::parallel::processors;
use holdfast_base::switch::{Opens, SnapDir, Squash, Transport};

use crate::connection::Watchdog;
use crate::duplicate_requests::DuplicateRequests;
use crate::interface::Controlled;
use crate::notices::Tellers;
use crate::owners::Owners;
use crate::statistics::Requests;
use crate::watch::Watch;

/// How long a reader polls for the next request before it sleeps, on machines with at most so many processors. With more of
/// them one that wakes costs less than one that is never idle.
const SPIN: Duration = Duration::from_micros(50);
const SPIN_PROCESSORS: usize = 4;
/// Fsyncs that take longer get a line in the log, unless another limit is set.
pub const SLOW_FSYNC: Duration = Duration::from_secs(1);

/// How a volume is shown to the kernel.
#[derive(Clone, Debug)]
pub struct FuseOptions {
    /// What /proc/mounts shows as the device, usually the path of the image.
    pub source: OsString,
    /// The kernel refuses every change.
    pub read_only: bool,
    /// Users other than the one that mounts may come in. Needs `user_allow_other` in /etc/fuse.conf when the mounting
    /// user is not root.
    pub allow_other: bool,
    /// The kernel checks permissions (and we do not). Without that nothing checks which user lists a directory, or
    /// searches one whose names the kernel remembers. So only the mounting user may come in: `allow_other` is refused.
    pub default_permissions: bool,
    /// How owners are shown and made. With [`Squash::All`] the kernel checks no permissions, and the server does.
    pub owners: Owners,
    /// Set-id bits have no effect. Always so when mounted by another user than root.
    pub nosuid: bool,
    /// Device files have no effect. Always so when mounted by another user than root.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Reading does not touch access times.
    pub noatime: bool,
    /// Reading does not touch those of directories.
    pub nodiratime: bool,
    /// Reading always touches them.
    pub strictatime: bool,
    /// Symbolic links are not followed.
    pub nosymfollow: bool,
    /// Every change is durable before it is answered.
    pub sync: bool,
    /// Changes of names are.
    pub dirsync: bool,
    /// The host has every change before it is answered: a kill of this process takes none.
    pub handover: bool,
    /// Where is noted which requests were carried out, if another process is to go on with the mount should this one die. Then the
    /// kernel opens files, and requests come through /dev/fuse.
    pub duplicate_requests: Option<Arc<DuplicateRequests>>,
    /// Security labels for the kernel, each `context=...` or one of its kin, quoted as mount(8) does. For root only.
    pub labels: Vec<String>,
    /// Threads that read requests at the same time; `None`: as many as CPUs, at least 2 and at most 16.
    pub threads: Option<usize>,
    /// How long a thread that has served a request polls for the next one before it sleeps. Zero saves processor time;
    /// more saves a wake-up when clients ask one request right after another.
    pub spin: Duration,
    /// How long the kernel may believe names and attributes. As every change goes through the
    /// kernel, this bounds nothing but surprise.
    pub ttl: Duration,
    /// Fsyncs that take longer get a line in the log; `None`: none of them.
    pub slow_fsync: Option<Duration>,
    /// The kernel learns that there are no extended attributes, and asks for none.
    pub noxattr: bool,
    /// The transport of requests.
    pub transport: Transport,
    /// Which side opens regular files.
    pub opens: Opens,
    /// Whether the root has a directory `.snapshots`.
    pub snapdir: SnapDir,
    /// What holds the volume, which the library asks for: whether it is a block device, the device, and the inode or 0.
    pub host_file: Option<(bool, u64, u64)>,
    /// The user of the mount; `None`: that of this process.
    pub owner: Option<u32>,
    /// The threads that the mounts of this process share.
    pub shared: SharedThreads,
    /// Where requests are counted.
    pub requests: Arc<Requests>,
    /// What the mount says of itself, if anything.
    pub report: Option<Report>,
    /// What carries out commands for the mount, if anything.
    pub control: Option<Control>,
    /// What ends the connection if this process is killed when it cannot end.
    pub watchdog: Option<Watchdog>,
}

/// The threads that many mounts of one volume in one process share: those that watch over their requests and that tell their
/// kernels of changes. Clones are the same; the threads end with the last.
#[derive(Clone, Default)]
pub struct SharedThreads {
    pub(crate) watch: Arc<Watch>,
    pub(crate) tellers: Arc<Tellers>,
}

holdfast_base::opaque!(SharedThreads);

/// Makes what root and the user of the mount read as the attribute [`REPORT_XATTR`](crate::REPORT_XATTR), of at most 64
/// KiB: the kernel knows no longer value. `None` while there is nothing to say.
#[derive(Clone)]
pub struct Report(Arc<dyn Fn() -> Option<Vec<u8>> + Send + Sync>);

impl Report {
    /// `make` is called for each question, on a thread that serves requests: it must not wait for the mount.
    pub fn new(make: impl Fn() -> Option<Vec<u8>> + Send + Sync + 'static) -> Report {
        Report(Arc::new(make))
    }

    pub(crate) fn make(&self) -> Option<Vec<u8>> {
        (self.0)()
    }
}

holdfast_base::opaque!(Report);

/// Carries out commands of root and of the user of the mount, and answers each. They come by ioctl(2) of anything inside the
/// mount: see [`CONTROL`](crate::CONTROL). A command and its answer have at most [`PIECE`](holdfast_wire::ask::PIECE) bytes.
#[derive(Clone)]
pub struct Control(Arc<CarryOut>);

/// Carries out a command for a mount, and returns the answer.
type CarryOut = dyn Fn(&dyn Controlled, &[u8]) -> Vec<u8> + Send + Sync;

impl Control {
    /// `carry_out` is called for each command, on a thread that serves requests: it must not wait for the mount.
    pub fn new(
        carry_out: impl Fn(&dyn Controlled, &[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Control {
        Control(Arc::new(carry_out))
    }

    pub(crate) fn carry_out(&self, mount: &dyn Controlled, command: &[u8]) -> Vec<u8> {
        (self.0)(mount, command)
    }
}

holdfast_base::opaque!(Control);

impl Default for FuseOptions {
    fn default() -> FuseOptions {
        FuseOptions {
            source: "holdfast".into(),
            read_only: false,
            allow_other: false,
            default_permissions: true,
            owners: Owners::default(),
            nosuid: false,
            nodev: false,
            noexec: false,
            noatime: false,
            nodiratime: false,
            strictatime: false,
            nosymfollow: false,
            sync: false,
            dirsync: false,
            handover: false,
            duplicate_requests: None,
            labels: Vec::new(),
            threads: None,
            spin: default_spin(processors()),
            ttl: Duration::from_secs(12 * 3600),
            slow_fsync: Some(SLOW_FSYNC),
            noxattr: false,
            transport: Transport::default(),
            opens: Opens::default(),
            snapdir: SnapDir::default(),
            host_file: None,
            owner: None,
            shared: SharedThreads::default(),
            requests: Arc::default(),
            report: None,
            control: None,
            watchdog: None,
        }
    }
}

impl FuseOptions {
    /// Whether the kernel checks permissions. It would for those who ask, and not for the owner that all of them act as.
    pub(crate) fn is_checked_by_kernel(&self) -> bool {
        self.default_permissions && self.owners.squash != Squash::All
    }

    /// Threads that read requests at the same time.
    pub fn readers(&self) -> usize {
        self.threads.unwrap_or_else(|| default_threads(processors())).max(1)
    }
}

/// More readers than CPUs steal each other's wake-ups; fewer than two could all be busy; and they all read one queue.
fn default_threads(processors: usize) -> usize {
    processors.clamp(2, 16)
}

fn default_spin(processors: usize) -> Duration {
    if processors <= SPIN_PROCESSORS { SPIN } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_processors() {
        assert_eq!([1, 2, 4, 8, 64].map(default_threads), [2, 2, 4, 8, 16]);
        assert_eq!([1, 4, 5, 64].map(default_spin), [SPIN, SPIN, Duration::ZERO, Duration::ZERO]);
    }
}
