//! What a recovery took, or would take, as sentences: `mount` tells the first, `info` the second.

use std::time::Duration;

use crate::daemon::control::Report;
use crate::{size, span};

/// What opening the volume recovered: the actual time and the promised one. `None` if there was nothing to recover.
/// `value` gives the volume's statistics by name.
pub(crate) fn done(value: impl Fn(&str) -> Option<u64>) -> Option<String> {
    let value = |name| value(name).unwrap_or(0);
    let took = Duration::from_nanos(value("recovery_ns"));
    if took.is_zero() {
        return None;
    }
    let budget = Duration::from_nanos(value("recovery_budget_ns"));
    Some(format!(
        "recovered {} ({}, {} of journal) in {}; at most {} is promised",
        count(value("recovered_commits"), "commit"),
        count(value("recovered_nodes"), "node"),
        size::show(value("recovered_bytes")),
        span::show(took),
        span::seconds(budget)
    ))
}

/// What a recovery of a mounted volume would take now.
pub(crate) fn now(report: &Report) -> Option<String> {
    let estimate = Duration::from_nanos(report.value("recovery_estimate_ns")?);
    let budget = Duration::from_nanos(report.value("recovery_budget_ns")?);
    let held = size::show(report.value("journal_bytes_used")?);
    let about = about(estimate);
    Some(format!("{about} now (budget {}), {held} in the journal", span::seconds(budget)))
}

/// An estimate of a recovery.
pub(crate) fn about(estimate: Duration) -> String {
    match estimate.is_zero() {
        true => "none needed".into(),
        false => format!("about {}", span::show(estimate)),
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::control::Counter;

    fn value(name: &str) -> Option<u64> {
        Some(match name {
            "recovery_ns" => 40_000_000,
            "recovered_commits" => 12,
            "recovered_nodes" => 1,
            "recovered_bytes" => 3 << 20,
            "recovery_budget_ns" => 1_000_000_000,
            "recovery_estimate_ns" => 200_000_000,
            "journal_bytes_used" => 5 << 20,
            _ => return None,
        })
    }

    #[test]
    fn promise_and_actual_stand_side_by_side() {
        assert_eq!(
            done(value).unwrap(),
            "recovered 12 commits (1 node, 3.0 MiB of journal) in 40.0 ms; at most 1 s is promised"
        );
        assert_eq!(done(|_| None), None);
        assert_eq!(done(|_| Some(0)), None);
    }

    #[test]
    fn a_mounted_volume_tells_its_estimate() {
        let names = ["recovery_estimate_ns", "recovery_budget_ns", "journal_bytes_used"];
        let counter = |name: &str| Counter {
            name: name.into(),
            value: value(name).unwrap(),
            group: "recovery".into(),
            gauge: true,
            meaning: String::new(),
        };
        let counters = names.map(counter).to_vec();
        let report = Report { pid: 1, volume: "/img".into(), counters };
        assert_eq!(
            now(&report).unwrap(),
            "about 200.0 ms now (budget 1 s), 5.0 MiB in the journal"
        );
        assert_eq!(now(&Report { counters: Vec::new(), ..report }), None);
        assert_eq!(about(Duration::ZERO), "none needed");
    }
}
