//! The `holdfast-dev` program: everything that `holdfast` does, and what its developers need.
//!
//! `bench`, `crashtest` and `dump` are its own, one file for each in `cmd/`;
//! they bring SQLite and the simulator along, which a program that serves a
//! volume should not hold. Every other command is that of `holdfast`, so that
//! a benchmark mounts with the program that runs it.

mod cmd;

use std::process::ExitCode;

use clap::Parser;
use holdfast_cli::{outcome, peek, size, target};

/// The program's name, in front of what it says.
const NAME: &str = "holdfast-dev";

fn main() -> ExitCode {
    match cmd::Cli::try_parse() {
        Ok(cli) => cli.command.run(),
        Err(error) => holdfast_cli::refuse(NAME, &error, std::env::args().nth(1).as_deref()),
    }
}
