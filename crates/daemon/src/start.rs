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
//! control socket (`control_socket`, [`crate::client`]).
//!
//! The daemon is this program run again, not forked, so that it starts with
//! one thread. Of its caller it keeps nothing: no descriptor, no terminal, no
//! directory, no limit that is meant for the caller's own work
//! (`surroundings`). It never touches its own mount point.

use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_service::outcome::{Context, Failure, Outcome};
use rustix::mount::UnmountFlags;

use crate::descriptors::keep_descriptors;
use crate::mount_options::DaemonOptions;
use crate::mounts::with_help;
use crate::serve::serve;
use crate::supervisor_link::Supervisor;
use crate::{MOUNT_FAILED, drop_privileges, log, mounts, supervisor, surroundings};

/// The word by which a daemon says that its mount can be used.
const READY: &str = "ready";
/// Before that, what its caller should know: this word and a sentence, any number of times.
const NOTE: &str = "note";
/// The same of what is wrong.
const WARNING: &str = "warning";

/// How long a supervisor may take to see that its daemon has died.
const GIVES_UP: Duration = Duration::from_secs(2);

/// What a daemon that starts tells the person who mounts; a sentence that a terminal may not see as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What was done, as a recovery.
    Done(String),
    /// What is wrong with the volume that is mounted all the same.
    Warning(String),
}

/// Starts the daemon of a volume, this program run again, and returns when the mount can be used. What it has to say until then goes to `tell`.
///
/// # Errors
/// The daemon's reason why it does not serve, with its code: [`IN_USE`](crate::opening::IN_USE) if another process has the volume, 2 if the
/// system gives no process.
pub fn start(
    volume: &Path,
    dir: &Path,
    options: &DaemonOptions,
    option_lists: &[String],
    linger: bool,
    tell: &mut dyn FnMut(Notice),
) -> Result<(), Failure> {
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
            None if line == READY => return Ok(()),
            Some((NOTE, sentence)) => tell(Notice::Done(sentence.into())),
            Some((WARNING, sentence)) => tell(Notice::Warning(sentence.into())),
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
        return Ok(());
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
pub enum Supervision {
    /// There is none.
    Alone,
    /// It is one, and starts the daemon by the arguments of this process.
    Above,
    /// Its standard input leads to one.
    Below,
}

/// The daemon's life in the background, or its supervisor's, in a process that [`start`] has started. Returns its exit code.
///
/// # Errors
/// None: what fails is told to the process that waits, by the standard output, and to the log.
pub fn detached(
    volume: &Path,
    dir: &Path,
    options: &DaemonOptions,
    linger: bool,
    stands: Supervision,
) -> Outcome {
    // Opened before the working directory changes under a relative path.
    let outcome = log::to_file_or_system(options.log.as_deref()).and_then(|()| {
        // A session of its own: no terminal, no hangup with the caller's. It fails only if there is one already.
        let _ = rustix::process::setsid();
        std::env::set_current_dir("/").context("/")?;
        surroundings::leave();
        drop_privileges::of_daemon();
        let begun = match stands {
            Supervision::Alone => None,
            Supervision::Above => return supervise(volume, options, linger),
            Supervision::Below => Some(Supervisor::from_stdin().context("the supervisor")?),
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
fn supervise(volume: &Path, options: &DaemonOptions, linger: bool) -> Outcome {
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    // `mount` comes first.
    arguments.insert(1, "--supervised".into());
    let orders = supervisor::Orders { volume, arguments, read_only: options.read_only, linger };
    supervisor::run(orders, leave_stdout)
}

/// The daemon's life in the caller's process, which logs to the standard error. Returns when the last mount is gone and the volume is
/// closed.
///
/// # Errors
/// It is not mounted, or not everything could be written.
pub fn foreground(volume: &Path, dir: &Path, options: &DaemonOptions, linger: bool) -> Outcome {
    log::to_stderr(options.log.as_deref())?;
    drop_privileges::of_daemon();
    let served = serve(volume, dir, options, linger, None, |_| {
        tracing::info!("{} is mounted at {}", volume.display(), dir.display());
        tell_systemd();
    });
    served.map_err(|failure| match failure.code {
        crate::opening::IN_USE => failure.with_code(MOUNT_FAILED),
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
