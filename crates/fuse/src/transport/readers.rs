//! Which threads read requests, and how they wait for them.
//!
//! /dev/fuse wakes the thread that has slept longest, so with two of them every request of a single client would wake
//! another one, on another processor. Here as many threads read as there is work for. A thread that finds no request
//! rests, unless no other reads. A thread that finds one request right after another wakes the one that came to rest
//! last. The last reader polls for a while before it sleeps, because a client that got its answer mostly asks again at
//! once, and a wake takes longer than that.
//!
//! The thread that read a request serves it, but for the end of an fsync (below). A thread that is about to wait
//! ([`holdfast_base::wait`]) steps out, and makes sure that another one reads. Threads are started when they
//! are needed, up to a bound, and end when they have rested for long: a mount at rest has one. A watch notices a request
//! that takes long and has not said so, and wakes another thread, too ([`crate::watch`]).
//!
//! Of the fsyncs that wait for the log only one keeps its thread, the leader. It makes the batch, answers for all that
//! share it, and goes on with the next one while any fsync waits ([`holdfast_posix::FileSystem::fsync_then`]).
//!
//! Always true: a thread reads, or will within two ticks of the watch, or as many wait as may.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

use super::ending::{Ending, told};
use crate::threads;
use crate::watch::{TICK, Watch, Watched};

/// A thread that finds this many requests in a row wakes another one. A single client makes two: its next one, and what
/// the kernel sends by itself, as for a file that was closed.
const BACKLOG: u32 = 3;
/// How long a thread rests before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// What its threads are for.
const REQUESTS: &str = "requests";

type Body = dyn Fn(&Reader) -> io::Result<()> + Send + Sync;

/// How another reader is started.
#[derive(Clone)]
struct Start {
    body: Arc<Body>,
    ending: Ending,
}

/// Where one thread rests.
#[derive(Default)]
struct Seat {
    called: AtomicBool,
    changed: Condvar,
}

#[derive(Default)]
struct Pool {
    /// Threads that read, or serve what has not waited so far.
    reading: usize,
    /// Threads that wait during a request.
    outside: usize,
    /// Those that rest, the latest at the end.
    resting: Vec<Arc<Seat>>,
    /// Threads that were started so far.
    started: usize,
    start: Option<Start>,
}

/// The threads that read requests.
pub(crate) struct Readers {
    /// Of those that read.
    most: usize,
    /// Of all.
    threads_max: usize,
    spin: Duration,
    state: Mutex<Pool>,
    /// Notified when no thread is outside any more.
    drained: Condvar,
    /// Requests that have begun, and those of them under way that have not stepped out.
    begun: AtomicU64,
    serving: AtomicUsize,
    /// The watch looks at this mount.
    is_watched: AtomicBool,
    watch: Arc<Watch>,
    is_over: AtomicBool,
    /// The system has refused a thread, and that was logged.
    is_short: AtomicBool,
}

impl Readers {
    /// At most `most` that read at the same time, while up to `waiting` others wait. The last one polls for `spin`
    /// before it sleeps. `watch` is that of the process.
    pub(crate) fn new(
        watch: Arc<Watch>,
        most: usize,
        waiting: usize,
        spin: Duration,
    ) -> Arc<Readers> {
        Arc::new(Readers {
            most,
            threads_max: most + waiting,
            spin,
            state: Mutex::default(),
            drained: Condvar::new(),
            begun: AtomicU64::new(0),
            serving: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            watch,
            is_over: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
        })
    }

    /// Starts the first one, and the watch. Each does `body`, which reads requests until nothing comes any more,
    /// and tells `ending`.
    pub(crate) fn start(
        self: &Arc<Self>,
        ending: Ending,
        body: impl Fn(&Reader) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.start = Some(Start { body: Arc::new(body), ending });
        let started = self.watch.start().and_then(|()| self.spawn(&mut state));
        if started.is_err() {
            state.start = None;
        }
        started
    }

    /// Returns when every request that waits is answered, and every other one that has begun, too, unless that
    /// takes longer than `patience`.
    pub(crate) fn drain(&self, patience: Duration) {
        let mut state = self.state.lock();
        let mut waiting = Stopwatch::start();
        loop {
            if state.outside > 0 {
                self.drained.wait(&mut state);
                waiting = Stopwatch::start();
            } else if self.serving.load(Ordering::SeqCst) > 0 && waiting.elapsed() < patience {
                // Some of them may step out.
                let _ = self.drained.wait_for(&mut state, TICK);
            } else {
                return;
            }
        }
    }

    /// Nothing comes any more: those that rest return.
    fn end(&self) {
        let mut state = self.state.lock();
        state.start = None;
        self.is_over.store(true, Ordering::Release);
        for seat in state.resting.drain(..) {
            seat.changed.notify_one();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Has one more thread read. Says whether there is one.
    fn wake(self: &Arc<Self>, state: &mut Pool) -> bool {
        if let Some(seat) = state.resting.pop() {
            state.reading += 1;
            seat.called.store(true, Ordering::Relaxed);
            seat.changed.notify_one();
            return true;
        }
        let threads = state.reading + state.outside;
        if threads >= self.threads_max {
            return false;
        }
        let started = self.spawn(state);
        if let Err(error) = &started
            && !self.is_over()
            && !self.is_short.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{error}; until it gives more, {threads} serve all requests");
        }
        started.is_ok()
    }

    fn spawn(self: &Arc<Self>, state: &mut Pool) -> io::Result<()> {
        let Some(Start { body, ending }) = state.start.clone() else {
            return Err(io::Error::other("the session is over"));
        };
        let readers = Arc::clone(self);
        let name = format!("holdfast-fuse-{}", state.started);
        threads::start(&name, REQUESTS, move || {
            let reader = Reader::new(readers);
            let outcome = told(|| body(&reader));
            drop(reader);
            ending.note(outcome);
        })?;
        state.started += 1;
        state.reading += 1;
        Ok(())
    }

    fn begin(self: &Arc<Self>) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.serving.fetch_add(1, Ordering::SeqCst);
        if !self.is_watched.load(Ordering::SeqCst) && !self.is_watched.swap(true, Ordering::SeqCst)
        {
            let watched: Weak<Readers> = Arc::downgrade(self);
            self.watch.over(watched);
        }
    }
}

impl Watched for Readers {
    fn look_after(self: Arc<Self>, begun: &mut u64) -> bool {
        let now = self.begun.load(Ordering::SeqCst);
        if std::mem::replace(begun, now) != now {
            return !self.is_over();
        }
        let mut state = self.state.lock();
        let serving = self.serving.load(Ordering::SeqCst);
        if serving >= state.reading && !self.is_over() {
            self.wake(&mut state);
        }
        if serving == 0 && state.reading > 0 {
            self.is_watched.store(false, Ordering::SeqCst);
            // A request that began meanwhile may have seen that it is watched.
            let has_begun = self.serving.load(Ordering::SeqCst) > 0;
            return has_begun && !self.is_watched.swap(true, Ordering::SeqCst);
        }
        !self.is_over()
    }
}

/// What a reader is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Reading,
    Serving,
    /// Serving, and others know that it waits.
    Outside,
}

/// One of the threads that read.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    doing: Rc<Cell<Doing>>,
    is_dismissed: Cell<bool>,
    served: Cell<Stopwatch>,
    in_a_row: Cell<u32>,
}

/// What a thread that has nothing to serve does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read again.
    Look,
    /// Wait for the kernel, as no other does.
    Sleep,
    /// Return.
    End,
}

impl Reader {
    fn new(readers: Arc<Readers>) -> Reader {
        let doing = Rc::new(Cell::new(Doing::Reading));
        let (all, own) = (Arc::clone(&readers), Rc::clone(&doing));
        wait::before_waiting(move |next| {
            if next == wait::Next::Wait {
                step_out(&all, &own);
            }
        });
        Reader {
            readers,
            doing,
            is_dismissed: Cell::default(),
            served: Cell::new(Stopwatch::start()),
            in_a_row: Cell::default(),
        }
    }

    /// Serves a request that was read. Rests if there are others enough.
    pub(crate) fn serve(&self, body: impl FnOnce()) -> Next {
        self.note_backlog();
        self.readers.begin();
        self.doing.set(Doing::Serving);
        let serving = Serving(self);
        body();
        let was_outside = self.doing.get() == Doing::Outside;
        drop(serving);
        self.served.set(Stopwatch::start());
        // Too many threads may have come back.
        if was_outside { self.rest(self.readers.most) } else { Next::Look }
    }

    /// Has one more thread read if requests wait behind each other.
    fn note_backlog(&self) {
        self.in_a_row.set(self.in_a_row.get() + 1);
        if self.in_a_row.get() >= BACKLOG {
            self.in_a_row.set(0);
            let mut state = self.readers.state.lock();
            if state.reading < self.readers.most {
                self.readers.wake(&mut state);
            }
        }
    }

    /// To be called when there was nothing to read. Rests if another one reads.
    pub(crate) fn found_nothing(&self) -> Next {
        self.in_a_row.set(0);
        let idle = self.served.get().elapsed();
        match self.rest(1) {
            Next::Sleep if idle < self.readers.spin => {
                // Other threads that want this processor go first.
                std::thread::yield_now();
                Next::Look
            }
            next => next,
        }
    }

    /// Rests if more than `enough` read.
    fn rest(&self, enough: usize) -> Next {
        let readers = &*self.readers;
        let mut state = readers.state.lock();
        if readers.is_over() {
            return Next::End;
        }
        if state.reading <= enough {
            return Next::Sleep;
        }
        state.reading -= 1;
        let seat = Arc::new(Seat::default());
        state.resting.push(Arc::clone(&seat));
        let mut is_late = false;
        loop {
            // The thread that called has counted this one among those that read.
            if seat.called.load(Ordering::Relaxed) {
                return Next::Look;
            }
            if readers.is_over() {
                return Next::End;
            }
            if is_late {
                state.resting.retain(|other| !Arc::ptr_eq(other, &seat));
                self.is_dismissed.set(true);
                return Next::End;
            }
            is_late = seat.changed.wait_for(&mut state, IDLE).timed_out();
        }
    }
}

/// A thread that ends, even by a panic, ends all of them, unless it was dismissed.
impl Drop for Reader {
    fn drop(&mut self) {
        if !self.is_dismissed.get() {
            self.readers.end();
        }
    }
}

/// A request under way. Its end, even by a panic, brings the thread back.
struct Serving<'a>(&'a Reader);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let readers = &*self.0.readers;
        if self.0.doing.replace(Doing::Reading) == Doing::Outside {
            let mut state = readers.state.lock();
            state.outside -= 1;
            state.reading += 1;
            if state.outside == 0 {
                readers.drained.notify_all();
            }
        } else {
            readers.serving.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// For a reader that is about to wait during a request.
fn step_out(readers: &Arc<Readers>, doing: &Cell<Doing>) {
    if doing.get() != Doing::Serving {
        return;
    }
    let mut state = readers.state.lock();
    // Without another one it must not count as away; then requests wait.
    if state.reading > 1 || readers.wake(&mut state) {
        state.reading -= 1;
        state.outside += 1;
        readers.serving.fetch_sub(1, Ordering::SeqCst);
        doing.set(Doing::Outside);
    }
}

#[cfg(test)]
mod tests;
