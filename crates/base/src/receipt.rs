//! What an fsync cost, and why.
//!
//! Receipts are answers, not measurements of a moment: bytes, writes and
//! flushes are those of the calls that made this fsync's history durable,
//! counted where they were made. A receipt reads the same wherever
//! it is shown: in a log line, by `holdfast explain`, and by a program that prints it.

use std::fmt;

use crate::{BatchNo, show};

/// Why an fsync was not answered by the log alone. Each is counted; the first two are expected to be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFallback {
    /// The log had no room; a commit made some.
    LogFull,
    /// More had changed than one batch may hold.
    TooLarge,
    /// Blocks had moved within a file, which only a commit can say.
    Moved,
}

impl LogFallback {
    /// The reason, as a part of a sentence.
    pub fn why(self) -> &'static str {
        match self {
            LogFallback::LogFull => "the log had no room",
            LogFallback::TooLarge => "more had changed than one batch of the log may hold",
            LogFallback::Moved => "a range was collapsed or inserted, which only a commit can say",
        }
    }

    /// The counter that counts it.
    pub fn name(self) -> &'static str {
        match self {
            LogFallback::LogFull => "log_full",
            LogFallback::TooLarge => "log_too_large",
            LogFallback::Moved => "log_moved",
        }
    }
}

/// What an fsync cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The batch that made it durable; `None` when nothing was undurable, or after a fallback.
    pub batch: Option<BatchNo>,
    /// Whether this fsync wrote the batch, or made the commit; otherwise it waited for another thread that did.
    pub led: bool,
    /// Why a commit was needed.
    pub fallback: Option<LogFallback>,
    /// Bytes of file data that this fsync wrote to its location.
    pub data_bytes: u64,
    /// Write calls for them.
    pub data_writes: u64,
    /// Bytes of the batch, headers and padding included. After a fallback these three are what the device was asked for
    /// while the commit was made.
    pub log_bytes: u64,
    /// Write calls for the batch.
    pub log_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Records of the batch that describe the file or directory itself, and of its names.
    pub own_records: u64,
    /// Records of space, and those that the batch carried along: history is one sequence.
    pub other_records: u64,
    /// Nanoseconds until the file's data was written and its records made.
    pub data_ns: u64,
    /// Nanoseconds of waiting for batches of others.
    pub wait_ns: u64,
    /// Nanoseconds in which the batch was formatted.
    pub format_ns: u64,
    /// Nanoseconds in which it was written.
    pub write_ns: u64,
    /// Nanoseconds in which it was flushed.
    pub flush_ns: u64,
}

impl Receipt {
    /// Whether nothing was undurable, and nothing was done.
    pub fn is_clean(&self) -> bool {
        self.batch.is_none() && self.fallback.is_none()
    }

    /// Every number by its name, for programs. A batch or a fallback that was not needed has no name here.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        fields.extend(self.batch.map(|batch| ("batch", batch.to_string())));
        fields.extend(self.fallback.map(|fallback| ("escape", fallback.name().to_owned())));
        fields.push(("led", self.led.to_string()));
        let numbers = [
            ("data_bytes", self.data_bytes),
            ("data_writes", self.data_writes),
            ("log_bytes", self.log_bytes),
            ("log_writes", self.log_writes),
            ("flushes", self.flushes),
            ("own_records", self.own_records),
            ("other_records", self.other_records),
            ("data_ns", self.data_ns),
            ("wait_ns", self.wait_ns),
            ("format_ns", self.format_ns),
            ("write_ns", self.write_ns),
            ("flush_ns", self.flush_ns),
        ];
        fields.extend(numbers.map(|(name, value)| (name, value.to_string())));
        fields
    }

    /// What it cost and why, one statement after the other.
    pub fn statements(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(fallback) = self.fallback {
            let why = fallback.why();
            let expected = match fallback {
                LogFallback::Moved => "",
                LogFallback::LogFull | LogFallback::TooLarge => ", which is not expected",
            };
            said.push(format!("a commit instead of a batch of the log: {why}{expected}"));
        } else if let Some(batch) = self.batch {
            let whose = if self.led { "" } else { ", written for another fsync" };
            let cost = format!(
                "{} in {} and {}",
                show::bytes(self.log_bytes),
                show::count(self.log_writes, "write"),
                show::count(self.flushes, "flush")
            );
            // What was larger than a recovery should read was flushed before.
            let first = if self.flushes > 1 { ", the first of them for large data" } else { "" };
            said.push(format!("batch {batch} of the log{whose}: {cost}{first}"));
            said.push(format!(
                "{} of its own, {} of space or of others",
                show::count(self.own_records, "record"),
                self.other_records
            ));
        } else {
            said.push("nothing was undurable: no write to the log and no flush".into());
        }
        if self.data_bytes > 0 {
            said.push(format!(
                "{} of data written to its place first, in {}",
                show::bytes(self.data_bytes),
                show::count(self.data_writes, "write")
            ));
        }
        said.extend(self.times());
        said
    }

    /// Where the time went; `None` if nowhere.
    fn times(&self) -> Option<String> {
        let named = |times: &[(&str, u64)]| {
            // Less than a microsecond is the time of looking at the clock.
            let times = times.iter().filter(|(_, nanos)| *nanos >= 1000);
            let times: Vec<_> =
                times.map(|(what, nanos)| format!("{} {what}", show::nanos(*nanos))).collect();
            times.join(", ")
        };
        let before = [("for its data", self.data_ns), ("waiting for others", self.wait_ns)];
        let batch = [
            ("formatting", self.format_ns),
            ("writing", self.write_ns),
            ("flushing", self.flush_ns),
        ];
        let own = match self.led {
            true => named(&[before.as_slice(), &batch].concat()),
            // It waited while another did the rest.
            false => {
                let batch = named(&batch);
                let of_batch =
                    if batch.is_empty() { batch } else { format!(" (the batch: {batch})") };
                named(&before) + &of_batch
            }
        };
        (!own.is_empty()).then_some(own)
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.statements().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LED: Receipt = Receipt {
        batch: Some(BatchNo(7)),
        led: true,
        fallback: None,
        data_bytes: 65536,
        data_writes: 1,
        log_bytes: 512,
        log_writes: 1,
        flushes: 1,
        own_records: 3,
        other_records: 2,
        data_ns: 150_000,
        wait_ns: 180,
        format_ns: 3_000,
        write_ns: 20_000,
        flush_ns: 600_000,
    };

    #[test]
    fn the_leader_has_the_costs() {
        assert_eq!(
            LED.to_string(),
            "batch 7 of the log: 512 B in 1 write and 1 flush; 3 records of its own, 2 of space or of others; \
             64.0 KiB of data written to its place first, in 1 write; \
             150.0 us for its data, 3.0 us formatting, 20.0 us writing, 600.0 us flushing"
        );
        let large = Receipt { flushes: 2, ..LED };
        assert!(large.to_string().contains("and 2 flushes, the first of them for large data;"));
    }

    #[test]
    fn a_follower_has_waited() {
        let followed = Receipt { led: false, data_bytes: 0, wait_ns: 700_000, ..LED };
        assert_eq!(
            followed.to_string(),
            "batch 7 of the log, written for another fsync: 512 B in 1 write and 1 flush; \
             3 records of its own, 2 of space or of others; 150.0 us for its data, 700.0 us waiting for others \
             (the batch: 3.0 us formatting, 20.0 us writing, 600.0 us flushing)"
        );
    }

    #[test]
    fn what_is_clean_or_an_escape_is_said_plainly() {
        let clean = Receipt::default();
        assert!(clean.is_clean());
        assert_eq!(clean.to_string(), "nothing was undurable: no write to the log and no flush");
        for fallback in [LogFallback::LogFull, LogFallback::TooLarge, LogFallback::Moved] {
            let receipt = Receipt { fallback: Some(fallback), ..Receipt::default() };
            assert!(!receipt.is_clean());
            let said = receipt.to_string();
            let is_expected = fallback == LogFallback::Moved;
            assert!(said.contains(fallback.why()), "{said}");
            assert_ne!(said.ends_with("not expected"), is_expected, "{said}");
        }
    }

    #[test]
    fn programs_get_all_of_it() {
        let fields = LED.fields();
        let value = |name: &str| fields.iter().find(|(of, _)| *of == name).map(|(_, v)| v.as_str());
        assert_eq!(
            (value("batch"), value("led"), value("escape")),
            (Some("7"), Some("true"), None)
        );
        assert_eq!((value("log_bytes"), value("flush_ns")), (Some("512"), Some("600000")));
        let fallback = Receipt { fallback: Some(LogFallback::LogFull), ..Receipt::default() };
        assert!(fallback.fields().contains(&("escape", "log_full".into())));
        assert!(!fallback.fields().iter().any(|(name, _)| *name == "batch"));
    }
}
