//! `holdfast ln`: links in a volume, without a mount.

use std::ffi::OsString;

use holdfast_service::work::names::Change;

use super::within::{changed, inside};
use crate::branches::Name;
use crate::outcome::{Failure, Outcome};

/// Make a link in a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A path in a volume is written IMAGE:/path or IMAGE:BRANCH:/path; or as any path in a directory where
a branch is mounted. A link that is made in a directory has the name of what it leads to. A volume
in use is changed by its daemon. It is durable when this returns.

  holdfast ln data.holdfast:/report data.holdfast:/latest
  holdfast ln -s releases/7 data.holdfast:/current")]
pub(crate) struct Args {
    /// Make a symbolic link, which says TARGET as it is written.
    #[arg(short, long)]
    symbolic: bool,
    /// What has the name goes, in the same step; a directory stays.
    #[arg(short, long)]
    force: bool,
    /// What the link leads to: a place in the same branch, or, with -s, any text.
    target: OsString,
    /// The link, or the directory for it.
    #[arg(value_name = "PLACE")]
    link: OsString,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (place, link) = inside(&args.link)?;
    let (new, force) = (Name::of(link.into()), args.force);
    if args.symbolic {
        return changed(
            &place,
            Change::Symlink { says: Name::of(args.target.clone()), new, force },
        );
    }
    let (of, old) = inside(&args.target)?;
    if of != place {
        return Err(Failure::plain(
            "both must be in one branch, written the same way; -s makes a link that says any path",
        ));
    }
    changed(&place, Change::Link { old: Name::of(old.into()), new, force })
}
