//! What a user asks of a mount: operations and how long they took, bytes, what an fsync costs, the cache, space, what a
//! crash would cost, errors. One screen, and the part of `--json` whose names stay.
//!
//! Pure: of two reports the difference counts, of one what happened since the mount. It has no word of the engine.
//! What a daemon of another version does not tell is null, and a dash or no line; never 0.

use std::collections::BTreeMap;

use holdfast_base::show;
use holdfast_daemon::report::{Activity, Fsyncs, Space};
use holdfast_daemon::report::{MountedTree, Report};
use holdfast_daemon::uring;
use holdfast_service::moment::utc;
use holdfast_service::size;
use serde::Serialize;

/// Changes with the meaning of a name, and when one goes.
pub(super) const SCHEMA: u32 = 1;

/// Of a daemon that was started before its program was replaced.
const OLDER: &str =
    "the daemon of this mount is older than this program; of it there is only --all";

/// Columns of the table.
const NAME: usize = 12;
const CELL: usize = 12;

/// What happened in some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Interval {
    operations: Option<BTreeMap<String, Times>>,
    bytes: Bytes,
    fsync: Option<FsyncCost>,
    cache: Option<Cache>,
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
    read_by_programs: Option<u64>,
    written_by_programs: Option<u64>,
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
pub(super) struct StatusSummary {
    space: Option<Space>,
    recovery: Option<Recovery>,
    errors: Errors,
    transport: Option<String>,
    mounted: Option<MountedTree>,
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
    count: Option<u64>,
    last: Option<String>,
    /// Seconds since 1970.
    last_time: Option<i64>,
    /// Operations refused because the volume was full. These are no errors of the volume.
    refused_full: Option<u64>,
}

impl Interval {
    /// What happened between `before` and `now`, or since the mount.
    pub(super) fn between(now: &Report, before: Option<&Report>) -> Interval {
        let added = |of: &dyn Fn(&Report) -> Option<u64>| {
            let now = of(now)?;
            Some(now.saturating_sub(before.and_then(of).unwrap_or(0)))
        };
        let of_programs = |of: fn(&Activity) -> u64| {
            added(&move |report: &Report| report.activity.as_ref().map(of))
        };
        let of_device =
            |name| added(&move |report: &Report| report.device_value(name)).unwrap_or(0);
        let of_engine = |name| added(&move |report: &Report| report.value(name));
        let before = before.and_then(|before| before.activity.as_ref());
        Interval {
            operations: now.activity.as_ref().map(|now| operations(now, before)),
            bytes: Bytes {
                read_by_programs: of_programs(|it| it.read_bytes),
                written_by_programs: of_programs(|it| it.written_bytes),
                read_from_device: of_device("read_bytes"),
                written_to_device: of_device("written_bytes"),
            },
            fsync: now.activity.as_ref().map(|now| {
                FsyncCost::between(
                    &now.fsyncs,
                    &before.map_or_else(Fsyncs::default, |it| it.fsyncs),
                )
            }),
            cache: of_engine("node_hits").zip(of_engine("node_misses")).map(|(hits, misses)| {
                Cache { hits, misses, hit_rate: ratio(hits, hits.saturating_add(misses)) }
            }),
        }
    }
}

fn operations(now: &Activity, before: Option<&Activity>) -> BTreeMap<String, Times> {
    let times = |name: &String| {
        let mut latency = now.latency(name);
        if let Some(before) = before {
            latency = latency.since(&before.latency(name));
        }
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|part| latency.quantile_ns(part));
        (name.clone(), Times { count: latency.count(), p50_ns, p99_ns })
    };
    now.operations.iter().map(|(name, _)| times(name)).collect()
}

impl FsyncCost {
    fn between(now: &Fsyncs, before: &Fsyncs) -> FsyncCost {
        let added = |of: fn(&Fsyncs) -> u64| of(now).saturating_sub(of(before));
        let (count, free) = (added(|it| it.count), added(|it| it.free));
        let each = |total| ratio(total, count.saturating_sub(free));
        FsyncCost {
            count,
            with_nothing_to_write: free,
            writes_each: each(added(|it| it.writes)),
            flushes_each: each(added(|it| it.flushes)),
            bytes_each: each(added(|it| it.bytes)),
        }
    }
}

impl StatusSummary {
    /// How things are now.
    pub(super) fn of(report: &Report) -> StatusSummary {
        let activity = report.activity.as_ref();
        let errors = activity.map(|activity| &activity.errors);
        let last = errors.and_then(|errors| errors.last.clone());
        let limits = ["recovery_kept_ns", "recovery_budget_ns"];
        let limit_ns = limits.into_iter().filter_map(|name| report.value(name)).max();
        let recovery = report.value("recovery_estimate_ns").zip(limit_ns);
        StatusSummary {
            space: activity.map(|activity| activity.space),
            recovery: recovery.map(|(estimate_ns, limit_ns)| Recovery { estimate_ns, limit_ns }),
            errors: Errors {
                count: errors.map(|errors| errors.count),
                last_time: last.as_ref().and(errors).map(|errors| errors.last_secs),
                last,
                refused_full: report.value("no_space"),
            },
            transport: activity.map(|activity| activity.transport.clone()),
            mounted: report.mounted.clone(),
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The screen, without its head. With `before` and the seconds since then counts are totals, and everything else is of
/// the time between. If there is room for so many `rows` only, the rarest operations are left out first.
pub(super) fn lines(
    now: &Report,
    before: Option<(&Report, f64)>,
    rows: Option<usize>,
) -> Vec<String> {
    let since_mount = Interval::between(now, None);
    let interval = before.map(|(before, _)| Interval::between(now, Some(before)));
    let shown = interval.as_ref().unwrap_or(&since_mount);
    let (Some(activity), Some(totals), Some(parts)) =
        (&now.activity, &since_mount.operations, &shown.operations)
    else {
        return vec![OLDER.into()];
    };
    let seconds = before.map(|(_, seconds)| seconds);
    let state = StatusSummary::of(now);
    let mut lines = vec![
        named("errors", &errors(&state.errors)),
        row("operation", &["count", "per second", "p50", "p99"], seconds.is_some()),
    ];
    let below = below(&since_mount.bytes, shown, &state, seconds);
    let mut table = table(activity, totals, parts, seconds);
    let room = rows.map(|rows| rows.saturating_sub(lines.len() + below.len()));
    let left_out = room.map_or(0, |room| leave_out(&mut table, room));
    lines.extend(table.into_iter().map(|(_, line)| line));
    if left_out > 0 {
        let rarer = show::count(left_out as u64, "rarer kind");
        lines.push(format!("the window is too low for {rarer} of operations"));
    } else if lines.len() == 2 {
        lines.push("none yet".into());
    }
    lines.extend(below);
    let missing = rows.map_or(0, |rows| lines.len().saturating_sub(rows));
    if missing > 0 {
        // The line that says so takes the place of one more.
        lines.truncate(lines.len().saturating_sub(missing + 1));
        let more = show::count(missing as u64 + 1, "more line");
        lines.push(format!("the window is too low for {more}"));
    }
    lines
}

/// A line for each kind of operation that there was, with how often.
fn table(
    activity: &Activity,
    totals: &BTreeMap<String, Times>,
    parts: &BTreeMap<String, Times>,
    seconds: Option<f64>,
) -> Vec<(u64, String)> {
    let lines = activity.operations.iter().filter_map(|(name, _)| {
        let (total, part) = (totals.get(name)?, parts.get(name)?);
        let rate = format!("{:.1}", per_second(part.count, seconds));
        let [p50, p99] = [part.p50_ns, part.p99_ns].map(|time| or_dash(time.map(show::nanos)));
        let count = total.count.to_string();
        let cells = [&count, &rate, &p50, &p99].map(String::as_str);
        Some((total.count, row(name, &cells, seconds.is_some())))
    });
    lines.filter(|(count, _)| *count > 0).collect()
}

/// Makes lines with counts fit, together with one that says how many are left out: those with the smallest counts.
fn leave_out(table: &mut Vec<(u64, String)>, room: usize) -> usize {
    if table.len() <= room {
        return 0;
    }
    let left_out = table.len() - room.saturating_sub(1);
    for _ in 0..left_out {
        let rarest = (0..table.len()).rev().min_by_key(|at| table[*at].0);
        rarest.map(|at| table.remove(at));
    }
    left_out
}

/// What stands below the table.
fn below(
    total: &Bytes,
    shown: &Interval,
    state: &StatusSummary,
    seconds: Option<f64>,
) -> Vec<String> {
    let bytes = |title: &str, read: (u64, u64), written: (u64, u64)| {
        let one = |(total, part): (u64, u64), what: &str| {
            let rate = size::show(per_second(part, seconds) as u64);
            let rate = seconds.map_or(String::new(), |_| format!(", {rate}/s"));
            format!("{} {what}{rate}", size::show(total))
        };
        named(title, &format!("{}; {}", one(read, "read"), one(written, "written")))
    };
    let part = &shown.bytes;
    let by_programs = |bytes: &Bytes| {
        [bytes.read_by_programs, bytes.written_by_programs].map(Option::unwrap_or_default)
    };
    let ([read, written], [part_read, part_written]) = (by_programs(total), by_programs(part));
    let mut lines = vec![
        String::new(),
        bytes("programs", (read, part_read), (written, part_written)),
        bytes(
            "device",
            (total.read_from_device, part.read_from_device),
            (total.written_to_device, part.written_to_device),
        ),
        named("each fsync", &or_dash(shown.fsync.as_ref().map(fsync))),
        named("cache", &or_dash(shown.cache.as_ref().map(cache))),
    ];
    let stopped = state.mounted.as_ref().and_then(|mounted| mounted.stopped.as_ref());
    lines.extend(stopped.map(|stopped| named("stopped", &stopped.words())));
    lines.extend(state.mounted.as_ref().map(|mounted| {
        named("mounted", &format!("{}; the volume has {}", mounted.name(), mounted.counts()))
    }));
    lines.extend(state.space.as_ref().map(|space| named("space", &space_words(space))));
    lines.extend(state.recovery.as_ref().map(|recovery| {
        let [estimate, limit] = [recovery.estimate_ns, recovery.limit_ns].map(show::nanos);
        let words = format!("mounting after a crash now would take about {estimate}");
        named("recovery", &format!("{words}; at most {limit}"))
    }));
    lines.extend(state.transport.as_ref().map(|word| named("transport", uring::words(word))));
    lines
}

fn per_second(amount: u64, seconds: Option<f64>) -> f64 {
    amount as f64 / seconds.map_or(1.0, |seconds| seconds.max(1e-9))
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

fn space_words(space: &Space) -> String {
    let [used, whole, available] =
        [space.used_bytes, space.size_bytes, space.available_bytes].map(size::show);
    format!("{used} of {whole} used, {available} available, {} files", space.files)
}

fn errors(errors: &Errors) -> String {
    let full = match errors.refused_full.unwrap_or(0) {
        0 => String::new(),
        count => {
            format!("; {} refused because the volume was full", show::count(count, "operation"))
        }
    };
    match (&errors.last, errors.last_time, errors.count) {
        (Some(last), Some(secs), Some(count)) => {
            let at = utc(secs, "%Y-%m-%d %H:%M");
            format!("{count}{full}; the last at {at} UTC: {last}")
        }
        _ => format!("none{full}"),
    }
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

#[cfg(test)]
pub(super) mod tests;
