//! `holdfast list`: which volumes are served, by which processes, and where they are mounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::branches::{Name, show};
use crate::control_socket::message::ServedMount;
use crate::daemon::ask_all::ask_all;
use crate::daemon::join::{self, Listed};
use crate::mounts::{self, Mount};
use crate::outcome::{Outcome, printable};
use crate::size;

/// How long all mounts together get of which no process tells: most answer at once that theirs has ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// List the volumes that are served, and their mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Root sees those of all users, others their own, also mounts of theirs that root's process serves. A
line is a mount; a process that lingers without one has a line all the same. MEMORY is that of the
process, which all mounts of a volume share. `stopped` in the place of `rw`: an error has ended all
writing, and `holdfast info DIRECTORY` says which. `dead`: the process of the mount has ended, and
`holdfast umount DIRECTORY` takes it away. `silent`: it does not answer.")]
pub(crate) struct Args {
    /// Print one JSON object, for programs: memory in bytes.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut daemons = join::list();
    daemons.sort_by(|a, b| (&a.served.volume.0, a.pid).cmp(&(&b.served.volume.0, b.pid)));
    let lost = lost(&daemons);
    if args.json {
        let volumes: Vec<Value> = daemons.iter().map(object).collect();
        let lost: Vec<Value> = lost.iter().map(Lost::object).collect();
        let all = [("volumes", volumes), ("lost_mounts", lost)];
        return show::json(
            all.map(|(name, of)| (name.to_owned(), of.into())).into_iter().collect(),
        );
    }
    let head = ["VOLUME", "BRANCH", "DIRECTORY", "OPTIONS", "USER", "PROCESS", "MEMORY"];
    show::table(&head, daemons.iter().flat_map(rows).chain(lost.iter().map(Lost::row)))
}

/// A mount of which no process tells.
struct Lost {
    mount: Mount,
    /// `dead` or `silent`.
    state: &'static str,
}

/// The mounts here, of this user or for root of all, that are in no list of a process and do not answer.
fn lost(daemons: &[Listed]) -> Vec<Lost> {
    let told: Vec<&Name> =
        daemons.iter().flat_map(|of| &of.served.mounts).map(|mount| &mount.dir).collect();
    let user = geteuid();
    let mut mounts = mounts::list().unwrap_or_default();
    mounts.retain(|mount| {
        let is_own = user.is_root() || mount.owner == user.as_raw();
        is_own && !told.contains(&&name(mount.dir.as_os_str()))
    });
    // This user's first: those of others may take all the time there is.
    mounts.sort_by_key(|mount| mount.owner != user.as_raw());
    let judged = ask_all(mounts, PATIENCE).into_iter().filter_map(|(mount, answer)| match answer {
        Err(error) if mounts::is_dead(&error) => Some(Lost { mount, state: "dead" }),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Some(Lost { mount, state: "silent" })
        }
        // Its process cannot be asked from here, or it is none of this user's.
        Ok(_) | Err(_) => None,
    });
    judged.collect()
}

fn name(of: &OsStr) -> Name {
    Name(of.as_bytes().into())
}

impl Lost {
    fn row(&self) -> [String; 7] {
        let [volume, dir] = [&self.mount.source, &self.mount.dir].map(|it| name(it.as_os_str()));
        let (volume, dir, user) = (volume.to_string(), dir.to_string(), self.mount.owner);
        let nothing = String::new;
        [volume, nothing(), dir, self.state.into(), user.to_string(), nothing(), nothing()]
    }

    fn object(&self) -> Value {
        let [volume, dir] = [&self.mount.source, &self.mount.dir].map(|it| name(it.as_os_str()));
        json!({
            "volume": volume.text(),
            "volume_bytes": volume.hex_unless_text(),
            "directory": dir.text(),
            "directory_bytes": dir.hex_unless_text(),
            "state": self.state,
            "user": self.mount.owner,
        })
    }
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
