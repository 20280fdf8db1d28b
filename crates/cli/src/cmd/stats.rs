//! `holdfast stats`: what the daemon of a mount has counted since it was mounted.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::daemon::control;
use crate::mounts;
use crate::outcome::{Context, Failure, Outcome, printed};

/// Show the statistics of a mounted volume.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON object.
    #[arg(long)]
    json: bool,
    /// The mounted directory, or the volume.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mount = mounts::find(&args.dir).context("/proc/self/mountinfo")?.ok_or_else(|| {
        Failure::plain(format!("{} is not a mounted Holdfast volume", args.dir.display()))
    })?;
    let report = control::ask(&mount)
        .context(format_args!("the daemon of {} does not answer", mount.dir.display()))?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        let counters: serde_json::Map<_, _> = report
            .counters
            .iter()
            .map(|(name, value, _)| (name.clone(), (*value).into()))
            .collect();
        let device: serde_json::Map<_, _> =
            report.device.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        let object = serde_json::json!({
            "pid": report.pid,
            "volume": report.volume.to_string_lossy(),
            "device": device,
            "counters": counters,
        });
        printed(writeln!(out, "{object}"))?;
    } else {
        printed(text(&report, &mut out))?;
    }
    printed(out.flush())?;
    Ok(0)
}

fn text(report: &control::Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{} served by process {}", report.volume.display(), report.pid)?;
    for (name, value) in &report.device {
        writeln!(out, "{value:>16}  device {name}")?;
    }
    for (name, value, meaning) in &report.counters {
        writeln!(out, "{value:>16}  {name}: {meaning}")?;
    }
    Ok(())
}
