//! Where a measurement ran, and of which commit: found at run time, `unknown` where it is not to be found.

use std::path::Path;
use std::process::Command;

use holdfast_base::clock::Timestamp;
use serde::{Deserialize, Serialize};

/// What is not to be found.
const UNKNOWN: &str = "unknown";
/// Behind the commit of a program that `make profiled` has built.
pub(super) const PROFILED: &str = "-profiled";

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the processor.
    pub cpu: String,
    /// Processors that this program may use.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub system: String,
    /// Processes that wanted to run in the minute before: above zero, others were at work.
    pub load: f64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let kernel = read("/proc/sys/kernel/ostype") + " " + &read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok());
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name", ':').unwrap_or(UNKNOWN.into()),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory(&read("/proc/meminfo")).unwrap_or(0),
            kernel: words(&kernel).unwrap_or(UNKNOWN.into()),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or(UNKNOWN.into()),
            load: load.unwrap_or(0.0),
        }
    }

    /// The kernel's release, without its name.
    pub fn release(&self) -> &str {
        self.kernel.rsplit(' ').next().unwrap_or(&self.kernel)
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let memory = super::Unit::Bytes.show(self.memory_bytes as f64);
        let cores = if self.cores == 1 { "core" } else { "cores" };
        format!("{}, {} {cores}, {memory}, {}, {}", self.cpu, self.cores, self.system, self.kernel)
    }
}

/// The value behind `name` and `mark` in lines of them, without quotes.
fn field(text: &str, name: &str, mark: char) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(mark));
    let value = lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value).next()?;
    words(value.trim().trim_matches('"'))
}

/// With single spaces between words; `None` if there are none.
fn words(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn memory(meminfo: &str) -> Option<u64> {
    let kib = field(meminfo, "MemTotal", ':')?;
    Some(kib.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

/// The commit of the source that this program was built from, `-changed` behind it if files differ
/// from it now, and `-profiled` if `make profiled` has built it; `unknown` where that source or git is gone.
pub fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")))
            .args(words)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]).and_then(|text| words(&text))
    else {
        return UNKNOWN.into();
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = if changes.is_some_and(|of| of.is_empty()) { "" } else { "-changed" };
    let profiled = if option_env!("HOLDFAST_PROFILED").is_some() { PROFILED } else { "" };
    format!("{commit}{changed}{profiled}")
}

/// The present moment: UTC, RFC 3339, whole seconds.
pub(super) fn now() -> String {
    let seconds = Timestamp::now().secs;
    jiff::Timestamp::from_second(seconds).map_or(UNKNOWN.into(), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_lines() {
        let text = "processor\t: 0\nmodel name\t: A  Fast   One\nmodel name : other\n";
        assert_eq!(field(text, "model name", ':').as_deref(), Some("A Fast One"));
        assert_eq!(field(text, "flags", ':'), None);
        assert_eq!(memory("MemFree: 1 kB\nMemTotal:  16 kB\n"), Some(16384));
        assert_eq!(memory("MemTotal:  much\n"), None);
        let system = "NAME=\"x\"\nPRETTY_NAME=\"Debian 12\"\n";
        assert_eq!(field(system, "PRETTY_NAME", '=').as_deref(), Some("Debian 12"));
    }

    #[test]
    fn this_machine_has_a_core_and_a_kernel() {
        let here = Machine::here();
        assert!(here.cores >= 1 && here.kernel.starts_with("Linux "), "{here:?}");
        assert!(here.line().contains("core"));
        assert!(!commit().is_empty());
    }
}
