//! The options of `mount -o`: what each does, and which are accepted and ignored.

mod engine;
mod generic;
mod kernel;
mod set;

use std::path::PathBuf;
use std::time::Duration;

use holdfast::{Accounting, Atime, Batching, Dirty, Discard, FsyncWait, RenameLog};
use holdfast_control::Name;
use holdfast_fuse::{Opens, Owners, SLOW_FSYNC, SnapDir, Squash, Transport};

/// Seconds of `commit=` where nothing is said.
const COMMIT_DEFAULT: u32 = 5;

/// What `-o` asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonOptions {
    /// `ro`, or a snapshot.
    pub read_only: bool,
    /// When reading changes access times; `None`: `relatime`.
    pub atime: Option<Atime>,
    /// `commit=`, in seconds; `None`: 5, 0: never by time alone.
    pub commit: Option<u32>,
    /// `cache=`: bytes of memory for metadata.
    pub cache: Option<u64>,
    /// `dirty_bytes=`: bytes of memory for data that is not written yet.
    pub dirty_bytes: Option<u64>,
    /// `dirty=`.
    pub dirty: Dirty,
    /// `accounting=`.
    pub accounting: Accounting,
    /// `batch=`.
    pub batching: Batching,
    /// `rename_log=`.
    pub rename_log: RenameLog,
    /// `fsync_wait=`.
    pub fsync_wait: FsyncWait,
    /// Bytes of a file's data that an fsync puts into the log.
    pub log_data: Option<usize>,
    /// Fsyncs that take longer get a line in the log, with 0 none of them; `None`: [`SLOW_FSYNC`].
    pub slow_fsync: Option<Duration>,
    /// How long a recovery may take.
    pub recover: Option<Duration>,
    /// `None`: on for root, so that a mount by root serves all users as any filesystem does.
    pub allow_other: Option<bool>,
    /// The kernel leaves the check of permissions to the daemon.
    pub nodefault_permissions: bool,
    /// `uid=`, `gid=`, `umask=` and `squash=`.
    pub owners: Owners,
    /// As in mount(8).
    pub nodev: bool,
    /// As in mount(8).
    pub nosuid: bool,
    /// As in mount(8).
    pub noexec: bool,
    /// A volume that is not there is no failure at boot.
    pub nofail: bool,
    /// Where the daemon logs; `None`: to the system log.
    pub log: Option<PathBuf>,
    /// Accepted, and means nothing.
    pub fsname: Option<String>,
    /// Threads that read requests.
    pub threads: Option<usize>,
    /// How long they look for requests before they sleep.
    pub spin: Option<Duration>,
    /// The kernel asks for no extended attributes.
    pub noxattr: bool,
    /// How requests come.
    pub transport: Transport,
    /// What opens files.
    pub opens: Opens,
    /// Whether the root has a directory `.snapshots`.
    pub snapdir: SnapDir,
    /// Reading never updates access times of directories.
    pub nodiratime: bool,
    /// Every change is durable before it is answered.
    pub sync: bool,
    /// Changes of names are.
    pub dirsync: bool,
    /// The host has every change before it is answered.
    pub handover: bool,
    /// A supervisor keeps the mounts of the volume if their daemon dies.
    pub supervised: bool,
    /// As in mount(8).
    pub nosymfollow: bool,
    /// `context=` and its kin, for SELinux.
    pub labels: Vec<String>,
    /// What is mounted already shall change.
    pub remount: bool,
    /// The branch; `None`: the one that the volume was made with.
    pub branch: Option<String>,
    /// A snapshot of it, which is only read.
    pub snapshot: Option<String>,
    /// Whether free space goes back by itself.
    pub discard: Discard,
    /// The lists, as they came.
    pub text: String,
}

impl DaemonOptions {
    /// Reads `opt,opt=value,...`, later ones winning. With `sloppy` unknown options are ignored.
    ///
    /// # Errors
    /// What is wrong with one, or which exclude each other.
    pub fn parse<'a>(
        lists: impl IntoIterator<Item = &'a str>,
        sloppy: bool,
    ) -> Result<DaemonOptions, String> {
        let mut options = DaemonOptions::default();
        let lists: Vec<&str> = lists.into_iter().collect();
        options.text = lists.join(",");
        let mut ends_handover = false;
        for option in lists.into_iter().flat_map(split) {
            let name = option.split('=').next().unwrap_or(option);
            match name {
                "nohandover" => ends_handover = true,
                "handover" => ends_handover = false,
                _ => {}
            }
            if let Err(why) = options.set(option)
                && !(sloppy && (why.starts_with("unknown") || generic::fate(name).is_some()))
            {
                return Err(why);
            }
        }
        // Whatever stands behind it, as in `snapshot=...,rw`.
        options.read_only |= options.snapshot.is_some();
        if options.allow_other == Some(true) && options.nodefault_permissions {
            return Err(
                "options allow_other and nodefault_permissions exclude each other: without the kernel's checks \
                 other users could list what is not theirs"
                    .into(),
            );
        }
        options.expect_checked_owners()?;
        if options.supervised && ends_handover {
            return Err(
                "options supervised and nohandover exclude each other: the next process goes on with what the \
                 host has of all changes"
                    .into(),
            );
        }
        if options.supervised && options.transport == Transport::Rings {
            return Err(
                "options supervised and transport=rings exclude each other: rings end with the process that has made them".into(),
            );
        }
        Ok(options)
    }

    /// Refuses what would be unchecked.
    fn expect_checked_owners(&self) -> Result<(), String> {
        let owners = &self.owners;
        if self.nodefault_permissions && *owners != Owners::default() {
            return Err(
                "options uid=, gid=, umask= and squash= need default_permissions: leave out nodefault_permissions"
                    .into(),
            );
        }
        if owners.squash == Squash::All && owners.umask != 0 {
            return Err(
                "options squash=all and umask= exclude each other: whoever comes acts as the owner, for whom the \
                 permissions of the volume count; chmod them there"
                    .into(),
            );
        }
        Ok(())
    }

    /// Without what a remount can change, or ignores.
    fn fixed(&self) -> DaemonOptions {
        let usual = DaemonOptions::default();
        DaemonOptions {
            read_only: usual.read_only,
            atime: usual.atime,
            nodiratime: usual.nodiratime,
            sync: usual.sync,
            nodev: usual.nodev,
            nosuid: usual.nosuid,
            noexec: usual.noexec,
            nosymfollow: usual.nosymfollow,
            nofail: usual.nofail,
            fsname: usual.fsname,
            labels: usual.labels,
            remount: usual.remount,
            text: usual.text,
            // Said as it is without a word.
            slow_fsync: Some(self.slow_fsync().unwrap_or_default()),
            ..self.clone()
        }
    }

    /// Takes over what a remount may have changed, as the kernel shows it: `is` says whether a word is among those of the mount.
    pub fn take_shown(&mut self, is: impl Fn(&str) -> bool) {
        self.read_only = is("ro");
        self.atime = Some(match (is("noatime"), is("relatime")) {
            (true, _) => Atime::Never,
            (_, true) => Atime::Relative,
            _ => Atime::Always,
        });
        self.nodiratime = is("nodiratime");
        // The kernel changes everything here but `dirsync`.
        self.sync = is("sync");
        (self.nodev, self.nosuid, self.noexec) = (is("nodev"), is("nosuid"), is("noexec"));
        self.nosymfollow = is("nosymfollow");
    }

    /// What holds for the whole volume, whichever of its branches is mounted.
    fn of_volume(&self) -> DaemonOptions {
        DaemonOptions {
            commit: Some(self.commit.unwrap_or(COMMIT_DEFAULT)),
            cache: self.cache,
            recover: self.recover,
            dirty: self.dirty,
            accounting: self.accounting,
            batching: self.batching,
            log: self.log.clone(),
            discard: self.discard,
            supervised: self.supervised,
            ..DaemonOptions::default()
        }
    }

    /// Those options of `lists` that ask another thing of the volume than these.
    pub(crate) fn of_volume_differing<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, String> {
        let options: Vec<&str> = lists.into_iter().flat_map(split).collect();
        self.that_change(&options, DaemonOptions::of_volume)
    }

    /// Those of `options` that differ from these and that a remount cannot change.
    pub fn not_to_be_changed<'a>(&self, options: &[&'a str]) -> Result<Vec<&'a str>, String> {
        self.that_change(options, DaemonOptions::fixed)
    }

    /// Those of `options`, of which later ones win, that change `part` of these.
    fn that_change<'a>(
        &self,
        options: &[&'a str],
        part: impl Fn(&DaemonOptions) -> DaemonOptions,
    ) -> Result<Vec<&'a str>, String> {
        let with = |options: &[&str]| {
            let mut with = self.clone();
            options.iter().try_for_each(|option| with.set(option))?;
            Ok::<_, String>(part(&with))
        };
        let mut changing = Vec::new();
        for (at, option) in options.iter().enumerate() {
            if with(&options[at..])? != with(&options[at + 1..])? {
                changing.push(*option);
            }
        }
        Ok(changing)
    }

    /// Fsyncs that take longer get a line in the log.
    pub(crate) fn slow_fsync(&self) -> Option<Duration> {
        Some(self.slow_fsync.unwrap_or(SLOW_FSYNC)).filter(|limit| !limit.is_zero())
    }

    /// Takes the branch and snapshot that stand behind the volume.
    ///
    /// # Errors
    /// A name that is not UTF-8, or is not the one of the options.
    pub fn choose(&mut self, branch: Option<&Name>, snapshot: Option<&Name>) -> Result<(), String> {
        let text = |name: Option<&Name>| match name {
            None => Ok(None),
            Some(name) => match std::str::from_utf8(&name.0) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(format!("the name {name} is not UTF-8")),
            },
        };
        let (branch, snapshot) = (text(branch)?, text(snapshot)?);
        for (option, behind, already) in
            [("branch", &branch, &mut self.branch), ("snapshot", &snapshot, &mut self.snapshot)]
        {
            match (behind, already) {
                (None, _) => {}
                (Some(name), Some(other)) if name != other => {
                    return Err(format!(
                        "`{name}` stands behind the volume, and -o {option}={other} says another one"
                    ));
                }
                (Some(name), already) => *already = Some(name.clone()),
            }
        }
        self.read_only |= self.snapshot.is_some();
        Ok(())
    }
}

/// The options of a list. A comma in double quotes is part of one, as in labels of SELinux.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

#[cfg(test)]
mod tests;
