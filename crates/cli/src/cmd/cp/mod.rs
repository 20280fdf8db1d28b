//! `holdfast cp`: files and trees into, out of and between volumes, without a mount.
//!
//! Arguments decide what goes where; `side` makes host and volume look alike;
//! `copy` does one file after the other. What was copied into a volume is
//! durable when the command ends, because the volume is closed then.

mod copy;
mod side;
mod volumes;

use crate::outcome::{Failure, Outcome};
use crate::target::{PATHS, Target};
use copy::Copier;
use volumes::Volumes;

/// Copy files into, out of and between volumes.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{PATHS}

  holdfast cp -r src data.holdfast:/backup
  holdfast cp data.holdfast@before-upgrade:/etc/fstab ."))]
pub(crate) struct Args {
    /// Copy directories and what is in them; symbolic links stay links.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owner, times and extended attributes; permission bits are kept in any case.
    #[arg(short, long)]
    preserve: bool,
    /// The same as -r and -p, and hard links stay hard links.
    #[arg(short, long)]
    archive: bool,
    /// Show no progress bar. Elsewhere than on a terminal there is none anyway.
    #[arg(short, long)]
    quiet: bool,
    /// What to copy, and where to as the last: host paths or IMAGE:/path, also in a branch or snapshot.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    paths: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (to, from) = args.paths.split_last().expect("clap asks for two");
    let targets: Vec<Target> = from.iter().map(|text| Target::parse(text)).collect();
    let to = Target::parse(to);
    let mut volumes = Volumes::default();
    // The one that is written first: the same image as a source then needs no second opening.
    let to = volumes.side(&to, false)?;
    let into_directory = to.is_dir();
    if targets.len() > 1 && !into_directory {
        return Err(Failure::plain(format!("{to} is not a directory")));
    }
    let mut copier = Copier::new(copy::How {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        hard_links: args.archive,
        quiet: args.quiet,
    });
    for target in &targets {
        let from = volumes.side(target, true)?;
        let to = match into_directory.then(|| from.name()).flatten() {
            Some(name) => to.join(&name),
            None => to.clone(),
        };
        copier.copy(from, to);
    }
    drop(to);
    let failures = copier.finish();
    volumes.close()?;
    Ok(u8::from(failures > 0))
}
