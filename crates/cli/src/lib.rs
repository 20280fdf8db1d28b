//! The `holdfast` program: one binary, one file per command in `cmd/`.
//!
//! Called through a link named `mkfs.holdfast`, `mount.holdfast` or
//! `fsck.holdfast` it is that command, as mkfs(8), mount(8) and fsck(8) want.
//! Errors are one sentence on stderr and an exit code that follows those
//! pages. Commands decode arguments and print; what they do is done below.
//!
//! It is a library for `holdfast-dev` alone, which has all these commands and
//! more, and prints and fails as they do.

mod branches;
mod cmd;
mod host_tree;
mod manual;
pub mod outcome;
pub mod peek;
mod pipes;
pub mod target;
mod txn;
mod udev;
mod waiting;

pub use holdfast_service::size;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cmd::Link;
use crate::outcome::{Failure, Outcome};

/// The program's name, in front of what it says.
const NAME: &str = "holdfast";

/// Does what `args` say, the first of which is the program's name or that of a link to it.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    // A limit of the size of files is an answer of the write that meets it, and no death.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
    let args: Vec<OsString> = args.into_iter().collect();
    let is_for_programs = asks_for_json(&args);
    match run(args) {
        Err(failure) if is_for_programs && !failure.sentence.is_empty() => {
            let failure = outcome::with_help(failure);
            outcome::say_on_stderr(&holdfast_service::json::text(&failure.object()));
            ExitCode::from(failure.code)
        }
        outcome => end(NAME, outcome),
    }
}

/// Whether a program reads what is printed. Behind `--` another command has its arguments.
fn asks_for_json(args: &[OsString]) -> bool {
    args.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Says why a command of the program `name` failed, if it did; the exit code is the command's.
pub fn end(name: &str, outcome: Outcome) -> ExitCode {
    match outcome.map_err(outcome::with_help) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.sentence.is_empty() {
                let sentence = outcome::printable(&failure.sentence);
                outcome::say_on_stderr(&format!("{name}: {sentence}"));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Shows help or version if `error` is that, otherwise says what is wrong with the arguments of `command`, the first
/// word after the program's name.
pub fn refuse(name: &str, error: &clap::Error, command: Option<&str>) -> ExitCode {
    let command = command.filter(|word| !word.is_empty() && !word.starts_with('-'));
    let asked = [Some(name), command].into_iter().flatten().collect::<Vec<_>>().join(" ");
    end(name, shown(error).unwrap_or_else(|| Err(bad_usage(error, &asked, 2))))
}

fn run(args: Vec<OsString>) -> Outcome {
    let link = Link::of(args.first());
    let is_fsck = match link {
        Some(link) => link.name == "fsck.holdfast",
        None => args.get(1).is_some_and(|command| command == "fsck"),
    };
    let args = if is_fsck { cmd::fsck::with_one_c(args) } else { args };
    let args = if link.is_none() { with_help_behind(args) } else { args };
    let parsed = match link {
        Some(link) => link.parse(&args),
        None => cmd::Cli::try_parse_from(&args).map(|cli| cli.command),
    };
    parsed.map_or_else(
        |error| shown(&error).unwrap_or_else(|| Err(wrong(&error, link, &args))),
        |command| command.run(),
    )
}

/// `help COMMAND` as `COMMAND --help`.
fn with_help_behind(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Help and version, which clap takes for errors.
fn shown(error: &clap::Error) -> Option<Outcome> {
    let code = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => 2,
        _ => return None,
    };
    let _ = error.print();
    Some(Ok(code))
}

/// What is wrong, with the code that the command's manual page names for it.
fn wrong(error: &clap::Error, link: Option<&Link>, args: &[OsString]) -> Failure {
    let command = args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
    let (code, asked) = match (link, command) {
        (Some(link), _) => (link.usage_code, link.name.to_string()),
        (None, "mkfs" | "mount" | "umount") => (1, format!("{NAME} {command}")),
        (None, "txn" | "run") => {
            (holdfast_daemon::private_mount::FAILED, format!("{NAME} {command}"))
        }
        (None, "fsck" | "scrub") => (16, format!("{NAME} {command}")),
        (None, other) if other.is_empty() || other.starts_with('-') => (2, NAME.into()),
        (None, other) if is_unknown(error, other) => (2, NAME.into()),
        (None, other) => (2, format!("{NAME} {other}")),
    };
    let is_word =
        |it: &ContextValue| matches!(it, ContextValue::String(it) if !it.starts_with('-'));
    let is_unexpected = error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::InvalidArg).is_some_and(is_word);
    if is_unexpected && matches!(command, "run" | "txn") && !args.iter().any(|it| it == "--") {
        return Failure::new(code, format!("write -- before the command; see `{asked} --help`"));
    }
    bad_usage(error, &asked, code)
}

/// Whether this is no command.
fn is_unknown(error: &clap::Error, word: &str) -> bool {
    let unknown = error.get(ContextKind::InvalidSubcommand);
    unknown.is_some_and(|it| matches!(it, ContextValue::String(it) if it == word))
}

/// What may be meant by a word that is unknown.
fn meant(error: &clap::Error) -> Option<String> {
    let near = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg];
    match near.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => {
            // What only says that another program has it does not help.
            let shown: Vec<&str> =
                words.iter().map(String::as_str).filter(|word| !is_hidden(word)).collect();
            (!shown.is_empty()).then(|| shown.join(" or "))
        }
        _ => None,
    }
}

/// Whether it is a command that no help lists.
fn is_hidden(word: &str) -> bool {
    let all = cmd::Cli::command();
    all.find_subcommand(word).is_some_and(clap::Command::is_hide_set)
}

/// One sentence from clap's paragraphs.
fn bad_usage(error: &clap::Error, asked: &str, code: u8) -> Failure {
    let text = error.render().to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let sentence: Vec<&str> = paragraph.split_whitespace().collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let meant = meant(error).map(|word| format!(" (did you mean {word}?)")).unwrap_or_default();
    Failure::new(code, format!("{sentence}{meant}; see `{asked} --help`"))
}
