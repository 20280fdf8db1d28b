//! `holdfast metrics`: the statistics of all mounts for machines, printed once or served.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};

use holdfast_daemon::interrupt::Interrupt;
use holdfast_daemon::metrics::{self, TextForm, serve::Scrapes};

use crate::outcome::{Context, Outcome, complain, printed};

/// Print or serve the statistics of all mounts for Prometheus and programs that read its format.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --listen the text is printed once, for collectors that read files. With it, it answers
GET /metrics at that address until Ctrl-C or SIGTERM, as OpenMetrics if the scraper knows that. Who
may connect there may read the names of volumes, directories and branches: 127.0.0.1 keeps that on
this machine.

Root sees the mounts of all users that let root ask, others their own. holdfast_up is 0 for a mount
whose daemon does not answer within five seconds; the others are told all the same. Times are in
seconds, sizes in bytes. Names stay, but for those of holdfast_internal_...: these are the
statistics of stats --all, which may change with any version.

  holdfast metrics --listen 127.0.0.1:9741
  holdfast metrics >/var/lib/node_exporter/holdfast.prom")]
pub(crate) struct Args {
    /// Answer scrapes at this address and port; port 0 takes a free one, which is said.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
}

/// An address, or a name that has one.
fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| "it is an address and a port, like 127.0.0.1:9741 or localhost:9741".into())
}

pub(crate) fn run(args: &Args) -> Outcome {
    let Some(address) = args.listen else {
        let samples = metrics::all().context("/proc/self/mountinfo")?;
        let text = metrics::text(samples, TextForm::Prometheus);
        printed(io::stdout().lock().write_all(text.as_bytes()))?;
        return Ok(0);
    };
    // Before a caller can know that it listens.
    let interrupt = Interrupt::catch().context("signals")?;
    let scrapes = Scrapes::listen(address).context(address)?;
    let at = scrapes.address().context(address)?;
    complain(&format!("statistics are at http://{at}/metrics"));
    scrapes.run(&interrupt).context(address)?;
    Ok(0)
}
