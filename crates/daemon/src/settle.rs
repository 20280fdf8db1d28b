//! Waits until a daemon has what the kernel was made to send of mappings: syncfs(2) sends it, and does not wait for the answers.
//!
//! The daemon says which of its threads may have a read or a write in hand, and never waits itself (`fuse/src/quiescence.rs` has the
//! argument). Here each of them is waited for, and asked again until no data has come between two answers.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Its value says it.
const PENDING: &str = "system.holdfast.pending";
/// How often it is asked for one queue, as others may read and write all the time. Each time the kernel has sent all that it sends at
/// once: 64 requests.
const ROUNDS: u32 = 32;
/// Between two looks at hands that are up: first, and at last.
const SOON: Duration = Duration::from_micros(20);
const LATE: Duration = Duration::from_millis(5);

/// What a daemon said.
#[derive(Debug, PartialEq, Eq)]
struct Pending {
    /// Requests for data that had come.
    come: u64,
    /// There is a queue for each processor.
    has_rings: bool,
    /// Hands that were up, with their turns.
    up: BTreeSet<String>,
}

impl Pending {
    fn read(text: &str) -> Option<Pending> {
        let mut words = text.split(' ');
        let come = words.next()?.parse().ok()?;
        let has_rings = words.next()? == "rings";
        Some(Pending { come, has_rings, up: words.map(String::from).collect() })
    }
}

/// Waits for what was sent before to the mount whose attributes `read` reads. A daemon of an older program cannot tell.
pub(super) fn settle(read: impl Fn(&str) -> io::Result<Vec<u8>>) {
    let mut ask = || {
        let value = read(PENDING).ok()?;
        Pending::read(std::str::from_utf8(&value).ok()?)
    };
    let Some(first) = ask() else { return };
    let rings = first.has_rings;
    let _ = one_queue(first, &mut ask);
    let Ok(allowed) = (if rings { sched_getaffinity(None) } else { return }) else { return };
    // The kernel writes on any processor. Those that this process may not use stay unasked.
    for number in 0..CpuSet::MAX_CPU {
        let mut one = CpuSet::new();
        one.set(number);
        if sched_setaffinity(None, &one).is_ok()
            && let Some(first) = ask()
        {
            let _ = one_queue(first, &mut ask);
        }
    }
    let _ = sched_setaffinity(None, &allowed);
}

/// `None`: the daemon has ended.
fn one_queue(mut first: Pending, ask: &mut impl FnMut() -> Option<Pending>) -> Option<()> {
    for _ in 0..ROUNDS {
        let mut pause = SOON;
        let mut now = ask()?;
        let mut left: BTreeSet<String> = first.up.intersection(&now.up).cloned().collect();
        while !left.is_empty() {
            thread::sleep(pause);
            pause = (pause * 2).min(LATE);
            now = ask()?;
            left.retain(|hand| now.up.contains(hand));
        }
        if now.come == first.come {
            break;
        }
        first = now;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these answers are asked for.
    fn asked(answers: &[&str]) -> usize {
        let mut all = answers.iter().map(|text| Pending::read(text).unwrap());
        let first = all.next().unwrap();
        let mut count = 1;
        let done = one_queue(first, &mut || {
            count += 1;
            all.next()
        });
        assert_eq!(done, Some(()), "more was asked than there is to answer: {answers:?}");
        count
    }

    #[test]
    fn each_hand_that_was_up_is_waited_for_until_no_data_comes() {
        assert_eq!(asked(&["17 device", "17 device", "99 device"]), 2);
        // The thread goes on with another request, which is none of those before.
        assert_eq!(asked(&["17 device 1:3", "17 device 1:3", "17 device 1:5 2:1"]), 3);
        // Data came: perhaps what the kernel could not send before.
        let more =
            ["17 device 1:3 4:1", "17 device 4:1", "18 device 1:5", "18 device 1:5", "18 device"];
        assert_eq!(asked(&more), 5);
        let answers: Vec<String> = (0..100).map(|come| format!("{come} rings")).collect();
        let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
        assert_eq!(asked(&answers), 1 + ROUNDS as usize, "others read all the time");
    }

    #[test]
    fn nonsense_is_no_answer() {
        for text in ["", "x device", "17"] {
            assert_eq!(Pending::read(text), None, "{text}");
        }
        assert!(Pending::read("3 rings 1:1").is_some_and(|it| it.has_rings && it.up.len() == 1));
    }
}
