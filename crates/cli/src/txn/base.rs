//! The mount in which a transaction is made.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_daemon::mount_options::{as_shown, split};
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::private_mount::WantedMount;
use holdfast_daemon::report::{self, MountedTree};

use crate::branches::{Name, TreeLocation};
use crate::outcome::{Context, Failure, plain_words};

/// A mount of a branch.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) mount: Mount,
    /// The options that it has now, but for what is mounted.
    options: String,
    /// What is mounted, and what else the volume has, as far as it is known.
    pub(super) mounted: Option<MountedTree>,
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
        let report = report::ask(&mount).map_err(|error| {
            let why = plain_words(&error);
            Failure::plain(format!("the daemon of {at} does not answer this user: {why}"))
        })?;
        let words = mounts::words(&mount).context(&at)?;
        let options = as_now(&report.options, &words);
        Ok(Base { options, mounted: report.mounted, is_read_only: report.read_only, mount })
    }

    /// The branch, for commands.
    pub(crate) fn place(&self) -> TreeLocation {
        TreeLocation { path: self.mount.dir.clone(), branch: None, snapshot: None }
    }

    /// A private mount of another branch at `dir`, with the options of this one.
    pub(crate) fn wanted(
        &self,
        branch: &Name,
        dir: &Path,
        working_dir: Option<&Path>,
    ) -> WantedMount {
        let name = |path: &Path| Name(path.as_os_str().as_bytes().into());
        WantedMount {
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

/// Options of a mount without those that say what is mounted and how that is begun, and with what the kernel says now: root forbids set-id
/// programs and devices in mounts of others, whose content must not be mounted without that.
fn as_now(options: &str, words: &[String]) -> String {
    let is = |word: &str| words.iter().any(|it| it == word);
    let is_kept = |option: &&str| {
        let name = option.split_once('=').map_or(*option, |(name, _)| name);
        let is_of_others = matches!(
            name.strip_prefix("no").unwrap_or(name),
            "allow_other" | "default_permissions"
        );
        !is_of_others
            && !matches!(name, "" | "branch" | "snapshot" | "remount" | "nofail" | "ro" | "rw")
    };
    let others = [
        if is("allow_other") { "allow_other" } else { "noallow_other" },
        if is("default_permissions") { "default_permissions" } else { "nodefault_permissions" },
    ];
    // In front, as there.
    let shown = as_shown(options, words);
    others.into_iter().chain(split(&shown).filter(is_kept)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use holdfast_daemon::mount_options::DaemonOptions;

    use super::*;

    #[test]
    fn what_the_kernel_says_now_is_what_holds() {
        let of = |options: &str, words: &str| {
            let words: Vec<String> = split(words).map(String::from).collect();
            DaemonOptions::parse([as_now(options, &words).as_str()], false).unwrap()
        };
        let now = of("commit=3,suid,dev,exec", "rw,nosuid,nodev,noexec,nosymfollow,noatime");
        assert!(now.nosuid && now.nodev && now.noexec && now.nosymfollow);
        assert_eq!((now.commit, now.atime), (Some(3), Some(holdfast::Atime::Never)));
        let now =
            of("nosuid,nodev,noexec,noatime,sync", "rw,relatime,allow_other,default_permissions");
        assert!(!now.nosuid && !now.nodev && !now.noexec && !now.nosymfollow);
        assert!(!now.sync && !now.nodefault_permissions);
        let atime = Some(holdfast::Atime::Relative);
        assert_eq!((now.allow_other, now.atime), (Some(true), atime));
        let now = of("default_permissions,nodiratime", "rw");
        assert!(!now.nodiratime && now.nodefault_permissions);
        let atime = Some(holdfast::Atime::Always);
        assert_eq!((now.allow_other, now.atime), (Some(false), atime));
    }

    #[test]
    fn what_is_mounted_is_no_option_of_another_mount() {
        let words = ["rw", "noatime", "rw", "user_id=0"].map(String::from);
        let of = |options: &str| as_now(options, &words);
        let now = "noallow_other,nodefault_permissions,noatime";
        let options =
            "branch=\"a,b\",noatime,snapshot=s,commit=3,ro,rw,remount,nofail,context=\"a,b\"";
        assert_eq!(of(options), format!("{now},commit=3,context=\"a,b\""));
        assert_eq!(of(""), now);
    }
}
