//! Whether the device does large writes sooner side by side than one behind the other.
//!
//! A device with a queue does. One that does a single thing at a time does not: there each further write that is sent
//! ahead only makes the next fsync wait longer. It is measured and never assumed: now and then comes a trial, a few writes
//! that are sent one by one and then a few side by side. As long as trials find the same they become rarer.
//!
//! A trial on a device without a gain puts two writes in front of an fsync instead of one. So where fsyncs are about it
//! comes as rarely as trials ever do: less than one fsync in a hundred meets it.

use holdfast_base::units::BLOCK_SIZE;

/// Writes of a trial that are sent alone.
const ALONE: u64 = 4;
/// Those that are sent side by side: more, as the order in which a device takes them makes their times differ.
const BESIDE: u64 = 8;
/// Writes between two trials, at first and at most.
const PAUSE_MIN: u64 = 16;
const PAUSE_MAX: u64 = 1024;

/// How one large write went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) bytes: usize,
    pub(super) nanos: u64,
    /// Large writes on their way when it was sent and when it returned, this one among them.
    pub(super) sent_beside: usize,
    pub(super) returned_beside: usize,
}

impl Reading {
    fn is_beside(&self) -> bool {
        self.sent_beside > 1
    }
}

/// Time of the device that writes took, each with its share while others were on their way.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    writes: u64,
    blocks: u64,
    nanos: u64,
}

impl Took {
    fn add(&mut self, reading: &Reading) {
        let beside = (reading.sent_beside + reading.returned_beside).max(1) as u64;
        self.writes += 1;
        self.blocks += reading.bytes.div_ceil(BLOCK_SIZE) as u64;
        self.nanos = self.nanos.saturating_add(reading.nanos.saturating_mul(2) / beside);
    }

    fn block_nanos(&self) -> u64 {
        self.nanos / self.blocks.max(1)
    }
}

#[derive(Debug)]
enum Phase {
    /// So many writes until the next trial.
    Pause(u64),
    Alone(Took),
    Beside(Took),
}

/// What was found.
#[derive(Debug)]
pub(super) struct Gain {
    is_there: bool,
    /// Of a write alone, for each block.
    block_nanos: u64,
    phase: Phase,
    pause: u64,
    /// There was an fsync since the last trial.
    fsync_seen: bool,
}

impl Default for Gain {
    fn default() -> Gain {
        let phase = Phase::Pause(PAUSE_MIN);
        Gain { is_there: true, block_nanos: 0, phase, pause: PAUSE_MIN, fsync_seen: false }
    }
}

impl Gain {
    /// How many large writes are sent at once now, of `most`.
    pub(super) fn limit(&self, most: usize) -> usize {
        match self.phase {
            Phase::Alone(_) => 1,
            Phase::Beside(_) => most,
            Phase::Pause(_) => {
                if self.is_there {
                    most
                } else {
                    1
                }
            }
        }
    }

    /// Whether there is a gain; taken for granted before the first trial.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }

    /// What a write of so many bytes takes alone.
    pub(super) fn nanos_of(&self, bytes: usize) -> u64 {
        self.block_nanos.saturating_mul(bytes.div_ceil(BLOCK_SIZE) as u64)
    }

    /// An fsync is about to send its data.
    pub(super) fn saw_fsync(&mut self) {
        self.fsync_seen = true;
    }

    /// A large write has returned.
    pub(super) fn returned(&mut self, reading: &Reading) {
        match &mut self.phase {
            Phase::Pause(left) if *left > 1 => *left -= 1,
            Phase::Pause(_) if !self.is_there && self.fsync_seen && self.pause < PAUSE_MAX => {
                self.phase = Phase::Pause(PAUSE_MAX - self.pause);
                self.pause = PAUSE_MAX;
            }
            Phase::Pause(_) => self.phase = Phase::Alone(Took::default()),
            Phase::Alone(took) => {
                // Those that were sent before the trial have company.
                if !reading.is_beside() && reading.returned_beside <= 1 {
                    took.add(reading);
                }
                if took.writes == ALONE {
                    self.block_nanos = took.block_nanos();
                    self.phase = Phase::Beside(Took::default());
                }
            }
            // Where a single thread writes there is nothing to find, and nothing that depends on it.
            Phase::Beside(took) => {
                if reading.is_beside() {
                    took.add(reading);
                }
                if took.writes == BESIDE {
                    let beside = took.block_nanos();
                    self.conclude(beside);
                }
            }
        }
    }

    /// It is there if the device does a third more in the same time.
    fn conclude(&mut self, beside: u64) {
        let is_there = beside.saturating_mul(4) <= self.block_nanos.saturating_mul(3);
        let is_same = is_there == self.is_there;
        self.pause = if is_same { (2 * self.pause).min(PAUSE_MAX) } else { PAUSE_MIN };
        self.is_there = is_there;
        self.phase = Phase::Pause(self.pause);
        self.fsync_seen = false;
    }

    /// For tests: a device without a gain, that takes so long for each block.
    #[cfg(test)]
    pub(super) fn none(block_nanos: u64) -> Gain {
        let phase = Phase::Pause(u64::MAX);
        Gain { is_there: false, block_nanos, phase, pause: PAUSE_MAX, fsync_seen: false }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const BYTES: usize = 64 * BLOCK_SIZE;
    const MOST: usize = 2;

    /// Sends writes whenever one may be sent, to a device that does `at_once` of them side by side, each in 1,000,000
    /// ns, and takes every second time the last one first if it is unfair. Returns how many were on their way when each
    /// was sent.
    fn send(gain: &mut Gain, at_once: usize, is_fair: bool, writes: usize) -> Vec<usize> {
        let mut now = 0;
        let mut queue: VecDeque<(u64, usize)> = VecDeque::new();
        // When each ends that the device has begun.
        let mut begun: Vec<(u64, (u64, usize))> = Vec::new();
        let mut beside = Vec::new();
        while beside.len() < writes {
            while queue.len() + begun.len() < gain.limit(MOST) {
                let count = queue.len() + begun.len() + 1;
                queue.push_back((now, count));
                beside.push(count);
            }
            while begun.len() < at_once
                && let Some(next) = match is_fair || beside.len() % 2 == 0 {
                    true => queue.pop_front(),
                    false => queue.pop_back(),
                }
            {
                begun.push((now + 1_000_000, next));
            }
            let first = (0..begun.len()).min_by_key(|at| begun[*at].0).expect("one was begun");
            let (end, (sent, sent_beside)) = begun.remove(first);
            now = end;
            let returned_beside = queue.len() + begun.len() + 1;
            let nanos = end - sent;
            gain.returned(&Reading { bytes: BYTES, nanos, sent_beside, returned_beside });
        }
        beside
    }

    #[test]
    fn a_device_that_does_one_write_at_a_time_gets_one_at_a_time_but_for_rare_trials() {
        for is_fair in [true, false] {
            let mut gain = Gain::default();
            send(&mut gain, 1, is_fair, 40);
            assert!(!gain.is_there(), "fair: {is_fair}");
            assert!((900_000..1_100_000).contains(&gain.nanos_of(BYTES)), "{gain:?}");
            let beside = send(&mut gain, 1, is_fair, 10_000);
            let two = beside.iter().filter(|count| **count > 1).count();
            assert!((1..=200).contains(&two), "{two} of 10,000 were sent beside another one");
        }
    }

    /// C11: what an fsync waits for besides its own data is one write.
    #[test]
    fn beside_fsyncs_two_writes_are_on_their_way_less_than_once_in_a_hundred() {
        for is_fair in [true, false] {
            let mut gain = Gain::default();
            send(&mut gain, 1, is_fair, 40);
            assert!(!gain.is_there(), "fair: {is_fair}");
            let mut beside = Vec::new();
            for _ in 0..200 {
                gain.saw_fsync();
                beside.extend(send(&mut gain, 1, is_fair, 50));
            }
            let two = beside.iter().filter(|count| **count > 1).count();
            assert!((1..100).contains(&two), "fair: {is_fair}: {two} of 10,000");
            let early =
                beside[..PAUSE_MAX as usize - 50].iter().filter(|count| **count > 1).count();
            assert_eq!(early, 0, "fair: {is_fair}");
        }
    }

    #[test]
    fn a_gain_that_comes_or_goes_is_found_beside_fsyncs_too() {
        let mut gain = Gain::default();
        for (at_once, is_there) in [(1, false), (2, true), (1, false)] {
            for _ in 0..60 {
                gain.saw_fsync();
                send(&mut gain, at_once, true, 50);
            }
            assert_eq!(gain.is_there(), is_there, "{at_once} at once");
        }
    }

    #[test]
    fn a_device_with_a_queue_gets_as_many_as_there_may_be() {
        let mut gain = Gain::default();
        let beside = send(&mut gain, MOST, true, 10_000);
        assert!(gain.is_there());
        let alone = beside.iter().filter(|count| **count == 1).count();
        assert!(alone <= 5000 + 200, "every second one finds another one: {alone} found none");
    }

    #[test]
    fn what_has_changed_is_found() {
        let mut gain = Gain::default();
        for (at_once, is_there) in [(1, false), (2, true), (1, false)] {
            send(&mut gain, at_once, true, 3000);
            assert_eq!(gain.is_there(), is_there, "{at_once} at once");
        }
    }

    #[test]
    fn a_single_writer_finds_nothing_and_waits_for_nothing() {
        let mut gain = Gain::default();
        for _ in 0..1000 {
            let alone = Reading { bytes: BYTES, nanos: 5, sent_beside: 1, returned_beside: 1 };
            gain.returned(&alone);
        }
        assert!(gain.is_there());
        assert_eq!(gain.limit(MOST), MOST);
    }
}
