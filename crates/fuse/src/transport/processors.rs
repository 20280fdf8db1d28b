//! The processors of this machine, and which of them a thread is on.

use std::cell::Cell;
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

/// Keeps the calling thread on one.
fn stay_on(processor: u16) -> io::Result<()> {
    if usize::from(processor) >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    let mut set = CpuSet::new();
    set.set(usize::from(processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// The processor that a thread stays on while it serves, and those that its program may use.
pub(super) struct Home {
    at: u16,
    all: CpuSet,
    is_away: Cell<bool>,
}

impl Home {
    /// Keeps the calling thread on `at` from now on. `all`: see [`allowed`].
    pub(super) fn at(at: u16, all: CpuSet) -> io::Result<Home> {
        stay_on(at)?;
        Ok(Home { at, all, is_away: Cell::new(false) })
    }

    /// The calling thread may run anywhere, and so may those that it starts: a thread begins where the one that starts it
    /// may run.
    pub(super) fn leave(&self) {
        self.is_away.set(sched_setaffinity(None, &self.all).is_ok());
    }

    /// It goes back to where it stays, if it has left.
    pub(super) fn come_back(&self) {
        if self.is_away.replace(false)
            && let Err(error) = stay_on(self.at)
        {
            tracing::debug!("a thread cannot go back to processor {}: {error}", self.at);
        }
    }
}

/// The processors that the calling thread may run on.
pub(super) fn allowed() -> io::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
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
    fn who_has_left_its_processor_starts_threads_anywhere_until_it_comes_back() {
        let usable = allowed().unwrap();
        let one = online().unwrap().into_iter().find(|&one| usable.is_set(one.into())).unwrap();
        std::thread::spawn(move || {
            let all = allowed().unwrap();
            let home = Home::at(one, all).unwrap();
            let mut only = CpuSet::new();
            only.set(usize::from(one));
            let of_child = || std::thread::spawn(|| allowed().unwrap()).join().unwrap();
            assert_eq!([allowed().unwrap(), of_child()], [only, only]);
            home.leave();
            assert_eq!([allowed().unwrap(), of_child()], [all, all]);
            home.come_back();
            assert_eq!(allowed().unwrap(), only);
        })
        .join()
        .unwrap();
    }
}
