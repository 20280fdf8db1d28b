//! The options of `mount -o`: what each does, and which are accepted and ignored.

mod engine;
mod generic;
mod set;

use std::path::PathBuf;
use std::time::Duration;

use holdfast::{Accounting, Atime, Batching, Dirty, Discard, FsyncWait, RenameLog};

use holdfast_fuse::{Opens, Owners, SnapDir, Squash, Transport};

use crate::branches::{Name, Place};

/// Seconds of `commit=` where nothing is said.
const COMMIT_DEFAULT: u32 = 5;

/// What `-o` asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountOptions {
    pub(crate) read_only: bool,
    pub(crate) atime: Option<Atime>,
    pub(crate) commit: Option<u32>,
    pub(crate) cache: Option<u64>,
    pub(crate) dirty_bytes: Option<u64>,
    pub(crate) dirty: Dirty,
    pub(crate) accounting: Accounting,
    pub(crate) batching: Batching,
    pub(crate) rename_log: RenameLog,
    pub(crate) fsync_wait: FsyncWait,
    /// Bytes of a file's data that an fsync puts into the log.
    pub(crate) log_data: Option<usize>,
    /// Fsyncs that take longer get a line in the log; `None`: none of them.
    pub(crate) slow_fsync: Option<Duration>,
    /// How long a recovery may take.
    pub(crate) recover: Option<Duration>,
    /// `None`: on for root, so that a mount by root serves all users as any filesystem does.
    pub(crate) allow_other: Option<bool>,
    pub(crate) default_permissions: bool,
    /// `uid=`, `gid=`, `umask=` and `squash=`.
    pub(crate) owners: Owners,
    pub(crate) nodev: bool,
    pub(crate) nosuid: bool,
    pub(crate) noexec: bool,
    /// A volume that is not there is no failure at boot.
    pub(crate) nofail: bool,
    pub(crate) log: Option<PathBuf>,
    pub(crate) fsname: Option<String>,
    /// Threads that read requests.
    pub(crate) threads: Option<usize>,
    /// How long they look for requests before they sleep.
    pub(crate) spin: Option<Duration>,
    /// The kernel asks for no extended attributes.
    pub(crate) noxattr: bool,
    pub(crate) transport: Transport,
    pub(crate) opens: Opens,
    /// Whether the root has a directory `.snapshots`.
    pub(crate) snapdir: SnapDir,
    /// Reading never updates access times of directories.
    pub(crate) nodiratime: bool,
    /// Every change is durable before it is answered.
    pub(crate) sync: bool,
    /// Changes of names are.
    pub(crate) dirsync: bool,
    /// The host has every change before it is answered.
    pub(crate) handover: bool,
    /// A supervisor keeps the mounts of the volume if their daemon dies.
    pub(crate) supervised: bool,
    pub(crate) nosymfollow: bool,
    /// `context=` and its kin, for SELinux.
    pub(crate) labels: Vec<String>,
    /// What is mounted already shall change.
    pub(crate) remount: bool,
    /// The branch; `None`: the one that the volume was made with.
    pub(crate) branch: Option<String>,
    /// A snapshot of it, which is only read.
    pub(crate) snapshot: Option<String>,
    /// Whether free space goes back by itself.
    pub(crate) discard: Discard,
    /// The lists, as they came.
    pub(crate) text: String,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            atime: None,
            commit: None,
            cache: None,
            dirty_bytes: None,
            dirty: Dirty::default(),
            accounting: Accounting::default(),
            batching: Batching::default(),
            rename_log: RenameLog::default(),
            fsync_wait: FsyncWait::default(),
            log_data: None,
            slow_fsync: Some(holdfast_fuse::SLOW_FSYNC),
            recover: None,
            allow_other: None,
            default_permissions: true,
            owners: Owners::default(),
            nodev: false,
            nosuid: false,
            noexec: false,
            nofail: false,
            log: None,
            fsname: None,
            threads: None,
            spin: None,
            noxattr: false,
            transport: Transport::default(),
            opens: Opens::default(),
            snapdir: SnapDir::default(),
            nodiratime: false,
            sync: false,
            dirsync: false,
            handover: false,
            supervised: false,
            nosymfollow: false,
            labels: Vec::new(),
            remount: false,
            branch: None,
            snapshot: None,
            discard: Discard::Auto,
            text: String::new(),
        }
    }
}

impl MountOptions {
    /// Reads `opt,opt=value,...`, later ones winning. With `sloppy` unknown options are ignored.
    pub(crate) fn parse<'a>(
        lists: impl IntoIterator<Item = &'a str>,
        sloppy: bool,
    ) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
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
        if options.allow_other == Some(true) && !options.default_permissions {
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
        if !self.default_permissions && *owners != Owners::default() {
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
    fn fixed(&self) -> MountOptions {
        let usual = MountOptions::default();
        MountOptions {
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
            ..self.clone()
        }
    }

    /// Takes over what a remount may have changed, as the kernel shows it: `is` says whether a word is among those of the mount.
    pub(crate) fn take_shown(&mut self, is: impl Fn(&str) -> bool) {
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
    fn of_volume(&self) -> MountOptions {
        MountOptions {
            commit: Some(self.commit.unwrap_or(COMMIT_DEFAULT)),
            cache: self.cache,
            recover: self.recover,
            dirty: self.dirty,
            accounting: self.accounting,
            batching: self.batching,
            log: self.log.clone(),
            discard: self.discard,
            supervised: self.supervised,
            ..MountOptions::default()
        }
    }

    /// Those options of `lists` that ask another thing of the volume than these.
    pub(crate) fn of_volume_differing<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, String> {
        let options: Vec<&str> = lists.into_iter().flat_map(split).collect();
        self.that_change(&options, MountOptions::of_volume)
    }

    /// Those of `options` that differ from these and that a remount cannot change.
    pub(crate) fn not_to_be_changed<'a>(
        &self,
        options: &[&'a str],
    ) -> Result<Vec<&'a str>, String> {
        self.that_change(options, MountOptions::fixed)
    }

    /// Those of `options`, of which later ones win, that change `part` of these.
    fn that_change<'a>(
        &self,
        options: &[&'a str],
        part: impl Fn(&MountOptions) -> MountOptions,
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

    /// Takes the branch and snapshot that stand behind the volume.
    pub(crate) fn choose(&mut self, place: &Place) -> Result<(), String> {
        let text = |name: &Option<Name>| match name {
            None => Ok(None),
            Some(name) => match std::str::from_utf8(&name.0) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(format!("the name {name} is not UTF-8")),
            },
        };
        let (branch, snapshot) = (text(&place.branch)?, text(&place.snapshot)?);
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
pub(crate) fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

#[cfg(test)]
mod tests;
