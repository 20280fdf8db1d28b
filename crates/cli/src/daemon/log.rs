//! Where the daemon's log lines go: stderr in the foreground, otherwise a file or the system log.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::outcome::{Context, Failure};

/// Lines with times and, on a terminal without NO_COLOR, with colours.
pub(crate) fn to_stderr(file: Option<&Path>) -> Result<(), Failure> {
    if let Some(file) = file {
        return to_file(file);
    }
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && io::IsTerminal::is_terminal(&io::stderr());
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(colour).with_target(false).init();
    Ok(())
}

/// For a process in the background; panics are logged as well.
pub(crate) fn to_file_or_system(file: Option<&Path>) -> Result<(), Failure> {
    match file {
        Some(file) => to_file(file)?,
        None => tracing_subscriber::fmt()
            .with_writer(System)
            .with_ansi(false)
            .with_target(false)
            .with_level(false)
            .without_time()
            .init(),
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    Ok(())
}

fn to_file(path: &Path) -> Result<(), Failure> {
    let file = File::options().create(true).append(true).open(path).context(path.display())?;
    tracing_subscriber::fmt()
        .with_writer(Mutex::new(file))
        .with_ansi(false)
        .with_target(false)
        .init();
    Ok(())
}

/// The system log: datagrams to `/dev/log`. Without one, lines are lost, as with every other daemon.
struct System;

impl<'a> MakeWriter<'a> for System {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line::new(Level::INFO)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
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
