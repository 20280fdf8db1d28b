//! Where the daemon's log lines go: stderr in the foreground, otherwise a file or the system log.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use holdfast_base::Timestamp;
use holdfast_service::outcome::{Context, Failure};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{self, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

use crate::opening::is_ours;

/// Bytes of an error that are remembered.
const LINE_MAX: usize = 400;

/// Lines with times and, on a terminal without NO_COLOR, with colours.
pub(crate) fn to_stderr(file: Option<&Path>) -> Result<(), Failure> {
    if let Some(file) = file {
        return to_file(file);
    }
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && io::IsTerminal::is_terminal(&io::stderr());
    start(fmt::layer().with_writer(io::stderr).with_ansi(colour).with_target(false));
    Ok(())
}

/// For a process in the background; panics are logged as well.
pub(crate) fn to_file_or_system(file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(file) => to_file(file)?,
        None => start(
            fmt::layer()
                .with_writer(System)
                .with_ansi(false)
                .with_target(false)
                .with_level(false)
                .without_time(),
        ),
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(())
}

fn to_file(path: &Path) -> Result<(), Failure> {
    let file = append(path).context(path.display())?;
    start(
        fmt::layer().with_writer(std::sync::Mutex::new(file)).with_ansi(false).with_target(false),
    );
    Ok(())
}

/// A file to write lines behind what it has, which is made for this user alone: lines name what lies in a volume. What others have put
/// there is not followed, not written and not waited for.
fn append(path: &Path) -> io::Result<File> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let is_link = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && !is_ours(&found) => {
            return Err(refused("another user has put a symbolic link there"));
        }
        found => found.is_ok_and(|found| found.is_symlink()),
    };
    // A link of this user's is followed once, and not what takes its place.
    let real = if is_link { path.canonicalize()? } else { path.into() };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut how = File::options();
    how.create(true).append(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let file = how.open(real)?;
    let found = file.metadata()?;
    if found.file_type().is_char_device() {
        return Ok(file);
    }
    if !found.is_file() {
        return Err(refused("it is no file"));
    }
    if !is_ours(&found) {
        return Err(refused("it belongs to another user, who could read what is written"));
    }
    if found.nlink() > 1 {
        return Err(refused("it has other names, which another user may have made"));
    }
    Ok(file)
}

/// Lines of this process go through `layer`, and its errors are remembered.
fn start(layer: impl Layer<Registry> + Send + Sync) {
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)).with(Errors).init();
}

/// The errors that this process has logged.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct LoggedErrors {
    /// How many lines.
    pub count: u64,
    /// The last one.
    pub last: Option<String>,
    /// When it was written, in seconds since 1970.
    pub last_secs: i64,
}

static LOGGED: Mutex<LoggedErrors> =
    Mutex::new(LoggedErrors { count: 0, last: None, last_secs: 0 });

/// What was logged so far.
pub(crate) fn errors() -> LoggedErrors {
    LOGGED.lock().clone()
}

/// Remembers lines that are errors. Warnings are none: what was to be done was done.
struct Errors;

impl<S: Subscriber> Layer<S> for Errors {
    fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
        if *event.metadata().level() == Level::ERROR {
            let mut text = Text(String::new());
            event.record(&mut text);
            note(&mut LOGGED.lock(), text.0);
        }
    }
}

fn note(logged: &mut LoggedErrors, mut line: String) {
    logged.count += 1;
    let end = (0..=LINE_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
    line.truncate(end.unwrap_or(0));
    logged.last = Some(line);
    logged.last_secs = Timestamp::now().secs;
}

/// The text of a line: its message, and whatever else it names.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// The system log: datagrams to `/dev/log`. Without one, lines are lost, as with every other daemon.
struct System;

impl<'a> MakeWriter<'a> for System {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line::new(Level::INFO)
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Line {
        Line::new(*meta.level())
    }
}

/// One line on its way to the system log.
struct Line {
    severity: u8,
    socket: Option<Arc<UnixDatagram>>,
}

impl Line {
    fn new(level: Level) -> Line {
        let severity = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        // A fresh socket for each line: lines are rare, and the log daemon may have been restarted.
        let socket = UnixDatagram::unbound()
            .and_then(|socket| socket.connect("/dev/log").map(|()| Arc::new(socket)))
            .ok();
        Line { severity, socket }
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        const DAEMON: u8 = 3;
        if let Some(socket) = &self.socket {
            let head =
                format!("<{}>holdfast[{}]: ", DAEMON * 8 + self.severity, std::process::id());
            let text = [head.as_bytes(), line.trim_ascii_end()].concat();
            // A full log must not stop a filesystem.
            let _ = socket.set_nonblocking(true);
            let _ = socket.send(&text);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_and_the_last_one_is_kept() {
        let before = errors().count;
        let subscriber = tracing_subscriber::registry().with(Errors);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("no error");
            tracing::error!("the first");
            tracing::error!(inode = 17, "cannot be read: {}", "why");
        });
        let logged = errors();
        assert_eq!(logged.count - before, 2);
        assert_eq!(logged.last.as_deref(), Some("cannot be read: why inode=17"));
        assert!(logged.last_secs > 0);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut logged = LoggedErrors::default();
        note(&mut logged, format!("x{}", "\u{e4}".repeat(LINE_MAX)));
        let kept = logged.last.unwrap();
        assert!(kept.len() == LINE_MAX - 1 && kept.ends_with('\u{e4}'), "{kept}");
    }
}
