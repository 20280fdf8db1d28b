//! `holdfast-dev crashtest`: cuts power in scripts and looks whether the promises are kept.
//!
//! Everything happens in memory. A failure is made small, printed, and saved as
//! a case; the exit code is then 1. The same seed and counts do the same again.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_script::Family;
use holdfast_sim::{Campaign, Case, Progress, Source, Stats, Violation};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::cmd::bench::output::{self, line, table};
use crate::outcome::{Failure, Outcome};

/// Cut the power in scripts, at every write and flush, and see whether the promises are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A state is what a disk may hold after a power cut: any part of what was written and not flushed,
torn at sectors. Each is recovered, checked, compared with the history of the script, opened twice
and now and then used on and emptied. Nothing is written outside memory but the cases of --cases.

Without --exhaustive, --sample, --families, --random, --beside, --full and --branches: length 1, then
families and random. Without --minutes, --states and --count, what has no end goes on for a minute.
Exit code 1: a promise was broken.

  holdfast-dev crashtest --exhaustive 1,2                      all short sequences
  holdfast-dev crashtest --families --random --minutes 480     a night; failures below crash-cases
  holdfast-dev crashtest --replay crash-cases/p1-0123abcd      one of them again")]
pub(crate) struct Args {
    /// Decides everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All sequences of so many operations: 1, 2 (minutes) or 3 (days).
    #[arg(long, value_name = "LENGTH", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=3))]
    exhaustive: Vec<u8>,
    /// Sequences of so many operations by chance.
    #[arg(long, value_name = "LENGTH", value_parser = clap::value_parser!(u8).range(1..=9))]
    sample: Vec<u8>,
    /// Scripts about what has made filesystems lose things: all families or those named.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',', num_args = 0.., require_equals = true)]
    families: Option<Vec<Family>>,
    /// Scripts about anything.
    #[arg(long)]
    random: bool,
    /// The same while another thread makes commits or checkpoints.
    #[arg(long)]
    beside: bool,
    /// Scripts of the families on a volume that has no room but what its files have reserved.
    #[arg(long)]
    full: bool,
    /// Scripts of snapshots, forks, rollbacks and removals, with work in several branches.
    #[arg(long)]
    branches: bool,
    /// All sequences of so many operations on branches and in them: 1, 2 or 3.
    #[arg(long, value_name = "LENGTH", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=3))]
    branch_sequences: Vec<u8>,
    /// Scripts of each kind that has no end.
    #[arg(long, value_name = "SCRIPTS")]
    count: Option<u64>,
    /// Ends after so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Ends when so many states have been judged.
    #[arg(long)]
    states: Option<u64>,
    /// Ends when so many failures have been found.
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Bytes of a sector, where writes tear: 512 or 4096.
    #[arg(long, default_value_t = 512, value_parser = sector)]
    sector: u32,
    /// Bytes of a physical sector, 512 or 4096: a torn write takes what else lies in it along.
    #[arg(long, default_value_t = 512, value_parser = sector)]
    physical_sector: u32,
    /// How often nodes of trees and what is in the rings are stored. Default: drawn for each script.
    #[arg(long, value_name = "WHAT=N", value_parser = copies)]
    copies: Option<u8>,
    /// Threads that work; as many as there are processors by default.
    #[arg(long)]
    workers: Option<usize>,
    /// Where failures are saved.
    #[arg(long, value_name = "DIR", default_value = "crash-cases")]
    cases: PathBuf,
    /// Run a saved case again, or all below a directory; nothing else.
    #[arg(long, value_name = "DIR")]
    replay: Option<PathBuf>,
    /// One JSON object per kind of scripts.
    #[arg(long)]
    json: bool,
}

fn sector(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ (512 | 4096)) => Ok(bytes),
        _ => Err(format!("{text} is no sector size; 512 and 4096 are")),
    }
}

/// `metadata=N`, as mkfs has it.
fn copies(word: &str) -> Result<u8, String> {
    match word {
        "metadata=1" => Ok(1),
        "metadata=2" => Ok(2),
        _ => Err("it is metadata=1 or metadata=2".into()),
    }
}

/// One line of the summary.
fn row(progress: &Progress) -> Value {
    let stats = progress.stats;
    json!({
        "scripts": progress.source,
        "workloads": progress.workloads,
        "cuts": stats.cuts,
        "states": states(&stats),
        "opened": stats.opened + stats.recoveries.1,
        "recoveries_cut": stats.recoveries.0,
        "states_in_recoveries": stats.recoveries.1,
        "bytes_in_place": stats.in_place,
        "violations": progress.violations,
    })
}

/// Those of cut recoveries too.
fn states(stats: &Stats) -> u64 {
    stats.images + stats.recoveries.1
}

/// All in one.
fn total(rows: &[Progress]) -> Progress {
    let mut total = Progress { source: "total".into(), ..Progress::default() };
    for row in rows {
        total.workloads += row.workloads;
        total.stats += row.stats;
        total.violations += row.violations;
    }
    total
}

pub(crate) fn run(args: &Args) -> Outcome {
    // A panic of the engine is a finding, with its words; nothing is to be said of it before.
    std::panic::set_hook(Box::new(|_| ()));
    let watch = Stopwatch::start();
    let (rows, violations) = match &args.replay {
        Some(folder) => replay(folder)?,
        None => {
            let campaign = campaign(args);
            let bar = progress_bar(&campaign);
            let mut show = |rows: &[Progress]| {
                let total = total(rows);
                bar.set_position(match campaign.states {
                    Some(_) => states(&total.stats),
                    None => watch.elapsed().as_secs(),
                });
                let per_second = states(&total.stats) as f64 / watch.elapsed().as_secs_f64();
                bar.set_message(format!(
                    "{} scripts, {} states, {} a second, {} violations",
                    HumanCount(total.workloads),
                    HumanCount(states(&total.stats)),
                    HumanCount(per_second as u64),
                    total.violations
                ));
            };
            let done = campaign.run(&mut show);
            bar.finish_and_clear();
            let (rows, violations) = done.map_err(|failure| Failure::plain(failure.to_string()))?;
            (rows, violations.iter().map(tell).collect())
        }
    };
    summary(args, &rows, watch.elapsed())?;
    for violation in &violations {
        if args.json {
            eprintln!("{violation}");
        } else {
            line(format_args!("\n{violation}"))?;
        }
    }
    Ok(u8::from(!violations.is_empty()))
}

fn campaign(args: &Args) -> Campaign {
    let mut sources: Vec<Source> =
        args.exhaustive.iter().map(|&length| Source::Exhaustive(length.into())).collect();
    sources.extend(args.sample.iter().map(|&length| Source::Sampled(length.into(), args.count)));
    let families = |named: &[Family]| match named {
        [] => Family::ALL.to_vec(),
        named => named.to_vec(),
    };
    if let Some(named) = &args.families {
        sources.push(Source::Families(families(named), args.count));
    }
    if args.random {
        sources.push(Source::Random(args.count));
    }
    if args.beside {
        sources.push(Source::Beside(args.count));
    }
    if args.full {
        sources.push(Source::Full(args.count));
    }
    let sequences = args.branch_sequences.iter().map(|&length| length.into());
    sources.extend(sequences.map(Source::BranchSequences));
    if args.branches {
        sources.push(Source::Branches(args.count));
        if args.full {
            sources.push(Source::FullBranches(args.count));
        }
    }
    if sources.is_empty() {
        sources.push(Source::Exhaustive(1));
        sources.push(Source::Families(families(&[]), args.count));
        sources.push(Source::Random(args.count));
    }
    let ends = |source: &Source| {
        matches!(source, Source::Exhaustive(_) | Source::BranchSequences(_)) || args.count.is_some()
    };
    let minute = match args.states {
        None if !sources.iter().all(ends) => Some(1.0),
        _ => None,
    };
    let minutes = args.minutes.or(minute);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Campaign {
        seed: args.seed,
        workers: args.workers.unwrap_or_else(cores),
        sector: args.sector,
        physical_sector: args.physical_sector.max(args.sector),
        copies: args.copies,
        sources,
        time: minutes
            .and_then(|minutes| Duration::try_from_secs_f64((minutes * 60.0).max(0.0)).ok()),
        states: args.states,
        failures: args.failures,
        cases: Some(args.cases.clone()),
    }
}

/// Shows itself on a terminal only.
fn progress_bar(campaign: &Campaign) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let length = match (campaign.states, campaign.time) {
        (Some(states), _) => Some(states),
        (None, Some(time)) => Some(time.as_secs()),
        (None, None) => None,
    };
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let template = match length {
        Some(_) => "[{elapsed}] {wide_bar} {msg}",
        None => "[{elapsed}] {spinner} {msg}",
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A violation in words.
fn tell(violation: &Violation) -> String {
    let Violation { first, case, small, saved } = violation;
    let saved = match saved {
        Some(Ok(folder)) => format!("again: holdfast-dev crashtest --replay {}", folder.display()),
        Some(Err(error)) => format!("not saved: {error}"),
        None => String::new(),
    };
    format!(
        "{} broken, found by {}\n{small}\nas found: {}\n{saved}",
        small.promise(),
        case.facts.found_by,
        first.script
    )
}

/// Runs the case in `folder`, or all in it.
fn replay(folder: &Path) -> Result<(Vec<Progress>, Vec<String>), Failure> {
    let io_error = |error: io::Error| Failure::plain(format!("{}: {error}", folder.display()));
    let mut folders = vec![folder.to_path_buf()];
    if !folder.join("case.toml").exists() {
        let entries = std::fs::read_dir(folder).map_err(io_error)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        folders = paths.collect::<io::Result<Vec<_>>>().map_err(io_error)?;
        folders.retain(|path| path.is_dir());
        folders.sort();
    }
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    for folder in folders {
        let case = Case::read(&folder).map_err(Failure::plain)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let done = case.run();
        rows.push(Progress {
            source: name.clone(),
            workloads: 1,
            stats: done.as_ref().copied().unwrap_or_default(),
            violations: u64::from(done.is_err()),
        });
        if let Err(failure) = done {
            wrong.push(format!("{name}: {} broken\n{failure}", failure.promise()));
        }
    }
    Ok((rows, wrong))
}

fn summary(args: &Args, rows: &[Progress], time: Duration) -> Result<(), Failure> {
    let seconds = time.as_secs_f64();
    let mut all: Vec<Value> = rows.iter().map(row).collect();
    let total = total(rows);
    let (mut sum, states) = (row(&total), states(&total.stats));
    let per_second = states as f64 / seconds;
    (sum["seconds"], sum["states_per_second"]) = (json!(seconds), json!(per_second));
    let end = format!(
        "{} states in {seconds:.1} s, {:.0} a second; seed {}, sectors of {} in physical ones of {}{}",
        HumanCount(states),
        per_second,
        args.seed,
        args.sector,
        args.physical_sector.max(args.sector),
        args.copies.map_or(String::new(), |copies| format!(", metadata={copies}"))
    );
    all.push(sum);
    if args.json {
        return output::json(&all);
    }
    let header =
        ["scripts", "workloads", "cuts", "states", "opened", "recoveries_cut", "violations"];
    let mut table = table(&header, 1);
    for row in &all {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
        table.add_row(header.map(|key| text(&row[key])));
    }
    line(table)?;
    line(end)
}
