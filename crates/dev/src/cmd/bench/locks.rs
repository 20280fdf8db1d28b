//! `holdfast-dev bench locks`: which locks an operation takes, and what more processors would gain.

use std::sync::Arc;

use holdfast_bench::locks::{self, Scale};
use holdfast_device::MemoryDevice;

use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Failure, Outcome};

/// Which locks an operation takes, how long it holds and waits for them, and what more processors would gain.
#[derive(Debug, clap::Args)]
#[command(after_help = "Only a program whose locks count can say it: `make locks` builds one.")]
pub(crate) struct Args {
    #[command(flatten)]
    scale: Scale,
    #[command(flatten)]
    results: Results,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !locks::COUNTED {
        return Err(Failure::plain(
            "the locks of this program do not count: `make locks` builds one whose locks do",
        ));
    }
    let mut report = args.results.begin()?;
    let mut memory = |bytes| Ok(Arc::new(MemoryDevice::new(bytes)) as _);
    let mut seen = |what: String| progress(what);
    report.sections = locks::run(&args.scale, &mut memory, &mut seen).context("the benchmark")?;
    args.results.end(&report, &[])
}
