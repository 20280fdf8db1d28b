//! `holdfast cp`: files and trees into, out of and between volumes, without a mount.
//!
//! Arguments decide what goes where; `side` makes host and volume look alike; `copy` does one file after the other. A volume at rest
//! is opened here; of one in use the daemon is asked. What was copied into a volume is durable when the command ends.

mod copy;
mod endpoint;
mod standard;
mod volumes;

use std::ffi::OsString;

use crate::outcome::{Failure, Outcome};
use crate::target::{PATHS, Target, holds_volume};
use copy::Copier;
use volumes::Volumes;

/// Copy files into, out of and between volumes.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{PATHS}

The volume may be in use: its daemon does then what is asked of the volume, and this command itself
reads and writes files of the host. A branch is read as it is at one moment. Programs that have it
mounted see each file when it is whole, under its name, in place of what was there; so a copy that
is ended in the middle leaves whole files only. Holes stay holes. Who may write the image may write
any file in it, as at rest. Without -p copies belong to the user of this command. A pipe or device
of the host that is named is read to its end; with -r it is copied as what it is.

  holdfast cp -r src data.holdfast:/backup
  holdfast cp data.holdfast@before-upgrade:/etc/fstab .
  pg_dump app | holdfast cp - data.holdfast:/app.sql"))]
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
    /// Make each file durable before the next is copied. Otherwise all that was copied into volumes is when the command ends.
    #[arg(long)]
    sync: bool,
    /// Show no progress bar. Elsewhere than on a terminal there is none anyway.
    #[arg(short, long)]
    quiet: bool,
    /// What to copy, and where to as the last: host paths or IMAGE:/path, also in a branch or snapshot; a directory that is mounted may stand for IMAGE; `-` is standard input or output.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (to, from) = args.paths.split_last().expect("clap asks for two");
    let mut volumes = Volumes::default();
    if standard::is_meant(to) {
        return print(args, from, volumes);
    }
    let to = Target::on_either_side(to)?;
    expect_no_volume(&to)?;
    // The one that is written first: the same image as a source then needs no second opening.
    let to = volumes.side(&to, false)?;
    let directory = to.directory();
    if from.len() > 1 && directory.is_none() {
        return Err(Failure::plain(format!("{to} is not a directory")));
    }
    let mut copier = copier(args);
    for text in from {
        if standard::is_meant(text) {
            if directory.is_some() {
                return Err(standard::no_name(&to));
            }
            copier.take_in(&to);
            continue;
        }
        let from = volumes.side(&Target::on_either_side(text)?, true)?;
        match directory.as_ref().zip(from.name()) {
            Some((directory, name)) => copier.copy(from, directory.join(&name), false),
            None => copier.copy(from, to.clone(), true),
        }
    }
    drop((to, directory));
    // It remembers where it has copied files of several names to.
    let failures = copier.finish();
    volumes.close()?;
    Ok(u8::from(failures > 0))
}

/// Fails where a copy would take the place of a volume, which is hardly meant: a mount of it would go on as if it were there.
fn expect_no_volume(to: &Target) -> Result<(), Failure> {
    let Target::Host(path) = to else { return Ok(()) };
    if !holds_volume(path) {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::plain(format!(
        "{path} is a volume, whose place the copy would take: write {path}:/ for a file in it, or remove it before"
    )))
}

fn copier(args: &Args) -> Copier {
    Copier::new(copy::CpOptions {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        hard_links: args.archive,
        quiet: args.quiet,
        sync: args.sync,
    })
}

/// Files to standard output.
fn print(args: &Args, from: &[OsString], mut volumes: Volumes) -> Outcome {
    let mut copier = copier(args);
    for text in from {
        if standard::is_meant(text) {
            return Err(Failure::plain("standard input to standard output is no copy"));
        }
        let from = volumes.side(&Target::on_either_side(text)?, true)?;
        copier.put_out(&from)?;
    }
    let failures = copier.finish();
    volumes.close()?;
    Ok(u8::from(failures > 0))
}
