//! What a user asks of a mount: operations and how long they took, bytes, what an fsync costs, the cache, space, what a
//! crash would cost, errors. One screen, and the part of `--json` whose names stay.
//!
//! Pure: of two reports the difference counts, of one what happened since the mount. It has no word of the engine.

use std::collections::BTreeMap;

use holdfast_base::show;
use serde::Serialize;

use crate::cmd::ls::utc;
use crate::daemon::activity::{Fsyncs, Space};
use crate::daemon::control::Report;
use crate::{rings, size};

/// Changes with the meaning of a name, and when one goes.
pub(super) const SCHEMA: u32 = 1;

/// Columns of the table.
const NAME: usize = 12;
const CELL: usize = 12;

/// What happened in some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    operations: BTreeMap<String, Times>,
    bytes: Bytes,
    fsync: FsyncCost,
    cache: Cache,
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Times {
    count: u64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
}

/// Bytes that programs read and wrote, and what the device was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Bytes {
    read_by_programs: u64,
    written_by_programs: u64,
    read_from_device: u64,
    written_to_device: u64,
}

/// What an fsync costs on the average, of those that had something to write.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct FsyncCost {
    count: u64,
    with_nothing_to_write: u64,
    writes_each: Option<f64>,
    flushes_each: Option<f64>,
    bytes_each: Option<f64>,
}

/// Look-ups of names, attributes and places of data, answered from memory or by the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cache {
    hits: u64,
    misses: u64,
    hit_rate: Option<f64>,
}

/// How things are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct State {
    space: Space,
    recovery: Recovery,
    errors: Errors,
    transport: String,
}

/// What mounting would take after a crash now, and what it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Recovery {
    estimate_ns: u64,
    limit_ns: u64,
}

/// Errors since the mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Errors {
    count: u64,
    last: Option<String>,
    /// Seconds since 1970.
    last_time: Option<i64>,
    /// Operations refused because the volume was full. These are no errors of the volume.
    refused_full: u64,
}

impl Interval {
    /// What happened between `before` and `now`, or since the mount.
    pub(super) fn between(now: &Report, before: Option<&Report>) -> Interval {
        let added = |of: &dyn Fn(&Report) -> u64| of(now).saturating_sub(before.map_or(0, of));
        let operations = now.activity.operations.iter().map(|(name, _)| {
            let mut latency = now.activity.latency(name);
            if let Some(before) = before {
                latency = latency.since(&before.activity.latency(name));
            }
            let [p50_ns, p99_ns] = [0.5, 0.99].map(|part| latency.quantile_ns(part));
            (name.clone(), Times { count: latency.count(), p50_ns, p99_ns })
        });
        let of_device = |name: &'static str| {
            added(&move |report: &Report| report.device_value(name).unwrap_or(0))
        };
        let of_engine =
            |name: &'static str| added(&move |report: &Report| report.value(name).unwrap_or(0));
        let fsyncs =
            |of: fn(&Fsyncs) -> u64| added(&move |report: &Report| of(&report.activity.fsyncs));
        let (count, free) = (fsyncs(|it| it.count), fsyncs(|it| it.free));
        let each = |total| ratio(total, count.saturating_sub(free));
        let (hits, misses) = (of_engine("node_hits"), of_engine("nodes_read"));
        Interval {
            operations: operations.collect(),
            bytes: Bytes {
                read_by_programs: added(&|report| report.activity.read_bytes),
                written_by_programs: added(&|report| report.activity.written_bytes),
                read_from_device: of_device("read_bytes"),
                written_to_device: of_device("written_bytes"),
            },
            fsync: FsyncCost {
                count,
                with_nothing_to_write: free,
                writes_each: each(fsyncs(|it| it.writes)),
                flushes_each: each(fsyncs(|it| it.flushes)),
                bytes_each: each(fsyncs(|it| it.bytes)),
            },
            cache: Cache { hits, misses, hit_rate: ratio(hits, hits.saturating_add(misses)) },
        }
    }
}

impl State {
    /// How things are now.
    pub(super) fn of(report: &Report) -> State {
        let value = |name| report.value(name).unwrap_or(0);
        let errors = &report.activity.errors;
        State {
            space: report.activity.space,
            recovery: Recovery {
                estimate_ns: value("recovery_estimate_ns"),
                limit_ns: value("recovery_kept_ns").max(value("recovery_budget_ns")),
            },
            errors: Errors {
                count: errors.count,
                last: errors.last.clone(),
                last_time: errors.last.is_some().then_some(errors.last_secs),
                refused_full: value("no_space"),
            },
            transport: report.activity.transport.clone(),
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The screen, without its head. With `before` and the seconds since then counts are totals, and everything else is of
/// the time between.
pub(super) fn lines(now: &Report, before: Option<(&Report, f64)>) -> Vec<String> {
    let since_mount = Interval::between(now, None);
    let interval = before.map(|(before, _)| Interval::between(now, Some(before)));
    let shown = interval.as_ref().unwrap_or(&since_mount);
    let per_second = |amount: u64| amount as f64 / before.map_or(1.0, |(_, time)| time.max(1e-9));
    let is_watched = before.is_some();

    let mut lines = vec![row("operation", &["count", "per second", "p50", "p99"], is_watched)];
    for (name, _) in &now.activity.operations {
        let (Some(total), Some(part)) =
            (since_mount.operations.get(name), shown.operations.get(name))
        else {
            continue;
        };
        if total.count > 0 {
            let rate = format!("{:.1}", per_second(part.count));
            let [p50, p99] = [part.p50_ns, part.p99_ns].map(|time| or_dash(time.map(show::nanos)));
            lines.push(row(name, &[&total.count.to_string(), &rate, &p50, &p99], is_watched));
        }
    }
    if lines.len() == 1 {
        lines.push("none yet".into());
    }
    lines.push(String::new());
    let bytes = |title: &str, read: (u64, u64), written: (u64, u64)| {
        let one = |(total, part): (u64, u64), what: &str| match is_watched {
            true => {
                format!("{} {what}, {}/s", size::show(total), size::show(per_second(part) as u64))
            }
            false => format!("{} {what}", size::show(total)),
        };
        format!("{title:<NAME$}{}; {}", one(read, "read"), one(written, "written"))
    };
    let (all, part) = (&since_mount.bytes, &shown.bytes);
    lines.push(bytes(
        "programs",
        (all.read_by_programs, part.read_by_programs),
        (all.written_by_programs, part.written_by_programs),
    ));
    lines.push(bytes(
        "device",
        (all.read_from_device, part.read_from_device),
        (all.written_to_device, part.written_to_device),
    ));
    lines.push(named("each fsync", &fsync(&shown.fsync)));
    lines.push(named("cache", &cache(&shown.cache)));
    lines.extend(state(&State::of(now)));
    lines
}

fn fsync(cost: &FsyncCost) -> String {
    let with_something = cost.count.saturating_sub(cost.with_nothing_to_write);
    let (Some(writes), Some(flushes), Some(bytes)) =
        (cost.writes_each, cost.flushes_each, cost.bytes_each)
    else {
        return match cost.count {
            0 => "- (no fsync)".into(),
            count => format!("- (none of {count} had anything to write)"),
        };
    };
    format!(
        "{writes:.2} writes, {flushes:.2} flushes, {} on the average of {with_something}; {} more had nothing to write",
        size::show(bytes as u64),
        cost.with_nothing_to_write
    )
}

fn cache(cache: &Cache) -> String {
    let look_ups = cache.hits.saturating_add(cache.misses);
    match cache.hit_rate {
        // Rounded down: 100 % is all of them.
        Some(rate) => format!(
            "{:.1} % of {look_ups} look-ups answered from memory",
            (rate * 1000.0).floor() / 10.0
        ),
        None => "- (no look-ups)".into(),
    }
}

fn state(state: &State) -> Vec<String> {
    let space = &state.space;
    let [used, whole, available] =
        [space.used_bytes, space.size_bytes, space.available_bytes].map(size::show);
    let mut lines = vec![
        named(
            "space",
            &format!("{used} of {whole} used, {available} available, {} files", space.files),
        ),
        named(
            "recovery",
            &format!(
                "mounting after a crash now would take about {}; at most {}",
                show::nanos(state.recovery.estimate_ns),
                show::nanos(state.recovery.limit_ns)
            ),
        ),
    ];
    let errors = &state.errors;
    let full = match errors.refused_full {
        0 => String::new(),
        count => {
            format!("; {} refused because the volume was full", show::count(count, "operation"))
        }
    };
    lines.push(match (&errors.last, errors.last_time) {
        (Some(last), Some(secs)) => named(
            "errors",
            &format!("{}{full}; the last at {} UTC: {last}", errors.count, utc(secs)),
        ),
        _ => named("errors", &format!("none{full}")),
    });
    lines.push(named("transport", rings::words(&state.transport)));
    lines
}

/// A line of the table; the column of rates only with `is_watched`.
fn row(name: &str, cells: &[&str; 4], is_watched: bool) -> String {
    let cells = cells.iter().enumerate().filter(|(column, _)| is_watched || *column != 1);
    let cells: String = cells.map(|(_, cell)| format!("{cell:>CELL$}")).collect();
    format!("{name:<NAME$}{cells}")
}

fn named(name: &str, text: &str) -> String {
    format!("{name:<NAME$}{text}")
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
