//! `holdfast man`: manual pages, made from the declaration of the arguments. For packagers.
//!
//! Commands are in section 1. The links that mkfs(8), mount(8) and fsck(8)
//! look for have pages of their own in section 8, where those are.

use std::path::PathBuf;
use std::rc::Rc;

use clap::CommandFactory;
use holdfast_service::work::files::message::Attributes;

use crate::cmd::{Cli, LINKS};
use crate::host_tree::{Dir, HostEntry, NewFile};
use crate::manual;
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
    let dir = Dir::named(&args.dir);
    if args.links {
        for link in &LINKS {
            let mut command = link.command();
            command.build();
            write(&dir, &command, link.name, link.name, "8")?;
        }
        return Ok(0);
    }
    for (name, command) in pages_of(Cli::command()) {
        let title = command.get_display_name().unwrap_or("holdfast").to_owned();
        write(&dir, &command, &name, &title, "1")?;
    }
    Ok(0)
}

/// Writes a page in place of what is there: no link is followed.
fn write(
    dir: &Rc<Dir>,
    command: &clap::Command,
    name: &str,
    title: &str,
    section: &str,
) -> Outcome {
    let place = HostEntry::of(dir, format!("{title}.{section}").as_ref());
    let mut page = Vec::new();
    let attributes = Attributes { mode: Some(0o644), ..Attributes::default() };
    let written = manual::render(command, name, section, &mut page).and_then(|()| {
        let mut file = NewFile::begin(&place, false)?;
        file.write_all_at(&page, 0)?;
        file.end(page.len() as u64, &attributes, false)
    });
    written.context(&place)?;
    Ok(0)
}

/// The commands that have a page, with what stands behind `holdfast`: that of the program first, which is "".
pub(crate) fn pages_of(program: clap::Command) -> Vec<(String, clap::Command)> {
    fn below(command: &clap::Command, name: &str, pages: &mut Vec<(String, clap::Command)>) {
        pages.push((name.to_owned(), command.clone()));
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            below(one, format!("{name} {}", one.get_name()).trim_start(), pages);
        }
    }
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    below(&program, "", &mut pages);
    pages
}
