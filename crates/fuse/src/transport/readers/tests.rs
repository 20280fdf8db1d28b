//! Readers of a queue in memory.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::*;

/// What requests are in these tests: what they ask for.
type Request = Box<dyn FnOnce() + Send>;

/// Readers of a queue, a way to put something into it, and how they end.
fn readers_of_a_queue(
    most: usize,
    waiting: usize,
) -> (Arc<Readers>, Sender<Request>, Receiver<io::Result<()>>) {
    readers_that_look(most, waiting, Watch::default(), Arc::default())
}

/// As above, and `in_vain` counts how often there was nothing in the queue.
fn readers_that_look(
    most: usize,
    waiting: usize,
    watch: Watch,
    in_vain: Arc<AtomicUsize>,
) -> (Arc<Readers>, Sender<Request>, Receiver<io::Result<()>>) {
    let spin = Duration::from_micros(50);
    let readers = Readers::new(Arc::new(watch), most, waiting, spin);
    let (send, receive) = channel::<Request>();
    let queue = Mutex::new(receive);
    let (tell, ends) = channel();
    let ending = Ending::new(move |outcome| tell.send(outcome).unwrap());
    let body = move |reader: &Reader| {
        loop {
            let next = queue.lock().try_recv();
            let next = match next {
                Ok(request) => reader.serve(request),
                Err(TryRecvError::Empty) => {
                    let next = reader.found_nothing();
                    in_vain.fetch_add(1, Ordering::SeqCst);
                    next
                }
                Err(TryRecvError::Disconnected) => Next::End,
            };
            match next {
                Next::Look => {}
                Next::Sleep => std::thread::sleep(Duration::from_micros(100)),
                Next::End => return Ok(()),
            }
        }
    };
    readers.start(ending, body).unwrap();
    (readers, send, ends)
}

/// Waits at `barrier`, and says so.
fn waits_at(barrier: &Arc<Barrier>) -> Box<dyn FnOnce() + Send> {
    let barrier = Arc::clone(barrier);
    Box::new(move || {
        wait::will_wait();
        barrier.wait();
    })
}

/// Every request has come back, and nothing comes any more: all readers end well.
fn all_come_back(readers: &Readers, queue: Sender<Request>, ends: &Receiver<io::Result<()>>) {
    readers.drain(Duration::from_secs(60));
    assert_eq!(readers.state.lock().outside, 0);
    drop(queue);
    assert!(is_all_over(ends));
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
        queue.send(waits_at(&barrier)).unwrap();
    }
    let (done, is_done) = channel();
    queue.send(Box::new(move || done.send(()).unwrap())).unwrap();
    is_done.recv().unwrap();
    barrier.wait();
    all_come_back(&readers, queue, &ends);
}

/// Without the watch, which takes a request for one that waits where a busy machine lets it lie.
#[test]
fn what_does_not_wait_needs_no_other_thread() {
    let in_vain = Arc::new(AtomicUsize::new(0));
    let (readers, queue, ends) = readers_that_look(4, 8, Watch::blind(), Arc::clone(&in_vain));
    let (done, is_done) = channel();
    for _ in 0..20 {
        let done = done.clone();
        queue.send(Box::new(move || done.send(std::thread::current().id()).unwrap())).unwrap();
        let _ = is_done.recv().unwrap();
        while readers.serving.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        // Found nothing behind it: there is no backlog.
        let looked = in_vain.load(Ordering::SeqCst);
        while in_vain.load(Ordering::SeqCst) == looked {
            std::thread::yield_now();
        }
    }
    assert_eq!(readers.state.lock().started, 1);
    drop(queue);
    assert!(is_all_over(&ends));
}

#[test]
fn a_backlog_calls_others_but_no_more_than_read() {
    let (readers, queue, ends) = readers_that_look(3, 8, Watch::blind(), Arc::default());
    let (all_sent, are_sent) = channel();
    queue.send(Box::new(move || are_sent.recv().unwrap())).unwrap();
    for _ in 0..200 {
        queue.send(Box::new(|| std::thread::sleep(Duration::from_micros(100)))).unwrap();
    }
    all_sent.send(()).unwrap();
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
    readers.drain(Duration::from_secs(60));
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
        queue.send(Box::new(move || may_go_on.recv().unwrap())).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let (done, is_done) = channel();
        queue.send(Box::new(move || done.send(round).unwrap())).unwrap();
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(round));
        go_on.send(()).unwrap();
    }
    readers.drain(Duration::from_secs(60));
    assert_eq!(readers.serving.load(Ordering::SeqCst), 0);
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
    queue.send(Box::new(request)).unwrap();
    readers.drain(Duration::from_secs(60));
    // It says so, so that the session ends with an error; the others say nothing, and none is waited for.
    assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
    assert_eq!(readers.state.lock().outside, 0);
}

#[test]
fn only_a_reader_that_has_served_lately_polls() {
    for (spin, next) in [(600, Next::Look), (0, Next::Sleep)] {
        let readers = Readers::new(Arc::default(), 2, 8, Duration::from_secs(spin));
        readers.state.lock().reading = 1;
        assert_eq!(Reader::new(readers).found_nothing(), next);
    }
}
