//! What a benchmark has to undo: programs, mounts, loop devices, files, settings of the kernel.
//!
//! [`CleanupGuard`] is made together with the thing it undoes, and undoes it when it is
//! dropped: after a failure and a panic as well. One list of the process holds
//! all cleanups, because a signal does not unwind: [`watch`] then runs all of them,
//! the newest first, and ends the process with the code of the signal.
//!
//! Always true: a cleanup is in the list before any other process can see the thing.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How long a busy mount, and a device that is still in use, is tried again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// One thing that must not stay.
#[derive(Clone, Debug)]
pub(crate) enum Cleanup {
    /// A program that was started and not yet waited for.
    Program(u32),
    /// A mounted filesystem.
    Mount(PathBuf),
    /// A mount of ours and the program that unmounts it.
    OurMount(PathBuf, PathBuf),
    /// A loop device.
    Loop(PathBuf),
    /// A file.
    File(PathBuf),
    /// A directory, with all that is in it.
    Dir(PathBuf),
    /// An empty directory, where something was mounted.
    MountPoint(PathBuf),
    /// A parameter of the kernel and what it was before.
    Setting(PathBuf, String),
}

static CLEANUPS: Mutex<Vec<(u64, Cleanup)>> = Mutex::new(Vec::new());
/// The number of the next cleanup: none is given twice.
static NEXT: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Undoes something when it is dropped.
#[derive(Debug)]
#[must_use = "it is undone when this is dropped"]
pub(crate) struct CleanupGuard(u64);

impl CleanupGuard {
    /// Makes a thing and registers its cleanup. No signal comes between.
    pub(crate) fn make<T>(
        make: impl FnOnce() -> io::Result<(T, Cleanup)>,
    ) -> io::Result<(T, CleanupGuard)> {
        let mut cleanups = CLEANUPS.lock();
        let (made, cleanup) = make()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        cleanups.push((number, cleanup));
        Ok((made, CleanupGuard(number)))
    }

    /// Undoes it now, and says whether that went well.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.quiesce(true)
    }

    /// It has ended by itself.
    pub(crate) fn forget(self) {
        self.taken();
    }

    fn taken(&self) -> Option<Cleanup> {
        let mut cleanups = CLEANUPS.lock();
        let at = cleanups.iter().position(|(number, _)| *number == self.0)?;
        Some(cleanups.remove(at).1)
    }

    /// It stays in the list until it is undone, so that a signal meanwhile undoes it as well: everything here
    /// may be undone twice.
    fn quiesce(&self, gently: bool) -> io::Result<()> {
        let found = CLEANUPS
            .lock()
            .iter()
            .find(|(number, _)| *number == self.0)
            .map(|(_, cleanup)| cleanup.clone());
        let result = found.map_or(Ok(()), |cleanup| cleanup.run(gently));
        self.taken();
        result
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        if let Err(error) = self.quiesce(true) {
            eprintln!("holdfast-dev: cleaning up: {error}");
        }
    }
}

impl Cleanup {
    fn run(&self, gently: bool) -> io::Result<()> {
        match self {
            Cleanup::Program(pid) => {
                let Some(pid) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw)
                else {
                    return Ok(());
                };
                gone(rustix::process::kill_process(pid, rustix::process::Signal::KILL))
            }
            Cleanup::Mount(dir) => unmount(dir, gently),
            Cleanup::OurMount(dir, program) => unmount_ours(dir, program, gently),
            Cleanup::Loop(device) => detach(device),
            Cleanup::File(path) => missing(std::fs::remove_file(path)),
            Cleanup::Dir(path) => remove_dir(path),
            Cleanup::MountPoint(path) => missing(std::fs::remove_dir(path)),
            Cleanup::Setting(path, before) => std::fs::write(path, before),
        }
    }
}

/// What is not there any more was undone.
fn gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::INVAL | Errno::NOENT | Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

fn missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Patiently, and in the end even if it is in use.
fn unmount(dir: &Path, gently: bool) -> io::Result<()> {
    let until = Deadline::after(if gently { PATIENCE } else { Duration::ZERO });
    loop {
        match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) if !until.is_over() => std::thread::sleep(PAUSE),
            Err(Errno::BUSY) => {
                return gone(rustix::mount::unmount(dir, UnmountFlags::DETACH));
            }
            other => return gone(other),
        }
    }
}

fn unmount_ours(dir: &Path, program: &Path, gently: bool) -> io::Result<()> {
    let mounted = holdfast_base::proc::list("/proc/self/mountinfo")?;
    if !mounted.lines().any(|line| line.split(' ').nth(4) == dir.to_str()) {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.arg("umount").args((!gently).then_some("--lazy")).arg(dir);
    match run(&mut command) {
        Ok(_) => Ok(()),
        Err(error) => {
            gone(rustix::mount::unmount(dir, UnmountFlags::DETACH))?;
            Err(error)
        }
    }
}

/// A device that is still used is detached by its last user.
fn detach(device: &Path) -> io::Result<()> {
    let name = device.file_name().unwrap_or_default();
    let attached = Path::new("/sys/block").join(name).join("loop/backing_file");
    let until = Deadline::after(PATIENCE);
    while attached.exists() && !until.is_over() {
        // It fails when it is detached already.
        let _ = run(Command::new("losetup").arg("--detach").arg(device));
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Tries again while another process still adds to it.
fn remove_dir(path: &Path) -> io::Result<()> {
    let until = Deadline::after(PATIENCE);
    loop {
        match missing(std::fs::remove_dir_all(path)) {
            Err(_) if !until.is_over() => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// Runs a program to its end; if it fails, the error holds what it said.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let child = start(command)?;
    said(command, child.wait_with_output()?)
}

/// The same with a program that works inside a mount: a signal to us ends it first.
pub(crate) fn run_inside(command: &mut Command) -> io::Result<String> {
    let (child, guard) = CleanupGuard::make(|| {
        let child = start(command)?;
        let cleanup = Cleanup::Program(child.id());
        Ok((child, cleanup))
    })?;
    let output = child.wait_with_output()?;
    guard.forget();
    interrupted()?;
    said(command, output)
}

fn start(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    child.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name(command))))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn said(command: &Command, output: Output) -> io::Result<String> {
    let name = name(command);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(io::Error::other(format!("{name}: {} ({})", said.join("; "), output.status)))
}

/// An error when a signal has come: for loops that go on until they are stopped.
pub(crate) fn interrupted() -> io::Result<()> {
    match INTERRUPTED.load(Ordering::Relaxed) {
        true => Err(io::ErrorKind::Interrupted.into()),
        false => Ok(()),
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP undo everything and end the process.
pub fn watch() -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        INTERRUPTED.store(true, Ordering::Relaxed);
        // While the lock is held, no new cleanup is made.
        let cleanups = CLEANUPS.lock();
        for (_, cleanup) in cleanups.iter().rev() {
            if let Err(error) = cleanup.run(false) {
                eprintln!("holdfast-dev: cleaning up: {error}");
            }
        }
        std::process::exit(128 + signal);
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleanups_are_run_also_after_a_panic() {
        let place = tempfile::tempdir().unwrap();
        let (dir, file) = (place.path().join("dir"), place.path().join("file"));
        let panicked = std::panic::catch_unwind(|| {
            let (_, _dir) = CleanupGuard::make(|| {
                std::fs::create_dir_all(dir.join("some/where"))?;
                Ok(((), Cleanup::Dir(dir.clone())))
            })
            .unwrap();
            let (_, _file) = CleanupGuard::make(|| {
                std::fs::write(&file, "x")?;
                Ok(((), Cleanup::File(file.clone())))
            })
            .unwrap();
            assert!(dir.exists() && file.exists());
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(!dir.exists() && !file.exists());
    }

    #[test]
    fn settings_are_as_they_were() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("parameter");
        std::fs::write(&path, "N").unwrap();
        let ((), guard) = CleanupGuard::make(|| {
            std::fs::write(&path, "Y")?;
            Ok(((), Cleanup::Setting(path.clone(), "N".into())))
        })
        .unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "Y");
        guard.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "N");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = run(Command::new("ls").arg("/no/such/place")).unwrap_err().to_string();
        assert!(error.contains("ls: ") && error.contains("/no/such/place"), "{error}");
        assert!(run_inside(Command::new("echo").arg("yes")).unwrap().contains("yes"));
    }
}
