//! How many large writes are on their way to the device at once.
//!
//! A device takes calls in about the order in which they come, so an fsync's write waits behind what was sent before
//! it. All files of a volume together send one large write per processor, two to four. That is enough to keep a disk
//! with a queue busy (four of 256 KiB were as fast as four of 2 MiB), it bounds how long another caller's fsync waits,
//! and it leaves that caller a processor. Small writes are not counted.
//!
//! Where a device gains nothing from a second write ([`Gain`]) they are sent one by one, and none is sent while an
//! fsync is under way: between its write and its flush there would be another one. So an fsync waits for
//! one of them at most, but for the rare trials. Between two fsyncs goes one write at least, and none waits for an fsync longer than it takes itself: where
//! flushes are slow, or fsyncs come one after the other, the device still has half of its time for data.
//!
//! A writeback that holds many files has its [turn](InFlight::turn) before it takes them, as it may wait for the device:
//! an fsync of one of the files would wait as long.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::units::BLOCK_SIZE;
use holdfast_base::{InodeNo, parallel, wait};
use parking_lot::{Condvar, Mutex};

use super::gain::{Gain, Reading};

/// A write of at most so many bytes is sent at once.
const SMALL_BYTES: usize = 16 * BLOCK_SIZE;

/// The next turn comes when the one before has taken as long as so many writes, at the latest.
const TURN_WRITES: u32 = 16;

/// Large writes that may still be sent.
#[derive(Debug)]
pub(crate) struct InFlight {
    most: usize,
    state: Mutex<WriteQueue>,
    /// A write has returned, or an fsync has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WriteQueue {
    /// Large writes on their way.
    now: usize,
    gain: Gain,
    /// Writebacks of several files that have their turn.
    turns: usize,
    /// Turns that there were.
    turned: u64,
    /// Fsyncs that are about to be under way, as soon as they have their file.
    coming: usize,
    /// Files whose fsyncs are under way.
    fsyncs: Vec<InodeNo>,
    /// Fsyncs that have ended.
    ended: u64,
}

impl WriteQueue {
    fn is_full(&self, most: usize) -> bool {
        self.now >= self.gain.limit(most)
    }

    /// Whether an fsync would wait for a write that is sent now. The data of one that is under way is what it waits
    /// for anyway.
    fn is_in_the_way(&self, of: Option<InodeNo>) -> bool {
        let is_awaited = of.is_some_and(|of| self.fsyncs.contains(&of));
        !self.gain.is_there() && !self.fsyncs.is_empty() && !is_awaited
    }
}

impl InFlight {
    /// None is on its way. On a volume without threads one goes behind the other: what a device is sent, and in which order,
    /// then depends on neither the machine nor the time.
    pub(crate) fn new(has_threads: bool) -> InFlight {
        let most = if has_threads { parallel::large_writes(parallel::processors()) } else { 1 };
        InFlight { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// How many large writes there may be at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Waits until a write of so many bytes may be sent, `of` one file, or of several which had their [turn](InFlight::turn). The
    /// returned guard is dropped when the write has returned.
    pub(crate) fn enter(&self, bytes: usize, of: Option<InodeNo>) -> Option<Sent<'_>> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        let mut state = self.state.lock();
        let mut gave_way = false;
        // What has had its turn has given way already, and holds files.
        let had_turn = of.is_none();
        loop {
            if state.is_full(self.most) {
                wait::will_wait();
                self.changed.wait_while(&mut state, |state| state.is_full(self.most));
                // Another write had the turn. An fsync that began beside that one would find this one before its flush.
                gave_way = false;
            }
            if gave_way || had_turn || !state.is_in_the_way(of) {
                break;
            }
            wait::will_wait();
            let until = Deadline::after(Duration::from_nanos(state.gain.nanos_of(bytes)));
            let ended = state.ended;
            while state.ended == ended && state.is_in_the_way(of) && !until.is_over() {
                let _ = self.changed.wait_for(&mut state, until.left());
            }
            gave_way = true;
        }
        state.now += 1;
        Some(Sent { of: self, bytes, sent_beside: state.now, time: Stopwatch::start() })
    }

    /// Waits until a write of several files, of so many bytes, could be sent and no fsync would find it before its flush. The
    /// caller takes the files when it has its turn, and drops the guard when the write has returned. Nothing waits where a device gains
    /// from a second write, nor for small ones; nor for long, as another one may be held up for lack of space.
    pub(crate) fn turn(&self, bytes: usize) -> Turn<'_> {
        let mut state = self.state.lock();
        if bytes > SMALL_BYTES && !state.gain.is_there() {
            let one = Duration::from_nanos(state.gain.nanos_of(bytes));
            let patience = one.saturating_mul(TURN_WRITES);
            let mut until = Deadline::after(patience);
            let mut turned = state.turned;
            let mut give_way = Deadline::after(one);
            let mut ended = state.ended;
            let mut has_waited = false;
            loop {
                let is_full = state.turns > 0;
                let is_in_the_way = state.is_in_the_way(None) || state.coming > 0;
                let gave_way = has_waited && (state.ended != ended || give_way.is_over());
                if until.is_over() || !is_full && (gave_way || !is_in_the_way) {
                    break;
                }
                wait::will_wait();
                let left = if is_full { until.left() } else { until.left().min(give_way.left()) };
                let _ = self.changed.wait_for(&mut state, left);
                has_waited = true;
                if turned != state.turned {
                    (turned, until) = (state.turned, Deadline::after(patience));
                }
                if is_full {
                    // Another write had the turn: an fsync that began beside it must not find this one as well.
                    (ended, give_way) = (state.ended, Deadline::after(one));
                }
            }
        }
        state.turns += 1;
        state.turned += 1;
        Turn { of: self }
    }

    /// An fsync waits for its file, which another thread may have in hand.
    pub(crate) fn coming(&self) -> Coming<'_> {
        self.state.lock().coming += 1;
        Coming { of: self }
    }

    /// An fsync of a file begins: its data is in the hands of no other thread, and is about to be sent.
    pub(crate) fn fsync(self: &Arc<Self>, inode: InodeNo) -> UnderWay {
        let mut state = self.state.lock();
        state.fsyncs.push(inode);
        state.gain.saw_fsync();
        drop(state);
        UnderWay { of: Arc::clone(self), inode }
    }

    /// For tests: the device gains nothing, and takes an hour for each write.
    #[cfg(test)]
    pub(crate) fn found_no_gain(&self) {
        self.state.lock().gain = Gain::none(3600 * 1_000_000_000);
    }
}

/// A large write on its way.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    of: &'a InFlight,
    bytes: usize,
    sent_beside: usize,
    time: Stopwatch,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let nanos = self.time.nanos();
        let mut state = self.of.state.lock();
        let Sent { bytes, sent_beside, .. } = *self;
        let returned_beside = state.now;
        state.gain.returned(&Reading { bytes, nanos, sent_beside, returned_beside });
        state.now -= 1;
        self.of.changed.notify_all();
    }
}

/// The turn of a writeback of several files.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    of: &'a InFlight,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.state.lock().turns -= 1;
        self.of.changed.notify_all();
    }
}

/// An fsync that has not its file yet.
#[derive(Debug)]
pub(crate) struct Coming<'a> {
    of: &'a InFlight,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.coming -= 1;
        if !state.gain.is_there() {
            self.of.changed.notify_all();
        }
    }
}

/// An fsync until it is over.
#[derive(Debug)]
pub(crate) struct UnderWay {
    of: Arc<InFlight>,
    inode: InodeNo,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        if let Some(at) = state.fsyncs.iter().position(|inode| *inode == self.inode) {
            state.fsyncs.swap_remove(at);
        }
        state.ended += 1;
        // Nothing waits for it elsewhere.
        if !state.gain.is_there() {
            self.of.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LARGE: usize = SMALL_BYTES + 1;

    #[test]
    fn large_writes_wait_for_one_another_and_small_ones_do_not_wait() {
        let in_flight = InFlight::new(true);
        let large = || in_flight.enter(LARGE, None);
        let mut sent: Vec<_> = (0..in_flight.most()).map(|_| large()).collect();
        assert!(in_flight.enter(SMALL_BYTES, None).is_none());
        assert_eq!(in_flight.state.lock().now, in_flight.most());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| drop(large()));
            assert!(!next.is_finished(), "nobody has returned");
            sent.pop();
            next.join().expect("it does not panic");
        });
        drop(sent);
        assert_eq!(in_flight.state.lock().now, 0);
    }

    #[test]
    fn beside_an_fsync_a_device_without_gain_gets_the_data_that_it_waits_for_and_no_other() {
        let in_flight = Arc::new(InFlight::new(true));
        let (one, other) = (InodeNo(20), InodeNo(21));
        let under_way = in_flight.fsync(one);
        drop(in_flight.enter(LARGE, Some(other)).expect("a device with a gain takes it"));
        in_flight.found_no_gain();
        drop(in_flight.enter(LARGE, Some(one)).expect("it is its own"));
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let waits = tell.clone();
                wait::before_waiting(move |_| waits.send("waits").expect("it is heard"));
                let sent = in_flight.enter(LARGE, Some(other));
                tell.send("is sent").expect("it is heard");
                drop(sent);
            });
            assert_eq!(told.recv(), Ok("waits"));
            // The end of one fsync is enough: another one that began meanwhile keeps it no longer.
            let next = in_flight.fsync(one);
            drop(under_way);
            assert_eq!(told.recv(), Ok("is sent"));
            waiting.join().expect("it does not panic");
            drop(next);
        });
        assert_eq!(in_flight.state.lock().fsyncs, []);
    }

    /// Both waited for the first fsync. The second one began before either was sent.
    #[test]
    fn of_two_writes_that_gave_way_to_an_fsync_the_next_one_finds_one_before_it() {
        let in_flight = Arc::new(InFlight::new(true));
        in_flight.found_no_gain();
        let first = in_flight.fsync(InodeNo(20));
        let (tell, told) = channel();
        let (send, sent) = channel();
        std::thread::scope(|scope| {
            for inode in [21, 22] {
                let (waits, send, in_flight) = (tell.clone(), send.clone(), &in_flight);
                scope.spawn(move || {
                    wait::before_waiting(move |_| waits.send(()).expect("it is heard"));
                    let write = in_flight.enter(LARGE, Some(InodeNo(inode)));
                    send.send(write).expect("it is heard");
                });
            }
            let waits = || told.recv_timeout(Duration::from_secs(20)).expect("a write waits");
            waits();
            waits();
            let second = in_flight.fsync(InodeNo(20));
            drop(first);
            let write = sent.recv().expect("one is sent");
            // For the turn, and when it has that for the second fsync.
            waits();
            drop(write);
            waits();
            assert!(sent.try_recv().is_err(), "it is before the flush of the second fsync");
            drop(second);
            drop(sent.recv().expect("the other is sent"));
        });
    }

    /// What has its turn holds files.
    #[test]
    fn a_writeback_of_several_files_takes_none_while_another_one_writes_or_an_fsync_waits() {
        let in_flight = Arc::new(InFlight::new(true));
        in_flight.found_no_gain();
        let turn = in_flight.turn(LARGE);
        let (tell, told) = channel();
        let (send, taken) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waits = tell.clone();
                wait::before_waiting(move |_| waits.send(()).expect("it is heard"));
                let turn = in_flight.turn(LARGE);
                send.send(turn).expect("it is heard");
            });
            let waits = || told.recv_timeout(Duration::from_secs(20)).expect("it waits");
            waits();
            let coming = in_flight.coming();
            drop(turn);
            waits();
            let under_way = in_flight.fsync(InodeNo(20));
            drop(coming);
            assert!(taken.try_recv().is_err(), "the fsync has its file, and has not ended");
            drop(under_way);
            drop(taken.recv().expect("it has its turn"));
        });
        let state = in_flight.state.lock();
        assert_eq!((state.turns, state.coming), (0, 0));
    }

    #[test]
    fn a_write_gives_way_no_longer_than_it_takes_itself() {
        let in_flight = Arc::new(InFlight::new(true));
        in_flight.state.lock().gain = Gain::none(1000);
        let _never_over = in_flight.fsync(InodeNo(20));
        assert!(in_flight.enter(LARGE, None).is_some());
    }
}
