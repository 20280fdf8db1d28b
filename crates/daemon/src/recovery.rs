//! What a recovery took, or would take, as sentences: `mount` prints the first, `info` the second.

use std::time::Duration;

use holdfast_base::show::count;
use holdfast_base::show::time;
use holdfast_check::Summary;
use holdfast_service::size;

/// What opening the volume recovered: the actual time and the promised one. `None` if there was nothing to recover.
/// `value` gives the volume's statistics by name.
pub fn done(value: impl Fn(&str) -> Option<u64>) -> Option<String> {
    let value = |name| value(name).unwrap_or(0);
    let took = Duration::from_nanos(value("recovery_ns"));
    if took.is_zero() {
        return None;
    }
    let promised = promised(value("recovery_budget_ns"), value("recovery_kept_ns"));
    let mut parts = Vec::new();
    if value("recovered_commits") > 0 {
        parts.push(format!(
            "{} ({}, {} of journal)",
            count(value("recovered_commits"), "commit"),
            count(value("recovered_nodes"), "node"),
            size::show(value("recovered_bytes"))
        ));
    }
    if value("recovered_batches") > 0 {
        let bytes = size::show(value("recovered_log_bytes"));
        let batches = count(value("recovered_batches"), "batch");
        parts.push(format!("{batches} of fsyncs ({bytes} of log)"));
    }
    Some(format!("recovered {} in {}; {promised}", parts.join(" and "), time(took)))
}

/// The promise, and what stands in its way on a device that is too slow for it.
fn promised(budget: u64, kept: u64) -> String {
    let wanted = seconds(Duration::from_nanos(budget));
    match kept > budget {
        false => format!("at most {wanted} is promised"),
        true => {
            let kept = time(Duration::from_nanos(kept));
            format!("this device is too slow for {wanted}, it may take {kept}")
        }
    }
}

/// What a recovery of a mounted volume would take now, as its daemon says.
/// `value` gives the volume's statistics by name.
pub fn now(value: impl Fn(&str) -> Option<u64>) -> Option<String> {
    let estimate = Duration::from_nanos(value("recovery_estimate_ns")?);
    let budget = Duration::from_nanos(value("recovery_budget_ns")?);
    let held = |name: &str| Some(size::show(value(name)?));
    let (journal, log) = (held("journal_bytes_used")?, held("log_bytes_used")?);
    let mut limits = format!("budget {}", seconds(budget));
    let kept = value("recovery_kept_ns").map(Duration::from_nanos);
    if let Some(kept) = kept.filter(|kept| *kept > budget) {
        limits += &format!(", too little for this device: {} is kept", time(kept));
    }
    if let Some(place) = value("device_place_ns").filter(|place| *place > 0) {
        limits += &format!(", {} for a random place", time(Duration::from_nanos(place)));
    }
    Some(match estimate.is_zero() {
        true => format!("nothing to do ({limits})"),
        false => {
            let estimate = time(estimate);
            format!("about {estimate} ({limits}), {journal} of journal, {log} of log")
        }
    })
}

/// What the next mount meets of a volume at rest.
pub fn of_unopened(summary: &Summary) -> String {
    match summary.recovery_missing.first() {
        Some(what) => {
            format!("refused, but for reading: {what}; `holdfast fsck` says what is lost")
        }
        None => needed(summary),
    }
}

/// What there is to recover of a volume.
pub fn needed(summary: &Summary) -> String {
    let mut parts = Vec::new();
    if summary.journal_commits > 0 {
        parts.push(format!(
            "{}, {}, {} of journal",
            count(summary.journal_commits, "commit"),
            count(summary.journal_nodes, "node"),
            size::show(summary.journal_bytes_used)
        ));
    }
    if summary.log_batches > 0 {
        let bytes = size::show(summary.log_bytes_used);
        parts.push(format!("{}, {bytes} of log", count(summary.log_batches, "batch")));
    }
    match parts.is_empty() {
        true => "none needed".into(),
        false => format!("about {}: {}", time(summary.recovery_estimate), parts.join("; ")),
    }
}

/// Seconds as a limit is written: `1 s`, `0.5 s`.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_no_needless_digits() {
        assert_eq!(seconds(Duration::from_secs(1)), "1 s");
        assert_eq!(seconds(Duration::from_millis(250)), "0.25 s");
    }

    fn value(name: &str) -> Option<u64> {
        Some(match name {
            "recovery_ns" => 40_000_000,
            "recovered_commits" => 12,
            "recovered_nodes" => 1,
            "recovered_bytes" => 3 << 20,
            "recovery_budget_ns" => 1_000_000_000,
            "recovery_estimate_ns" => 200_000_000,
            "journal_bytes_used" => 5 << 20,
            "log_bytes_used" => 1536,
            _ => return None,
        })
    }

    #[test]
    fn promise_and_actual_stand_side_by_side() {
        assert_eq!(
            done(value).unwrap(),
            "recovered 12 commits (1 node, 3.0 MiB of journal) in 40.0 ms; at most 1 s is promised"
        );
        let also = |name: &str| match name {
            "recovered_batches" => Some(2),
            "recovered_log_bytes" => Some(4096),
            name => value(name),
        };
        assert!(
            done(also)
                .unwrap()
                .contains(" of journal) and 2 batches of fsyncs (4.0 KiB of log) in ")
        );
        let slow = |name: &str| match name {
            "recovery_kept_ns" => Some(3_000_000_000),
            name => value(name),
        };
        let said = done(slow).unwrap();
        assert!(said.ends_with("; this device is too slow for 1 s, it may take 3.0 s"), "{said}");
        assert_eq!(done(|_| None), None);
        assert_eq!(done(|_| Some(0)), None);
    }

    #[test]
    fn a_mounted_volume_tells_its_estimate() {
        let said = "about 200.0 ms (budget 1 s), 5.0 MiB of journal, 1.5 KiB of log";
        assert_eq!(now(value).unwrap(), said);
        let measured = |name: &str| match name {
            "recovery_kept_ns" => Some(3_000_000_000),
            "device_place_ns" => Some(10_000_000),
            name => value(name),
        };
        let said = "about 200.0 ms (budget 1 s, too little for this device: 3.0 s is kept, 10.0 ms for a random place), \
                    5.0 MiB of journal, 1.5 KiB of log";
        assert_eq!(now(measured).unwrap(), said);
        assert_eq!(now(|_| None), None);
    }

    #[test]
    fn a_volume_at_rest_tells_what_its_journal_holds() {
        let mut summary = Summary {
            epoch: 1,
            lsn: 1,
            uuid: String::new(),
            label: String::new(),
            created_ns: 0,
            written_by: String::new(),
            fault: None,
            volume_bytes: 0,
            node_size: 16384,
            metadata_copies: 1,
            leaf_copies: 1,
            ring_copies: 1,
            log_ring_bytes: 0,
            journal_ring_bytes: 1 << 20,
            usable_blocks: 0,
            used_blocks: 0,
            inodes: 1,
            inode_next: 2,
            features: [0, 0],
            journal_commits: 12,
            journal_nodes: 1,
            journal_bytes_used: 8192,
            log_batches: 0,
            log_bytes_used: 0,
            recovery_estimate: Duration::from_millis(35),
            recovery_missing: Vec::new(),
        };
        assert_eq!(needed(&summary), "about 35.0 ms: 12 commits, 1 node, 8.0 KiB of journal");
        summary.log_batches = 3;
        summary.log_bytes_used = 1536;
        assert_eq!(
            needed(&summary),
            "about 35.0 ms: 12 commits, 1 node, 8.0 KiB of journal; 3 batches, 1.5 KiB of log"
        );
        summary.journal_commits = 0;
        assert_eq!(needed(&summary), "about 35.0 ms: 3 batches, 1.5 KiB of log");
        summary.log_batches = 0;
        assert_eq!(of_unopened(&summary), "none needed");
        summary.recovery_missing.push("batch 2 is gone".into());
        let said = of_unopened(&summary);
        assert!(said.starts_with("refused, but for reading: batch 2 is gone; "), "{said}");
    }
}
