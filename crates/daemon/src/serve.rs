//! The life of the process that serves a volume: open, mount, wait for the end of the last mount, close.
//!
//! One thread owns the mounts and waits for what becomes of them; those that serve requests and answer callers only tell it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use holdfast::device::Device;
use holdfast::{Atime, Volume};
use holdfast_device::FileDevice;
use holdfast_fuse::{FuseOptions, Session, end_all};
use holdfast_service::outcome::not_whole;
use holdfast_service::outcome::{Context, Failure, Outcome, plain_words, shown};
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::control_socket::ControlSocket;
use crate::host::{Host, duplicate_requests, keep, mount_options};
use crate::mount_options::DaemonOptions;
use crate::supervisor_link::{Begun, Left, TakenOver};
use crate::table::{Asks, Event, Mounting, New, Table};
use crate::uring::tell_transport;
use crate::{MOUNT_FAILED, opening, recovery};

/// How long waiters for the end of a mount may take to hear of it.
const HEARD: Duration = Duration::from_secs(1);

fn failed(failure: Failure) -> Failure {
    failure.with_code(MOUNT_FAILED)
}

/// Opens the volume, mounts it, and serves it until all of its mounts are unmounted; then everything is durable and it is
/// released. `ready` learns what opening it has met.
pub(super) fn serve(
    path: &Path,
    dir: &Path,
    options: &DaemonOptions,
    linger: bool,
    begun: Option<Begun>,
    ready: impl FnOnce(Opened) + Send,
) -> Outcome {
    // As many arenas as threads that work: the others wait. Set before there are any, since arenas stay.
    let readers = FuseOptions { threads: options.threads, ..FuseOptions::default() }.readers();
    holdfast_device::heap::bound_arenas(readers);
    let deaths = begun.as_ref().map_or(0, |it| it.deaths);
    let (supervisor, inherited, left, linger) = match begun {
        None => (None, None, Vec::new(), linger),
        Some(it) => (Some(it.supervisor), Some(it.device), it.mounts, it.linger),
    };
    let device = device_of(path, inherited, options.read_only)?;
    // Before the volume is opened: callers wait meanwhile. Closed before the device is, on each way out.
    let socket = listen_for(&device, options.read_only);
    let shared: Arc<dyn Device> = device.clone();
    let mut how = options.volume().at_rest(holdfast_device::heap::give_back);
    let taken_over = TakenOver::default();
    if let Some(first) = left.first() {
        let recovered = taken_over.when_recovered(&left).context("descriptors").map_err(failed)?;
        how = how.number(first.kept.tree).resumed(deaths).recovered(recovered);
    }
    let volume = how
        .open_device(shared.clone())
        .map_err(|error| failed(opening::not_opened(path, &*device, &error)))?;
    let (events, told) = channel();
    let table = Table::new(events, supervisor);
    table.lock().lingers = linger;
    stop_on_signals(&table)?;
    let id = device.id().context(path.display()).map_err(failed)?;
    let ends = Arc::downgrade(&shared);
    let host =
        Host::new((path, id, ends), options, Arc::clone(&table), &volume).context("the volume");
    let host = host.map_err(failed)?;
    let size = volume.info().context("the volume").map_err(failed)?.size;
    if let Some(hint) = opening::growth(path, device.len(), size) {
        tracing::info!("{hint}");
    }
    drop(shared);
    drop(device);
    let socket = socket.filter(|socket| match host.listen(socket) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(
                "the system gives no thread for callers ({error}): no other mount can join"
            );
            false
        }
    });
    let mounted = match left.is_empty() {
        true => first(&host, volume, dir, options, ready),
        false => go_on(&host, volume, left, &taken_over),
    };
    let served = mounted.map(|()| live(&table, &told));
    // Nothing is mounted any more.
    host.works.end();
    let ended = match served {
        Ok(ended) => ended,
        Err(failure) => {
            drop(socket);
            close_rest(&table);
            drop(close_volume(&host));
            return Err(failure);
        }
    };
    drop(socket);
    let closed = close_volume(&host);
    ended?;
    closed.context(format_args!("{} could not be closed", path.display())).map_err(failed)?;
    tracing::info!("{} is closed, everything is written", path.display());
    Ok(0)
}

/// What opening a volume has met, as sentences.
pub(super) struct Opened {
    /// What was recovered.
    pub(super) recovered: Option<String>,
    /// What is missing of the last state.
    pub(super) missing: Option<String>,
}

/// The file or block device at `path`; that which a supervisor has locked, if there is one.
fn device_of(
    path: &Path,
    inherited: Option<(OwnedFd, Vec<OwnedFd>)>,
    read_only: bool,
) -> Result<Arc<FileDevice>, Failure> {
    let device = match inherited {
        Some(locked) => opening::inherited(locked, path, read_only),
        None => opening::open_file(path, read_only),
    };
    device.map_err(|failure| {
        let code = if failure.code == opening::IN_USE { opening::IN_USE } else { MOUNT_FAILED };
        failure.with_code(code)
    })
}

/// The control socket of a volume; without one no mount can join.
fn listen_for(device: &FileDevice, read_only: bool) -> Option<ControlSocket> {
    let made = device.id().and_then(|id| ControlSocket::bind(&id, !read_only));
    made.inspect_err(|error| {
        tracing::warn!(
            "there is no control socket ({}): no other mount can join",
            plain_words(error)
        );
    })
    .ok()
}

/// The mount that the daemon was started for.
fn first(
    host: &Arc<Host>,
    volume: Volume,
    dir: &Path,
    options: &DaemonOptions,
    ready: impl FnOnce(Opened),
) -> Result<(), Failure> {
    let engine = volume.engine().context("the volume")?;
    let opened = engine.counters().list();
    let value = |name: &str| opened.iter().find(|it| it.name == name).map(|it| it.value);
    let recovered = recovery::done(value);
    if let Some(sentence) = &recovered {
        tracing::info!("{}: {sentence}", host.path.display());
    }
    let shown = host.path.display();
    let missing = engine.missing().map(|why| format!("{shown}: {}", not_whole(why)));
    // Access times of directories are the only ones that the engine does not know of yet.
    engine.set_atime(options.atime.unwrap_or(Atime::Relative), !options.nodiratime);
    let branch = match engine.snapshot_name() {
        Ok(None) => engine.branch_number().ok(),
        _ => None,
    };
    let user = geteuid().as_raw();
    let duplicate_requests = duplicate_requests(host).context("the volume").map_err(failed)?;
    let fuse_options =
        FuseOptions { duplicate_requests, ..mount_options(host, options, &engine, user) };
    let tree = match &branch {
        Some(branch) => (*branch, true),
        None => (engine.tree_number(), false),
    };
    // Before it is mounted: requests come as soon as it is, and one that gives the branch another head must not find that it
    // is not mounted.
    let place = host.table.place(branch, None, Asks::Writer, Duration::ZERO);
    let was_ended =
        || Failure::new(MOUNT_FAILED, format!("{}: the daemon was ended", dir.display()));
    let Ok(mut place) = place else {
        let _ = volume.close();
        return Err(was_ended());
    };
    let session = holdfast_fuse::mount(dir, &fuse_options)
        .and_then(|mounted| Session::start(engine, mounted, &fuse_options));
    let session = session.map_err(|error| {
        let sentence = format!("{}: {}", dir.display(), plain_words(&error));
        Failure::new(MOUNT_FAILED, sentence)
    });
    let session = match session {
        Ok(session) => session,
        Err(failure) => {
            let _ = volume.close();
            return Err(failure);
        }
    };
    let mounting = Mounting {
        device: session.device().map(Into::into),
        dir: dir.into(),
        options: options.text.clone(),
        read_only: options.read_only,
        user,
    };
    let keeping = keep(host, &session, &fuse_options, tree, &mounting);
    place
        .fill(New { session, volume, mounting, keeping, is_resumed: false })
        .map_err(|_| was_ended())?;
    tell_transport(options);
    serves(host);
    ready(Opened { recovered, missing });
    Ok(())
}

/// Goes on with what was mounted when another daemon died. Mounts that cannot go on end.
fn go_on(
    host: &Arc<Host>,
    volume: Volume,
    left: Vec<Left>,
    taken_over: &TakenOver,
) -> Result<(), Failure> {
    // The first of them was opened with the volume.
    let mut opened = Some(volume);
    // All before the first answers: a command that the kernel sends there may be about any other.
    let hold = |left: Left| (host.hold(&left, taken_over.next(), opened.take()), left);
    let held: Vec<_> = left.into_iter().map(hold).collect();
    for (held, left) in held {
        let (dir, number) = (left.dir(), left.kept.number);
        if let Err(error) = host.resume(left, held) {
            let dir = shown(&dir);
            tracing::error!("{dir} cannot go on: {}", plain_words(&error));
            if let Some(supervisor) = host.table.supervisor() {
                drop(supervisor.keeps(number));
            }
        }
    }
    serves(host);
    // Where none could go on, it is time to end.
    host.table.tell(Event::Look);
    Ok(())
}

/// Others may join.
fn serves(host: &Host) {
    host.table.serve();
    if let Some(supervisor) = host.table.supervisor() {
        supervisor.ready();
    }
}

/// Waits for what becomes of the mounts, until none is left.
fn live(table: &Table, told: &Receiver<Event>) -> Result<(), Failure> {
    let mut first = Ok(());
    while !table.is_over() {
        let ended = match told.recv() {
            Ok(Event::Ended(number)) => {
                let taken = table.take(number);
                taken.map(|(session, volume)| (number, session, volume)).into_iter().collect()
            }
            Ok(Event::GivesWay(number)) => {
                let mut taken = table.take(number);
                if let Some((session, _)) = &mut taken {
                    tracing::info!(
                        "a mount of a user who may only read gives way to one of a user who may write"
                    );
                    end_all(&mut [session]);
                }
                taken.map(|(session, volume)| (number, session, volume)).into_iter().collect()
            }
            Ok(Event::Look) => Vec::new(),
            Ok(Event::Stop) | Err(_) => table.end(),
        };
        for (number, session, volume) in ended {
            let done = close(session, volume);
            table.remove(number, done.as_ref().err().map(|failure| failure.sentence.clone()));
            first = first.and(done);
        }
    }
    first
}

/// What is left of a daemon whose first mount has failed.
fn close_rest(table: &Table) {
    for (number, session, volume) in table.end() {
        let done = close(session, volume);
        table.remove(number, done.err().map(|failure| failure.sentence));
    }
}

/// Lets a mount go that has ended, and closes its branch.
fn close(session: Session, volume: Volume) -> Result<(), Failure> {
    // It may be of a user who likes to see other lines in the log.
    let dir = shown(session.dir());
    let served = session.finish();
    let stopped = volume.stop_reason();
    let closed = volume.close();
    let sentence = match (served, stopped, closed) {
        (Err(error), ..) => format!("{dir}: {}", plain_words(&error)),
        (_, Some(reason), _) => format!("the volume at {dir} had stopped after an error: {reason}"),
        (.., Err(error)) => format!("{dir} could not be closed: {}", plain_words(&error)),
        _ => {
            tracing::info!("{dir} is unmounted");
            return Ok(());
        }
    };
    tracing::error!("{sentence}");
    Err(Failure::new(MOUNT_FAILED, sentence))
}

/// Closes the volume, and tells the waiters.
fn close_volume(host: &Host) -> std::io::Result<()> {
    let kept = host.kept.write().take();
    let closed = kept.map_or(Ok(()), holdfast::KeptVolume::close);
    let why = closed.as_ref().err().map(plain_words);
    if let Some(why) = &why {
        tracing::error!("the volume could not be closed: {why}");
    }
    host.table.closed(why.map_or(Ok(()), Err), HEARD);
    closed
}

/// SIGTERM and SIGINT unmount and end cleanly; SIGHUP means nothing to a daemon, and a file that may grow no further
/// (SIGXFSZ) is an error of its write.
fn stop_on_signals(table: &Arc<Table>) -> Result<(), Failure> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGXFSZ])
        .context("signal handlers")
        .map_err(|failure| failure.with_code(2))?;
    let table = Arc::clone(table);
    let started = holdfast_sync::start("signals", move || {
        for signal in signals.forever() {
            if matches!(signal, SIGTERM | SIGINT) {
                tracing::info!("signal {signal}: unmounting");
                table.tell(Event::Stop);
            }
        }
    });
    started.map(drop).map_err(|error| {
        let why = format!("the system gives no thread for signals ({})", plain_words(&error));
        Failure::new(2, format!("{why}; raise its limit of processes"))
    })
}
