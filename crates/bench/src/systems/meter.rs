//! What a machine was asked for: requests of a block device, processor time, peak memory. Read from /proc and /sys.
//!
//! A reading is a total since the machine, the device or the process began;
//! what happened between two of them is `since`. Processor time of programs
//! that were run, and of the machine, has the resolution of the kernel's ticks,
//! 10 ms: it means something over hundreds of milliseconds.

use std::io;
use std::path::Path;

use holdfast_base::clock;
use serde::{Deserialize, Serialize};

/// Nanoseconds of a tick in /proc: 100 a second on every machine that Linux tells programs about.
const TICK_NS: u64 = 10_000_000;

/// What a block device was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests. A flush without data is one of them, as the kernel counts.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flush requests.
    pub flushes: u64,
}

impl Blocks {
    /// What the device called `name`, as in /sys/block, was asked for so far.
    pub fn of(name: &str) -> io::Result<Blocks> {
        Blocks::read(&Path::new("/sys/block").join(name))
    }

    /// The same of the device with the number `major:minor`, which may be a part of a disk.
    pub fn of_number(number: &str) -> io::Result<Blocks> {
        Blocks::read(&Path::new("/sys/dev/block").join(number))
    }

    fn read(device: &Path) -> io::Result<Blocks> {
        let text = std::fs::read_to_string(device.join("stat"))?;
        let wrong = || io::Error::other(format!("statistics of {}: {text}", device.display()));
        Blocks::parse(&text).ok_or_else(wrong)
    }

    fn parse(text: &str) -> Option<Blocks> {
        let fields: Option<Vec<u64>> =
            text.split_whitespace().map(|field| field.parse().ok()).collect();
        let fields = fields?;
        let field = |at: usize| fields.get(at).copied();
        Some(Blocks {
            reads: field(0)?,
            read_bytes: field(2)? * 512,
            writes: field(4)?,
            written_bytes: field(6)? * 512,
            flushes: field(15)?,
        })
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Blocks) -> Blocks {
        Blocks {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
        }
    }
}

/// Nanoseconds that this process has worked so far, and the programs that it has started and waited for; those in
/// ticks.
pub(crate) fn own_ns() -> io::Result<u64> {
    let own = process_ns(std::process::id())?;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let ticks = parse_process(&text, 13..15);
    let ticks = ticks.ok_or_else(|| io::Error::other(format!("processor time: {text}")))?;
    Ok(own + ticks * TICK_NS)
}

/// Nanoseconds that a process has worked so far, threads that have ended included.
pub(crate) fn process_ns(pid: u32) -> io::Result<u64> {
    clock::process_nanos_of(pid)
        .map_err(|error| io::Error::new(error.kind(), format!("processor time of {pid}: {error}")))
}

/// The name stands in brackets and may hold anything; behind it user and system time are numbers 11 and 12, those of
/// children 13 and 14.
fn parse_process(text: &str, fields: std::ops::Range<usize>) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let all: Vec<&str> = rest.split_whitespace().collect();
    let ticks: Option<Vec<u64>> = all.get(fields)?.iter().map(|field| field.parse().ok()).collect();
    Some(ticks?.iter().sum())
}

/// Nanoseconds that all processors of the machine together have worked so far, for any process.
pub(crate) fn machine_ns() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    parse_machine(&text).ok_or_else(|| io::Error::other("/proc/stat has another form"))
}

/// User, nice, system, idle, waiting, interrupts (two kinds): all but idle and waiting.
fn parse_machine(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].map(|at: usize| fields.get(at).copied());
    Some(busy.into_iter().sum::<Option<u64>>()? * TICK_NS)
}

/// The most memory that a process has had, in bytes.
pub(crate) fn peak_bytes(process: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other(format!("process {process} has no VmHWM")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let line = "  10 0 80 1  20 3 160 9 0 5 6 1 0 8 0 7 2\n";
        let blocks = Blocks::parse(line).unwrap();
        let expected =
            Blocks { reads: 10, read_bytes: 40960, writes: 20, written_bytes: 81920, flushes: 7 };
        assert_eq!(blocks, expected);
        assert_eq!(blocks.since(&blocks), Blocks::default());
        assert_eq!(Blocks::parse("1 2 3"), None);
        let line = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 3 4 5 6 20 0 1 0 100";
        assert_eq!((parse_process(line, 11..13), parse_process(line, 13..15)), (Some(7), Some(11)));
        assert_eq!(parse_machine("cpu  1 2 3 100 50 4 5 0 0 0\ncpu0 1"), Some(15 * TICK_NS));
    }

    #[test]
    fn this_process_is_there() {
        assert!(peak_bytes("self").unwrap() > 1 << 20);
        assert!(own_ns().is_ok() && machine_ns().unwrap() > 0);
        assert!(process_ns(std::process::id()).unwrap() > 0);
        assert!(process_ns(u32::MAX).unwrap_err().to_string().contains("4294967295"));
    }
}
