//! FUSE-over-io_uring: requests come as completions, answers go as submissions.
//!
//! The kernel has a queue for each processor. A ring registers entries with
//! queues, each a pair of buffers: for headers and for the rest. A request is put
//! into an entry of the queue of the processor that asks, and stays there until
//! the answer, which is written into the same buffers; handing it over asks for
//! the next one in the same system call.
//!
//! Always true: the buffers of an entry are touched here only between the
//! completion that brings a request and the submission of its answer; they live
//! until the ring is closed. Everything happens on the thread that made the ring.
//!
//! Knows nothing of what requests mean.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{InHeader, OutHeader, RingCommand, RingEntry};

/// A request may be put into the entry from now on.
const REGISTER: u32 = 1;
/// The answer is there; the next request may come.
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes for the header of a request or of an answer, and for the fixed struct.
const PART: usize = 128;
/// Both of them, and what is known of the rest.
const HEADERS: usize = 2 * PART + size_of::<RingEntry>();
/// Where a submission says how many buffers it names.
const SUBMISSION_LEN: usize = 24;
/// Alignment of buffers: that of a page, as direct I/O wants it.
const ALIGNMENT: usize = 4096;

/// Memory that the kernel writes to.
struct Buffer {
    at: NonNull<u8>,
    layout: Layout,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT).expect("a buffer is small");
        // SAFETY: the layout's size is not zero.
        let at = unsafe { alloc_zeroed(layout) };
        let at = NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout));
        Buffer { at, layout }
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory was allocated with this length and zeroed, and lives as long as `self`. The
        // ring calls this only while the kernel does not write to it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

struct Entry {
    queue: u16,
    headers: Buffer,
    payload: Buffer,
    /// What the registration names; the kernel reads it when the submission is made.
    vectors: [libc::iovec; 2],
    /// The request in it is ours to answer.
    held: bool,
}

/// A ring with its entries. Closed when dropped: requests in it fail.
pub struct Ring {
    // Before the entries, whose buffers must outlive it.
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    fuse: types::Fd,
    /// Completions that came while entries were registered: which entry, and with which result.
    early: VecDeque<(usize, i32)>,
}

/// Whether an error says that the connection has ended.
fn is_over(error: i32) -> bool {
    matches!(error, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
}

/// A request in an entry.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Its header.
    pub header: InHeader,
    /// Its fixed struct, and zeros or old bytes behind it.
    pub fixed: &'a [u8],
    /// Where the rest of it is, and where the answer goes.
    pub payload: &'a mut [u8],
    /// Bytes of the rest.
    pub len: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring with an entry of `payload` bytes for each of `queues`, on the connection `fuse`, which must
    /// stay open as long as the ring. The kernel does not know of it yet.
    pub fn new(fuse: BorrowedFd<'_>, queues: &[u16], payload: usize) -> io::Result<Ring> {
        let slots = (queues.len().max(1) as u32).next_power_of_two();
        let uring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(slots)?;
        let entries = queues.iter().map(|queue| {
            let (headers, payload) = (Buffer::new(HEADERS), Buffer::new(payload));
            let vectors = [&headers, &payload].map(|buffer| libc::iovec {
                iov_base: buffer.at.as_ptr().cast(),
                iov_len: buffer.layout.size(),
            });
            Entry { queue: *queue, headers, payload, vectors, held: false }
        });
        Ok(Ring {
            uring,
            entries: entries.collect(),
            fuse: types::Fd(fuse.as_raw_fd()),
            early: VecDeque::new(),
        })
    }

    /// Registers all entries with their queues.
    ///
    /// # Errors
    /// The kernel refuses one of them, which it does at once.
    pub fn register(&mut self) -> io::Result<()> {
        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            let command = RingCommand { queue: entry.queue, ..RingCommand::default() };
            let vectors = entry.vectors.as_ptr() as u64;
            let mut submission = self.command(REGISTER, &command, Some(vectors), at);
            // SAFETY: a submission of 128 bytes has its length field there, and any number is valid in it.
            unsafe {
                let field = (&raw mut submission).cast::<u8>().add(SUBMISSION_LEN);
                field.cast::<u32>().write_unaligned(2);
            }
            self.push(&submission)?;
        }
        self.uring.submit()?;
        let came = self.uring.completion().map(|it| (it.user_data() as usize, it.result()));
        self.early.extend(came);
        // An error that says that the connection is over is left to the waiting thread.
        let refused = self
            .early
            .iter()
            .map(|(_, result)| -result)
            .find(|error| *error > 0 && !is_over(*error));
        refused.map_or(Ok(()), |error| Err(io::Error::from_raw_os_error(error)))
    }

    /// Hands over what was answered, waits for a request, and says in which entry it is; `None` when the
    /// connection has ended.
    pub fn wait(&mut self) -> io::Result<Option<usize>> {
        loop {
            let next = self.early.pop_front().or_else(|| {
                let next = self.uring.completion().next();
                next.map(|it| (it.user_data() as usize, it.result()))
            });
            if let Some((at, result)) = next {
                match -result {
                    0 => {
                        self.entries[at].held = true;
                        return Ok(Some(at));
                    }
                    error if is_over(error) => return Ok(None),
                    error => return Err(io::Error::from_raw_os_error(error)),
                }
            }
            match self.uring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => {}
            }
        }
    }

    /// The request in an entry that [`Ring::wait`] named.
    pub fn arrived(&mut self, at: usize) -> Arrived<'_> {
        let Entry { headers, payload, held, .. } = &mut self.entries[at];
        assert!(*held, "the kernel has it");
        let headers = headers.as_slice();
        let header = InHeader::read_from_bytes(&headers[..size_of::<InHeader>()]);
        let known = RingEntry::read_from_bytes(&headers[2 * PART..]);
        let (header, known) = (header.expect("sizes agree"), known.expect("sizes agree"));
        let payload = payload.as_mut_slice();
        let len = (known.payload_size as usize).min(payload.len());
        Arrived { header, fixed: &headers[PART..2 * PART], payload, len }
    }

    /// Answers the request in an entry: with an errno above 0, or with the first `len` bytes of the payload.
    /// It leaves with the next call of [`Ring::wait`].
    pub fn answer(&mut self, at: usize, error: i32, len: usize) -> io::Result<()> {
        let entry = &mut self.entries[at];
        assert!(std::mem::take(&mut entry.held), "the kernel has it");
        let queue = entry.queue;
        let headers = entry.headers.as_mut_slice();
        let request = InHeader::read_from_bytes(&headers[..size_of::<InHeader>()]);
        let known = RingEntry::read_from_bytes(&headers[2 * PART..]);
        let (request, known) = (request.expect("sizes agree"), known.expect("sizes agree"));
        let len = if error == 0 { len } else { 0 };
        let out = crate::reply::header(request.unique, error, len);
        headers[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        let answer = RingEntry { payload_size: len as u32, ..known };
        headers[2 * PART..].copy_from_slice(answer.as_bytes());
        let command = RingCommand { commit_id: known.commit_id, queue, ..RingCommand::default() };
        let submission = self.command(COMMIT_AND_FETCH, &command, None, at);
        self.push(&submission)
    }

    fn command(
        &self,
        kind: u32,
        command: &RingCommand,
        address: Option<u64>,
        at: usize,
    ) -> squeue::Entry128 {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        opcode::UringCmd80::new(self.fuse, kind)
            .cmd(bytes)
            .addr(address)
            .build()
            .user_data(at as u64)
    }

    fn push(&mut self, submission: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: the descriptor stays open and the buffers and vectors that the submission names stay in
        // place as long as the ring: entries never move, and are dropped after it.
        let pushed = unsafe { self.uring.submission().push(submission) };
        pushed.map_err(|_| io::Error::other("the ring has no room for as many entries as it has"))
    }
}
