//! `holdfast-dev bench mechanisms`: the five mechanisms before and after, beside what was published of them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use holdfast_bench::delay::{DelayDevice, Delays};
use holdfast_bench::mechanisms::{self, Gain, Mechanism, Mounts};
use holdfast_bench::result::Report;
use holdfast_bench::systems;
use holdfast_device::{Device, MemoryDevice};

use crate::cmd::bench::output::{line, progress};
use crate::cmd::bench::place::Place;
use crate::cmd::bench::results::{Results, command, section};
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
    pub(crate) scale: Scale,
    /// Only these: M1 to M5.
    #[arg(long, value_name = "M1,...", value_delimiter = ',')]
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
    /// The library's volumes are in memory that is as slow as a disk: 10 us for each 4 KiB of a
    /// write, 1 ms for a flush, 32 writes at once.
    #[arg(long, conflicts_with = "file")]
    delays: bool,
}

/// A disk without a cache that survives a power cut.
const DISK: Delays =
    Delays { block: Duration::from_micros(10), flush: Duration::from_millis(1), channels: 32 };

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scale {
    /// Seconds: orders of magnitude.
    Quick,
    /// Minutes: sizes as published, short runs.
    Usual,
    /// Most of an hour: longer runs, more rounds.
    Full,
    /// Half an hour and more: runs as long as the published ones, where that is known.
    Published,
}

impl Scale {
    pub(crate) fn of(self) -> mechanisms::Scale {
        match self {
            Scale::Quick => mechanisms::Scale::Quick,
            Scale::Usual => mechanisms::Scale::Usual,
            Scale::Full => mechanisms::Scale::Full,
            Scale::Published => mechanisms::Scale::Published,
        }
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    args.results.check()?;
    let only = if args.only.is_empty() { Mechanism::ALL } else { &args.only };
    let mut report = Report::begin(command());
    line(report.machine.line())?;
    line("")?;
    let mut gains: Vec<Gain> = Vec::new();
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mounts = match args.mount {
        true => {
            systems::watch().context("signals")?;
            let program = std::env::current_exe().context("this program")?;
            Some(Mounts::new(&program, &dir, args.scale.of()).context(dir.display())?)
        }
        false => None,
    };
    // One file for all volumes of a size, written once.
    let mut place: Option<(u64, Place)> = None;
    let mut devices = |bytes: u64| -> io::Result<Arc<dyn Device>> {
        if args.delays {
            let memory = Arc::new(MemoryDevice::new(bytes));
            return Ok(Arc::new(DelayDevice::new(memory, DISK)));
        }
        if place.as_ref().is_none_or(|(size, _)| *size != bytes) {
            place = None;
            let new = Place::new(args.file.as_ref(), bytes);
            let new = new.map_err(|failure| io::Error::other(failure.sentence))?;
            place = Some((bytes, new.written()));
        }
        let (_, place) = place.as_ref().expect("it was just made");
        place.device()
    };
    for &mechanism in only {
        let mut seen = |what: String| progress(what);
        let mut all = vec![
            mechanisms::library(mechanism, args.scale.of(), &mut devices, &mut seen)
                .context(mechanism.word())?,
        ];
        if let Some(mounts) = &mounts {
            let of = mechanisms::mount(mechanism, args.scale.of(), mounts, &mut seen);
            all.push(of.context(format_args!("{} through the mount", mechanism.word()))?);
        }
        for of in all {
            of.sections.iter().try_for_each(section)?;
            report.sections.extend(of.sections);
            gains.extend(of.gains);
        }
    }
    report.sections.insert(0, mechanisms::gains_section(&gains));
    gains.iter().try_for_each(|gain| line(gain.line()))?;
    args.results.store(&report)?;
    Ok(0)
}
