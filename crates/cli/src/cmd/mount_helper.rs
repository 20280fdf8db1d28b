//! `mount.holdfast`: the call that mount(8) makes for `mount -t holdfast` and for fstab, and as
//! `mount.fuse.holdfast` for `mount -o remount`.

use std::path::PathBuf;

use holdfast_daemon::mount_options::{DaemonOptions, split};

use crate::branches::TreeLocation;
use crate::cmd::{mount, remount};
use crate::outcome::{Failure, Outcome};

/// Mount a volume, called by mount(8).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume: a file or a block device; :BRANCH and @SNAPSHOT may stand behind it.
    spec: PathBuf,
    /// An existing directory.
    dir: PathBuf,
    /// Ignore unknown options.
    #[arg(short)]
    sloppy: bool,
    /// Do everything but mount.
    #[arg(short)]
    fake: bool,
    /// Accepted for mount(8), and without effect: there is no mtab.
    #[arg(short)]
    no_mtab: bool,
    /// Accepted for mount(8), and without effect.
    #[arg(short)]
    verbose: bool,
    /// Namespace, as mount(8) passes it; the caller has entered it.
    #[arg(short = 'N')]
    namespace: Option<String>,
    /// Type of the filesystem, as mount(8) passes it.
    #[arg(short = 't')]
    kind: Option<String>,
    /// Options, separated by commas; `holdfast mount --help` lists them.
    #[arg(short = 'o')]
    options: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let lists = args.options.iter().map(String::as_str);
    if lists.clone().flat_map(split).any(|option| option == "remount") {
        return match args.fake {
            true => Ok(0),
            false => remount::remount(&args.dir, &args.options, args.sloppy),
        };
    }
    let options = DaemonOptions::parse(lists, args.sloppy).map_err(|why| Failure::new(1, why))?;
    if args.fake {
        return Ok(0);
    }
    // The daemon reads the list again, so what was tolerated here must not reach it.
    let mut lists = args.options.clone();
    if args.sloppy {
        for list in &mut lists {
            let known = |option: &&str| DaemonOptions::parse([*option], false).is_ok();
            *list = split(list).filter(known).collect::<Vec<_>>().join(",");
        }
    }
    let place = TreeLocation::parse(args.spec.as_os_str());
    match mount::mount(&place, &args.dir, &options, &lists, mount::ServeOptions::default()) {
        Err(_) if options.nofail && !place.path.exists() => Ok(0),
        other => other,
    }
}
