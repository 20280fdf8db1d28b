//! `holdfast bench ops`: bytes, writes and flushes of small operations, beside the kernel's filesystems.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use holdfast_bench::ops::{self, Column, Plan};
use holdfast_bench::result::Report;
use holdfast_bench::systems::{self, Bed, Ours, System};

use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::{self, Results};
use crate::outcome::{Context, Failure, Outcome};
use crate::size;

/// Bytes, writes and flushes of small operations, beside the kernel's filesystems; needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One loop device with direct I/O over a file that is written before; everything is undone at the
end, also after a failure and at SIGINT and SIGTERM. Without root, and for the column `own device`,
Holdfast's library is counted in memory.")]
pub(crate) struct Args {
    /// What is measured, in this order.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = system(),
        default_value = "holdfast,ext4,ext4-fc,xfs,btrfs,btrfs-dup"
    )]
    systems: Vec<System>,
    /// A small tree and few operations, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Operations of a row [default: 1000, with --quick 20].
    #[arg(long)]
    operations: Option<u64>,
    /// Bytes of a sector of the devices: 512 or 4096.
    #[arg(long, default_value_t = 512)]
    sector: u32,
    /// Bytes of the loop device [default: 2G, with --quick 512M].
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Options of Holdfast's mounts, as of `holdfast mount -o`.
    #[arg(short = 'o', long, value_name = "OPTIONS", default_value = "")]
    options: String,
    /// Where its file and the mount point are made meanwhile.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    #[command(flatten)]
    results: Results,
}

/// The words for systems.
pub(crate) fn system() -> impl TypedValueParser<Value = System> {
    let words = System::ALL.iter().map(|system| system.word());
    PossibleValuesParser::new(words).try_map(|word| word.parse::<System>())
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.results.check()?;
    systems::watch().context("signals")?;
    let mut report = Report::begin(results::command());
    let mut plan = if args.quick { Plan::QUICK } else { Plan::USUAL };
    plan.operations = args.operations.unwrap_or(plan.operations).max(1);
    plan.sector = args.sector;
    let on_device = match systems::can_mount() {
        Ok(()) => Some(columns(args, &plan)?),
        Err(why) => {
            eprintln!("holdfast: {why}; only the library is counted");
            None
        }
    };
    let (about, mut columns, own) =
        on_device.unwrap_or_else(|| ("memory".into(), Vec::new(), Vec::new()));
    progress("the library in memory");
    columns.insert(columns.len().min(1), ops::in_memory(&plan, &own).context("the library")?);
    report.sections = ops::sections(&plan, &about, &columns);
    // The numbers of each kind are for programs; people read the first, and what came later.
    for section in [report.section("ops"), report.section("ops-later")].into_iter().flatten() {
        results::section(section)?;
    }
    args.results.store(&report)?;
    Ok(0)
}

type OnDevice = (String, Vec<Column>, Vec<Option<ops::Cost>>);

/// Every system on one device, one after the other.
fn columns(args: &Args, plan: &Plan) -> Result<OnDevice, Failure> {
    say_what_is_missing(&args.systems);
    let program = std::env::current_exe().context("this program")?;
    let ours = Ours { program, options: args.options.clone() };
    let bytes = args.size.unwrap_or(if args.quick { 512 << 20 } else { 2 << 30 });
    let bed = Bed::new(&args.dir, bytes, args.sector).context("a loop device")?;
    let (mut columns, mut own) = (Vec::new(), Vec::new());
    for &system in args.systems.iter().filter(|system| **system != System::Raw) {
        if let Some(package) = system.missing_package() {
            columns.push(Column::missing(system, &format!("package {package} is missing")));
            continue;
        }
        let seen = |row: &str, cost: &ops::Cost| {
            let (kib, flushes) = (cost.bytes / 1024.0, cost.flushes);
            progress(format_args!("{}, {row}: {kib:.1} KiB, {flushes:.2} flushes", system.title()));
        };
        match ops::on_bed(plan, system, &bed, &ours, seen) {
            Ok((column, counted)) => {
                columns.push(column);
                own = if system == System::Holdfast { counted } else { own };
            }
            // What this kernel cannot mount is left out; what is ours must work.
            Err(error) if system.is_peer() => {
                columns.push(Column::missing(system, &error.to_string()));
            }
            Err(error) => return Err(error).context(system.title()),
        }
    }
    Ok((bed.about(), columns, own))
}

/// One command that installs what is left out otherwise.
pub(crate) fn say_what_is_missing(systems: &[System]) {
    if let Some(command) = systems::install_command(systems) {
        eprintln!("holdfast: some systems are left out; to have them, run: {command}");
    }
}
