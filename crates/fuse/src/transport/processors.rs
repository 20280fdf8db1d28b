//! The processors of this machine, and which of them a thread is on.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Those that are switched on.
pub(super) fn online() -> io::Result<Vec<u16>> {
    listed("online")
}

/// Those that could be.
pub(super) fn possible() -> io::Result<Vec<u16>> {
    listed("possible")
}

/// Keeps the calling thread on these.
pub(super) fn stay_on(processors: &[u16]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(usize::from(processor));
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Whether the calling thread may run on each of these.
pub(super) fn may_use_all(processors: &[u16]) -> bool {
    sched_getaffinity(None)
        .is_ok_and(|set| processors.iter().all(|&processor| set.is_set(usize::from(processor))))
}

/// The processor that a thread runs on, or ran on last.
pub(super) fn of_thread(thread: u32) -> Option<u16> {
    on(&fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The processor in a line of `/proc/*/stat`: the 39th field, where the second is a name that may hold anything.
fn on(stat: &str) -> Option<u16> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

fn listed(which: &str) -> io::Result<Vec<u16>> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
    ranges(text.trim()).ok_or_else(|| io::Error::other(format!("processors {text:?}")))
}

/// The numbers in a list such as `0-3,8`.
fn ranges(text: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_ranges_and_numbers() {
        assert_eq!(ranges("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(ranges("0"), Some(vec![0]));
        assert_eq!(ranges(""), Some(vec![]));
        assert_eq!(ranges("0-x"), None);
        assert!(!online().unwrap().is_empty());
    }

    #[test]
    fn a_thread_is_where_it_was_sent() {
        let all = online().unwrap();
        assert!(may_use_all(&all));
        for &one in &all {
            stay_on(&[one]).unwrap();
            let me = rustix::thread::gettid().as_raw_nonzero().get();
            assert_eq!(of_thread(me as u32), Some(one));
            assert_eq!(may_use_all(&all), all.len() == 1);
        }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let line = |name| format!("17 ({name}) S {}", numbers.join(" "));
        assert_eq!(on(&line("tar")), Some(39));
        assert_eq!(on(&line(") R 1 2 (")), Some(39));
        assert_eq!(on("17 tar S 1"), None);
        assert_eq!(on("17 (tar) S 1 2"), None);
    }
}
