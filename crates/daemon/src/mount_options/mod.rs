//! The options of `mount -o`: what was asked for, and what that is for the engine and the kernel. `table` has every word.

mod engine;
mod given;
mod help;
mod kernel;
mod set;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use holdfast::{Accounting, Atime, Batching, Dirty, Discard, FsyncWait, RenameLog};
use holdfast_control::Name;
use holdfast_fuse::{Opens, Owners, SLOW_FSYNC, SnapDir, Transport};

pub use self::help::help;
use self::table::{APART, Scope};

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

const SUPERVISED_ENDS_HANDOVER: &str = "options supervised and nohandover exclude each other: the next process goes on with what the \
                                        host has of all changes";

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
            let name = set::parted(option).0;
            match name {
                "handover" => ends_handover = false,
                "nohandover" => ends_handover = true,
                _ => {}
            }
            if !sloppy || set::find(name).is_some() {
                options.set(option)?;
            }
        }
        if options.supervised && ends_handover {
            return Err(SUPERVISED_ENDS_HANDOVER.into());
        }
        // Whatever stands behind it, as in `snapshot=...,rw`.
        options.read_only |= options.snapshot.is_some();
        let apart = APART.iter().find(|(both, _)| both(&options));
        apart.map_or(Ok(options), |(_, why)| Err(format!("options {why}")))
    }

    /// Those options of `lists` that ask another thing of the volume than these.
    pub(crate) fn of_volume_differing<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, String> {
        let options: Vec<&str> = lists.into_iter().flat_map(split).collect();
        self.that_change(&options, |scope| scope == Scope::Volume)
    }

    /// Those of `options` that differ from these and that a remount cannot change.
    pub fn not_to_be_changed<'a>(&self, options: &[&'a str]) -> Result<Vec<&'a str>, String> {
        self.that_change(options, |scope| matches!(scope, Scope::Volume | Scope::Mount))
    }

    /// Those of `options`, of which later ones win, that change these and hold as far as `is` says.
    fn that_change<'a>(
        &self,
        options: &[&'a str],
        is: impl Fn(Scope) -> bool,
    ) -> Result<Vec<&'a str>, String> {
        let with = |options: &[&str]| {
            let mut with = self.clone();
            options.iter().try_for_each(|option| with.set(option)).map(|()| with)
        };
        let mut changing = Vec::new();
        for (at, option) in options.iter().enumerate() {
            let differs = with(&options[at..])? != with(&options[at + 1..])?;
            if differs && set::find(set::parted(option).0).is_some_and(|(scope, _)| is(scope)) {
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

/// A list with what the kernel shows of its mount by `words`, instead of what a remount may have changed since.
pub fn as_shown(list: &str, words: &[String]) -> String {
    let is = |word: &str| words.iter().any(|it| it == word);
    let is_of_kernel = |option: &&str| {
        set::find(set::parted(option).0).is_some_and(|(scope, _)| scope == Scope::Remount)
    };
    let kept = split(list).filter(|option| !is_of_kernel(option));
    let shown = words.iter().map(String::as_str).filter(is_of_kernel);
    // The volume may be writable behind a mount that is not.
    let last = [(is("ro"), "ro"), (!is("noatime") && !is("relatime"), "strictatime")];
    let last = last.into_iter().filter_map(|(holds, word)| holds.then_some(word));
    // In front: a quote in what was given, as a name may have one, takes what stands behind it. None of that is of the kernel.
    shown.chain(last).chain(kept).collect::<Vec<_>>().join(",")
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
