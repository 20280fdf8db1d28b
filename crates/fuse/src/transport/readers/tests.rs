//! Readers of a queue in memory.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use super::*;

/// What requests are in these tests: the client, and what it asks for.
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
        queue.send((0, waits_at(&barrier))).unwrap();
    }
    let (done, is_done) = channel();
    queue.send((0, Box::new(move || done.send(()).unwrap()))).unwrap();
    is_done.recv().unwrap();
    barrier.wait();
    all_come_back(&readers, queue, &ends);
}

#[test]
fn what_does_not_wait_needs_no_other_thread() {
    let (readers, queue, ends) = readers_of_a_queue(4, 8);
    let (done, is_done) = channel();
    for _ in 0..20 {
        let done = done.clone();
        queue.send((0, Box::new(move || done.send(std::thread::current().id()).unwrap()))).unwrap();
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
        queue.send((0, Box::new(move || may_go_on.recv().unwrap()))).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        let (done, is_done) = channel();
        queue.send((0, Box::new(move || done.send(round).unwrap()))).unwrap();
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(round));
        go_on.send(()).unwrap();
    }
    readers.drain(Duration::from_secs(60));
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
    if readers.together().pair().is_none() {
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
        queue.send((client, waits_at(&barrier))).unwrap();
    }
    barrier.wait();
    all_come_back(&readers, queue, &ends);
}

#[test]
fn a_panic_in_a_reader_ends_them_all() {
    let (readers, queue, ends) = readers_of_a_queue(2, 8);
    let request = || {
        wait::will_wait();
        panic!("as wanted by the test");
    };
    queue.send((0, Box::new(request))).unwrap();
    readers.drain(Duration::from_secs(60));
    // It says so, so that the session ends with an error; the others say nothing, and none is waited for.
    assert_eq!(ends.iter().filter(|end| end.is_err()).count(), 1);
    assert_eq!(readers.state.lock().outside, 0);
}

/// Clients that are not there.
const SOME: u32 = u32::MAX - 1;
const OTHER: u32 = u32::MAX - 2;
const THIRD: u32 = u32::MAX - 3;

/// A reader on this thread, one of two that read, on a machine that has two processors, and these. `None` if this
/// thread may not use so many.
fn one_of_two(spin: Duration) -> Option<(Reader, Arc<Readers>, [u16; 2])> {
    let mut usable = processors::online().unwrap();
    usable.retain(|&one| processors::may_use_all(&[one]));
    let pair = [*usable.first()?, *usable.get(1)?];
    let readers = Readers::with(2, 8, spin, Together::on(Some(pair), spin));
    readers.state.lock().reading = 2;
    Some((Reader::new(Arc::clone(&readers)), readers, pair))
}

/// As long as the test takes.
const LONG: Duration = Duration::from_secs(600);

/// Requests of some clients, in turn.
fn served(reader: &Reader, clients: &[u32], turns: usize) {
    for _ in 0..turns {
        for &client in clients {
            assert_eq!(reader.serve(client, false, || {}), Next::Look);
            // There is nothing behind it.
            reader.in_a_row.set(0);
        }
    }
}

/// How many stations are free.
fn free(readers: &Readers) -> usize {
    let taken = [readers.stations.take(None), readers.stations.take(None)];
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    taken.iter().for_each(|&(station, _)| readers.stations.give_back(station));
    taken.len()
}

#[test]
fn while_two_ask_two_look_and_each_has_a_station() {
    let Some((reader, readers, _)) = one_of_two(LONG) else { return };
    served(&reader, &[SOME, OTHER], 100);
    assert!(reader.place.has_station());
    assert_eq!(free(&readers), 1);
    // Where only one is to poll it would rest.
    assert_eq!((reader.wanted(), reader.found_nothing()), (2, Next::Look));
    served(&reader, &[THIRD], 1);
    assert_eq!((reader.place.is_kept(), free(&readers)), (false, 2));
}

#[test]
fn without_a_free_station_a_reader_is_kept_nowhere() {
    let Some((reader, readers, _)) = one_of_two(LONG) else { return };
    let taken = [readers.stations.take(None), readers.stations.take(None)];
    served(&reader, &[SOME, OTHER], 100);
    assert!(!reader.place.is_kept());
    readers.stations.give_back(taken[1].unwrap().0);
    served(&reader, &[SOME], 1);
    assert!(reader.place.has_station());
}

#[test]
fn what_another_one_serves_makes_both_look_on() {
    let spin = Duration::from_millis(300);
    let Some((reader, readers, _)) = one_of_two(spin) else { return };
    served(&reader, &[SOME, OTHER], 100);
    assert!(reader.is_looking(2));
    std::thread::sleep(2 * spin);
    assert!(!reader.is_looking(2));
    readers.begin();
    assert!(!reader.is_looking(1));
    readers.begin();
    assert!(reader.is_looking(2));
}

#[test]
fn where_others_use_the_processor_one_looks_and_anywhere() {
    let Some((reader, readers, _)) = one_of_two(LONG) else { return };
    served(&reader, &[SOME, OTHER], 100);
    (0..100).for_each(|_| reader.looking.gave_way(Duration::from_millis(1)));
    assert_eq!(reader.wanted(), 1);
    served(&reader, &[SOME, OTHER], 1);
    assert!(!reader.place.is_kept());
    readers.state.lock().reading = 1;
    assert_eq!(reader.found_nothing(), Next::Look);
}

#[test]
fn who_waits_leaves_its_station_to_others() {
    let Some((reader, readers, _)) = one_of_two(LONG) else { return };
    served(&reader, &[SOME, OTHER], 100);
    assert_eq!(free(&readers), 1);
    reader.serve(SOME, false, || {
        wait::will_wait();
        assert_eq!(free(&readers), 2);
    });
    served(&reader, &[OTHER], 1);
    assert_eq!(free(&readers), 1);
    reader.serve(SOME, false, || {
        wait::will_share();
        assert!(!reader.place.is_kept());
    });
    served(&reader, &[OTHER], 1);
    drop(reader);
    assert_eq!(free(&readers), 2);
}

#[test]
fn who_rests_leaves_its_station_and_then_its_processor() {
    let Some((reader, readers, pair)) = one_of_two(LONG) else { return };
    served(&reader, &[SOME, OTHER], 100);
    let rester = rustix::thread::gettid();
    let is_anywhere = || {
        let allowed = rustix::thread::sched_getaffinity(Some(rester)).unwrap();
        pair.iter().all(|&one| allowed.is_set(usize::from(one)))
    };
    let seen = std::thread::scope(|scope| {
        let waker = scope.spawn(|| {
            let waiting = Stopwatch::start();
            while readers.state.lock().resting.is_empty() {
                std::thread::yield_now();
            }
            let free = free(&readers);
            while !is_anywhere() && waiting.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            readers.wake(&mut readers.state.lock());
            free
        });
        assert_eq!(reader.rest(1), Next::Look);
        waker.join().unwrap()
    });
    assert_eq!((seen, reader.place.is_kept()), (2, false));
}

#[test]
fn who_is_called_looks_at_a_station() {
    let Some((reader, readers, _)) = one_of_two(LONG) else { return };
    for number in 0..200 {
        readers.stations.asks(if number % 2 == 0 { SOME } else { OTHER });
    }
    assert!(!reader.place.has_station());
    assert_eq!((reader.wanted(), reader.found_nothing()), (2, Next::Look));
    assert!(reader.place.has_station());
}

/// Has the numbers of two threads that sleep on `processor`.
fn beside_sleepers_on<T>(processor: u16, body: impl FnOnce([u32; 2]) -> T) -> T {
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        for _ in 0..2 {
            let (tell, barrier) = (tell.clone(), &barrier);
            scope.spawn(move || {
                processors::stay_on(&[processor]).unwrap();
                tell.send(me()).unwrap();
                barrier.wait();
            });
        }
        let numbers = [told.recv().unwrap(), told.recv().unwrap()];
        let waiting = Stopwatch::start();
        while numbers.iter().any(|&one| processors::of_sleeper(one) != Some(processor)) {
            assert!(waiting.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        let done = body(numbers);
        barrier.wait();
        done
    })
}

#[test]
fn a_station_is_left_while_its_clients_are_elsewhere() {
    let Some((reader, _, pair)) = one_of_two(LONG) else { return };
    served(&reader, &[SOME, OTHER], 100);
    let here = reader.place.processor().unwrap();
    let away = if pair[0] == here { pair[1] } else { pair[0] };
    let is_left = |clients: [u32; 2]| {
        served(&reader, &clients, 100);
        (0..1000).any(|_| {
            served(&reader, &clients, 1);
            !reader.looking.is_of_use() || reader.place.processor() != Some(here)
        })
    };
    assert!(!beside_sleepers_on(here, is_left));
    assert!(beside_sleepers_on(away, is_left));
}
