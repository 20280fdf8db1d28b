//! `holdfast cat`: files of a volume to stdout, without a mount.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use holdfast_service::work::Work;

use crate::branches::Name;
use crate::outcome::{Failure, Outcome};
use crate::pipes::out;
use crate::target::{PATHS, PLAIN_PATHS, Target};

/// Print files of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{PATHS}\n{PLAIN_PATHS}"))]
pub(crate) struct Args {
    /// One or more files, each as IMAGE:/path.
    #[arg(required = true)]
    files: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut code = 0;
    for text in &args.files {
        let (place, path) = Target::inside(text)?;
        // A slash at the end is a directory that is meant, and refused as one.
        if let Some(branch) = &place.branch
            && path == Path::new("/")
            && !text.as_bytes().ends_with(b"/")
        {
            let (text, image) = (text.display(), place.path.display());
            return Err(Failure::plain(format!("{text} names no file: write {image}:/{branch}")));
        }
        let located = place.located()?;
        let tree = located.tree();
        let work = Work::Print { tree, path: Name::of(path.into()) };
        code = code.max(located.run(work, out())?);
    }
    Ok(code)
}
