//! `holdfast-dev bench render`: writes tables of kept results into documents.

use std::path::PathBuf;

use holdfast_bench::result::{Stored, render};

use crate::outcome::{Context, Outcome};

/// Write kept results into a document.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A document says with two comments where a table is to stand. The words are the name of the benchmark
and the key of its section, as they are in the stored JSON. Of several runs the newest counts:

    <!-- bench mechanisms gains -->
    <!-- end -->")]
pub(crate) struct Args {
    /// The documents.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where results were kept.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    results: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let stored = Stored::read(&args.results).context(args.results.display())?;
    for path in &args.files {
        let text = std::fs::read_to_string(path).context(path.display())?;
        let rendered = render(&text, &stored).context(path.display())?;
        if rendered != text {
            std::fs::write(path, rendered).context(path.display())?;
        }
    }
    Ok(0)
}
