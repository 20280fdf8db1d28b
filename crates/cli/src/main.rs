//! The `holdfast` program: one binary, one file per command in `cmd/`.
//!
//! Called through a link named `mkfs.holdfast`, `mount.holdfast` or
//! `fsck.holdfast` it is that command, as mkfs(8), mount(8) and fsck(8) want.
//! Errors are one sentence on stderr and an exit code that follows those
//! pages. Commands decode arguments and print; what they do is done below.

mod cmd;
mod daemon;
mod mount_options;
mod mounts;
mod outcome;
mod peek;
mod recovery;
mod size;
mod span;
mod target;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::cmd::Link;
use crate::outcome::{Failure, Outcome};

fn main() -> ExitCode {
    let args = std::env::args_os().collect();
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.sentence.is_empty() {
                outcome::complain(&failure.sentence);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: Vec<OsString>) -> Outcome {
    let link = Link::of(args.first());
    let is_fsck = match link {
        Some(link) => link.name == "fsck.holdfast",
        None => args.get(1).is_some_and(|command| command == "fsck"),
    };
    let args = if is_fsck { cmd::fsck::with_one_c(args) } else { args };
    let parsed = match link {
        Some(link) => link.parse(&args),
        None => cmd::Cli::try_parse_from(&args).map(|cli| cli.command),
    };
    match parsed {
        Ok(command) => command.run(),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let _ = error.print();
                Ok(0)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = error.print();
                Ok(2)
            }
            _ => Err(bad_usage(&error, link, &args)),
        },
    }
}

/// One sentence from clap's paragraphs, and the code that the command's manual page names for it.
fn bad_usage(error: &clap::Error, link: Option<&Link>, args: &[OsString]) -> Failure {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let sentence: Vec<&str> = paragraph.split_whitespace().collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let command = args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
    let (code, asked) = match (link, command) {
        (Some(link), _) => (link.usage_code, link.name.to_string()),
        (None, "mkfs" | "mount" | "umount") => (1, format!("holdfast {command}")),
        (None, "fsck") => (16, format!("holdfast {command}")),
        (None, "") => (2, "holdfast".into()),
        (None, other) if other.starts_with('-') => (2, "holdfast".into()),
        (None, other) => (2, format!("holdfast {other}")),
    };
    Failure::new(code, format!("{sentence}; see `{asked} --help`"))
}
