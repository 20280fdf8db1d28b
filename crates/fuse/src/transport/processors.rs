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

/// Keeps the calling thread on these.
pub(super) fn stay_on(processors: &[u16]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors {
        if usize::from(processor) >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        set.set(usize::from(processor));
    }
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
        stay_on(&[at])?;
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
            && let Err(error) = stay_on(&[self.at])
        {
            tracing::debug!("a thread cannot go back to processor {}: {error}", self.at);
        }
    }
}

/// The processors that the calling thread may run on.
pub(super) fn allowed() -> io::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
}

/// Whether the calling thread may run on each of these.
pub(super) fn may_use_all(processors: &[u16]) -> bool {
    let allowed = |set: CpuSet| {
        let mut numbers = processors.iter().map(|&processor| usize::from(processor));
        numbers.all(|number| number < CpuSet::MAX_CPU && set.is_set(number))
    };
    sched_getaffinity(None).is_ok_and(allowed)
}

/// The processor that a thread ran on last, if it sleeps now.
pub(super) fn of_sleeper(thread: u32) -> Option<u16> {
    sleeps_on(&fs::read_to_string(format!("/proc/{thread}/stat")).ok()?)
}

/// The processor in a line of `/proc/*/stat`, the 39th field, if the third tells of a sleep. The second is a
/// name that may hold anything.
fn sleeps_on(stat: &str) -> Option<u16> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace();
    let sleeps = matches!(fields.next()?, "S" | "D");
    fields.nth(35)?.parse().ok().filter(|_| sleeps)
}

/// For tests: two processors that the calling thread may use, however many there are.
#[cfg(test)]
pub(super) fn two() -> Option<[u16; 2]> {
    let mut usable = online().ok()?.into_iter().filter(|&one| may_use_all(&[one]));
    Some([usable.next()?, usable.next()?])
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
        let all: Vec<u16> =
            online().unwrap().into_iter().filter(|&one| may_use_all(&[one])).collect();
        for &one in &all {
            let (tell, told) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let sleeper = std::thread::spawn(move || {
                stay_on(&[one]).unwrap();
                tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                let _ = ended.recv();
                may_use_all(&online().unwrap())
            });
            let thread = told.recv().unwrap();
            // It takes a moment until it sleeps.
            let until = holdfast_base::clock::Deadline::after(std::time::Duration::from_secs(60));
            let mut found = None;
            while found.is_none() && !until.is_over() {
                std::thread::yield_now();
                found = of_sleeper(thread);
            }
            assert_eq!(found, Some(one));
            drop(end);
            assert_eq!(sleeper.join().unwrap(), online().unwrap() == [one]);
        }
    }

    #[test]
    fn who_has_left_its_processor_starts_threads_anywhere_until_it_comes_back() {
        let one = online().unwrap().into_iter().find(|&one| may_use_all(&[one])).unwrap();
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

    #[test]
    fn a_name_may_hold_anything() {
        let numbers: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let line = |name, state| format!("17 ({name}) {state} {}", numbers.join(" "));
        assert_eq!(sleeps_on(&line("tar", "S")), Some(39));
        assert_eq!(sleeps_on(&line(") R 1 2 (", "D")), Some(39));
        assert_eq!(sleeps_on(&line("tar", "R")), None);
        assert_eq!(sleeps_on("17 tar S 1"), None);
        assert_eq!(sleeps_on("17 (tar) S 1 2"), None);
    }
}
