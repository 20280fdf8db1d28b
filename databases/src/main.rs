//! Small durable commits: Holdfast beside databases, in directories of one ext4 on one loop device.
//!
//! Each client is a thread that puts one value after the other under a key of its own, each a commit that no power cut
//! may lose. What the commits cost is counted at the loop device, by the kernel, in the same way for all. Everything is
//! undone at the end, also after a failure and at SIGINT and SIGTERM.

mod run;
mod stores;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use holdfast_bench::result::Report;
use holdfast_bench::systems::{self, Bed, Mounted, Ours, System};

use run::{Run, Work};
use stores::Kind;

/// Named as the benchmarks of `holdfast-dev`, beside whose reports those of this program are kept.
#[derive(Parser)]
enum Program {
    #[command(subcommand)]
    Bench(Benchmark),
}

#[derive(Subcommand)]
enum Benchmark {
    Commits(Args),
}

/// Small durable commits of Holdfast and of databases on one ext4; needs root.
#[derive(clap::Args)]
struct Args {
    /// Bytes of a commit.
    #[arg(long, value_delimiter = ',', default_value = "100,4096")]
    sizes: Vec<usize>,
    /// Clients at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,2,16")]
    clients: Vec<u64>,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds that are counted of each run.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Keys that each client overwrites in turn, from its second time round on; without it each commit has a new key.
    #[arg(long)]
    keys: Option<u64>,
    /// Some of the stores.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// The program that mounts Holdfast.
    #[arg(long, default_value = "holdfast")]
    program: PathBuf,
    /// Where the file below the loop device stands meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Store the results in this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep them in a directory of this one, named after the date, the kernel and the commit.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Bytes of the loop device.
const DEVICE: u64 = 4 << 30;

fn main() -> Result<()> {
    let Program::Bench(Benchmark::Commits(args)) = Program::parse();
    if let Err(why) = systems::can_mount() {
        bail!(why);
    }
    systems::watch()?;
    let mut report = Report::begin(command(&args));
    println!("{}\n", report.machine.line());
    let bed = Bed::new(&args.dir, DEVICE, 512)?;
    let host = Mounted::new(System::Ext4, &bed, &Ours::default())?;
    for &size in &args.sizes {
        let rows = measure(&args, &host, size)?;
        let section = table::section(&args, &bed, size, &rows);
        println!("{}", section.to_markdown());
        report.sections.push(section);
    }
    host.leave()?;
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    if let Some(dir) = &args.keep {
        println!("kept as {}", report.keep(dir)?.display());
    }
    Ok(())
}

/// All that one store did, in the order of the numbers of clients: the runs of each.
struct Row {
    kind: Kind,
    runs: Vec<Vec<Run>>,
}

/// Every store with every number of clients, once in each round, the other way round in every second one.
fn measure(args: &Args, host: &Mounted<'_>, size: usize) -> Result<Vec<Row>> {
    let all = Kind::value_variants();
    let kinds = if args.only.is_empty() { all } else { &args.only };
    let runs = || args.clients.iter().map(|_| Vec::new()).collect();
    let mut rows: Vec<Row> = kinds.iter().map(|kind| Row { kind: *kind, runs: runs() }).collect();
    for round in 1..=args.rounds {
        for (at, &clients) in args.clients.iter().enumerate() {
            eprintln!("round {round}, {size} bytes, {clients} clients");
            for row in &mut rows {
                let time = Duration::from_secs_f64(args.seconds);
                let work = Work { clients, size, keys: args.keys, time };
                row.runs[at].push(work.run(row.kind, host, &args.program)?);
            }
            rows.reverse();
        }
    }
    rows.sort_by_key(|row| kinds.iter().position(|kind| *kind == row.kind));
    Ok(rows)
}

/// The command as it is kept: without paths.
fn command(args: &Args) -> Vec<String> {
    let list = |numbers: &mut dyn Iterator<Item = String>| numbers.collect::<Vec<_>>().join(",");
    let sizes = list(&mut args.sizes.iter().map(usize::to_string));
    let clients = list(&mut args.clients.iter().map(u64::to_string));
    let (rounds, seconds) = (args.rounds, args.seconds);
    let mut words = format!(
        "holdfast-databases bench commits --sizes {sizes} --clients {clients} --rounds {rounds} --seconds {seconds}"
    );
    if let Some(keys) = args.keys {
        words += &format!(" --keys {keys}");
    }
    if !args.only.is_empty() {
        words += " --only ";
        words += &list(&mut args.only.iter().map(|kind| kind.word()));
    }
    words.split(' ').map(String::from).collect()
}
