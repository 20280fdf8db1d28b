//! `holdfast man`: manual pages, made from the declaration of the arguments. For packagers.
//!
//! Commands are in section 1. The links that mkfs(8), mount(8) and fsck(8)
//! look for have pages of their own in section 8, where those are.

use std::fs::File;
use std::path::PathBuf;

use clap::CommandFactory;

use crate::cmd::{Cli, LINKS};
use crate::outcome::{Context, Outcome};

/// Write the manual pages into a directory: of commands, or of the links for system programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An existing directory.
    dir: PathBuf,
    /// The links of section 8 instead of the commands of section 1.
    #[arg(long)]
    links: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    if !args.links {
        clap_mangen::generate_to(Cli::command(), &args.dir).context(args.dir.display())?;
        return Ok(0);
    }
    for link in &LINKS {
        let page = args.dir.join(format!("{}.8", link.name));
        let written = File::create(&page).and_then(|mut file| {
            clap_mangen::Man::new(link.command()).section("8").render(&mut file)
        });
        written.context(page.display())?;
    }
    Ok(0)
}
