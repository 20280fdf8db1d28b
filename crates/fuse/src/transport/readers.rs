//! Which threads read requests, and how they wait for them.
//!
//! /dev/fuse wakes the thread that has slept longest, so with two of them every
//! request of a single client would wake another one, on another processor. Here
//! as many read as there is work for: who finds nothing rests, unless no other
//! reads; who finds one request behind the other calls another one. The last one
//! looks again for a while before it sleeps, because a client that got its
//! answer mostly asks again at once, and to be woken takes longer than that.
//!
//! A request is served by the thread that read it. When that is about to wait
//! ([`holdfast_base::wait`]) it steps out, and sees to it that another one
//! reads; threads for that are started when they are needed, up to a bound, and
//! end when they have rested for long.
//!
//! Always true: somebody reads or serves what does not wait, or as many wait as may.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

/// Requests that a thread finds one behind the other before it calls another one. A single client makes two: its
/// next one, and what the kernel sends by itself, as for a file that was closed.
const BACKLOG: u32 = 3;
/// How long a thread rests before it ends.
const IDLE: Duration = Duration::from_secs(10);

type Body = dyn Fn(&Reader) -> io::Result<()> + Send + Sync;

/// How another reader is started.
#[derive(Clone)]
struct Start {
    body: Arc<Body>,
    ended: Sender<io::Result<()>>,
}

#[derive(Default)]
struct State {
    /// Threads that read, or serve what does not wait.
    reading: usize,
    /// Threads that wait for something in the midst of a request.
    outside: usize,
    resting: usize,
    /// Those that rest and were told to read; they count as reading.
    called: usize,
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
    state: Mutex<State>,
    /// Told to one that rests when it is called, and to all at the end.
    called: Condvar,
    /// Told when nobody is outside any more.
    settled: Condvar,
    is_over: AtomicBool,
}

impl Readers {
    /// At most `most` that read at the same time, while up to `waiting` others wait. The last one looks for
    /// `spin` before it sleeps.
    pub(crate) fn new(most: usize, waiting: usize, spin: Duration) -> Arc<Readers> {
        Arc::new(Readers {
            most,
            threads_max: most + waiting,
            spin,
            state: Mutex::default(),
            called: Condvar::new(),
            settled: Condvar::new(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Starts the first one. Each does `body`, which reads requests until nothing comes any more, and tells
    /// `ended`.
    pub(crate) fn start(
        self: &Arc<Self>,
        ended: Sender<io::Result<()>>,
        body: impl Fn(&Reader) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.start = Some(Start { body: Arc::new(body), ended });
        let started = self.spawn(&mut state);
        if started.is_err() {
            state.start = None;
        }
        started
    }

    /// Returns when no request waits for anything any more.
    pub(crate) fn settle(&self) {
        let mut state = self.state.lock();
        while state.outside > 0 {
            self.settled.wait(&mut state);
        }
    }

    /// Nothing comes any more: those that rest return.
    fn end(&self) {
        let mut state = self.state.lock();
        state.start = None;
        self.is_over.store(true, Ordering::Release);
        self.called.notify_all();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Has one more read. Says whether there is one.
    fn wake(self: &Arc<Self>, state: &mut State) -> bool {
        if state.resting > 0 {
            state.resting -= 1;
            state.called += 1;
            state.reading += 1;
            self.called.notify_one();
            return true;
        }
        let threads = state.reading + state.outside;
        threads < self.threads_max && self.spawn(state).is_ok()
    }

    fn spawn(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let Some(Start { body, ended }) = state.start.clone() else {
            return Err(io::Error::other("the session is over"));
        };
        let readers = Arc::clone(self);
        let name = format!("holdfast-fuse-{}", state.started);
        std::thread::Builder::new().name(name).spawn(move || {
            let reader = Reader::new(readers);
            let outcome = body(&reader);
            if !reader.is_dismissed.get() {
                reader.readers.end();
            }
            let _ = ended.send(outcome);
        })?;
        state.started += 1;
        state.reading += 1;
        Ok(())
    }
}

/// One of them, on its thread.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    is_outside: Rc<Cell<bool>>,
    is_dismissed: Cell<bool>,
    served: Cell<Stopwatch>,
    in_a_row: Cell<u32>,
}

/// What a thread that found nothing to read does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read again.
    Look,
    /// Wait for the kernel: no other does.
    Sleep,
    /// Return.
    End,
}

impl Reader {
    fn new(readers: Arc<Readers>) -> Reader {
        let is_outside = Rc::new(Cell::new(false));
        let (shared, outside) = (Arc::clone(&readers), Rc::clone(&is_outside));
        wait::before_waiting(move || step_out(&shared, &outside));
        let served = Cell::new(Stopwatch::start());
        Reader {
            readers,
            is_outside,
            is_dismissed: Cell::new(false),
            served,
            in_a_row: Cell::new(0),
        }
    }

    /// Serves a request that was read.
    pub(crate) fn serve(&self, body: impl FnOnce()) {
        let in_a_row = self.in_a_row.get() + 1;
        self.in_a_row.set(in_a_row % BACKLOG);
        if in_a_row == BACKLOG {
            let mut state = self.readers.state.lock();
            if state.reading < self.readers.most {
                self.readers.wake(&mut state);
            }
        }
        body();
        if self.is_outside.take() {
            let mut state = self.readers.state.lock();
            state.outside -= 1;
            state.reading += 1;
            if state.outside == 0 {
                self.readers.settled.notify_all();
            }
        }
        self.served.set(Stopwatch::start());
    }

    /// To be asked when there was nothing to read. Rests if another one reads.
    pub(crate) fn found_nothing(&self) -> Next {
        self.in_a_row.set(0);
        let readers = &*self.readers;
        let mut state = readers.state.lock();
        if readers.is_over() {
            return Next::End;
        }
        if state.reading == 1 {
            drop(state);
            if self.served.get().elapsed() >= readers.spin {
                return Next::Sleep;
            }
            // Whoever else wants this processor goes first.
            std::thread::yield_now();
            return Next::Look;
        }
        state.reading -= 1;
        state.resting += 1;
        while state.called == 0 && !readers.is_over() {
            let is_late = readers.called.wait_for(&mut state, IDLE).timed_out();
            if is_late && state.called == 0 && state.resting >= readers.most {
                state.resting -= 1;
                self.is_dismissed.set(true);
                return Next::End;
            }
        }
        if readers.is_over() {
            return Next::End;
        }
        // Who called has counted this one among those that read.
        state.called -= 1;
        Next::Look
    }
}

/// For a reader that is about to wait in the midst of a request.
fn step_out(readers: &Arc<Readers>, is_outside: &Cell<bool>) {
    if is_outside.get() {
        return;
    }
    let mut state = readers.state.lock();
    // Without another one it must not count as away; requests wait, then.
    if state.reading > 1 || readers.wake(&mut state) {
        state.reading -= 1;
        state.outside += 1;
        is_outside.set(true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// What requests are in these tests.
    type Request = Box<dyn FnOnce() + Send>;

    /// Readers of a queue, a way to put something into it, and how they end.
    fn readers_of_a_queue(
        most: usize,
        waiting: usize,
    ) -> (Arc<Readers>, Sender<Request>, Receiver<io::Result<()>>) {
        let readers = Readers::new(most, waiting, Duration::from_micros(50));
        let (send, receive) = channel::<Request>();
        let queue = Mutex::new(receive);
        let (ended, ends) = channel();
        let body = move |reader: &Reader| {
            loop {
                let next = queue.lock().recv_timeout(Duration::from_millis(1));
                match next {
                    Ok(request) => reader.serve(request),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
                    Err(_) if reader.found_nothing() == Next::End => return Ok(()),
                    Err(_) => {}
                }
            }
        };
        readers.start(ended, body).unwrap();
        (readers, send, ends)
    }

    fn is_all_over(ends: &Receiver<io::Result<()>>) -> bool {
        ends.iter().all(|end| end.is_ok())
    }

    #[test]
    fn as_many_wait_at_once_as_may() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        // Passes only when all are under way at the same time, and one more is read meanwhile.
        let barrier = Arc::new(Barrier::new(10));
        for _ in 0..9 {
            let barrier = Arc::clone(&barrier);
            let request = move || {
                wait::will_wait();
                barrier.wait();
            };
            queue.send(Box::new(request)).unwrap();
        }
        let (done, is_done) = channel();
        queue.send(Box::new(move || done.send(()).unwrap())).unwrap();
        is_done.recv().unwrap();
        barrier.wait();
        readers.settle();
        assert_eq!(readers.state.lock().outside, 0);
        drop(queue);
        assert!(is_all_over(&ends));
    }

    #[test]
    fn what_does_not_wait_needs_no_other_thread() {
        let (readers, queue, ends) = readers_of_a_queue(4, 8);
        let (done, is_done) = channel();
        for _ in 0..20 {
            let done = done.clone();
            queue.send(Box::new(move || done.send(std::thread::current().id()).unwrap())).unwrap();
            let _ = is_done.recv().unwrap();
            // Found nothing behind it: there is no backlog.
            std::thread::sleep(Duration::from_millis(3));
        }
        assert_eq!(readers.state.lock().started, 1);
        drop(queue);
        assert!(is_all_over(&ends));
    }

    #[test]
    fn a_backlog_calls_others_but_no_more_than_read() {
        let (readers, queue, ends) = readers_of_a_queue(3, 8);
        for _ in 0..200 {
            queue.send(Box::new(|| std::thread::sleep(Duration::from_micros(100)))).unwrap();
        }
        drop(queue);
        assert!(is_all_over(&ends));
        let started = readers.state.lock().started;
        assert!((2..=3).contains(&started), "{started}");
    }

    #[test]
    fn who_came_back_reads_and_the_rest_rest() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        for _ in 0..50 {
            queue.send(Box::new(wait::will_wait)).unwrap();
        }
        let (done, is_done) = channel();
        queue.send(Box::new(move || done.send(()).unwrap())).unwrap();
        is_done.recv().unwrap();
        readers.settle();
        let counts = loop {
            let state = readers.state.lock();
            if state.reading == 1 {
                break (state.outside, state.called);
            }
            drop(state);
            std::thread::yield_now();
        };
        assert_eq!(counts, (0, 0));
        drop(queue);
        assert!(is_all_over(&ends));
    }
}
