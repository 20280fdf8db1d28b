//! Attributes by which a mount is asked, read by a process of its own; by ioctl(2) where a mount has no others. And commands
//! for it, which come by that ioctl everywhere.
//!
//! A thread that waits for the answer of a FUSE server cannot be interrupted, not even by SIGKILL, and a process does
//! not end before its threads. So a daemon that is stuck, or a stranger's that never answers, would hold `holdfast
//! stats` for ever. Instead a second process asks, and is left behind if no answer comes; it ends when the daemon does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_base::clock::Deadline;
use holdfast_control::{Ask, Reply};
use holdfast_fuse::CONTROL;
use holdfast_service::outcome::{Failure, Outcome};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::control_socket::PAUSE;
use crate::descriptors::keep_descriptors;

/// What the daemon says of itself.
pub(crate) const REPORT: &str = "system.holdfast.report";
/// Reading it makes everything durable, pages of memory maps included.
pub const SYNC: &str = "system.holdfast.sync";
/// The number of the snapshot that something is of; ENODATA of all else.
pub const SNAPSHOT: &str = "system.holdfast.snapshot";
/// No attribute: nothing is asked.
const NOTHING: &str = "";
/// No value of an attribute is longer.
pub(crate) const VALUE_MAX: usize = 65536;

/// Processes that were left behind, and the mounts that have not answered them.
static LEFT: Mutex<Vec<(PathBuf, Child)>> = Mutex::new(Vec::new());

/// The value of an attribute of a mounted directory.
///
/// # Errors
/// What the mount answered; `TimedOut` if nothing in `patience`.
pub fn attribute(dir: &Path, name: &str, patience: Duration) -> io::Result<Vec<u8>> {
    by_another(dir, name, patience, None)
}

/// The answer of a mounted directory to a question about branches and snapshots.
///
/// # Errors
/// As of [`attribute`]. What is asked may be done all the same.
pub(crate) fn lineage(dir: &Path, ask: &Ask, patience: Duration) -> io::Result<Reply> {
    let text = format!("{}{}", String::from_utf8_lossy(CONTROL), serde_json::to_string(ask)?);
    Ok(serde_json::from_slice(&attribute(dir, &text, patience)?)?)
}

/// Has the kernel hand over what programs have in memory of files that are mapped.
///
/// # Errors
/// As of [`attribute`].
pub fn hand_over_pages(dir: &Path, patience: Duration) -> io::Result<()> {
    attribute(dir, NOTHING, patience).map(drop)
}

/// Makes everything in a mount durable by its daemon, in `patience`; `meanwhile` is called now and then.
///
/// # Errors
/// What the daemon answered; `TimedOut`.
pub fn sync(dir: &Path, patience: Duration, meanwhile: &mut dyn FnMut()) -> io::Result<()> {
    by_another(dir, SYNC, patience, Some(meanwhile)).map(drop)
}

/// Has another process ask for an attribute; `meanwhile` is called now and then while there is no answer.
fn by_another(
    dir: &Path,
    name: &str,
    patience: Duration,
    meanwhile: Option<&mut dyn FnMut()>,
) -> io::Result<Vec<u8>> {
    // It would not be answered either, and each holds a process here and a request there.
    if is_still_asked(dir) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    keep_descriptors();
    let mut child = Command::new("/proc/self/exe")
        .arg0("holdfast")
        .arg("ask")
        .arg(name)
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // A signal that a terminal sends to the command must not end what has been begun.
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let said = read_in_time(stdout, Deadline::after(patience), meanwhile);
    match &said {
        Ok(_) => drop(child.wait()?),
        // Not waited for: it may be unable to end.
        Err(_) => {
            let _ = child.kill();
            LEFT.lock().push((dir.into(), child));
        }
    }
    answer(&said?)
}

/// Takes leave of those that have ended meanwhile. Whether one still asks the mount at `dir`.
fn is_still_asked(dir: &Path) -> bool {
    let mut left = LEFT.lock();
    left.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    left.iter().any(|(of, _)| of == dir)
}

/// What comes through `pipe` up to its end. Needs no thread, as the system may give none.
fn read_in_time(
    mut pipe: impl Read + AsFd,
    until: Deadline,
    mut meanwhile: Option<&mut dyn FnMut()>,
) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while said.len() < VALUE_MAX + 16 {
        let mut wanted = [PollFd::new(&pipe, PollFlags::IN)];
        let pause = if meanwhile.is_some() { PAUSE } else { Duration::MAX };
        let left = Timespec::try_from(until.left().min(pause)).unwrap_or_default();
        match poll(&mut wanted, Some(&left)) {
            Ok(0) if until.is_over() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) => {
                if let Some(meanwhile) = &mut meanwhile {
                    meanwhile();
                }
                continue;
            }
            Err(Errno::INTR) => continue,
            ready => drop(ready?),
        }
        match pipe.read(&mut part)? {
            0 => break,
            len => said.extend_from_slice(&part[..len]),
        }
    }
    Ok(said)
}

/// `NUMBER newline VALUE`, where the number is 0 or that of an error.
fn answer(said: &[u8]) -> io::Result<Vec<u8>> {
    let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
    let end = said.iter().position(|byte| *byte == b'\n').ok_or_else(nonsense)?;
    let number = std::str::from_utf8(&said[..end]).ok().and_then(|text| text.parse().ok());
    match number.ok_or_else(nonsense)? {
        0 => Ok(said[end + 1..].to_vec()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// The life of the process that asks.
pub fn run(dir: &Path, name: &str) -> Outcome {
    // Pages of memory maps first: what this user may not have written now the kernel writes when it unmounts.
    let written = match name {
        SYNC | NOTHING => write_pages(dir).map(|sent| {
            if !sent {
                // Takes no directory, and so no permission either.
                rustix::fs::sync();
                settle(dir);
            }
        }),
        _ => Ok(()),
    };
    let value = || match name.as_bytes().strip_prefix(CONTROL) {
        None if name == NOTHING => Ok(Vec::new()),
        Some(question) => {
            let ask: Ask = serde_json::from_slice(question)?;
            if ask.wants_pages() {
                write_pages(dir)?;
            }
            Ok(serde_json::to_vec(&holdfast_control::ask(File::open(dir)?, &ask)?)?)
        }
        None => read(dir, name),
    };
    let said = match written.and_then(|()| value()) {
        Ok(value) => [&b"0\n"[..], &value].concat(),
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            format!("{number}\n").into_bytes()
        }
    };
    let told = std::io::stdout().write_all(&said);
    told.map(|()| 0).map_err(|_| Failure::plain(""))
}

/// The value of an attribute of a mount, asked for by this process.
fn read(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; VALUE_MAX];
    match rustix::fs::getxattr(path, name, &mut value[..]) {
        Ok(length) => Ok(value[..length].to_vec()),
        Err(error @ Errno::OPNOTSUPP) => without_attributes(path, name).ok_or(error)?,
        Err(error) => Err(error.into()),
    }
}

/// Asks a mount with `noxattr`, which takes a descriptor and so the right to read; `None` if `path` is in none.
fn without_attributes(path: &Path, name: &str) -> Option<io::Result<Vec<u8>>> {
    // Others may do anything when they are opened.
    let found = std::fs::metadata(path).ok()?;
    if !found.is_dir() && !found.is_file() {
        return None;
    }
    let asked = File::open(path).and_then(|file| holdfast_fuse::attribute(&file, name.as_bytes()));
    match asked {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => None,
        asked => Some(asked),
    }
}

/// Waits until what the kernel was made to send of mappings has come to the daemon.
fn settle(dir: &Path) {
    crate::settle::settle(|name| read(dir, name));
}

/// Makes the kernel write what it holds of files that are mapped into memory, and waits until it has come; false if this user may not
/// open `dir`, or something else is mounted over it.
fn write_pages(dir: &Path) -> io::Result<bool> {
    let hidden = [Errno::ACCESS, Errno::PERM, Errno::NOENT, Errno::NOTDIR, Errno::STALE];
    match File::open(dir) {
        Ok(root) => {
            rustix::fs::syncfs(&root).map_err(of_a_write)?;
            settle(dir);
            Ok(true)
        }
        Err(error) if Errno::from_io_error(&error).is_some_and(|it| hidden.contains(&it)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// An error of syncfs is what some write was answered with, and says nothing of this caller's rights.
fn of_a_write(error: Errno) -> Errno {
    match error {
        Errno::PERM | Errno::ACCESS => Errno::IO,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_was_refused_for_is_no_matter_of_rights() {
        let all = [Errno::PERM, Errno::ACCESS, Errno::NOSPC];
        assert_eq!(all.map(of_a_write), [Errno::IO, Errno::IO, Errno::NOSPC]);
    }

    #[test]
    fn what_does_not_come_to_an_end_is_not_waited_for() {
        let (pipe, mut other) = io::pipe().unwrap();
        other.write_all(b"0\nvalue").unwrap();
        let error = read_in_time(pipe.try_clone().unwrap(), Deadline::after(Duration::ZERO), None);
        // What was there is not an answer before its end.
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // It comes while something else is done.
        let (mut other, mut times) = (Some(other), 0);
        let mut meanwhile = || {
            times += 1;
            if let Some(mut other) = other.take() {
                other.write_all(b"0\nanother").unwrap();
            }
        };
        let until = Deadline::after(Duration::from_secs(60));
        let said = read_in_time(pipe, until, Some(&mut meanwhile)).unwrap();
        assert_eq!((&said[..], times), (&b"0\nanother"[..], 1));
        let (pipe, mut other) = io::pipe().unwrap();
        std::thread::spawn(move || while other.write_all(&[b'0'; 4096]).is_ok() {});
        let most = read_in_time(pipe, Deadline::after(Duration::from_secs(60)), None).unwrap();
        assert!(most.len() < VALUE_MAX + 16 + 4096, "{}", most.len());
    }

    #[test]
    fn an_answer_is_a_value_or_the_number_of_an_error() {
        assert_eq!(answer(b"0\nline\nline\n").unwrap(), b"line\nline\n");
        assert_eq!(answer(b"0\n").unwrap(), b"");
        assert!(crate::mounts::is_dead(&answer(b"107\n").unwrap_err()));
        let refused = answer(b"13\n").unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::ACCESS));
        for nonsense in [&b""[..], b"x\n", b"0", b"\n"] {
            assert_eq!(answer(nonsense).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
