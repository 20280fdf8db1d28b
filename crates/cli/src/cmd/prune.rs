//! `holdfast prune`: old snapshots go by a rule.

use std::collections::BTreeSet;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_control::Snapshot;
use serde_json::{Value, json};

use crate::branches::{Ask, Name, Place, arguments, show, temporary};
use crate::lineage;
use crate::outcome::{Failure, Outcome, complain, printed};
use crate::txn::sweep;
use crate::work::send::TEMPORARY;

/// Delete old snapshots of a branch, and keep some of each age.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--keep 24h:1h,30d:1d means: of the last 24 hours one snapshot for each hour, of the last 30 days one
for each day; all others go. Hours and days are those of UTC, and the newest snapshot of each stays.
Spans are written 90min, 24h, 30d, 8w, 1y and the like.

What stays in any case: the newest snapshot, those that are held (holdfast snapshot hold), mounted
or branches have grown out of; each is named. --prefix leaves all alone that are called otherwise.
Snapshots of transactions on their way stay and do not count. Snapshots `sent-` and the time, which
`holdfast send` takes of a branch for as long as it sends and receivers keep, count and go only with
--prefix sent-. Forks that a killed `holdfast txn` or `holdfast run` has left are deleted as well.

PLACE is a mounted directory, or a volume, mounted or not. `systemctl enable --now
holdfast-prune@data.timer` does it each hour for the mount of holdfast@data.

  holdfast prune mnt --keep 24h:1h,30d:1d --dry-run
  holdfast prune volume.img:work --keep 1w:1d --prefix auto-")]
pub(crate) struct Args {
    /// For how long one snapshot stays in each step of time: SPAN:STEP, by commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SPAN:STEP,...")]
    keep: Vec<Rule>,
    /// Look at snapshots only whose names begin with this.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Say what would go, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: Place,
}

/// For so long one of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    span: Duration,
    step: Duration,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (span, step) = text.split_once(':').ok_or("write SPAN:STEP, as in 24h:1h")?;
        let time = |text: &str| {
            humantime::parse_duration(text).map_err(|error| format!("{text:?}: {error}"))
        };
        let rule = Rule { span: time(span)?, step: time(step)? };
        match rule.step < Duration::from_secs(1) || rule.span < rule.step {
            true => Err("a step has at least a second, and no more than its span".into()),
            false => Ok(rule),
        }
    }
}

/// What becomes of a snapshot, and why it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Goes,
    ByRule,
    Newest,
    Held,
    Mounted,
    HasForks,
}

impl Fate {
    /// Why it stays although no rule says so.
    fn reason(self) -> &'static str {
        match self {
            Fate::Goes => "no rule keeps it",
            Fate::ByRule => "a rule keeps it",
            Fate::Newest => "it is the newest",
            Fate::Held => "it is held",
            Fate::Mounted => "it is mounted",
            Fate::HasForks => "branches have grown out of it",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Fate::Goes => "goes",
            Fate::ByRule => "rule",
            Fate::Newest => "newest",
            Fate::Held => "held",
            Fate::Mounted => "mounted",
            Fate::HasForks => "forks",
        }
    }
}

/// What becomes of each of `snapshots`.
fn judge(snapshots: &[Snapshot], rules: &[Rule], now_ns: i64) -> Vec<Fate> {
    let mut newest_first: Vec<usize> = (0..snapshots.len()).collect();
    newest_first.sort_by_key(|at| {
        let of = &snapshots[*at];
        std::cmp::Reverse((of.created_ns, of.number))
    });
    let mut kept = BTreeSet::new();
    for rule in rules {
        let mut steps = BTreeSet::new();
        for at in &newest_first {
            let created = i128::from(snapshots[*at].created_ns);
            let age = i128::from(now_ns) - created;
            let step = created.div_euclid(rule.step.as_nanos().cast_signed());
            if age <= rule.span.as_nanos().cast_signed() && steps.insert(step) {
                kept.insert(*at);
            }
        }
    }
    let fate = |(at, of): (usize, &Snapshot)| match () {
        () if kept.contains(&at) => Fate::ByRule,
        () if newest_first.first() == Some(&at) => Fate::Newest,
        () if of.holds > 0 => Fate::Held,
        () if of.mounted => Fate::Mounted,
        () if !of.forks.is_empty() || of.more_forks => Fate::HasForks,
        () => Fate::Goes,
    };
    snapshots.iter().enumerate().map(fate).collect()
}

pub(crate) fn run(args: &Args) -> Outcome {
    let left = sweep::all(&args.place, !args.dry_run)?;
    let (branch, mut snapshots, _) = lineage::snapshots(&args.place)?;
    snapshots.retain(|of| is_meant(of, &args.prefix));
    let now = Timestamp::now();
    let now_ns = now.secs.saturating_mul(1_000_000_000).saturating_add(now.nanos.into());
    let fates = judge(&snapshots, &args.keep, now_ns);
    for name in left.iter().filter(|_| !args.json) {
        let word = if args.dry_run { "goes" } else { "deleted" };
        let line = format!("{word:<8} {name}, left by a command that was killed");
        printed(writeln!(std::io::stdout().lock(), "{line}"))?;
    }
    let mut failed = 0;
    let mut told: Vec<Value> = Vec::new();
    for (of, fate) in snapshots.iter().zip(fates) {
        let mut word = fate.word();
        if fate == Fate::Goes && !args.dry_run {
            word = "deleted";
            // Held or mounted meanwhile, perhaps: the others go all the same.
            if let Err(failure) = delete(args, of) {
                complain(&format!("{branch}@{}: {}", of.name, failure.sentence));
                failed += 1;
                word = "failed";
            }
        }
        match args.json {
            true => {
                let mut object = show::snapshot(of);
                object.insert("fate".into(), word.into());
                told.push(object.into());
            }
            false => show_line(&branch, of, fate, word)?,
        }
    }
    if args.json {
        let mut object = show::named(&branch);
        object.insert("dry_run".into(), args.dry_run.into());
        object.insert("left_by_commands".into(), left.iter().map(Name::text).collect());
        object.insert("snapshots".into(), json!(told));
        show::json(object)?;
    }
    Ok(u8::from(failed > 0))
}

/// Whether a snapshot is judged. That of a transaction on its way goes when that ends, and one that is being sent is gone in a moment:
/// if they counted, others would go in their place.
fn is_meant(of: &Snapshot, prefix: &str) -> bool {
    let name = &of.name;
    let is_asked_for = prefix.starts_with(TEMPORARY) || !name.0.starts_with(TEMPORARY.as_bytes());
    let is_of_prefix = !name.0.is_empty() && name.0.starts_with(prefix.as_bytes());
    is_of_prefix && is_asked_for && temporary::read(name).is_none()
}

/// Deletes the snapshot that was judged: another one may have its name by now.
fn delete(args: &Args, of: &Snapshot) -> Result<(), Failure> {
    let (branch, name) = (args.place.which(), (&of.name).into());
    let ask = Ask::DeleteSnapshot { branch, name, number: Some(of.number) };
    lineage::done(&args.place, &ask).map(drop)
}

/// One line for what goes, and for what stays although no rule says so.
fn show_line(branch: &Name, of: &Snapshot, fate: Fate, word: &str) -> Result<(), Failure> {
    let (name, taken) = (&of.name, show::time(of.created_ns));
    let mut out = std::io::stdout().lock();
    match fate {
        Fate::ByRule => Ok(()),
        Fate::Goes if word == "failed" => Ok(()),
        Fate::Goes => printed(writeln!(out, "{word:<8} {branch}@{name}, taken {taken}")),
        other => {
            let why = other.reason();
            printed(writeln!(out, "stays    {branch}@{name}, taken {taken}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn snapshot(number: u64, created_ns: i64) -> Snapshot {
        Snapshot {
            name: Name(format!("s{number}").into_bytes()),
            number,
            created_ns,
            lsn: number,
            parent: None,
            holds: 0,
            inodes: 1,
            forks: Vec::new(),
            more_forks: false,
            mounted: false,
        }
    }

    fn rules(text: &str) -> Vec<Rule> {
        text.split(',').map(|rule| rule.parse().expect("it is a rule")).collect()
    }

    /// The moments, in half hours before `now`, that stay.
    fn kept(snapshots: &[Snapshot], keep: &str, now: i64) -> Vec<i64> {
        let fates = judge(snapshots, &rules(keep), now);
        let stays = snapshots.iter().zip(fates).filter(|(_, fate)| *fate != Fate::Goes);
        stays.map(|(of, _)| (now - of.created_ns) / (HOUR / 2)).collect()
    }

    #[test]
    fn one_stays_of_each_step_and_it_is_the_newest() {
        // Noon of a day; a snapshot each half hour of the four days before.
        let now = 20_000 * 24 * HOUR + 12 * HOUR;
        let all: Vec<_> =
            (0..192).map(|at| snapshot(at, now - (191 - at as i64) * HOUR / 2)).collect();
        // The one of this moment, and the second of each hour before.
        assert_eq!(kept(&all, "3h:1h", now), [5, 3, 1, 0]);
        // Of each day the last: today's is the one of this moment.
        assert_eq!(kept(&all, "4d:1d", now), [169, 121, 73, 25, 0]);
        assert_eq!(kept(&all, "3h:1h,2d:1d", now), [73, 25, 5, 3, 1, 0]);
        // Each rule looks at all, and what it has kept once it keeps until the span is over.
        let later = now + HOUR / 2;
        let left: Vec<_> = all
            .iter()
            .filter(|of| kept(&all, "4d:1d", now).contains(&((now - of.created_ns) / (HOUR / 2))))
            .cloned()
            .collect();
        assert_eq!(kept(&left, "4d:1d", later).len(), left.len());
        // The newest stays though it is old.
        assert_eq!(kept(&all[..3], "1h:1h", now), [189]);
        // One that a clock has taken in the future is young.
        assert_eq!(kept(&[snapshot(1, now + HOUR)], "1h:1h", now), [-2]);
        assert!(kept(&[], "1h:1h", now).is_empty());
    }

    #[test]
    fn what_is_used_stays_and_is_named() {
        let now = 1000 * 24 * HOUR;
        let mut all: Vec<_> = (0..5).map(|at| snapshot(at, at as i64 * HOUR)).collect();
        all[0].holds = 1;
        all[1].mounted = true;
        all[2].forks = vec![Name("work".into())];
        let fates = judge(&all, &rules("1h:1h"), now);
        assert_eq!(fates, [Fate::Held, Fate::Mounted, Fate::HasForks, Fate::Goes, Fate::Newest]);
    }

    #[test]
    fn a_transaction_on_its_way_keeps_nothing_for_its_day() {
        let named = |name: &str, hours: i64| Snapshot {
            name: Name(name.into()),
            ..snapshot(hours.cast_unsigned(), hours * HOUR)
        };
        let all = [named("auto-1", 1), named(".txn-0123456789abcde", 9), named(".txn-notes", 0)];
        let names = |prefix: &str| -> Vec<String> {
            all.iter().filter(|of| is_meant(of, prefix)).map(|of| of.name.to_string()).collect()
        };
        assert_eq!(names(""), ["auto-1", ".txn-notes"]);
        assert_eq!(names("auto-"), ["auto-1"]);
    }

    #[test]
    fn what_is_being_sent_counts_only_where_it_is_asked_for() {
        for (name, prefix, is) in [
            ("sent-2026-11-24T141003.123Z", "", false),
            ("sent-2026-11-24T141003.123Z", "s", false),
            ("sent-2026-11-24T141003.123Z", "sent-", true),
            ("sent", "", true),
            ("auto-1", "", true),
            ("auto-1", "sent-", false),
            ("", "", false),
        ] {
            let of = Snapshot { name: Name(name.into()), ..snapshot(1, HOUR) };
            assert_eq!(is_meant(&of, prefix), is, "{name:?} {prefix:?}");
        }
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused() {
        for wrong in ["24h", "24h:", ":1h", "1h:24h", "1h:0s", "x:1h", "24h:1h:1m", "1h:1ms"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
        let day = Duration::from_secs(86_400);
        assert_eq!("1w:1d".parse(), Ok(Rule { span: 7 * day, step: day }));
    }
}
