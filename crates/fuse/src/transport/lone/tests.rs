//! Which request is served where, and what the busy thread does.

use super::*;

const SPIN: Duration = Duration::from_micros(50);

/// What the last of so many requests in a row is told, when the client sleeps on `processor`.
fn asks(lone: &Lone, client: u32, times: i32, processor: u16) -> Option<u16> {
    let mut place = None;
    for _ in 0..times {
        place = lone.place(client, || Some(processor));
        lone.will_answer();
    }
    place
}

/// Of a machine with processors 0 and 3, the busy thread being on 0.
fn busy_on_0() -> Arc<Lone> {
    let lone = Lone::on(Some([0, 3]), SPIN);
    lone.busy.store(0, Relaxed);
    lone
}

#[test]
fn a_client_that_asks_alone_has_a_place_until_another_one_asks() {
    let lone = busy_on_0();
    assert_eq!(asks(&lone, 7, ROW - 1, 3), None);
    assert_eq!(asks(&lone, 7, 1, 3), Some(3));
    // The client is unknown. It may be the same one, but hardly for long.
    assert_eq!(asks(&lone, 0, ROW, 0), Some(3));
    assert_eq!(asks(&lone, 7, 1, 3), Some(3));
    assert_eq!(asks(&lone, 0, ROW + 1, 0), None);
    assert_eq!(asks(&lone, 7, ROW, 3), Some(3));
    assert_eq!(asks(&lone, 8, 1, 3), None);
    assert_eq!(asks(&lone, 7, ROW - 1, 3), None);
    assert_eq!(asks(&lone, 7, 1, 3), Some(3));
    lone.part(0);
    assert_eq!(asks(&lone, 7, 1, 3), None);
}

#[test]
fn the_server_comes_after_the_busy_thread() {
    let lone = Lone::on(Some([0, 3]), SPIN);
    assert_eq!(asks(&lone, 7, 2 * ROW, 3), None);
    lone.busy.store(3, Relaxed);
    assert_eq!(asks(&lone, 7, 1, 3), None);
    lone.busy.store(0, Relaxed);
    assert_eq!(asks(&lone, 7, 1, 3), Some(3));
}

#[test]
fn a_client_that_does_not_stay_is_left_alone_for_a_while() {
    let lone = busy_on_0();
    assert_eq!(asks(&lone, 7, 2 * ROW, 3), Some(3));
    assert_eq!(asks(&lone, 7, ROW, 0), None);
    assert_eq!(asks(&lone, 7, TRUCE, 3), None);
    assert_eq!(asks(&lone, 7, ROW, 3), Some(3));
    // Another one may stay.
    assert_eq!(asks(&lone, 7, ROW, 0), None);
    assert_eq!(asks(&lone, 8, ROW, 3), Some(3));
}

#[test]
fn who_cannot_be_found_has_no_place_and_who_is_awake_keeps_it() {
    let lone = busy_on_0();
    let ask = |found: Option<u16>| (0..3 * ROW).fold(None, |_, _| lone.place(7, || found));
    assert_eq!(ask(None), None);
    assert_eq!(ask(Some(1)), None, "this processor is not one of the two");
    assert_eq!(ask(Some(3)), Some(3));
    assert_eq!(ask(None), Some(3));
}

#[test]
fn who_asks_while_another_one_is_looked_for_is_not_served_there() {
    for found in [3, 0] {
        let lone = busy_on_0();
        assert_eq!(asks(&lone, 7, ROW - 1, 3), None);
        let looked_for = lone.place(7, || {
            assert_eq!(lone.place(8, || None), None);
            Some(found)
        });
        assert_eq!(looked_for, None, "client 8 may be anywhere");
        assert_eq!(lone.place.load(Relaxed), NONE);
        assert_eq!(asks(&lone, 8, ROW, 3), Some(3), "it is not left alone for that");
    }
}

#[test]
fn a_client_of_rings_has_a_place_only_if_it_waits_for_its_answers() {
    let me = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let lone = busy_on_0();
    let is_placed = |client| {
        (0..ROW).for_each(|_| lone.asked_at(client, Some(3)));
        lone.place.load(Relaxed) != NONE
    };
    // This thread runs while it is looked for.
    assert!((0..10).all(|_| !is_placed(me())));
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        tell.send(me()).unwrap();
        let _ = ended.recv();
    });
    let client = told.recv().unwrap();
    // It takes a moment until it sleeps.
    until(|| is_placed(client));
    assert_eq!(lone.place.load(Relaxed), 3);
    drop(end);
    sleeper.join().unwrap();
}

#[test]
fn two_clients_in_turn_have_no_place() {
    let lone = busy_on_0();
    for client in (7..9).cycle().take(10 * ROW as usize) {
        assert_eq!(asks(&lone, client, ROW - 1, 3), None);
    }
}

#[test]
fn without_the_busy_thread_nobody_is_moved() {
    for lone in [Lone::new(Duration::ZERO), Lone::on(None, SPIN)] {
        lone.start().unwrap();
        assert_eq!(Arc::strong_count(&lone), 1, "there is none");
        let place = Affinity::anywhere(&lone);
        (0..10 * ROW).for_each(|_| place.serve(7));
        assert!(!place.is_beside_client());
    }
    // A processor that is not there.
    let lone = Lone::on(Some([0, 4095]), SPIN);
    lone.place.store(0, Relaxed);
    assert!(lone.be_busy([0, 4095]).is_err());
    let place = Affinity::anywhere(&lone);
    place.go(Some(4095));
    assert!(!place.is_beside_client());
}

#[test]
fn the_busy_thread_takes_its_place_sleeps_and_ends() {
    let Some(pair) = processors::two() else {
        return holdfast_base::skip::skipped("needs two processors");
    };
    let lone = Lone::on(Some(pair), SPIN);
    lone.start().unwrap();
    for (client, processor) in [(7, pair[0]), (8, pair[1]), (9, pair[0])] {
        until(|| asks(&lone, client, 1, processor) == Some(processor));
    }
    until(|| lone.is_asleep.load(Relaxed));
    lone.end();
    until(|| Arc::strong_count(&lone) == 1);
}

/// Returns when it is so. Gives up after a minute.
fn until(is_so: impl Fn() -> bool) {
    let waiting = Stopwatch::start();
    while !is_so() {
        assert!(waiting.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}
