//! The only source of time.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment: seconds since 1970 (negative before it) and nanoseconds below a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 00:00 UTC, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The present moment, or what [`pin`] makes of it in this thread.
    pub fn now() -> Timestamp {
        let pinned = PINNED.get();
        PINNED.set(pinned.map(|nanos| nanos + 1));
        match pinned {
            None => Timestamp::from(SystemTime::now()),
            Some(nanos) => Timestamp::from(UNIX_EPOCH + Duration::from_nanos(nanos)),
        }
    }

    /// Nanoseconds since 1970, as far as they can be said.
    pub fn nanoseconds(self) -> i64 {
        self.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(self.nanos))
    }
}

thread_local! {
    /// Nanoseconds since 1970 at which this thread's clock was pinned, and one for each look since.
    static PINNED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Until the returned value is dropped, this thread finds it to be so many nanoseconds after 1970, and one
/// more at each look: a simulation then writes the same bytes each time.
pub fn pin(nanos: u64) -> Pinned {
    Pinned { before: PINNED.replace(Some(nanos)) }
}

/// Keeps this thread's clock pinned.
#[derive(Debug)]
#[must_use = "time goes on when this is dropped"]
pub struct Pinned {
    before: Option<u64>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        PINNED.set(self.before);
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp { secs: after.as_secs() as i64, nanos: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let secs = -(before.as_secs() as i64);
                match before.subsec_nanos() {
                    0 => Timestamp { secs, nanos: 0 },
                    nanos => Timestamp { secs: secs - 1, nanos: 1_000_000_000 - nanos },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    /// Moments that `SystemTime` cannot hold become 1970.
    fn from(time: Timestamp) -> SystemTime {
        let base = if time.secs >= 0 {
            UNIX_EPOCH.checked_add(Duration::from_secs(time.secs.unsigned_abs()))
        } else {
            UNIX_EPOCH.checked_sub(Duration::from_secs(time.secs.unsigned_abs()))
        };
        base.and_then(|base| base.checked_add(Duration::from_nanos(time.nanos.into())))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// Measures how long something took, by the machine's clock or the one that the thread has entered
/// ([`SimulatedClock::enter`]).
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    real: std::time::Instant,
    simulated: Option<(SimulatedClock, u64)>,
}

impl Stopwatch {
    /// Starts measuring now.
    pub fn start() -> Stopwatch {
        let simulated = SIMULATED.get().map(|clock| (clock, clock.nanos()));
        Stopwatch { real: std::time::Instant::now(), simulated }
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        match self.simulated {
            None => self.real.elapsed(),
            Some((clock, start)) => Duration::from_nanos(clock.nanos() - start),
        }
    }

    /// Nanoseconds since the start.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Nanoseconds since the machine was started, the time included in which it was suspended; by the clock that the thread
/// has entered, if it has one. A lease goes by this: it runs out while its holder sleeps.
pub fn since_boot() -> u64 {
    if let Some(clock) = SIMULATED.get() {
        return clock.nanos();
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // It counts up from zero.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

thread_local! {
    /// What this thread's stopwatches go by.
    static SIMULATED: Cell<Option<SimulatedClock>> = const { Cell::new(None) };
}

/// A clock that stands still until [`SimulatedClock::advance`]: for devices that simulate slowness.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedClock(&'static AtomicU64);

impl SimulatedClock {
    /// A clock at 0. Its eight bytes are never given back: tests have few of them.
    pub fn new() -> SimulatedClock {
        SimulatedClock(Box::leak(Box::default()))
    }

    /// Lets so much time pass, for everything that uses this clock.
    pub fn advance(self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::AcqRel);
    }

    /// Nanoseconds that have passed.
    pub fn nanos(self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Until the returned value is dropped, stopwatches of this thread go by this clock. Deadlines do not.
    pub fn enter(self) -> Entered {
        Entered { before: SIMULATED.replace(Some(self)) }
    }
}

impl Default for SimulatedClock {
    fn default() -> SimulatedClock {
        SimulatedClock::new()
    }
}

/// Keeps a thread on its simulated clock.
#[derive(Debug)]
#[must_use = "the machine's clock is back when this is dropped"]
pub struct Entered {
    before: Option<SimulatedClock>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        SIMULATED.set(self.before);
    }
}

/// Measures processor time: what was worked, however long others kept the machine busy meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime {
    thread: u64,
    process: u64,
}

impl ProcessorTime {
    /// Starts measuring now.
    pub fn start() -> ProcessorTime {
        let now = |clock| {
            let time = rustix::time::clock_gettime(clock);
            // Both count up from zero.
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        // In this order, or what the thread works between the two would be more than its process has.
        ProcessorTime {
            process: now(rustix::time::ClockId::ProcessCPUTime),
            thread: now(rustix::time::ClockId::ThreadCPUTime),
        }
    }

    /// Nanoseconds that the calling thread, which started it, has worked since.
    pub fn thread_nanos(self) -> u64 {
        ProcessorTime::start().thread.saturating_sub(self.thread)
    }

    /// Nanoseconds that all threads of the process have worked since.
    pub fn process_nanos(self) -> u64 {
        ProcessorTime::start().process.saturating_sub(self.process)
    }
}

/// Nanoseconds that all threads of the process `pid` have worked since it began, those that have ended included: a
/// sum over /proc would go back when one ends.
///
/// [`io::ErrorKind::NotFound`] when there is no such process.
pub fn process_nanos_of(pid: u32) -> io::Result<u64> {
    // 0 means the calling process.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(io::ErrorKind::NotFound)?;
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid));
    let time = clock.and_then(nix::time::ClockId::now).map_err(|error| match error {
        // The second, when it has gone meanwhile.
        nix::Error::ESRCH | nix::Error::EINVAL => io::ErrorKind::NotFound.into(),
        other => io::Error::from(other),
    })?;
    Ok(Duration::from(time).as_nanos() as u64)
}

/// A moment by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(std::time::Instant);

impl Deadline {
    /// The moment after `time` from now; one that no clock shows is as far as a hundred years.
    pub fn after(time: Duration) -> Deadline {
        const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
        let now = std::time::Instant::now();
        Deadline(now.checked_add(time).unwrap_or(now + FAR))
    }

    /// Time until then; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(std::time::Instant::now())
    }

    /// Whether it has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_may_be_as_far_as_one_likes() {
        assert!(!Deadline::after(Duration::MAX).is_over());
        assert!(Deadline::after(Duration::ZERO).is_over());
    }

    #[test]
    fn a_pinned_clock_shows_the_same_moments_again() {
        let looks = || {
            let _pinned = pin(5_000_000_000);
            let first = (Timestamp::now(), Timestamp::now());
            let inside = {
                let _pinned = pin(7);
                Timestamp::now()
            };
            (first, inside, Timestamp::now())
        };
        let at = |secs, nanos| Timestamp { secs, nanos };
        assert_eq!(looks(), ((at(5, 0), at(5, 1)), at(0, 7), at(5, 2)));
        assert_eq!(looks(), looks());
        assert!(Timestamp::now() > at(1_000_000_000, 0));
    }

    #[test]
    fn a_simulated_clock_advances_when_it_is_told_to() {
        let clock = SimulatedClock::new();
        let simulated = {
            let _entered = clock.enter();
            Stopwatch::start()
        };
        assert_eq!(simulated.nanos(), 0);
        std::thread::spawn(move || clock.advance(Duration::from_secs(3))).join().unwrap();
        assert_eq!(simulated.elapsed(), Duration::from_secs(3));
        assert!(Stopwatch::start().elapsed() < Duration::from_secs(3), "the machine's clock");
    }

    #[test]
    fn a_deadline_passes() {
        assert!(Deadline::after(Duration::ZERO).is_over());
        let later = Deadline::after(Duration::from_secs(60));
        assert!(!later.is_over() && later.left() <= Duration::from_secs(60));
    }

    #[test]
    fn a_thread_works_no_more_than_its_process() {
        let time = ProcessorTime::start();
        let sum: u64 = (0..100_000u64).map(std::hint::black_box).sum();
        assert!(sum > 0);
        let thread = time.thread_nanos();
        assert!(thread > 0 && thread <= time.process_nanos());
    }

    #[test]
    fn what_ended_threads_worked_is_not_forgotten() {
        let worked = || {
            let start = ProcessorTime::start();
            while start.thread_nanos() < 2_000_000 {
                std::hint::black_box((0..10_000u64).sum::<u64>());
            }
        };
        let own = std::process::id();
        let before = process_nanos_of(own).unwrap();
        std::thread::spawn(worked).join().unwrap();
        let after = process_nanos_of(own).unwrap();
        assert!(after >= before + 2_000_000, "{before} and then {after}");
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        for pid in [gone.id(), 0, u32::MAX] {
            assert_eq!(process_nanos_of(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn moments_before_1970_survive_the_round_trip() {
        let moment = Timestamp { secs: -5, nanos: 250_000_000 };
        assert_eq!(Timestamp::from(SystemTime::from(moment)), moment);
    }
}
