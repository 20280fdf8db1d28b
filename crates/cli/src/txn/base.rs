//! The mount in which a transaction is made.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::branches::{Name, Place};
use crate::daemon::control::{self, Mounted};
use crate::mount_options::split;
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, plain_words};
use crate::private_mount::Wanted;

/// A mount of a branch.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) mount: Mount,
    /// The options that it was mounted with, but for what is mounted.
    options: String,
    /// What is mounted, and what else the volume has, as far as it is known.
    pub(super) mounted: Option<Mounted>,
    is_read_only: bool,
}

impl Base {
    /// The mount around a directory, which shows a branch that may be written.
    ///
    /// # Errors
    /// There is none, or its daemon does not answer this user.
    pub(crate) fn around(dir: &Path) -> Result<Base, Failure> {
        let shown = dir.display();
        let found = std::fs::metadata(dir).context(&shown)?;
        if !found.is_dir() {
            return Err(Failure::plain(format!("{shown} is not a directory")));
        }
        let device = found.dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mount = mounts::around(dir).context("/proc/self/mountinfo")?;
        // Another filesystem may be mounted in it.
        let mount = mount.filter(|mount| mount.device == device).ok_or_else(|| {
            Failure::plain(format!(
                "{shown} is in no Holdfast mount; mount the volume, and name a directory in it"
            ))
        })?;
        let at = mount.dir.display();
        if !mounts::is_whole(&mount).context(&at)? {
            return Err(Failure::plain(format!(
                "{at} shows a part of a mount (mount --bind); name the directory at which the volume is mounted"
            )));
        }
        let base = Base::of(mount.clone())?;
        if let Some(mounted) = base.mounted.as_ref().filter(|it| it.snapshot.is_some()) {
            let name = mounted.name();
            return Err(Failure::plain(format!("{at} shows {name}, and a snapshot never changes")));
        }
        let words = mounts::words(&mount).context(&at)?;
        if base.is_read_only || words.iter().any(|word| word == "ro") {
            return Err(Failure::plain(format!("{at} is mounted read-only")));
        }
        Ok(base)
    }

    /// A mount, whatever it shows.
    ///
    /// # Errors
    /// Its daemon does not answer this user.
    pub(crate) fn of(mount: Mount) -> Result<Base, Failure> {
        let at = mount.dir.display();
        let report = control::ask(&mount).map_err(|error| {
            let why = plain_words(&error);
            Failure::plain(format!("the daemon of {at} does not answer this user: {why}"))
        })?;
        let options = of_any_branch(&report.options);
        Ok(Base { options, mounted: report.mounted, is_read_only: report.read_only, mount })
    }

    /// The branch, for commands.
    pub(crate) fn place(&self) -> Place {
        Place { path: self.mount.dir.clone(), branch: None, snapshot: None }
    }

    /// A private mount of another branch at `dir`, with the options of this one.
    pub(crate) fn wanted(&self, branch: &Name, dir: &Path, working_dir: Option<&Path>) -> Wanted {
        let name = |path: &Path| Name(path.as_os_str().as_bytes().into());
        Wanted {
            volume: name(&self.mount.source),
            branch: branch.clone(),
            dir: name(dir),
            covers: dir == self.mount.dir,
            options: self.options.clone(),
            working_dir: working_dir.map(name),
            parent: std::process::id(),
        }
    }

    /// The working directory of this process, if it lies in the mount: to be gone to again behind another mount.
    ///
    /// # Errors
    /// There is none any more.
    pub(crate) fn working_dir(&self) -> Result<Option<std::path::PathBuf>, Failure> {
        let at = std::env::current_dir().context("the working directory")?;
        Ok(Some(at).filter(|at| at.starts_with(&self.mount.dir)))
    }
}

/// Mount options without those that say what is mounted, and how that is begun.
fn of_any_branch(options: &str) -> String {
    let is_kept = |option: &&str| {
        let name = option.split_once('=').map_or(*option, |(name, _)| name);
        !matches!(name, "" | "branch" | "snapshot" | "remount" | "nofail" | "ro" | "fsname")
    };
    split(options).filter(is_kept).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_no_option_of_another_mount() {
        let of = of_any_branch("branch=\"a,b\",noatime,snapshot=s,commit=3,ro,rw,remount,nofail");
        assert_eq!(of, "noatime,commit=3,rw");
        assert_eq!(of_any_branch(""), "");
    }
}
