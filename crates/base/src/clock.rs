//! The only door to time.

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
    /// The present moment.
    pub fn now() -> Timestamp {
        Timestamp::from(SystemTime::now())
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

/// Measures how long something took.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts measuring now.
    pub fn start() -> Stopwatch {
        Stopwatch(std::time::Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// Nanoseconds since the start.
    pub fn nanos(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
        ProcessorTime {
            thread: now(rustix::time::ClockId::ThreadCPUTime),
            process: now(rustix::time::ClockId::ProcessCPUTime),
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

/// A moment by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(std::time::Instant);

impl Deadline {
    /// The moment after `time` from now.
    pub fn after(time: Duration) -> Deadline {
        Deadline(std::time::Instant::now() + time)
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
    fn moments_before_1970_survive_the_round_trip() {
        let moment = Timestamp { secs: -5, nanos: 250_000_000 };
        assert_eq!(Timestamp::from(SystemTime::from(moment)), moment);
    }
}
