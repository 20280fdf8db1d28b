//! `holdfast restart`: another process serves the mounts of a volume, by the program that is installed now.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Map;

use crate::branches::show;
use crate::daemon::join;
use crate::mounts;
use crate::outcome::{Context, Outcome, printed};

/// Start the process that serves a volume anew, beneath programs that use its mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The volume is mounted with -o supervised. The process ends where it stands, and the next one is the
program that is found by the same path: so a new version of it comes to mounts in use. Programs see
a pause, as if the process had been killed. Prints the number of the new process.

  holdfast restart /mnt/data")]
pub(crate) struct Args {
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory, or the volume.
    #[arg(value_name = "VOLUME")]
    at: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mount = mounts::find(&args.at).context("/proc/self/mountinfo")?;
    let volume = mount.map_or_else(|| mounts::real_path(&args.at), |mount| mount.source);
    let pid = join::restart(&volume).map_err(|failure| failure.with_code(1))?;
    if args.json {
        return show::json(Map::from_iter([("pid".to_owned(), pid.into())]));
    }
    printed(writeln!(io::stdout().lock(), "{pid}")).map(|()| 0)
}
