//! The process that serves the mounts of a volume: how it starts, says that it is ready, and ends.
//!
//! ```text
//! start ──spawns──▶ detached ──▶ serve: open, mount ──▶ "ready" ──▶ answer the kernel, and joining mounts
//!   │                                    │ fails                          │ all unmounted, SIGTERM, SIGINT
//!   └─waits on the daemon's stdout ◀─────┴─ "code sentence"               ▼
//!                                                            everything durable, volume released, exit
//! ```
//!
//! A second mount of a volume that is served *joins*: the command that mounts hands the connection to the daemon, through its
//! control socket ([`crate::control_socket`], [`join`], [`host`]).
//!
//! The daemon is this program run again, not forked, so that it starts with
//! one thread. Of its caller it keeps nothing: no descriptor, no terminal, no
//! directory, no limit that is meant for the caller's own work
//! ([`surroundings`]). It never touches its own mount point.

pub(crate) mod activity;
pub(crate) mod ask;
pub(crate) mod ask_all;
mod bounds;
mod callers;
mod calls;
mod commands;
pub(crate) mod control;
pub(crate) mod door;
mod host;
pub(crate) mod join;
mod log;
mod release;
mod rights;
mod serve;
mod served;
mod settle;
mod supervised;
mod surroundings;
mod table;

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use holdfast::Atime;
use holdfast_base::clock::Deadline;
use holdfast_fuse::{FuseOptions, Transport};
use rustix::mount::UnmountFlags;

use self::serve::serve;
use self::supervised::Supervisor;
use crate::mount_options::MountOptions;
use crate::mounts;
use crate::outcome::MOUNT_FAILED;
use crate::outcome::{Context, Failure, Outcome, complain, printable, with_help};
use crate::rings;
use crate::supervisor;

/// The word by which a daemon says that its mount can be used.
const READY: &str = "ready";
/// Before that, what its caller should know: this word and a sentence, any number of times.
const NOTE: &str = "note";
/// The same of what is wrong.
const WARNING: &str = "warning";

/// How long a supervisor may take to see that its daemon has died.
const GIVES_UP: Duration = Duration::from_secs(2);

/// Starts the daemon and returns when the mount can be used, or with the daemon's reason why not.
pub(crate) fn start(
    volume: &Path,
    dir: &Path,
    options: &MountOptions,
    option_lists: &[String],
    linger: bool,
) -> Outcome {
    let program = std::env::current_exe().context("this program's own path")?;
    keep_descriptors();
    let mut command = Command::new(program);
    command.args(["mount", "--detached"]);
    for list in option_lists {
        command.arg("-o").arg(list);
    }
    for (word, name) in [("--branch", &options.branch), ("--snapshot", &options.snapshot)] {
        // One argument: a name may begin with a dash.
        command.args(name.as_ref().map(|name| format!("{word}={name}")));
    }
    if linger {
        command.arg("--linger");
    }
    let mut child = command
        .arg("--")
        .args([volume, dir])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("the daemon could not be started")
        .map_err(|failure| failure.with_code(2))?;
    let stdout = child.stdout.take().expect("it was asked to be piped");
    for line in BufReader::new(stdout).lines() {
        // An unreadable line is no sentence; then only the exit status of the daemon is left to report.
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            None if line == READY => {
                if std::io::stderr().is_terminal()
                    && let Some(hint) = hint(options)
                {
                    complain(&hint);
                }
                return Ok(0);
            }
            // It need not be read, so errors are ignored.
            Some((NOTE, sentence)) => {
                drop(writeln!(std::io::stdout(), "holdfast: {}", printable(sentence)));
            }
            Some((WARNING, sentence)) => complain(sentence),
            Some((code, sentence)) => {
                let _ = child.wait();
                let_go_of_dead(volume, dir);
                let code = code.parse().unwrap_or(MOUNT_FAILED);
                return Err(Failure::new(code, sentence));
            }
            None => break,
        }
    }
    // A daemon with a supervisor may have died before it could say that it is ready, and another one goes on.
    if options.supervised && !ends_soon(&mut child) {
        return Ok(0);
    }
    let ended = child.wait();
    let_go_of_dead(volume, dir);
    let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    let sentence = format!("the daemon ended before the mount was ready ({how})");
    Err(Failure::new(4, sentence))
}

/// Takes away a mount of the volume that has lost its daemon: one that fails for want of processes gets none for the setuid helper either.
fn let_go_of_dead(volume: &Path, dir: &Path) {
    let is_dead = std::fs::metadata(dir).is_err_and(|error| mounts::is_dead(&error));
    let is_ours = |mount: &mounts::Mount| mount.dir == dir && mount.source == volume;
    if !is_dead || !mounts::list().is_ok_and(|all| all.last().is_some_and(is_ours)) {
        return;
    }
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    if rustix::mount::unmount(dir, flags).is_err() {
        // What it says is what the caller says already.
        let _ =
            Command::new("fusermount3").args(["-uz", "--"]).arg(dir).stdin(Stdio::null()).output();
    }
}

/// Whether a supervisor ends, which it does at once if nothing was mounted when its daemon died.
fn ends_soon(supervisor: &mut Child) -> bool {
    let until = Deadline::after(GIVES_UP);
    while matches!(supervisor.try_wait(), Ok(None)) {
        if until.is_over() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// How a daemon in the background stands to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// There is none.
    Alone,
    /// It is one, and starts the daemon by the arguments of this process.
    Above,
    /// Its standard input leads to one.
    Below,
}

/// The daemon's life in the background, or its supervisor's.
pub(crate) fn detached(
    volume: &Path,
    dir: &Path,
    options: &MountOptions,
    linger: bool,
    stands: Stands,
) -> Outcome {
    // Opened before the working directory changes under a relative path.
    let outcome = log::to_file_or_system(options.log.as_deref()).and_then(|()| {
        // A session of its own: no terminal, no hangup with the caller's. It fails only if there is one already.
        let _ = rustix::process::setsid();
        std::env::set_current_dir("/").context("/")?;
        surroundings::leave();
        rights::of_daemon();
        let begun = match stands {
            Stands::Alone => None,
            Stands::Above => return supervise(volume, options, linger),
            Stands::Below => Some(Supervisor::from_stdin().context("the supervisor")?),
        };
        serve(volume, dir, options, linger, begun, |opened| {
            for (word, sentence) in [(NOTE, opened.recovered), (WARNING, opened.missing)] {
                if let Some(sentence) = sentence {
                    say(&format!("{word} {}", sentence.replace('\n', " ")));
                }
            }
            say(READY);
            leave_stdout();
        })
    });
    let outcome = outcome.map_err(with_help);
    if let Err(failure) = &outcome {
        // Still connected only if the mount never became ready.
        say(&format!("{} {}", failure.code, failure.sentence.replace('\n', " ")));
        tracing::error!("{}", failure.sentence);
    }
    // Reported already, and stderr leads nowhere.
    match outcome {
        Ok(code) => Ok(code),
        Err(failure) => Ok(failure.code),
    }
}

/// The life of a supervisor.
fn supervise(volume: &Path, options: &MountOptions, linger: bool) -> Outcome {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // `mount` comes first.
    arguments.insert(1, "--supervised".into());
    let orders = supervisor::Orders { volume, arguments, read_only: options.read_only, linger };
    supervisor::run(orders, leave_stdout)
}

/// The daemon's life in the caller's process.
pub(crate) fn foreground(
    volume: &Path,
    dir: &Path,
    options: &MountOptions,
    linger: bool,
) -> Outcome {
    log::to_stderr(options.log.as_deref())?;
    rights::of_daemon();
    let served = serve(volume, dir, options, linger, None, |_| {
        tracing::info!("{} is mounted at {}", volume.display(), dir.display());
        tell_systemd();
    });
    served.map_err(|failure| match failure.code {
        crate::target::IN_USE => failure.with_code(MOUNT_FAILED),
        _ => failure,
    })
}

/// Tells systemd that the mount can be used, if a unit of Type=notify started us.
fn tell_systemd() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = UnixDatagram::unbound().and_then(|socket| {
        match name.as_bytes().strip_prefix(b"@") {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => socket.connect(&name)?,
        }
        socket.send(b"READY=1")
    });
    if let Err(error) = sent {
        tracing::warn!("systemd was not told: {error}");
    }
}

/// A line for the command that mounts. It may have been killed, which is no reason for a mount to end.
fn say(line: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// A waiting reader sees the end of the pipe; whatever is printed from now on goes nowhere.
fn leave_stdout() {
    let _ = std::io::stdout().flush();
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

/// How requests come stands in the log, and how they could come faster.
fn tell_transport(options: &MountOptions) {
    let transport = activity::transport();
    tracing::info!("requests come through {}", rings::words(transport));
    if transport == "device"
        && let Some(hint) = hint(options)
    {
        tracing::info!("{hint}");
    }
}

/// How rings are allowed, for users who did not decline them.
fn hint(options: &MountOptions) -> Option<String> {
    // Where a supervisor keeps the mount there are none.
    let may_have = options.transport == Transport::Auto && !options.supervised;
    may_have.then(rings::hint).flatten()
}

/// Starts the process that ends `connection` if this one is killed and cannot end.
fn start_watchdog(connection: OwnedFd) -> std::io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("holdfast")
        .args(["watchdog", &std::process::id().to_string()])
        .current_dir("/")
        .stdin(connection)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Signals that a terminal sends to the daemon must not reach the watchdog.
        .process_group(0)
        .spawn()
}

/// How the volume at `path` is shown to the kernel.
pub(crate) fn fuse_options(path: &Path, options: &MountOptions) -> FuseOptions {
    let is_root = rustix::process::geteuid().is_root();
    // mount(8) leaves labels out as well where the system does not know them.
    let labels = match Path::new("/sys/fs/selinux/enforce").exists() {
        true => options.labels.clone(),
        false => Vec::new(),
    };
    FuseOptions {
        source: path.into(),
        read_only: options.read_only,
        allow_other: options.allow_other.unwrap_or(is_root && options.default_permissions),
        default_permissions: options.default_permissions,
        owners: options.owners,
        nodev: options.nodev,
        nosuid: options.nosuid,
        noexec: options.noexec,
        nosymfollow: options.nosymfollow,
        noatime: options.atime == Some(Atime::Never),
        strictatime: options.atime == Some(Atime::Always),
        nodiratime: options.nodiratime,
        sync: options.sync,
        dirsync: options.dirsync,
        handover: options.handover,
        labels,
        threads: options.threads,
        spin: options.spin.unwrap_or(FuseOptions::default().spin),
        noxattr: options.noxattr,
        transport: options.transport,
        opens: options.opens,
        snapdir: options.snapdir,
        slow_fsync: options.slow_fsync,
        ..FuseOptions::default()
    }
}

/// A program that is started next inherits only its standard streams. Otherwise a reader of a pipe of the caller, up to
/// its end, or a process waiting for a lock, would wait for the daemon.
pub(crate) fn keep_descriptors() {
    close_fds::set_fds_cloexec(3, PASSED_ON.get().map(Vec::as_slice).unwrap_or_default());
}

/// Descriptors that all programs get which this process starts.
static PASSED_ON: OnceLock<Vec<i32>> = OnceLock::new();

/// What the caller has opened, all programs get that this process starts from now on, also behind [`keep_descriptors`]. Those who ask
/// a daemon get it too, and keep it if they get stuck.
pub(crate) fn pass_on_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    // It is called once.
    let _ = PASSED_ON.set(numbers);
}
