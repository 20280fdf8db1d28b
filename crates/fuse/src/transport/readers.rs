//! Which threads read requests, and how they wait for them.
//!
//! /dev/fuse wakes the thread that has slept longest, so with two of them every
//! request of a single client would wake another one, on another processor. Here
//! as many read as there is work for: who finds nothing rests, unless no other
//! reads; who finds one request behind the other calls the one that came to rest
//! last. The last one looks again for a while before it sleeps, because a client that
//! got its answer mostly asks again at once, and to be woken takes longer than that.
//!
//! A request is served by the thread that read it. When that is about to wait
//! ([`holdfast_base::wait`]) it steps out, and sees to it that another one
//! reads; threads for that are started when they are needed, up to a bound, and
//! end when they have rested for long. What takes long and has not said so is
//! noticed by a watch, which calls another one, too.
//!
//! A client that asks alone is served on its own processor ([`super::together`]); then the last reader does not
//! look, but sleeps at once, so that the client can go on, and no other one is called when it waits.
//!
//! Always true: somebody reads, or will within two ticks of the watch, or as many wait as may.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::wait;
use parking_lot::{Condvar, Mutex};

use super::processors;
use super::together::Together;

/// Requests that a thread finds one behind the other before it calls another one. A single client makes two: its
/// next one, and what the kernel sends by itself, as for a file that was closed.
const BACKLOG: u32 = 3;
/// As many, of the kinds that it need not wait for, where it shares a processor with the one that serves it.
const BACKLOG_ALONE: u32 = 12;
/// How long a thread rests before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// A request that takes longer has another thread read.
const TICK: Duration = Duration::from_millis(2);

type Body = dyn Fn(&Reader) -> io::Result<()> + Send + Sync;

/// How another reader is started.
#[derive(Clone)]
struct Start {
    body: Arc<Body>,
    ended: Sender<io::Result<()>>,
}

/// Where one thread rests.
#[derive(Default)]
struct Seat {
    called: AtomicBool,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that read, or serve what has not waited so far.
    reading: usize,
    /// Threads that wait for something in the midst of a request.
    outside: usize,
    /// Those that rest, who came last at the end.
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
    state: Mutex<State>,
    /// Told when nobody is outside any more.
    settled: Condvar,
    /// Requests that have begun, and those of them under way that have not stepped out.
    begun: AtomicU64,
    serving: AtomicUsize,
    /// The watch is awake.
    is_watched: AtomicBool,
    watch: Condvar,
    is_over: AtomicBool,
    together: Arc<Together>,
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
            settled: Condvar::new(),
            begun: AtomicU64::new(0),
            serving: AtomicUsize::new(0),
            is_watched: AtomicBool::new(false),
            watch: Condvar::new(),
            is_over: AtomicBool::new(false),
            together: Together::new(spin),
        })
    }

    /// Starts the first one, and the watch. Each does `body`, which reads requests until nothing comes any more,
    /// and tells `ended`.
    pub(crate) fn start(
        self: &Arc<Self>,
        ended: Sender<io::Result<()>>,
        body: impl Fn(&Reader) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        state.start = Some(Start { body: Arc::new(body), ended });
        let readers = Arc::clone(self);
        let watch = std::thread::Builder::new().name("holdfast-watch".into());
        let started = self.spawn(&mut state).and_then(|()| watch.spawn(move || readers.watch()));
        if started.is_err() {
            state.start = None;
        }
        started?;
        if let Err(error) = self.together.start() {
            tracing::debug!("no thread keeps a processor busy: {error}");
        }
        Ok(())
    }

    /// Where clients are served that ask alone.
    pub(super) fn together(&self) -> &Arc<Together> {
        &self.together
    }

    /// Returns when every request that waits is answered, and every other one that has begun, too, unless that
    /// takes longer than `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        let mut state = self.state.lock();
        while state.outside > 0 {
            self.settled.wait(&mut state);
        }
        let waiting = Stopwatch::start();
        while self.serving.load(Ordering::SeqCst) > 0 && waiting.elapsed() < patience {
            let _ = self.settled.wait_for(&mut state, TICK);
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
        self.watch.notify_all();
        self.together.end();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Has one more read. Says whether there is one.
    fn wake(self: &Arc<Self>, state: &mut State) -> bool {
        if let Some(seat) = state.resting.pop() {
            state.reading += 1;
            seat.called.store(true, Ordering::Relaxed);
            seat.changed.notify_one();
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
            drop(reader);
            let _ = ended.send(outcome);
        })?;
        state.started += 1;
        state.reading += 1;
        Ok(())
    }

    /// While requests come, looks every tick whether one has kept all that read from reading for as long.
    fn watch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !self.is_over() {
            if !self.is_watched.load(Ordering::SeqCst) {
                self.watch.wait(&mut state);
                continue;
            }
            let begun = self.begun.load(Ordering::SeqCst);
            let _ = self.watch.wait_for(&mut state, TICK);
            if self.begun.load(Ordering::SeqCst) != begun {
                continue;
            }
            let serving = self.serving.load(Ordering::SeqCst);
            if serving >= state.reading && !self.is_over() {
                self.wake(&mut state);
            }
            if serving == 0 && state.reading > 0 {
                self.is_watched.store(false, Ordering::SeqCst);
                // One that began meanwhile may have seen that somebody watches.
                if self.serving.load(Ordering::SeqCst) > 0 {
                    self.is_watched.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.serving.fetch_add(1, Ordering::SeqCst);
        if !self.is_watched.load(Ordering::SeqCst) {
            let _state = self.state.lock();
            self.is_watched.store(true, Ordering::SeqCst);
            self.watch.notify_one();
        }
    }
}

/// What a reader is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Reading,
    /// Serving a lone client, on its processor. While it waits nobody else asks, most likely; if somebody does,
    /// the watch sees to it.
    ServingAlone,
    Serving,
    /// Serving, and others know that it waits.
    Outside,
}

/// One of them, on its thread.
pub(crate) struct Reader {
    readers: Arc<Readers>,
    doing: Rc<Cell<Doing>>,
    is_dismissed: Cell<bool>,
    served: Cell<Stopwatch>,
    in_a_row: Cell<u32>,
    place: Rc<Place>,
}

/// Where a reader has to stay.
struct Place {
    together: Arc<Together>,
    at: Cell<Option<u16>>,
}

impl Place {
    /// Stays on a processor from now on, or anywhere.
    fn stay(&self, place: Option<u16>) {
        if self.at.replace(place) == place {
            return;
        }
        if let Err(error) = self.together.stay(place) {
            tracing::debug!("a thread cannot be kept on processor {place:?}: {error}");
            self.at.set(None);
        }
    }

    /// Anywhere, whatever was known.
    fn leave(&self) {
        if let Err(error) = self.together.stay(None) {
            tracing::debug!("a thread cannot leave the processor it is on: {error}");
        }
        self.at.set(None);
    }

    fn is_any(&self) -> bool {
        self.at.get().is_none()
    }
}

/// What a thread that has nothing to serve does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read again.
    Look,
    /// Wait for the kernel: no other does.
    Sleep,
    /// As [`Next::Sleep`], but [leave](Reader::leave) this processor if nothing comes soon.
    Nap,
    /// Return.
    End,
}

impl Reader {
    fn new(readers: Arc<Readers>) -> Reader {
        let doing = Rc::new(Cell::new(Doing::Reading));
        let (all, own) = (Arc::clone(&readers), Rc::clone(&doing));
        let place = Rc::new(Place { together: Arc::clone(&readers.together), at: Cell::default() });
        // A thread starts where the one that started it has to stay.
        place.leave();
        let mine = Rc::clone(&place);
        wait::before_waiting(move |next| match next {
            wait::Next::Wait => step_out(&all, &own),
            wait::Next::Share => mine.stay(None),
        });
        let served = Cell::new(Stopwatch::start());
        let is_dismissed = Cell::new(false);
        Reader { readers, doing, is_dismissed, served, in_a_row: Cell::new(0), place }
    }

    /// Serves a request of `client` that was read. `is_ahead`: it may go on to ask before it has the answer.
    /// Rests if there are others enough.
    pub(crate) fn serve(&self, client: u32, is_ahead: bool, body: impl FnOnce()) -> Next {
        let together = &self.readers.together;
        self.place.stay(together.place(client, || processors::of_sleeper(client)));
        // A lone client often has its next request there when this thread goes on, as they share a processor.
        let is_behind = self.place.is_any() || is_ahead;
        self.in_a_row.set(if is_behind { self.in_a_row.get() + 1 } else { 0 });
        let backlog = if self.place.is_any() { BACKLOG } else { BACKLOG_ALONE };
        if self.in_a_row.get() >= backlog {
            self.in_a_row.set(0);
            together.part();
            self.place.stay(None);
            let mut state = self.readers.state.lock();
            if state.reading < self.readers.most {
                self.readers.wake(&mut state);
            }
        }
        self.readers.begin();
        let is_alone = !self.place.is_any();
        self.doing.set(if is_alone { Doing::ServingAlone } else { Doing::Serving });
        let serving = Serving(self);
        body();
        together.served();
        let was_outside = self.doing.get() == Doing::Outside;
        drop(serving);
        self.served.set(Stopwatch::start());
        // Of those that come back there may be too many.
        if was_outside { self.rest(self.readers.most) } else { Next::Look }
    }

    /// To be called before an answer leaves.
    pub(crate) fn will_answer(&self) {
        self.readers.together.will_answer();
    }

    /// To be asked when there was nothing to read. Rests if another one reads.
    pub(crate) fn found_nothing(&self) -> Next {
        self.in_a_row.set(0);
        match self.rest(1) {
            // Where the client wants to go on.
            Next::Sleep if !self.place.is_any() => Next::Nap,
            Next::Sleep if self.served.get().elapsed() < self.readers.spin => {
                // Whoever else wants this processor goes first.
                std::thread::yield_now();
                Next::Look
            }
            next => next,
        }
    }

    /// Leaves the processor of a lone client that has not asked for a while.
    pub(crate) fn leave(&self) {
        self.place.leave();
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
        loop {
            let is_late = seat.changed.wait_for(&mut state, IDLE).timed_out();
            // Who called has counted this one among those that read.
            if seat.called.load(Ordering::Relaxed) {
                return Next::Look;
            }
            if readers.is_over() {
                return Next::End;
            }
            if is_late && state.resting.len() >= readers.most {
                state.resting.retain(|other| !Arc::ptr_eq(other, &seat));
                self.is_dismissed.set(true);
                return Next::End;
            }
        }
    }
}

/// A thread that ends, be it by a panic, ends all of them, unless it was dismissed.
impl Drop for Reader {
    fn drop(&mut self) {
        if !self.is_dismissed.get() {
            self.readers.end();
        }
    }
}

/// A request under way. Its end brings the thread back, be it by a panic.
struct Serving<'a>(&'a Reader);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let readers = &*self.0.readers;
        if self.0.doing.replace(Doing::Reading) == Doing::Outside {
            let mut state = readers.state.lock();
            state.outside -= 1;
            state.reading += 1;
            if state.outside == 0 {
                readers.settled.notify_all();
            }
        } else {
            readers.serving.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// For a reader that is about to wait in the midst of a request.
fn step_out(readers: &Arc<Readers>, doing: &Cell<Doing>) {
    let is_alone = doing.get() == Doing::ServingAlone;
    if doing.get() != Doing::Serving && !is_alone {
        return;
    }
    let mut state = readers.state.lock();
    // Without another one it must not count as away; requests wait, then.
    if is_alone || state.reading > 1 || readers.wake(&mut state) {
        state.reading -= 1;
        state.outside += 1;
        readers.serving.fetch_sub(1, Ordering::SeqCst);
        doing.set(Doing::Outside);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, TryRecvError, channel};

    use super::*;

    /// What requests are in these tests: who asks, and for what.
    type Request = (u32, Box<dyn FnOnce() + Send>);

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
                let next = queue.lock().try_recv();
                let next = match next {
                    Ok((client, request)) => reader.serve(client, false, || {
                        reader.will_answer();
                        request();
                    }),
                    Err(TryRecvError::Empty) => reader.found_nothing(),
                    Err(TryRecvError::Disconnected) => Next::End,
                };
                match next {
                    Next::Look => {}
                    Next::Sleep | Next::Nap => std::thread::sleep(Duration::from_micros(100)),
                    Next::End => return Ok(()),
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
            queue.send((0, Box::new(request))).unwrap();
        }
        let (done, is_done) = channel();
        queue.send((0, Box::new(move || done.send(()).unwrap()))).unwrap();
        is_done.recv().unwrap();
        barrier.wait();
        readers.settle(Duration::from_secs(60));
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
            queue
                .send((0, Box::new(move || done.send(std::thread::current().id()).unwrap())))
                .unwrap();
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
            queue.send((0, Box::new(|| std::thread::sleep(Duration::from_micros(100))))).unwrap();
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
            queue.send((0, Box::new(wait::will_wait))).unwrap();
        }
        let (done, is_done) = channel();
        queue.send((0, Box::new(move || done.send(()).unwrap()))).unwrap();
        is_done.recv().unwrap();
        readers.settle(Duration::from_secs(60));
        let counts = loop {
            let state = readers.state.lock();
            if state.reading == 1 {
                break (state.outside, readers.serving.load(Ordering::SeqCst));
            }
            drop(state);
            std::thread::yield_now();
        };
        assert_eq!(counts, (0, 0));
        drop(queue);
        assert!(is_all_over(&ends));
    }

    #[test]
    fn what_takes_long_without_a_word_keeps_nobody_from_being_read() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        for round in 0..3 {
            let (go_on, may_go_on) = channel();
            queue.send((0, Box::new(move || may_go_on.recv().unwrap()))).unwrap();
            std::thread::sleep(Duration::from_millis(3));
            let (done, is_done) = channel();
            queue.send((0, Box::new(move || done.send(round).unwrap()))).unwrap();
            assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(round));
            go_on.send(()).unwrap();
        }
        readers.settle(Duration::from_secs(60));
        assert_eq!(readers.serving.load(Ordering::SeqCst), 0);
        drop(queue);
        assert!(is_all_over(&ends));
    }

    /// Asks as this thread, which waits for each answer, until it is served on its processor, if that is of use on
    /// this machine.
    fn asks_alone(readers: &Readers, queue: &Sender<Request>) {
        let all = processors::online().unwrap();
        let (done, is_done) = channel();
        let ask = |client| {
            let (done, all) = (done.clone(), all.clone());
            let request = move || done.send(processors::may_use_all(&all)).unwrap();
            queue.send((client, Box::new(request))).unwrap();
            is_done.recv().unwrap()
        };
        assert!(ask(me()));
        if readers.together().is_of_no_use() {
            return;
        }
        // While other tests run it may be sent to and fro for so long that it is left alone: then again.
        let waiting = Stopwatch::start();
        while (0..1000).all(|_| ask(me())) {
            assert!(waiting.elapsed() < Duration::from_secs(60));
            ask(1);
        }
    }

    fn me() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    #[test]
    fn a_lone_client_is_served_where_it_asks_and_others_anywhere() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        asks_alone(&readers, &queue);
        let (done, is_done) = channel();
        let all = processors::online().unwrap();
        let request = move || done.send(processors::may_use_all(&all)).unwrap();
        queue.send((1, Box::new(request))).unwrap();
        assert!(is_done.recv().unwrap());
        drop(queue);
        assert!(is_all_over(&ends));
    }

    #[test]
    fn while_a_lone_client_waits_others_may_wait_as_well() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        asks_alone(&readers, &queue);
        // Passes only when all of them are under way at the same time.
        let barrier = Arc::new(Barrier::new(5));
        for client in [me(), 1, 2, 3] {
            let barrier = Arc::clone(&barrier);
            let request = move || {
                wait::will_wait();
                barrier.wait();
            };
            queue.send((client, Box::new(request))).unwrap();
        }
        barrier.wait();
        readers.settle(Duration::from_secs(60));
        assert_eq!(readers.state.lock().outside, 0);
        drop(queue);
        assert!(is_all_over(&ends));
    }

    #[test]
    fn a_panic_in_a_reader_ends_them_all() {
        let (readers, queue, ends) = readers_of_a_queue(2, 8);
        let request = || {
            wait::will_wait();
            panic!("as wanted by the test");
        };
        queue.send((0, Box::new(request))).unwrap();
        readers.settle(Duration::from_secs(60));
        // The others have nothing to say, and nobody is waited for.
        assert!(is_all_over(&ends));
        assert_eq!(readers.state.lock().outside, 0);
    }
}
