//! What a machine was asked for: requests of a block device, processor time, peak memory. Read from /proc and /sys.
//!
//! A reading is a total since the device or the process began. Processor time of programs that were run has the
//! resolution of the kernel's ticks, 10 ms: it means something over hundreds of milliseconds.

use std::io;
use std::path::Path;

use holdfast_base::clock;
use holdfast_device::DeviceStats;

/// Nanoseconds of a tick in /proc: 100 a second on every machine that Linux tells programs about.
const TICK_NS: u64 = 10_000_000;

/// What a block device, or a part of a disk, was asked so far; `device` is its directory in /sys. A flush without
/// data counts as a write too, as the kernel does.
pub(crate) fn asked(device: &Path) -> io::Result<DeviceStats> {
    let text = std::fs::read_to_string(device.join("stat"))?;
    let wrong = || io::Error::other(format!("statistics of {}: {text}", device.display()));
    parse_asked(&text).ok_or_else(wrong)
}

fn parse_asked(text: &str) -> Option<DeviceStats> {
    let fields = text.split_whitespace().map(|field| field.parse().ok());
    let fields = fields.collect::<Option<Vec<u64>>>()?;
    let field = |at: usize| fields.get(at).copied();
    Some(DeviceStats {
        reads: field(0)?,
        read_bytes: field(2)? * 512,
        writes: field(4)?,
        written_bytes: field(6)? * 512,
        flushes: field(15)?,
        discards: field(11)?,
    })
}

/// Nanoseconds that this process has worked so far, and the programs that it has started and waited for; those in
/// ticks.
pub(crate) fn own_ns() -> io::Result<u64> {
    let own = process_ns(std::process::id())?;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let ticks = children_ticks(&text);
    let ticks = ticks.ok_or_else(|| io::Error::other(format!("processor time: {text}")))?;
    Ok(own + ticks * TICK_NS)
}

/// Nanoseconds that a process has worked so far, threads that have ended included.
pub(crate) fn process_ns(pid: u32) -> io::Result<u64> {
    clock::process_nanos_of(pid)
        .map_err(|error| io::Error::new(error.kind(), format!("processor time of {pid}: {error}")))
}

/// The name stands in brackets and may hold anything; behind it user and system time of children are numbers 13 and 14.
fn children_ticks(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

/// The most memory that a process has had, in bytes.
pub(crate) fn peak_bytes(pid: u32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("process {pid} has no VmHWM")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let line = "  10 0 80 1  20 3 160 9 0 5 6 1 0 8 0 7 2\n";
        let asked = DeviceStats {
            reads: 10,
            read_bytes: 40960,
            writes: 20,
            written_bytes: 81920,
            flushes: 7,
            discards: 1,
        };
        assert_eq!(parse_asked(line), Some(asked));
        assert_eq!(parse_asked("1 2 3"), None);
        let line = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 3 4 5 6 20 0 1 0 100";
        assert_eq!(children_ticks(line), Some(11));
    }

    #[test]
    fn this_process_is_there() {
        let own = std::process::id();
        assert!(peak_bytes(own).unwrap() > 1 << 20);
        assert!(own_ns().unwrap() >= process_ns(own).unwrap() / 2);
        assert!(process_ns(u32::MAX).unwrap_err().to_string().contains("4294967295"));
    }
}
