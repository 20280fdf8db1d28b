//! `holdfast cat`: files of a volume to stdout, without a mount.

use std::ffi::OsString;

use holdfast_service::work::Work;

use crate::branches::Name;
use crate::outcome::Outcome;
use crate::pipes::out;
use crate::target::{PATHS, Target};

/// Print files of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = PATHS)]
pub(crate) struct Args {
    /// One or more files, each as IMAGE:/path.
    #[arg(required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut code = 0;
    for text in &args.files {
        let (place, path) = Target::inside(text)?;
        let located = place.located()?;
        let tree = located.tree();
        let work = Work::Print { tree, path: Name::of(path.into()) };
        code = code.max(located.run(work, out())?);
    }
    Ok(code)
}
