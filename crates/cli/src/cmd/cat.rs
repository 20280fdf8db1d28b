//! `holdfast cat`: files of a volume to stdout, without a mount.

use std::io::{self, Write};

use crate::outcome::{Context, Outcome, printed};
use crate::target::{PATHS, Target, open_place};

/// Print files of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = PATHS)]
pub(crate) struct Args {
    /// One or more files, each as IMAGE:/path.
    #[arg(required = true)]
    files: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut out = io::stdout().lock();
    for text in &args.files {
        let (place, path) = Target::inside(text)?;
        let volume = open_place(&place, true)?;
        let file = volume.open_file(&path).context(text)?;
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let len = file.read_at(&mut buffer, at).context(text)?;
            if len == 0 {
                break;
            }
            printed(out.write_all(&buffer[..len]))?;
            at += len as u64;
        }
    }
    printed(out.flush())?;
    Ok(0)
}
