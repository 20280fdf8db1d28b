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

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::outcome::{Failure, Outcome};

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let name = cmd::link_command(args.first());
    if let Some(command) = name {
        args.insert(1, command.into());
    }
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.sentence.is_empty() {
                eprintln!("holdfast: {}", failure.sentence);
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: &[OsString]) -> Outcome {
    let parsed = cmd::Cli::command()
        .try_get_matches_from(args)
        .and_then(|matches| cmd::Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => cli.command.run(),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let _ = error.print();
                Ok(0)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = error.print();
                Ok(2)
            }
            _ => Err(bad_usage(&error, args)),
        },
    }
}

/// One sentence from clap's paragraphs, and the code that the command's manual page names for it.
fn bad_usage(error: &clap::Error, args: &[OsString]) -> Failure {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let sentence: Vec<&str> = paragraph.split_whitespace().collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let command = args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
    let (code, help) = match command {
        "mkfs" | "mount" | "mount-helper" | "umount" => (1, command),
        "fsck" => (16, command),
        "" => (2, ""),
        other if other.starts_with('-') => (2, ""),
        other => (2, other),
    };
    let help = help.trim_end_matches("-helper");
    let help = format!("holdfast {help}");
    Failure::new(code, format!("{sentence}; see `{} --help`", help.trim_end()))
}
