//! `holdfast list`: which volumes are served, by which processes, and where they are mounted.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::branches::{Name, show};
use crate::control_socket::message::ServedMount;
use crate::daemon::join::{self, Listed};
use crate::outcome::{Outcome, printable};
use crate::size;

/// List the volumes that are served, and their mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Root sees those of all users, others their own, also mounts of theirs that root's process serves. A
line is a mount; a process that lingers without one has a line all the same. MEMORY is that of the
process, which all mounts of a volume share. `stopped` in the place of `rw`: an error has ended all
writing, and `holdfast info DIRECTORY` says which.")]
pub(crate) struct Args {
    /// Print one JSON object, for programs: memory in bytes.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut daemons = join::list();
    daemons.sort_by(|a, b| (&a.served.volume.0, a.pid).cmp(&(&b.served.volume.0, b.pid)));
    if args.json {
        let volumes: Vec<Value> = daemons.iter().map(object).collect();
        return show::json(Map::from_iter([("volumes".to_owned(), volumes.into())]));
    }
    let head = ["VOLUME", "BRANCH", "DIRECTORY", "OPTIONS", "USER", "PROCESS", "MEMORY"];
    show::table(&head, daemons.iter().flat_map(rows))
}

/// The branch or snapshot, as it stands behind a volume.
fn what(mount: &ServedMount) -> String {
    let snapshot = mount.snapshot.as_ref().map(|name| format!("@{name}")).unwrap_or_default();
    format!("{}{snapshot}", mount.branch)
}

fn rows(of: &Listed) -> Vec<[String; 7]> {
    let memory = memory(of.pid).map_or_else(|| "?".into(), size::show);
    // In another pid namespace a process has no number here.
    let process = if of.pid == 0 { "?".into() } else { of.pid.to_string() };
    let row = |branch: String, dir: String, options: String, user: u32| {
        let volume = of.served.volume.to_string();
        [volume, branch, dir, options, user.to_string(), process.clone(), memory.clone()]
    };
    if of.served.mounts.is_empty() {
        let why = if of.served.linger { "(lingers)" } else { "(not mounted)" };
        return vec![row(String::new(), why.into(), String::new(), of.user)];
    }
    let rows = of.served.mounts.iter().map(|mount| {
        let access = match (mount.read_only, &of.served.stopped) {
            (true, _) => "ro",
            (false, Some(_)) => "stopped",
            (false, None) => "rw",
        };
        let words = mount.options.split(',').filter(|word| !matches!(*word, "" | "ro" | "rw"));
        let options = [access].into_iter().chain(words).collect::<Vec<_>>().join(",");
        row(what(mount), mount.dir.to_string(), printable(&options).into_owned(), mount.user)
    });
    rows.collect()
}

fn object(of: &Listed) -> Value {
    let served = &of.served;
    let mounts = served.mounts.iter().map(|mount| {
        json!({
            "directory": mount.dir.text(),
            "directory_bytes": mount.dir.hex_unless_text(),
            "branch": mount.branch.text(),
            "branch_bytes": mount.branch.hex_unless_text(),
            "snapshot": mount.snapshot.as_ref().map(Name::text),
            "snapshot_bytes": mount.snapshot.as_ref().and_then(Name::hex_unless_text),
            "options": mount.options,
            "read_only": mount.read_only,
            "user": mount.user,
        })
    });
    json!({
        "volume": served.volume.text(),
        "volume_bytes": served.volume.hex_unless_text(),
        "uuid": served.uuid,
        "label": served.label,
        "read_only": served.read_only,
        "linger": served.linger,
        "stopped": served.stopped,
        "pid": Some(of.pid).filter(|pid| *pid != 0),
        "user": of.user,
        "memory_bytes": memory(of.pid),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

/// Bytes of memory of a process, as the system counts them.
fn memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
