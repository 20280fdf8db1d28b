//! `holdfast-dev bench ops`: bytes, writes and flushes of small operations, beside the kernel's filesystems.

use holdfast_bench::ops::{self, Column, Plan};
use holdfast_bench::systems::{self, System};

use crate::cmd::bench::bed::{BedOptions, say_what_is_missing};
use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
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
        default_value = "holdfast,ext4,ext4-fc,xfs,btrfs,btrfs-dup"
    )]
    systems: Vec<System>,
    /// A small tree and few operations, to see that it works.
    #[arg(long)]
    quick: bool,
    /// Operations of a row [default: 1000, with --quick 20].
    #[arg(long)]
    operations: Option<u64>,
    /// Snapshots that Holdfast's volumes have before.
    #[arg(long, default_value_t = 0)]
    snapshots: u64,
    /// Bytes of the loop device [default: 2G, with --quick 512M].
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    #[command(flatten)]
    bed: BedOptions,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = args.results.begin()?;
    let mut plan = if args.quick { Plan::QUICK } else { Plan::USUAL };
    plan.operations = args.operations.unwrap_or(plan.operations).max(1);
    plan.sector = args.bed.sector;
    plan.snapshots = args.snapshots;
    let on_device = match systems::can_mount() {
        Ok(()) => Some(columns(args, &plan)?),
        Err(why) => {
            eprintln!("holdfast-dev: {why}; only the library is counted");
            None
        }
    };
    let (about, mut columns, own) =
        on_device.unwrap_or_else(|| ("memory".into(), Vec::new(), Vec::new()));
    progress("the library in memory");
    columns.insert(columns.len().min(1), ops::in_memory(&plan, &own).context("the library")?);
    report.sections = ops::sections(&plan, &about, &columns);
    // The numbers of each kind are for programs; people read the first, and what came later.
    args.results.end(&report, &["ops-bytes", "ops-writes", "ops-flushes"])
}

type OnDevice = (String, Vec<Column>, Vec<Option<ops::Cost>>);

/// Every system on one device, one after the other.
fn columns(args: &Args, plan: &Plan) -> Result<OnDevice, Failure> {
    say_what_is_missing(&args.systems);
    let bytes = args.size.unwrap_or(if args.quick { 512 << 20 } else { 2 << 30 });
    let (bed, ours) = args.bed.make(bytes)?;
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
            Err(error) if !system.is_ours() => {
                columns.push(Column::missing(system, &error.to_string()));
            }
            Err(error) => return Err(error).context(system.title()),
        }
    }
    Ok((bed.about(), columns, own))
}
