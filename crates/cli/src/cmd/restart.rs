//! `holdfast restart`: another process serves the mounts of a volume, by the program that is installed now.

use std::io::{self, Write};
use std::path::PathBuf;

use holdfast_daemon::dispatch::not_mounted;
use holdfast_daemon::{client, mounts};

use crate::branches::show;
use crate::outcome::{Context, Failure, Outcome, printed};

/// The exit code where another process serves the volume, and not by the program that is installed.
const FALLS_BACK: u8 = 3;

/// Start the process that serves a volume anew, beneath programs that use its mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The volume is mounted with -o supervised. The process ends where it stands, and the next one is the
program that is found by the same path: so a new version of it comes to mounts in use. Programs see
a pause, as if the process had been killed. Prints the number of the new process.

Exit code: 1 nothing was restarted; 3 it was, but the program that is there now does not come to
serve, and the one that was started first goes on.

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
    if mount.is_none() && args.at.is_dir() {
        return Err(not_mounted(&args.at));
    }
    let volume = mount.map_or_else(|| mounts::real_path(&args.at), |mount| mount.source);
    let (pid, falls_back) = client::restart(&volume).map_err(|failure| failure.with_code(1))?;
    if args.json {
        let program = if falls_back.is_none() { "installed" } else { "first" };
        let object = [("pid".into(), pid.into()), ("program".into(), program.into())];
        show::json(object.into_iter().collect())?;
    } else {
        printed(writeln!(io::stdout().lock(), "{pid}"))?;
    }
    match falls_back {
        None => Ok(0),
        Some(why) => {
            let volume = volume.display();
            let goes_on = format!("{volume}: {why}; the program that was started first goes on");
            Err(Failure::new(FALLS_BACK, goes_on))
        }
    }
}
