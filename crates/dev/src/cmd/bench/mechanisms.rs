//! `holdfast-dev bench mechanisms`: the five mechanisms before and after, beside what was published of them.

use std::path::PathBuf;

use clap::ValueEnum;
use holdfast_bench::DeviceSource;
use holdfast_bench::mechanisms::{self, Bench, Gain, Mechanism, Scale, Volumes};
use holdfast_bench::systems::{Bed, Ours};

use crate::cmd::bench::output::{line, progress};
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Outcome};

/// The five mechanisms, each switched off and on, beside what was published of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
M1 writes only group records that changed, M2 logs the names of a rename, M3 logs ranges of a node, M4 finds
inodes by an index, M5 waits for its own data only. Rounds with and without are interleaved; a figure is the
median, with how far a round was from it. Ends with one line for each gain.")]
pub(crate) struct Args {
    /// How much to do: seconds, minutes, most of an hour, or what was published at its own length.
    #[arg(long, value_enum, default_value_t = Scale::Usual)]
    scale: Scale,
    /// Only these.
    #[arg(long, value_name = "M1,...", value_delimiter = ',', ignore_case = true)]
    only: Vec<Mechanism>,
    /// Through the mount as well: for users that may mount. It is gone afterwards, also after a signal.
    #[arg(long)]
    mount: bool,
    /// Where the volumes that are mounted stand meanwhile.
    #[arg(long, value_name = "DIR", requires = "mount")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    results: Results,
    /// A file that does not exist yet, for the library's volumes; it is removed afterwards. Without
    /// it they are in memory, where a flush costs nothing.
    #[arg(long)]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = args.results.begin()?;
    let only = if args.only.is_empty() { Mechanism::value_variants() } else { &args.only };
    let mut gains: Vec<Gain> = Vec::new();
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let bed = args.mount.then(|| Bed::file(&dir, args.scale.mounted_bytes()));
    let bed = bed.transpose().context(dir.display())?;
    let program = std::env::current_exe().context("this program")?;
    let mut place = DeviceSource::new(args.file.clone()).context("--file")?;
    let mut devices = |bytes| place.device(bytes);
    for &mechanism in only {
        let mut grounds = vec![Volumes::Library(&mut devices)];
        if let Some(bed) = &bed {
            grounds.push(Volumes::Mount(bed, Ours { program: program.clone(), ..Ours::default() }));
        }
        for ground in grounds {
            let mut bench = Bench { scale: args.scale, ground, seen: |what| progress(what) };
            let measured = mechanisms::run(mechanism, &mut bench);
            let measured = measured.context(format_args!("{mechanism:?}"))?;
            report.sections.extend(measured.sections);
            gains.extend(measured.gains);
        }
    }
    args.results.show(&report, &[])?;
    report.sections.insert(0, mechanisms::gains_section(&gains));
    gains.iter().try_for_each(|gain| line(gain.line()))?;
    args.results.store(&report)?;
    Ok(0)
}
