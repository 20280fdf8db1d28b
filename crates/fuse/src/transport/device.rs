//! The transport over /dev/fuse, and the handshake.
//!
//! What the kernel is asked for in the handshake is what keeps messages away: long
//! timeouts need no flag, but set-id bits (KILLPRIV_V2), handles of files and
//! directories and symbolic links each have one. Locks stay in the kernel, and so
//! does no written data: without a writeback cache a write that returned is in our
//! hands, in order.
//!
//! Truncating opens have one too (ATOMIC_O_TRUNC), which is not asked for: the file would be empty before the kernel looks whether it
//! may be opened for writing at all, and a running program may not. So O_TRUNC comes as a change of the size behind the open.
//!
//! The kernel is not asked for asynchronous direct requests (ASYNC_DIO): when such a write ends, it leaves pages that
//! others have read meanwhile, for ever. To invalidate them from here before the answer would be a deadlock, as the
//! kernel waits for pages whose reads wait until as many direct requests as it sends at once are answered. So io_submit
//! waits for each of its requests, and so do writes of io_uring to one file.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_base::switch::{Opens, Squash, Transport};
use holdfast_wire::init::{self, Agreed, Dialect, Wanted, flag};
use holdfast_wire::{Op, Request, abi, reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno as Failed;
use zerocopy::IntoBytes;

use super::answer::Buffer;
use super::backoff::with_backoff;
use super::effect::effect;
use super::ending::Ending;
use super::readers::{Next, Reader, Readers};
use super::to_kernel::ToKernel;
use super::uring::Rings;
use super::{Ways, answer, dispatch, fsync, kind, stale};
use crate::interface::{Answer, Errno};
use crate::server::Server;

/// Most bytes of one write, and of one answer.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// Most bytes of an answer that holds no data of a file and no names of a directory: an extended attribute.
const MAX_ANSWER: usize = 128 << 10;
/// What comes before the bytes of a write.
const HEADERS: usize = 4096;
/// Readahead and asynchronous direct requests that the kernel sends before it waits for answers.
const MAX_BACKGROUND: u16 = 64;
/// How long the handshake may take. The kernel begins it while it mounts, so a descriptor that another process has opened is
/// none of a new mount if it says nothing.
const GREETING: Duration = Duration::from_secs(2);
/// How long a reader sleeps before it gives back the memory of large requests.
const IDLE: Duration = Duration::from_secs(10);

thread_local! {
    /// Where a thread puts its answers.
    static BUFFER: RefCell<Buffer> = const { RefCell::new(Buffer::new()) };
}

/// Shakes hands with the kernel at the other end of `fuse` and starts what then serves requests until the filesystem is
/// unmounted: threads that read, and rings if they are wanted and offered. The last of them, or the first that fails, tells `ending`.
pub(crate) fn connect(
    fuse: &Arc<OwnedFd>,
    server: &Arc<Server>,
    readers: &Arc<Readers>,
    ways: Ways,
    ending: Ending,
) -> io::Result<Agreed> {
    // From here on a reader that finds nothing decides itself how to wait.
    rustix::io::ioctl_fionbio(fuse, true)?;
    let (rings, agreed) = shake_hands(fuse, server, ways)?;
    settle(fuse, server, &agreed, false)?;
    if let Some(rings) = rings
        && let Err(error) = rings.start(&ending)
    {
        if ways.transport == Transport::Rings {
            return Err(io::Error::new(error.kind(), format!("the kernel refuses rings: {error}")));
        }
        tracing::warn!("the kernel refuses rings ({error}); requests come through /dev/fuse");
    }
    start(fuse, server, readers, agreed, ending)
}

/// As [`connect`], with a kernel that has shaken hands with a process which has died. It sends once more what that has not
/// answered.
pub(crate) fn resume(
    fuse: &Arc<OwnedFd>,
    server: &Arc<Server>,
    readers: &Arc<Readers>,
    agreed: Agreed,
    ending: Ending,
) -> io::Result<Agreed> {
    rustix::io::ioctl_fionbio(fuse, true)?;
    settle(fuse, server, &agreed, true)?;
    server.forget_listing_of_snapshots();
    // Before anything is read here, which would come twice.
    rustix::io::write(fuse, &reply::send_again())?;
    // No other process comes for this mount.
    with_backoff(|| start(fuse, server, readers, agreed, ending.clone()))
}

/// Starts what reads requests.
fn start(
    fuse: &Arc<OwnedFd>,
    server: &Arc<Server>,
    readers: &Arc<Readers>,
    agreed: Agreed,
    ending: Ending,
) -> io::Result<Agreed> {
    let (fuse, server) = (Arc::clone(fuse), Arc::clone(server));
    let body = move |reader: &Reader| read_requests(&fuse, &server, reader, agreed.dialect());
    // Before the mount is announced as usable: the system may give no thread.
    readers.start(ending, body).map(|()| agreed)
}

/// The server is told what the handshake means for it, and which kernel it serves.
fn settle(fuse: &Arc<OwnedFd>, server: &Server, agreed: &Agreed, resumed: bool) -> io::Result<()> {
    if agreed.takes(flag::NO_OPEN_SUPPORT) {
        server.set_kernel_opens();
    }
    if !agreed.offers(flag::NO_OPENDIR_SUPPORT) {
        server.set_kernel_needs_opendir();
    }
    if server.options.duplicate_requests.is_some() {
        expect_to_outlive(server, agreed)?;
    }
    server.set_kernel(Arc::new(ToKernel::new(fuse, resumed)))
}

/// Refuses a kernel for which what is open needs something of this process.
fn expect_to_outlive(server: &Server, agreed: &Agreed) -> io::Result<()> {
    if !agreed.takes(flag::HAS_RESEND | flag::NO_OPENDIR_SUPPORT) {
        return Err(io::Error::other(
            "the kernel sends no request again, which takes Linux 6.9: leave out supervised",
        ));
    }
    match server.kernel_opens() {
        true => Ok(()),
        false => Err(io::Error::other(
            "supervised needs a kernel that checks permissions and opens files: leave out nodefault_permissions and squash=",
        )),
    }
}

/// The handshake: what the kernel begins with is answered with what is wanted of it, or the mount fails.
fn shake_hands(
    fuse: &Arc<OwnedFd>,
    server: &Arc<Server>,
    ways: Ways,
) -> io::Result<(Option<Rings>, Agreed)> {
    let (unique, init) = read_init(fuse)?;
    let outcome = prepare_rings(fuse, server, ways, &init).and_then(|rings| {
        let flags = wanted_flags(server, ways, &init, rings.is_some());
        let wanted = Wanted { flags, max_write: MAX_WRITE, max_background: MAX_BACKGROUND };
        let answer = init::answer(&init, &wanted).ok_or_else(|| {
            let (major, minor) = (init.major, init.minor);
            io::Error::other(format!("the kernel speaks FUSE {major}.{minor}, not 7.31 or later"))
        })?;
        Ok((rings, answer))
    });
    match outcome {
        Ok((rings, answer)) => {
            send(fuse, unique, Ok(answer.as_bytes()));
            Ok((rings, Agreed::on(&init, &answer)))
        }
        Err(error) => {
            send(fuse, unique, Err(Errno(libc::EPROTO)));
            Err(error)
        }
    }
}

/// The first request, with its number: what the kernel offers.
fn read_init(fuse: &OwnedFd) -> io::Result<(u64, abi::InitIn)> {
    let mut buffer = vec![0; HEADERS + MAX_WRITE as usize];
    let until = Deadline::after(GREETING);
    let len = loop {
        match rustix::io::read(fuse, &mut buffer[..]) {
            Err(Failed::AGAIN) if until.is_over() => {
                return Err(io::Error::other("the kernel does not begin with the handshake"));
            }
            Err(Failed::AGAIN) => sleep(fuse, Some(until.left())).map(drop)?,
            Err(Failed::INTR | Failed::NOENT) => {}
            read => break read?,
        }
    };
    let request = Request::decode(&buffer[..len], Dialect::default()).map_err(io::Error::other)?;
    match request.op {
        Op::Init(init) => Ok((request.header.unique, init)),
        _ => Err(io::Error::other("the kernel did not begin with the handshake")),
    }
}

/// The rings that requests come through, if they do. The kernel asks through all of them or none, so all are made before
/// it is told.
fn prepare_rings(
    fuse: &Arc<OwnedFd>,
    server: &Arc<Server>,
    ways: Ways,
    init: &abi::InitIn,
) -> io::Result<Option<Rings>> {
    let is_offered = init::offered(init) & flag::OVER_IO_URING != 0;
    let prepare = || Rings::prepare(fuse, server, ways.ring_bytes);
    match ways.transport {
        Transport::Device => Ok(None),
        Transport::Rings if !is_offered => Err(io::Error::other(
            "the kernel offers no rings; root can allow them: \
             echo Y >/sys/module/fuse/parameters/enable_uring",
        )),
        Transport::Rings => prepare().map(Some),
        Transport::Auto if !is_offered => Ok(None),
        Transport::Auto => Ok(prepare()
            .inspect_err(|error| {
                tracing::info!("no rings ({error}); requests come through /dev/fuse");
            })
            .ok()),
    }
}

/// What is wanted of the kernel.
fn wanted_flags(server: &Server, ways: Ways, init: &abi::InitIn, has_rings: bool) -> u64 {
    let offered = init::offered(init);
    let mut flags = flag::ASYNC_READ
        | flag::BIG_WRITES
        | flag::EXPORT_SUPPORT
        | flag::DO_READDIRPLUS
        | flag::READDIRPLUS_AUTO
        | flag::PARALLEL_DIROPS
        | flag::HANDLE_KILLPRIV_V2
        | flag::CACHE_SYMLINKS
        | flag::NO_OPENDIR_SUPPORT
        | flag::DIRECT_IO_ALLOW_MMAP
        | flag::SETXATTR_EXT
        | flag::HAS_IOCTL_DIR;
    // The kernel obeys access control lists only if it checks permissions at all. Then it must
    // leave the umask to us, as a list of the directory takes its place.
    if server.is_trusting() {
        flags |= flag::DONT_MASK;
        if server.has_lists() {
            flags |= flag::POSIX_ACL;
        }
        // Then the mount may be mounted again with other owners, and only requests that make inodes tell whose they
        // are. Any other caller is known by looking at the process, which only root may.
        let is_of_root = rustix::process::geteuid().is_root() && server.owner() == 0;
        // A squashed mount must hear the caller with each request.
        let is_squashed = server.options.owners.squash != Squash::None;
        if is_of_root && !is_squashed {
            flags |= flag::ALLOW_IDMAP;
        }
    }
    let opens_by_itself = offered & flag::NO_OPEN_SUPPORT != 0;
    if ways.opens == Opens::Kernel && !opens_by_itself {
        tracing::info!("the kernel does not open files by itself; it asks for each");
    }
    // The kernel opens what the caller may open, and of a squashed caller the permissions of another user count.
    let is_unchecked = !server.is_trusting() || server.options.owners.squash != Squash::None;
    let is_asked = ways.opens == Opens::Server || is_unchecked || !opens_by_itself;
    if !is_asked {
        flags |= flag::NO_OPEN_SUPPORT;
    }
    if server.options.duplicate_requests.is_some() {
        flags |= flag::HAS_RESEND;
    }
    if has_rings {
        flags |= flag::OVER_IO_URING;
    }
    flags
}

fn read_requests(
    fuse: &Arc<OwnedFd>,
    server: &Server,
    reader: &Reader,
    dialect: Dialect,
) -> io::Result<()> {
    let new_buffer = || {
        let mut buffer = vec![0; HEADERS + MAX_WRITE as usize];
        if server.options.duplicate_requests.is_some() {
            // A kill while a request comes into pages that are not there would end the request with EIO.
            buffer.fill(1);
        }
        buffer
    };
    let mut buffer = new_buffer();
    // Pages of the buffers are in memory.
    let mut is_warm = false;
    let hand = server.page_writes.hand();
    loop {
        hand.lift();
        match rustix::io::read(fuse, &mut buffer[..]) {
            Ok(len) => {
                is_warm = true;
                let message = &buffer[..len];
                let next = match Request::decode(message, dialect) {
                    Ok(request) => {
                        hand.holds(&request.op);
                        reader.serve(|| {
                            serve(fuse, server, &request);
                            // The thread may rest before it reads again.
                            hand.put_down();
                        })
                    }
                    Err(_) => reader.serve(|| refuse_malformed(fuse, message)),
                };
                if next == Next::End {
                    return Ok(());
                }
            }
            Err(Failed::AGAIN) => {
                hand.put_down();
                match reader.found_nothing() {
                    Next::Look => {}
                    Next::Sleep if is_warm => {
                        if !sleep(fuse, Some(IDLE))? {
                            buffer = new_buffer();
                            BUFFER.with_borrow_mut(|buffer| *buffer = Buffer::new());
                            is_warm = false;
                        }
                    }
                    Next::Sleep => sleep(fuse, None).map(drop)?,
                    Next::End => return Ok(()),
                }
            }
            // Given up by the caller before it was read.
            Err(Failed::INTR | Failed::NOENT) => {}
            // Unmounted, or the connection was ended.
            Err(Failed::NODEV | Failed::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sleeps until there is something to read, or for so long. Whether there may be something.
fn sleep(fuse: &OwnedFd, most: Option<Duration>) -> io::Result<bool> {
    let most = most.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(fuse, PollFlags::IN)], most.as_ref()) {
        Ok(0) => Ok(false),
        Ok(_) | Err(Failed::INTR | Failed::AGAIN) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Of a malformed message only the number is believed, if there is one.
fn refuse_malformed(fuse: &OwnedFd, message: &[u8]) {
    if let Some(unique) = message.get(8..16).and_then(|bytes| bytes.try_into().ok()) {
        send(fuse, u64::from_ne_bytes(unique), Err(Errno(libc::EIO)));
    }
}

fn serve(fuse: &Arc<OwnedFd>, server: &Server, request: &Request<'_>) {
    let (header, effect) = (&request.header, effect(&request.header, &request.op));
    server.guarded(header, effect, || {
        if let Some(kind) = kind::kind(&request.op) {
            server.requests().count(kind);
        }
        serve_one(fuse, server, request);
    });
}

fn serve_one(fuse: &Arc<OwnedFd>, server: &Server, request: &Request<'_>) {
    let header = &request.header;
    if let Some(fsync) = fsync::fsync(server, header, &request.op) {
        let pending = Pending::new(Arc::clone(fuse), header.unique);
        return fsync.call_then(server, move |answer| {
            pending.send(stale::of_inode(answer).map(|()| &[][..]));
        });
    }
    let pending = Pending::new(fuse, header.unique);
    BUFFER.with_borrow_mut(|buffer| {
        // No longer than any request of this thread wanted: there may be many threads, and it stays.
        let most = dispatch::most_filled(&request.op).map_or(MAX_ANSWER, |most| most as usize);
        let out = buffer.at_least(most.min(MAX_WRITE as usize));
        let (answer, noted) = if dispatch::fills(header.opcode) {
            (dispatch::fill(server, header, &request.op, out), None)
        } else {
            match dispatch::call_noting(server, header, &request.op) {
                Some((answer, noted)) => {
                    (answer.and_then(|answer| answer::encode(&answer, out)), noted)
                }
                None => return pending.forget(),
            }
        };
        pending.send(answer.map(|len| &out[..len]));
        drop(noted);
    });
}

/// An answer that is still to be sent: the caller gets one also after a panic.
struct Pending<F: AsFd> {
    fuse: F,
    unique: u64,
    is_sent: bool,
}

impl<F: AsFd> Pending<F> {
    fn new(fuse: F, unique: u64) -> Pending<F> {
        Pending { fuse, unique, is_sent: false }
    }

    fn send(mut self, answer: Answer<&[u8]>) {
        self.is_sent = true;
        send(&self.fuse, self.unique, answer);
    }

    fn forget(mut self) {
        self.is_sent = true;
    }
}

impl<F: AsFd> Drop for Pending<F> {
    fn drop(&mut self) {
        if !self.is_sent {
            send(&self.fuse, self.unique, Err(Errno(libc::EIO)));
        }
    }
}

fn send(fuse: &impl AsFd, unique: u64, answer: Answer<&[u8]>) {
    let (error, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(Errno(error)) => (error, &[][..]),
    };
    let header = reply::header(unique, error, bytes.len());
    match rustix::io::writev(fuse, &[IoSlice::new(header.as_bytes()), IoSlice::new(bytes)]) {
        // The answer is not wanted any more: interrupted, or unmounted.
        Ok(_) | Err(Failed::NOENT | Failed::NODEV | Failed::CONNABORTED) => {}
        Err(error) => tracing::warn!("an answer to the kernel was refused: {error}"),
    }
}
