//! `holdfast-dev bench`: what Holdfast costs on this machine, as it was measured.
//!
//! Without a subcommand it measures the library; each subcommand measures one
//! mechanism, its switch in every position side by side in one run. They
//! decode arguments and print tables; the workloads are in the bench crate.

mod accounting;
mod bed;
mod dir;
mod fsync;
mod journal;
mod latency;
mod library;
mod mechanisms;
mod nodes;
mod ops;
pub(crate) mod output;
mod peers;
mod pending;
mod place;
mod recovery;
mod render;
mod renames;
mod report;
mod results;
mod scaling;
mod tracking;

use crate::outcome::Outcome;

/// Measure the library without a mount.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    mechanism: Option<Mechanism>,
    #[command(flatten)]
    library: library::Args,
}

#[derive(Debug, clap::Subcommand)]
enum Mechanism {
    Mechanisms(mechanisms::Args),
    Scaling(scaling::Args),
    Journal(journal::Args),
    Tracking(tracking::Args),
    Nodes(nodes::Args),
    Accounting(accounting::Args),
    Recovery(recovery::Args),
    Renames(renames::Args),
    Pending(pending::Args),
    Fsync(fsync::Args),
    Latency(latency::Args),
    Report(report::Args),
    Render(render::Args),
    Ops(ops::Args),
    Dir(dir::Args),
    Peers(peers::Args),
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.mechanism {
        None => library::run(&args.library),
        Some(Mechanism::Mechanisms(args)) => mechanisms::run(args),
        Some(Mechanism::Scaling(args)) => scaling::run(args),
        Some(Mechanism::Journal(args)) => journal::run(args),
        Some(Mechanism::Tracking(args)) => tracking::run(args),
        Some(Mechanism::Nodes(args)) => nodes::run(args),
        Some(Mechanism::Accounting(args)) => accounting::run(args),
        Some(Mechanism::Recovery(args)) => recovery::run(args),
        Some(Mechanism::Renames(args)) => renames::run(args),
        Some(Mechanism::Pending(args)) => pending::run(args),
        Some(Mechanism::Fsync(args)) => fsync::run(args),
        Some(Mechanism::Latency(args)) => latency::run(args),
        Some(Mechanism::Report(args)) => report::run(args),
        Some(Mechanism::Render(args)) => render::run(args),
        Some(Mechanism::Ops(args)) => ops::run(args),
        Some(Mechanism::Dir(args)) => dir::run(args),
        Some(Mechanism::Peers(args)) => peers::run(args),
    }
}
