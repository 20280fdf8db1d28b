//! `holdfast snapshot`: the moments of a branch that are kept.

mod create;
mod delete;
mod hold;
mod list;
mod rename;
mod rollback;
mod show;

use crate::outcome::Outcome;

/// Take, list, keep, delete snapshots of a branch, and go back to one.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
A snapshot is a branch as it was at one moment. It never changes. Taking one costs the same for an
empty volume and for one of ten million files, and programs go on writing meanwhile.

PLACE is a mounted directory, or a volume: a file or block device, mounted or not. The branch is
the one that is mounted, or `main`; PLACE:BRANCH says another one. A name has 1 to 255 bytes, and
no `/`, `@`, `:` or control character.

  holdfast snapshot create mnt before-upgrade
  holdfast snapshot list mnt
  holdfast snapshot rollback mnt before-upgrade
  holdfast snapshot delete volume.img:work old
  holdfast mount volume.img@before-upgrade old-mnt")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Create(create::Args),
    List(list::Args),
    Show(show::Args),
    Delete(delete::Args),
    Rename(rename::Args),
    Rollback(rollback::Args),
    Hold(hold::Args),
    /// End the `hold` of a tag; after the last the snapshot can be deleted.
    Unhold(hold::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.what {
        What::Create(args) => create::run(args),
        What::List(args) => list::run(args),
        What::Show(args) => show::run(args),
        What::Delete(args) => delete::run(args),
        What::Rename(args) => rename::run(args),
        What::Rollback(args) => rollback::run(args),
        What::Hold(args) => hold::run(args, true),
        What::Unhold(args) => hold::run(args, false),
    }
}
