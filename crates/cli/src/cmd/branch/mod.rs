//! `holdfast branch`: the branches of a volume.

mod delete;
mod limit;
mod list;
mod promote;
mod rename;

use crate::outcome::Outcome;

/// List, delete, rename, limit, promote the branches of a volume.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
A branch is a tree of files that can be changed. A new volume has one, `main`; `holdfast fork` makes
others. PLACE is a mounted directory, or a volume: a file or block device, mounted or not.

  holdfast branch list volume.img
  holdfast mount volume.img:work mnt
  holdfast branch delete volume.img try")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    Delete(delete::Args),
    Rename(rename::Args),
    Limit(limit::Args),
    Promote(promote::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::List(args) => list::run(args),
        What::Delete(args) => delete::run(args),
        What::Rename(args) => rename::run(args),
        What::Limit(args) => limit::run(args),
        What::Promote(args) => promote::run(args),
    }
}
