//! What a benchmark has to undo, and the programs that it runs.
//!
//! Files and mount points are in a temporary directory of the `Bed`; everything else has an [`Undo`],
//! which acts when it is dropped, after a failure and a panic as well. A signal only sets a flag ([`watch`]): whatever
//! goes on looks at it ([`interrupted`]) and fails, and so all is undone on the way out.

use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signal that has come; 0 if none has.
static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Undoes something when it is dropped.
#[must_use = "it is undone when this is dropped"]
pub(crate) struct Undo(Option<Box<dyn FnOnce() -> io::Result<()>>>);

impl Undo {
    /// Does `undo` in the end.
    pub(crate) fn new(undo: impl FnOnce() -> io::Result<()> + 'static) -> Undo {
        Undo(Some(Box::new(undo)))
    }

    /// Undoes it now, and says whether that went well.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |undo| undo())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|undo| undo()) {
            eprintln!("holdfast-dev: cleaning up: {error}");
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP make everything end that looks at `interrupted`; a second one ends the
/// process at once, and nothing is undone.
pub fn watch() -> io::Result<()> {
    let flag = SIGNAL.get_or_init(Arc::default);
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, again.clone())?;
        signal_hook::flag::register(signal, again.clone())?;
        signal_hook::flag::register_usize(signal, flag.clone(), signal as usize)?;
    }
    Ok(())
}

/// The signal that has come, if one has.
pub fn signal() -> Option<u8> {
    let signal = SIGNAL.get()?.load(Ordering::Relaxed);
    u8::try_from(signal).ok().filter(|signal| *signal > 0)
}

/// An error of kind `Interrupted` when a signal has come: for whatever goes on for long.
pub(crate) fn interrupted() -> io::Result<()> {
    signal().map_or(Ok(()), |_| Err(io::ErrorKind::Interrupted.into()))
}

/// Runs a program to its end: what it said. If it fails, the error holds that.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(io::Error::other(format!("{name}: {} ({})", said.join("; "), output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_undone_once_also_after_a_panic() {
        static UNDONE: AtomicUsize = AtomicUsize::new(0);
        let undo = || {
            UNDONE.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let panicked = std::panic::catch_unwind(|| {
            let _undo = Undo::new(undo);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(UNDONE.load(Ordering::Relaxed), 1);
        Undo::new(undo).finish().unwrap();
        assert_eq!(UNDONE.load(Ordering::Relaxed), 2);
        assert!(Undo::new(|| Err(io::ErrorKind::Other.into())).finish().is_err());
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = run(Command::new("ls").arg("/no/such/place")).unwrap_err().to_string();
        assert!(error.contains("ls: ") && error.contains("/no/such/place"), "{error}");
        assert!(run(Command::new("echo").arg("yes")).unwrap().contains("yes"));
    }
}
