//! `holdfast cp`: files and trees into, out of and between volumes, without a mount.
//!
//! Arguments decide what goes where; `side` makes host and volume look alike;
//! `copy` does one file after the other. What was copied into a volume is
//! durable when the command ends, because the volume is closed then.

mod copy;
mod side;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast::VolumeOptions;

use crate::outcome::{Context, Failure, Outcome};
use crate::target::{Target, open_volume};
use copy::Copier;
use side::{Image, Side};

/// Copy files into, out of and between volumes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path, where IMAGE is a file or a block device:
  holdfast cp -r src data.holdfast:/backup
  holdfast cp data.holdfast:/etc/fstab .")]
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
    /// What to copy, and where to as the last: host paths or IMAGE:/path.
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

/// The volumes of one command, each opened once.
#[derive(Default)]
struct Volumes(HashMap<PathBuf, Arc<Image>>);

impl Volumes {
    fn side(&mut self, target: &Target, read_only: bool) -> Result<Side, Failure> {
        match target {
            Target::Host(path) => Ok(Side::Host(path.clone())),
            Target::Inside { image, path } => {
                let volume = self.open(image, read_only)?;
                Ok(Side::Volume(volume, path.clone()))
            }
        }
    }

    fn open(&mut self, image: &Path, read_only: bool) -> Result<Arc<Image>, Failure> {
        let real = image.canonicalize().context(image.display())?;
        if let Some(image) = self.0.get(&real) {
            return Ok(image.clone());
        }
        let volume = open_volume(image, &VolumeOptions::new(), read_only)?;
        let image = Arc::new(Image { name: image.into(), volume });
        self.0.insert(real, image.clone());
        Ok(image)
    }

    fn close(self) -> Result<(), Failure> {
        for image in self.0.into_values() {
            match Arc::try_unwrap(image) {
                Ok(image) => image.volume.close().context(image.name.display())?,
                // Never so once the copier is gone; and a sync keeps the promise all the same.
                Err(image) => image.sync().context(image.name.display())?,
            }
        }
        Ok(())
    }
}
