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
use holdfast_base::counters::{Kind, Reading};
use serde::{Deserialize, Serialize};

use crate::mounts;

/// How long the daemon before us may take to end.
const PREDECESSOR: Duration = Duration::from_secs(120);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// What a daemon says of itself.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The daemon.
    pub(crate) pid: u32,
    /// The file or block device.
    pub(crate) volume: PathBuf,
    /// Every statistic, group after group; the last group is what the device was asked.
    pub(crate) counters: Vec<Counter>,
}

/// The group of the statistics that the device keeps.
pub(crate) const DEVICE: &str = "device";

/// A statistic, on its way from the daemon.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    pub(crate) value: u64,
    pub(crate) group: String,
    /// A difference or a rate of it means nothing.
    pub(crate) gauge: bool,
    /// It is expected to be 0.
    #[serde(default)]
    pub(crate) alarm: bool,
    pub(crate) meaning: String,
}

impl Report {
    /// The value of the engine's statistic called `name`.
    pub(crate) fn value(&self, name: &str) -> Option<u64> {
        let mut own = self.counters.iter().filter(|counter| counter.group != DEVICE);
        own.find(|counter| counter.name == name).map(|counter| counter.value)
    }
}

impl From<Reading> for Counter {
    fn from(reading: Reading) -> Counter {
        Counter {
            name: reading.name.into(),
            value: reading.value,
            group: reading.group.into(),
            gauge: reading.kind == Kind::Gauge,
            alarm: reading.kind == Kind::Alarm,
            meaning: reading.meaning.into(),
        }
    }
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
        let of_device = [
            ("reads", device.reads, "Read calls."),
            ("read_bytes", device.read_bytes, "Bytes read."),
            ("writes", device.writes, "Write calls."),
            ("written_bytes", device.written_bytes, "Bytes written."),
            ("flushes", device.flushes, "Flushes."),
            ("discards", device.discards, "Discards."),
        ]
        .map(|(name, value, meaning)| Reading {
            name,
            value,
            kind: Kind::Total,
            group: DEVICE,
            meaning,
        });
        let of_engine = self.engine.upgrade()?.counters().list();
        Some(Report {
            pid: std::process::id(),
            volume: self.volume.clone(),
            counters: of_engine.into_iter().chain(of_device).map(Counter::from).collect(),
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
