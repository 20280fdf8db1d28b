//! `holdfast list`: which volumes are served, by which processes, and where they are mounted.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use holdfast_daemon::ask_all::ask_all;
use holdfast_daemon::client::{self, ListedDaemon, ServedMount};
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::report::Report;
use holdfast_service::json::{put, put_if};
use holdfast_service::size;
use rustix::process::geteuid;
use serde_json::{Map, Value, json};

use crate::branches::{Name, show};
use crate::outcome::{Outcome, printable};

/// How long all mounts together get of which no process tells.
const PATIENCE: Duration = Duration::from_secs(3);

/// List the volumes that are served, and their mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Root sees those of all users, others their own, also mounts of theirs that root's process serves.
A line is a mount; a process that lingers without one has a line all the same. `(elsewhere)`:
another user's process says that it is mounted, and no mount of that user is to be seen there.
MEMORY is that of the process, which all mounts of a volume share. `stopped` in the place of `rw`:
an error has ended all writing, and `holdfast info DIRECTORY` says which. `dead`: the process of
the mount has ended, and `holdfast umount DIRECTORY` takes it away. `silent`: it does not answer.")]
pub(crate) struct Args {
    /// Print one JSON object, for programs: memory in bytes, and mounts of which no process tells as `other_mounts`.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut daemons = client::list();
    daemons.sort_by(|a, b| (&a.served.volume.0, a.pid).cmp(&(&b.served.volume.0, b.pid)));
    let untold = untold(&daemons);
    if args.json {
        let volumes: Vec<_> = daemons.iter().map(object).collect();
        let others: Vec<_> = untold.iter().map(Untold::object).collect();
        let all = [("volumes".into(), volumes.into()), ("other_mounts".into(), others.into())];
        return show::json(all.into_iter().collect());
    }
    let head = ["VOLUME", "BRANCH", "DIRECTORY", "OPTIONS", "USER", "PROCESS", "MEMORY"];
    show::table(&head, daemons.iter().flat_map(rows).chain(untold.iter().map(Untold::row)))
}

/// A mount that is in the list of no process that was found.
struct Untold {
    mount: Mount,
    /// `rw` or `ro`; `dead` if its process has ended, `silent` if it does not answer.
    state: &'static str,
    /// What its process says through the mount.
    report: Option<Report>,
}

/// The mounts here, of this user or for root of all, of which no process tells that can be asked by its socket.
fn untold(daemons: &[ListedDaemon]) -> Vec<Untold> {
    let user = geteuid();
    // What root's and this user's daemons say holds for all; another user's was compared with the kernel's list.
    let told = daemons.iter().flat_map(|of| {
        let owner = (![0, user.as_raw()].contains(&of.user)).then_some(of.user);
        let volume = of.served.volume.bytes();
        of.served.mounts.iter().map(move |mount| (owner, [volume, mount.dir.bytes()]))
    });
    let told: HashSet<_> = told.collect();
    let mut mounts = mounts::list().unwrap_or_default();
    mounts.retain(|mount| {
        let name = client::name(mount);
        let is_own = user.is_root() || mount.owner == user.as_raw();
        is_own && ![None, Some(mount.owner)].into_iter().any(|of| told.contains(&(of, name)))
    });
    // This user's first: those of others may take all the time there is.
    mounts.sort_by_key(|mount| mount.owner != user.as_raw());
    let judged = ask_all(mounts, PATIENCE).into_iter().filter_map(|(mount, answer)| {
        let (state, report) = match answer {
            // Below another one: it can be neither reached nor asked.
            Ok(report) if report.volume != mount.source => return None,
            Ok(report) if report.read_only => ("ro", Some(report)),
            Ok(report) => ("rw", Some(report)),
            Err(error) if mounts::is_dead(&error) => ("dead", None),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => ("silent", None),
            // It is none of this user's, or has gone.
            Err(_) => return None,
        };
        Some(Untold { mount, state, report })
    });
    judged.collect()
}

/// The volume and the directory.
fn mount_names(mount: &Mount) -> [Name; 2] {
    [&mount.source, &mount.dir].map(|it| Name(it.as_os_str().as_bytes().into()))
}

impl Untold {
    fn row(&self) -> [String; 7] {
        let [volume, dir] = mount_names(&self.mount).map(|it| it.to_string());
        let pid = self.report.as_ref().map(|report| report.pid);
        let mounted = self.report.as_ref().and_then(|report| report.mounted.as_ref());
        let branch = mounted.map(|it| printable(&it.name()).into_owned()).unwrap_or_default();
        let process = pid.map(|pid| pid.to_string()).unwrap_or_default();
        let memory = pid.and_then(|pid| memory(pid.cast_signed())).map(size::show);
        let user = self.mount.owner.to_string();
        [volume, branch, dir, self.state.into(), user, process, memory.unwrap_or_default()]
    }

    fn object(&self) -> Map<String, Value> {
        let [volume, dir] = client::name(&self.mount);
        let mut object = Map::new();
        put(&mut object, "volume", volume);
        put(&mut object, "directory", dir);
        object.insert("state".into(), self.state.into());
        object.insert("pid".into(), self.report.as_ref().map(|report| report.pid).into());
        object.insert("user".into(), self.mount.owner.into());
        object
    }
}

/// The branch or snapshot, as it stands behind a volume.
fn what(mount: &ServedMount) -> String {
    let snapshot = mount.snapshot.as_ref().map(|name| format!("@{name}")).unwrap_or_default();
    format!("{}{snapshot}", mount.branch)
}

fn rows(of: &ListedDaemon) -> Vec<[String; 7]> {
    let memory = memory(of.pid).map_or_else(|| "?".into(), size::show);
    // In another pid namespace a process has no number here.
    let process = if of.pid == 0 { "?".into() } else { of.pid.to_string() };
    let row = |branch: String, dir: String, options: String, user: u32| {
        let volume = of.served.volume.to_string();
        [volume, branch, dir, options, user.to_string(), process.clone(), memory.clone()]
    };
    if of.served.mounts.is_empty() {
        let why = match (of.is_doubted, of.served.linger) {
            (true, _) => "(elsewhere)",
            (_, true) => "(lingers)",
            _ => "(not mounted)",
        };
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

fn object(of: &ListedDaemon) -> Map<String, Value> {
    let served = &of.served;
    let mounts = served.mounts.iter().map(|mount| {
        let mut object = Map::new();
        put(&mut object, "directory", mount.dir.bytes());
        put(&mut object, "branch", mount.branch.bytes());
        put_if(&mut object, "snapshot", mount.snapshot.as_ref().map(Name::bytes));
        object.extend([
            ("options".into(), mount.options.clone().into()),
            ("read_only".into(), mount.read_only.into()),
            ("user".into(), mount.user.into()),
        ]);
        object
    });
    let mut object = Map::new();
    put(&mut object, "volume", served.volume.bytes());
    object.extend([
        ("uuid".into(), served.uuid.clone().into()),
        ("label".into(), served.label.clone().into()),
        ("read_only".into(), served.read_only.into()),
        ("linger".into(), served.linger.into()),
        ("stopped".into(), json!(served.stopped)),
        ("pid".into(), Some(of.pid).filter(|pid| *pid != 0).into()),
        ("user".into(), of.user.into()),
        ("memory_bytes".into(), memory(of.pid).into()),
        ("mounts".into(), mounts.collect::<Vec<_>>().into()),
    ]);
    object
}

/// Bytes of memory of a process, as the system counts them.
fn memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"));
    let status = status.ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}
