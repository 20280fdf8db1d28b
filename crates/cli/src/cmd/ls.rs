//! `holdfast ls`: names in a volume, without a mount.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use holdfast_service::work::{Work, list};

use crate::branches::Name;
use crate::outcome::Outcome;
use crate::pipes::out;
use crate::target::{PATHS, PLAIN_PATHS, Target};

/// List files of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{PATHS}
{PLAIN_PATHS}

Elsewhere than on a terminal names are printed byte for byte.

  holdfast ls -0 data.holdfast:/etc | xargs -0 -n 1 echo"))]
pub(crate) struct Args {
    /// Show type, permissions, links, owner, size and time.
    #[arg(long, short)]
    long: bool,
    /// List what is in directories, too.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Print one JSON object a line, for programs: sizes in bytes, times in seconds since 1970. A path that is not UTF-8 has
    /// its odd bytes replaced in `path` and all of them in hexadecimal in `path_hex`.
    #[arg(long)]
    json: bool,
    /// End each name with a zero byte in place of a line feed, for programs: a name may hold a line feed.
    #[arg(short = '0', long = "null", conflicts_with = "json")]
    null: bool,
    /// IMAGE:/path, or an image for its root; :BRANCH and @SNAPSHOT may stand behind the image.
    target: OsString,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (place, path) = Target::inside(&args.target)?;
    let located = place.located()?;
    let how = list::ListFormat {
        long: args.long,
        recursive: args.recursive,
        json: args.json,
        is_terminal: io::stdout().is_terminal(),
        null: args.null,
    };
    let work = Work::List { tree: located.tree(), path: Name::of(path.into()), how };
    located.run(work, out())
}
