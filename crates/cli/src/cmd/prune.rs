//! `holdfast prune`: old snapshots go by a rule.

use std::collections::BTreeSet;
use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use holdfast_base::Timestamp;
use holdfast_control::Snapshot;
use holdfast_service::branches::by_time::{self, Purpose};
use holdfast_service::branches::temporary;
use serde_json::{Value, json};

use crate::branches::{Ask, Name, TreeLocation, arguments, show};
use crate::outcome::{Failure, Outcome, complain, printed};
use crate::txn::sweep;

/// Delete old snapshots of a branch, and keep some of each age.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only snapshots are judged that were taken without a name, and so are called by the time, such as
2026-11-24T141003.123Z. --keep 24h:1h,30d:1d keeps one of them per hour of the last 24 hours and one
per day of the last 30 days; the others go. Hours and days are those of UTC, and the newest snapshot
of each stays. Spans are written 90min, 24h, 30d, 8w, 1y and the like.

Snapshots that people have named stay. --prefix PREFIX judges those whose names begin so, and no
others; --all-names judges all. A name that is typed in exactly the form above is judged too.

The copy that a rollback, a promotion or a receive has made of a branch (before-rollback-,
before-promote-, before-receive- and the time) stays for --keep-undo. The snapshot that a refused
transaction began with (txn- and the time) goes when its branch is gone. Snapshots of transactions
on their way stay. Snapshots `sent-` and the time, which receivers keep, are judged with
--prefix sent- only. Forks that a killed `holdfast txn` or `holdfast run` has left are deleted.

What stays in any case: the newest snapshot of those that --keep judges, and those that are held
(holdfast snapshot hold), mounted or branches have grown out of; each is named.

PLACE is a mounted directory, or a volume, mounted or not. `systemctl enable --now
holdfast-snapshot@data.timer` takes a snapshot of the mount of holdfast@data each hour, and prunes.

  holdfast prune mnt --keep 24h:1h,30d:1d --dry-run
  holdfast prune volume.img:work --keep 1w:1d --prefix auto-")]
pub(crate) struct Args {
    /// For how long one snapshot stays in each step of time: SPAN:STEP, by commas.
    #[arg(long, required = true, value_delimiter = ',', value_name = "SPAN:STEP,...")]
    keep: Vec<Rule>,
    /// How long the copies of a branch stay that a rollback, a promotion or a receive has made.
    #[arg(long, value_name = "SPAN", default_value = "30d", value_parser = span)]
    keep_undo: Duration,
    /// Judge those snapshots, and no others, whose names begin with this.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Judge snapshots that people have named as well.
    #[arg(long)]
    all_names: bool,
    /// Say what would go, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume, and `:BRANCH` if another one is meant.
    #[arg(value_parser = arguments::branch_place())]
    place: TreeLocation,
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
        let rule = Rule { span: self::span(span)?, step: self::span(step)? };
        match rule.step < Duration::from_secs(1) || rule.span < rule.step {
            true => Err("a step has at least a second, and no more than its span".into()),
            false => Ok(rule),
        }
    }
}

fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{text:?}: {error}"))
}

/// By what a snapshot is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The rules of `--keep`.
    Rules,
    /// It makes a rollback, a promotion or a receive undone: by its age.
    Undo,
    /// A refused transaction began with it: by whether that is still there.
    Transaction,
}

/// By what a snapshot is judged, if it is: what the program has named itself, or what it was asked for.
fn judged_by(name: &Name, prefix: &str, all_names: bool) -> Option<By> {
    // That of a transaction on its way goes when that ends: if it counted, others would go in its place.
    if name.0.is_empty() || temporary::read(name).is_some() {
        return None;
    }
    let purpose = by_time::read(name);
    // One that is being sent is gone in a moment, and what receivers keep is to be asked for.
    if purpose == Some(Purpose::Sent) && !prefix.starts_with(Purpose::Sent.prefix()) {
        return None;
    }
    if !prefix.is_empty() {
        return name.0.starts_with(prefix.as_bytes()).then_some(By::Rules);
    }
    match purpose {
        Some(Purpose::Snapshot) => Some(By::Rules),
        Some(Purpose::BeforeRollback | Purpose::BeforePromote | Purpose::BeforeReceive) => {
            Some(By::Undo)
        }
        Some(Purpose::Transaction) => Some(By::Transaction),
        Some(Purpose::Sent | Purpose::Import) | None => all_names.then_some(By::Rules),
    }
}

/// What becomes of a snapshot, and why it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Goes,
    ByRule,
    Undo,
    Newest,
    Held,
    Mounted,
    HasForks,
}

impl Fate {
    /// In a word, and why it stays although no rule says so.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Fate::Goes => ("goes", "no rule keeps it"),
            Fate::ByRule => ("rule", "a rule keeps it"),
            Fate::Undo => ("undo", "it is young enough to undo what was done"),
            Fate::Newest => ("newest", "it is the newest"),
            Fate::Held => ("held", "it is held"),
            Fate::Mounted => ("mounted", "it is mounted"),
            Fate::HasForks => ("forks", "branches have grown out of it"),
        }
    }
}

/// What becomes of each of `snapshots`.
fn judge(snapshots: &[(Snapshot, By)], rules: &[Rule], undo: Duration, now_ns: i64) -> Vec<Fate> {
    let is_ruled = |at: &usize| snapshots[*at].1 == By::Rules;
    let mut newest_first: Vec<usize> = (0..snapshots.len()).filter(is_ruled).collect();
    newest_first.sort_by_key(|at| {
        let of = &snapshots[*at].0;
        std::cmp::Reverse((of.created_ns, of.number))
    });
    let is_within = |of: &Snapshot, span: Duration| {
        i128::from(now_ns) - i128::from(of.created_ns) <= span.as_nanos().cast_signed()
    };
    let mut kept = BTreeSet::new();
    for rule in rules {
        let mut steps = BTreeSet::new();
        for at in &newest_first {
            let of = &snapshots[*at].0;
            let step = i128::from(of.created_ns).div_euclid(rule.step.as_nanos().cast_signed());
            if is_within(of, rule.span) && steps.insert(step) {
                kept.insert(*at);
            }
        }
    }
    let fate = |(at, (of, by)): (usize, &(Snapshot, By))| match () {
        () if kept.contains(&at) => Fate::ByRule,
        () if *by == By::Undo && is_within(of, undo) => Fate::Undo,
        () if newest_first.first() == Some(&at) => Fate::Newest,
        () if !of.holds.is_empty() => Fate::Held,
        () if of.mounted => Fate::Mounted,
        () if !of.forks.is_empty() || of.more_forks => Fate::HasForks,
        () => Fate::Goes,
    };
    snapshots.iter().enumerate().map(fate).collect()
}

pub(crate) fn run(args: &Args) -> Outcome {
    let left = sweep::all(&args.place, !args.dry_run)?;
    let (branch, snapshots, _) = args.place.located()?.snapshots()?;
    let judged =
        |of: Snapshot| judged_by(&of.name, &args.prefix, args.all_names).map(|by| (of, by));
    let snapshots: Vec<_> = snapshots.into_iter().filter_map(judged).collect();
    let now = Timestamp::now();
    let now_ns = now.secs.saturating_mul(1_000_000_000).saturating_add(now.nanos.into());
    let fates = judge(&snapshots, &args.keep, args.keep_undo, now_ns);
    for name in left.iter().filter(|_| !args.json) {
        let word = if args.dry_run { "goes" } else { "deleted" };
        let line = format!("{word:<8} {name}, left by a command that was killed");
        printed(writeln!(std::io::stdout().lock(), "{line}"))?;
    }
    let mut failed = 0;
    let mut told: Vec<Value> = Vec::new();
    for ((of, _), fate) in snapshots.iter().zip(fates) {
        let mut word = fate.words().0;
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

/// Deletes the snapshot that was judged: another one may have its name by now.
fn delete(args: &Args, of: &Snapshot) -> Result<(), Failure> {
    let (branch, name) = (args.place.which(), (&of.name).into());
    let ask = Ask::DeleteSnapshot { branch, name, number: Some(of.number) };
    args.place.done(&ask).map(drop)
}

/// One line for what goes, and for what stays although no rule says so.
fn show_line(branch: &Name, of: &Snapshot, fate: Fate, word: &str) -> Result<(), Failure> {
    let (name, taken) = (&of.name, show::time(of.created_ns));
    let mut out = std::io::stdout().lock();
    match fate {
        Fate::ByRule | Fate::Undo => Ok(()),
        Fate::Goes if word == "failed" => Ok(()),
        Fate::Goes => printed(writeln!(out, "{word:<8} {branch}@{name}, taken {taken}")),
        other => {
            let why = other.words().1;
            printed(writeln!(out, "stays    {branch}@{name}, taken {taken}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use holdfast_control::HeldBy;

    const HOUR: i64 = 3_600_000_000_000;

    const MONTH: Duration = Duration::from_secs(30 * 86_400);

    fn snapshot(number: u64, created_ns: i64) -> (Snapshot, By) {
        let of = Snapshot {
            name: Name(format!("s{number}").into_bytes()),
            number,
            created_ns,
            lsn: number,
            parent: None,
            holds: Vec::new(),
            received: Vec::new(),
            inodes: 1,
            forks: Vec::new(),
            more_forks: false,
            mounted: false,
        };
        (of, By::Rules)
    }

    fn rules(text: &str) -> Vec<Rule> {
        text.split(',').map(|rule| rule.parse().expect("it is a rule")).collect()
    }

    /// The moments, in half hours before `now`, that stay.
    fn kept(snapshots: &[(Snapshot, By)], keep: &str, now: i64) -> Vec<i64> {
        let fates = judge(snapshots, &rules(keep), MONTH, now);
        let stays = snapshots.iter().zip(fates).filter(|(_, fate)| *fate != Fate::Goes);
        stays.map(|((of, _), _)| (now - of.created_ns) / (HOUR / 2)).collect()
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
            .filter(|(of, _)| {
                kept(&all, "4d:1d", now).contains(&((now - of.created_ns) / (HOUR / 2)))
            })
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
        all[0].0.holds = vec![HeldBy { tag: Name("backup".into()), created_ns: 0 }];
        all[1].0.mounted = true;
        all[2].0.forks = vec![Name("work".into())];
        let fates = judge(&all, &rules("1h:1h"), MONTH, now);
        assert_eq!(fates, [Fate::Held, Fate::Mounted, Fate::HasForks, Fate::Goes, Fate::Newest]);
    }

    #[test]
    fn what_undoes_goes_by_its_age_and_what_a_transaction_began_with_behind_its_fork() {
        let now = 1000 * 24 * HOUR;
        let of = |by, age: i64| (snapshot(1, now - age * HOUR).0, by);
        let mut all = vec![
            of(By::Undo, 24 * 31),
            of(By::Undo, 24 * 29),
            of(By::Transaction, 0),
            of(By::Transaction, 0),
            // Beside these it is the newest, and all that the rules are about.
            of(By::Rules, 24 * 31),
        ];
        all[3].0.forks = vec![Name("txn-2026-11-24T141003.123Z".into())];
        let fates = judge(&all, &rules("1h:1h"), MONTH, now);
        assert_eq!(fates, [Fate::Goes, Fate::Undo, Fate::Goes, Fate::HasForks, Fate::Newest]);
    }

    #[test]
    fn what_people_have_named_is_judged_where_it_is_asked_for() {
        let by = |name: &str, prefix: &str| {
            [false, true].map(|all| judged_by(&Name(name.into()), prefix, all))
        };
        let (rules, undo) = (Some(By::Rules), Some(By::Undo));
        for (name, prefix, is) in [
            ("2026-11-24T141003.123Z", "", [rules, rules]),
            ("before-upgrade", "", [None, rules]),
            ("before-upgrade", "before-", [rules, rules]),
            ("2026-11-24T141003.123Z", "before-", [None, None]),
            ("before-rollback-2026-11-24T141003.123Z", "", [undo, undo]),
            ("before-receive-1795866869.590089899", "", [undo, undo]),
            ("before-rollback-2026-11-24T141003.123Z", "before-", [rules, rules]),
            ("txn-2026-11-24T141003.123Z", "", [Some(By::Transaction); 2]),
            ("sent-2026-11-24T141003.123Z", "", [None, None]),
            ("sent-2026-11-24T141003.123Z", "s", [None, None]),
            ("sent-2026-11-24T141003.123Z", "sent-", [rules, rules]),
            (".txn-0123456789abcde", "", [None, None]),
            (".txn-0123456789abcde", ".txn-", [None, None]),
            (".txn-notes", "", [None, rules]),
            ("", "", [None, None]),
        ] {
            assert_eq!(by(name, prefix), is, "{name:?} {prefix:?}");
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
