//! The daemon's answers to `holdfast stats`: a socket that gives one JSON object to whoever connects.
//!
//! The socket has an abstract name made of the mount's device number, so it
//! needs no file, vanishes with the daemon, and is found by who sees the
//! mount. It answers with numbers only and takes no requests.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use holdfast::FileSystem;
use holdfast::device::Device;
use holdfast_base::clock::Stopwatch;
use serde::{Deserialize, Serialize};

use crate::mounts;

/// How long the daemon before us may take to end.
const PREDECESSOR: Duration = Duration::from_secs(120);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// What a daemon says of itself.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The daemon.
    pub(crate) pid: u32,
    /// The file or block device.
    pub(crate) volume: PathBuf,
    /// What the device was asked: reads, writes, bytes, flushes.
    pub(crate) device: Vec<(String, u64)>,
    /// Every counter: name, value, meaning.
    pub(crate) counters: Vec<(String, u64, String)>,
}

/// Where the answers come from. It keeps nothing alive.
#[derive(Debug)]
pub(crate) struct Answers {
    volume: PathBuf,
    engine: Weak<FileSystem>,
    device: Weak<dyn Device>,
}

impl Answers {
    pub(crate) fn new(
        volume: &Path,
        engine: Weak<FileSystem>,
        device: Weak<dyn Device>,
    ) -> Answers {
        Answers { volume: volume.into(), engine, device }
    }

    fn report(&self) -> Option<Report> {
        let device = self.device.upgrade()?.stats();
        let counters = self.engine.upgrade()?.counters().list();
        Some(Report {
            pid: std::process::id(),
            volume: self.volume.clone(),
            device: [
                ("reads", device.reads),
                ("read_bytes", device.read_bytes),
                ("writes", device.writes),
                ("written_bytes", device.written_bytes),
                ("flushes", device.flushes),
                ("discards", device.discards),
            ]
            .map(|(name, value)| (name.to_string(), value))
            .to_vec(),
            counters: counters
                .into_iter()
                .map(|(name, value, meaning)| (name.into(), value, meaning.into()))
                .collect(),
        })
    }
}

/// Answers in a thread of its own until the process ends.
pub(crate) fn listen(dir: &Path, answers: Answers) -> io::Result<()> {
    let mount = mounts::list()?
        .into_iter()
        .rfind(|mount| mount.dir == dir)
        .ok_or(io::ErrorKind::NotFound)?;
    let name = SocketAddr::from_abstract_name(mounts::socket_name(&mount.device))?;
    std::thread::Builder::new().name("statistics".into()).spawn(move || {
        match bind(&name) {
            Ok(listener) => answer(&listener, &answers),
            // Statistics are a convenience: without the socket the mount works all the same.
            Err(error) => tracing::warn!("no statistics socket: {error}"),
        }
    })?;
    Ok(())
}

/// The kernel gives a device number away again while the daemon that had it before is still ending,
/// so the name may be taken for a moment.
fn bind(name: &SocketAddr) -> io::Result<UnixListener> {
    let waited = Stopwatch::start();
    loop {
        match UnixListener::bind_addr(name) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && waited.elapsed() < PREDECESSOR =>
            {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn answer(listener: &UnixListener, answers: &Answers) {
    for stream in listener.incoming().flatten() {
        let Some(report) = answers.report() else {
            return;
        };
        // One who does not read gets nothing, and holds up others for a second at most.
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = serde_json::to_writer(&stream, &report);
        let _ = (&stream).flush();
    }
}

/// Asks the daemon of a mount. For a moment after mounting nobody may answer, or a daemon that is just
/// ending and had the same device number.
pub(crate) fn ask(mount: &mounts::Mount) -> io::Result<Report> {
    let waited = Stopwatch::start();
    loop {
        match ask_once(mount) {
            Ok(report) if report.volume == mount.source => return Ok(report),
            answer if waited.elapsed() >= PATIENCE => {
                let stranger = || io::Error::from(io::ErrorKind::ConnectionRefused);
                return answer.and_then(|_| Err(stranger()));
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}

fn ask_once(mount: &mounts::Mount) -> io::Result<Report> {
    let name = SocketAddr::from_abstract_name(mounts::socket_name(&mount.device))?;
    let stream = UnixStream::connect_addr(&name)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(serde_json::from_reader(stream)?)
}
