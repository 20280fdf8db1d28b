//! The `holdfast` program. What it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_cli::main(std::env::args_os())
}
