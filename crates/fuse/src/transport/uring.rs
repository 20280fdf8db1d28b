//! The transport over rings: each request is served on the processor that asks.
//!
//! A queue for each processor, and on it a few threads with one entry each. A
//! thread serves its request to the end, whatever that waits for, and the kernel
//! gives the next one to another entry: so there is no hand-over, and
//! as many requests wait at once as there are threads. Entries that were used
//! last are used first, so a single client has one warm thread.
//!
//! An fsync blocks its thread, too, and has no completion callback as through /dev/fuse: until the answer the thread has no
//! entry for another request, and an answer through another ring would take the entry there. So the thread would
//! be woken all the same.
//!
//! Always true: the kernel is told of rings only when every thread has made its
//! own, and asks nothing until every queue has an entry. If it then refuses an entry,
//! it asks through /dev/fuse, or through those that it has taken; both are served.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use holdfast_base::wait;
use holdfast_wire::Op;
use holdfast_wire::ring::{Arrived, Ring};

use super::effect::{Effect, effect};
use super::ending::{Ending, told};
use super::processors::Home;
use super::{answer, processors};
use super::{dispatch, kind};
use crate::interface::{Answer, Errno};
use crate::quiescence::QuiescenceCounter;
use crate::server::Server;
use crate::threads;

/// Threads in all, about; on each processor at least and at most so many.
const THREADS: usize = 128;
const THREADS_MIN: usize = 4;
const THREADS_MAX: usize = 16;

/// Threads that have made their rings and wait for a `Word`.
pub(super) struct Rings {
    waiting: Vec<Sender<Word>>,
}

/// The command to register and serve.
struct Word {
    /// Gets whether the kernel has taken the entries.
    registered: Sender<io::Result<()>>,
    /// Gets the outcome of each thread that serves.
    ending: Ending,
}

impl Rings {
    /// Starts the threads, with room for so many bytes of a request. When it returns each has its ring, and the
    /// kernel knows of none.
    pub(super) fn prepare(
        fuse: &Arc<OwnedFd>,
        server: &Arc<Server>,
        bytes: usize,
    ) -> io::Result<Rings> {
        let (possible, online) = (processors::possible()?, processors::online()?);
        let each = (THREADS / online.len().max(1)).clamp(THREADS_MIN, THREADS_MAX);
        let mut threads = Vec::new();
        for &cpu in &online {
            threads.extend((0..each).map(|_| (Some(cpu), vec![cpu])));
        }
        // No request comes from a processor that is offline, but the kernel wants an entry in its queue, too.
        let away: Vec<u16> = possible.into_iter().filter(|cpu| !online.contains(cpu)).collect();
        if !away.is_empty() {
            threads.push((None, away));
        }
        let (made, all) = channel();
        let mut waiting = Vec::new();
        for (cpu, queues) in threads {
            let (word, wait) = channel();
            let (fuse, server, made) = (Arc::clone(fuse), Arc::clone(server), made.clone());
            let name = cpu.map_or("holdfast-ring".into(), |cpu| format!("holdfast-ring-{cpu}"));
            threads::start(&name, "rings", move || {
                run(&fuse, &server, cpu, (&queues, bytes), &made, &wait);
            })?;
            waiting.push(word);
        }
        drop(made);
        // Each says it once, and then waits.
        all.iter().take(waiting.len()).collect::<io::Result<()>>()?;
        Ok(Rings { waiting })
    }

    /// Lets the threads register and serve. Each that serves tells `ending` how it ended.
    ///
    /// # Errors
    /// The kernel has refused some of them. They have ended; the others serve what it sends them.
    pub(super) fn start(self, ending: &Ending) -> io::Result<()> {
        let (registered, all) = channel();
        for thread in self.waiting {
            // One that has ended has said so.
            let _ = thread.send(Word { registered: registered.clone(), ending: ending.clone() });
        }
        drop(registered);
        all.iter().filter(Result::is_err).last().unwrap_or(Ok(()))
    }
}

fn run(
    fuse: &OwnedFd,
    server: &Server,
    cpu: Option<u16>,
    (queues, bytes): (&[u16], usize),
    made: &Sender<io::Result<()>>,
    wait: &Receiver<Word>,
) {
    let home = cpu.and_then(|cpu| {
        processors::allowed()
            .and_then(|all| Home::at(cpu, all))
            .inspect_err(|error| {
                tracing::debug!("a thread cannot be kept on processor {cpu}: {error}");
            })
            .ok()
    });
    let ring = Ring::new(fuse.as_fd(), queues, bytes);
    let (ring, said) = match ring {
        Ok(ring) => (Some(ring), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let _ = made.send(said);
    // Without the word the handshake has failed.
    if let (Some(mut ring), Ok(Word { registered, ending })) = (ring, wait.recv()) {
        let done = ring.register();
        let is_taken = done.is_ok();
        let _ = registered.send(done);
        drop(registered);
        if is_taken {
            ending.note(told(|| serve_ring(&mut ring, server, home)));
        }
    }
}

fn serve_ring(ring: &mut Ring, server: &Server, home: Option<Home>) -> io::Result<()> {
    let home = home.map(Rc::new);
    if let Some(home) = home.clone() {
        wait::before_waiting(move |next| {
            if next == wait::Next::Share {
                home.leave();
            }
        });
    }
    let hand = server.page_writes.hand_at_ring();
    while let Some(at) = ring.wait()? {
        home.iter().for_each(|home| home.come_back());
        let arrived = ring.arrived(at);
        hand.lift();
        let Arrived { header, fixed, ref payload, len } = arrived;
        let op = Op::decode(&header, fixed, &payload[..len]);
        let effect = op.map_or(Effect::Settles, |op| effect(&header, &op));
        let answer = server.guarded(&header, effect, || serve_one(server, &hand, arrived));
        hand.put_down();
        match answer.unwrap_or(Err(Errno(libc::EIO))) {
            Ok(len) => ring.answer(at, 0, len)?,
            Err(Errno(error)) => ring.answer(at, error, 0)?,
        }
    }
    Ok(())
}

fn serve_one(server: &Server, hand: &QuiescenceCounter, arrived: Arrived<'_>) -> Answer<usize> {
    let Arrived { header, fixed, payload, len } = arrived;
    let malformed = |_| Errno(libc::EIO);
    if dispatch::fills(header.opcode) {
        let op = Op::decode(&header, fixed, &[]).map_err(malformed)?;
        hand.holds(&op);
        kind::kind(&op).into_iter().for_each(|kind| server.requests().count(kind));
        return dispatch::fill(server, &header, &op, payload);
    }
    let op = Op::decode(&header, fixed, &payload[..len]).map_err(malformed)?;
    hand.holds(&op);
    kind::kind(&op).into_iter().for_each(|kind| server.requests().count(kind));
    match dispatch::call(server, &header, &op) {
        Some(answer) => answer::encode(&answer?, payload),
        None => Ok(0),
    }
}
