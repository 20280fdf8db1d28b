//! git: clone, status, and checkout of another branch, with the program that people use.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use super::run::{Run, Unit};
use crate::undo::run as ran;

/// The branch that is checked out after the clone.
const OTHER: &str = "holdfast-bench-other";

/// git without a user's settings, on repositories of any owner.
fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir);
    let settings = [
        ("safe.directory", "*"),
        ("user.name", "bench"),
        ("user.email", "bench@example.org"),
        ("gc.auto", "0"),
        ("init.defaultBranch", "main"),
        ("advice.detachedHead", "false"),
    ];
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (number, (key, value)) in settings.into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{number}"), key);
        command.env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    command
}

/// A new repository made from an archive: two branches, the other one without a third of the files and with another
/// third changed.
pub(super) fn make_repository(archive: &Path, path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)?;
    ran(git(path).args(["init", "-q", "."]))?;
    ran(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(path))?;
    let commit = |words: &str| {
        ran(git(path).args(["add", "-A"]))?;
        ran(git(path).args(["commit", "-q", "-m", words]))
    };
    commit("All files.")?;
    ran(git(path).args(["checkout", "-q", "-b", OTHER]))?;
    let files = ran(git(path).args(["ls-files", "-z"]))?;
    for (number, file) in files.split('\0').filter(|file| !file.is_empty()).enumerate() {
        let file = path.join(file);
        match number % 3 {
            0 => std::fs::remove_file(file)?,
            1 => File::options().append(true).open(file)?.write_all(b"changed\n")?,
            _ => {}
        }
    }
    commit("Some changed, some gone.")?;
    ran(git(path).args(["checkout", "-q", "main"])).map(drop)
}

/// Clones, asks for the status twice, and checks out another branch, or of a stranger's repository an old commit.
pub(super) fn clone_and_checkout(run: &mut Run<'_>) -> io::Result<()> {
    let Some(repository) = &run.scale().repository else {
        run.skip("git clone", "there is no repository".into());
        return Ok(());
    };
    let (place, clone) = (run.place().to_path_buf(), run.place().join("clone"));
    let host = run.host();
    let synced = |command: &mut Command| {
        ran(command)?;
        host.quiesce()?;
        Ok(1)
    };
    // As from another machine: every object travels.
    let url = format!("file://{}", std::fs::canonicalize(repository)?.display());
    run.once("git clone and sync", Unit::Whole, |_| {
        synced(git(&place).args(["clone", "-q", &url, "clone"]))
    })?;
    let other = other(repository)?;
    for warmth in ["cold", "warm"] {
        let name = format!("git status, {warmth}");
        if warmth == "warm" || run.cool(&name)? {
            run.once(&name, Unit::Whole, |_| {
                let changed = ran(git(&clone).args(["status", "--porcelain"]))?;
                match changed.is_empty() {
                    true => Ok(1),
                    false => Err(io::Error::other(format!("git sees changes: {changed}"))),
                }
            })?;
        }
    }
    run.once("git checkout of another branch and sync", Unit::Whole, |_| {
        synced(git(&clone).args(["checkout", "-q", &other]))
    })
}

/// What is checked out second.
fn other(repository: &Path) -> io::Result<String> {
    let made = format!("refs/heads/{OTHER}");
    if ran(git(repository).args(["rev-parse", "-q", "--verify", &made])).is_ok() {
        return Ok(format!("origin/{OTHER}"));
    }
    let history = ["rev-list", "--first-parent", "-n", "500", "HEAD"];
    let history = ran(git(repository).args(history))?;
    let oldest = history.lines().last();
    oldest.map(String::from).ok_or_else(|| io::Error::other("the repository has no history"))
}
