//! `holdfast chmod`: permission bits in a volume, without a mount.

use std::ffi::OsString;

use holdfast_service::mode::Mode;
use holdfast_service::work::names::{Change, To};

use super::within::{all_inside, changed_all, umask};
use crate::outcome::Outcome;

/// Set permission bits in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A symbolic link is followed, but not with -R. A volume in use is changed by its
daemon. All is durable when this returns.

MODE is as with chmod(1): octal, or changes such as u+rwX,go-w. A change is whose bits (u, g, o or a
for all; without them all but what the umask keeps), then +, - or =, then r, w, x, X (execution
where it is a directory or anybody has it), s and t, or u, g or o: what those have. A directory
keeps its set-id bits unless a change names them.

  holdfast chmod 600 data.holdfast:/etc/shadow
  holdfast chmod -R u+rwX,go-w data.holdfast:/srv

Exit code: 1 if those of one could not be set; those of the others are.")]
pub(crate) struct Args {
    /// Those of directories and all that is in them.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The bits, octal, or changes of them: u+rwX,go-w.
    #[arg(value_parser = mode, allow_hyphen_values = true)]
    mode: Mode,
    /// Files and directories.
    #[arg(required = true, value_name = "PLACE")]
    paths: Vec<OsString>,
}

fn mode(text: &str) -> Result<Mode, String> {
    let mode = Mode::parse(text, umask());
    mode.ok_or_else(|| "it is octal, like 755, or changes like u+rwX,go-w".into())
}

pub(crate) fn run(args: &Args) -> Outcome {
    let to = To { mode: Some(args.mode.clone()), user: None, group: None };
    let recursive = args.recursive;
    changed_all(all_inside(&args.paths)?, |paths| Change::Set { paths, to: to.clone(), recursive })
}
