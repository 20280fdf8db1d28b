//! `holdfast-dev bench`: what Holdfast costs on this machine, as it was measured.
//!
//! Without a subcommand it measures the library. Subcommands decode arguments
//! and print tables; the workloads are in the bench crate.

mod bed;
mod dir;
mod library;
mod locks;
mod mechanisms;
mod ops;
pub(crate) mod output;
mod peers;
mod render;
mod results;
mod scaling;
mod tracking;

use crate::outcome::Outcome;

/// Measure the library without a mount.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<Benchmark>,
    #[command(flatten)]
    library: library::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    Mechanisms(mechanisms::Args),
    Scaling(scaling::Args),
    Locks(locks::Args),
    #[command(hide = true)]
    Tracking(tracking::Args),
    Render(render::Args),
    Ops(ops::Args),
    Dir(dir::Args),
    Peers(peers::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    let outcome = match &args.what {
        None => library::run(&args.library),
        Some(Benchmark::Mechanisms(args)) => mechanisms::run(args),
        Some(Benchmark::Scaling(args)) => scaling::run(args),
        Some(Benchmark::Locks(args)) => locks::run(args),
        Some(Benchmark::Tracking(args)) => tracking::run(args),
        Some(Benchmark::Render(args)) => render::run(args),
        Some(Benchmark::Ops(args)) => ops::run(args),
        Some(Benchmark::Dir(args)) => dir::run(args),
        Some(Benchmark::Peers(args)) => peers::run(args),
    };
    // Everything is undone by now.
    holdfast_bench::systems::signal().map_or(outcome, |signal| Ok(128 + signal))
}
