//! `holdfast-dev bench report`: stored results as one HTML page.

use std::path::PathBuf;

use holdfast_bench::result::{Report, page};

use crate::outcome::{Context, Outcome};

/// Stored results as one HTML page, with tables and plots.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files that --json or --keep have stored.
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// The page. It needs no other file and no network.
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut reports = Vec::new();
    for path in &args.files {
        reports.push(Report::read(path).context(path.display())?);
    }
    std::fs::write(&args.output, page(&reports)).context(args.output.display())?;
    Ok(0)
}
