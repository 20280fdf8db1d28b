//! The options of `mount -o`: what each does, and which are accepted and ignored.

use std::path::PathBuf;
use std::time::Duration;

use holdfast::{Accounting, Atime, Batching, Dirty, Discard, FsyncWait, RenameLog, VolumeOptions};

use holdfast_fuse::{Opens, SnapDir, Transport};

use crate::branches::{Name, Place};
use crate::size;

/// A batch of the log is much larger, whatever else it holds.
const LOG_DATA_MAX: u64 = 512 << 10;

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
        for option in lists.into_iter().flat_map(split) {
            if let Err(why) = options.set(option)
                && !(sloppy && why.starts_with("unknown"))
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
        Ok(options)
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
            ..MountOptions::default()
        }
    }

    /// Those options of `lists` that ask another thing of the volume than these.
    pub(crate) fn of_volume_differing<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, String> {
        let mut differing = Vec::new();
        for option in lists.into_iter().flat_map(split) {
            let mut with = self.clone();
            with.set(option)?;
            if with.of_volume() != self.of_volume() {
                differing.push(option);
            }
        }
        Ok(differing)
    }

    /// Those of `options` that differ from these and that a remount cannot change.
    pub(crate) fn not_to_be_changed<'a>(
        &self,
        options: &[&'a str],
    ) -> Result<Vec<&'a str>, String> {
        let mut refused = Vec::new();
        for option in options {
            let mut with = self.clone();
            with.set(option)?;
            if with.fixed() != self.fixed() {
                refused.push(*option);
            }
        }
        Ok(refused)
    }

    pub(crate) fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if self.set_flag(name) || is_for_others(name) {
            return Ok(());
        }
        self.set_value(option, name, value)
    }

    /// Whether `name` is an option without a value; then it is set.
    fn set_flag(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "noatime" => self.atime = Some(Atime::Never),
            "relatime" | "atime" => self.atime = Some(Atime::Relative),
            "strictatime" => self.atime = Some(Atime::Always),
            "xattr" => self.noxattr = false,
            "noxattr" => self.noxattr = true,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            "default_permissions" => self.default_permissions = true,
            "nodefault_permissions" => self.default_permissions = false,
            "dev" => self.nodev = false,
            "nodev" => self.nodev = true,
            "suid" => self.nosuid = false,
            "nosuid" => self.nosuid = true,
            "symfollow" => self.nosymfollow = false,
            "nosymfollow" => self.nosymfollow = true,
            "diratime" => self.nodiratime = false,
            "nodiratime" => self.nodiratime = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "handover" => self.handover = true,
            "nohandover" => self.handover = false,
            "remount" => self.remount = true,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "discard" => self.discard = Discard::On,
            "nodiscard" => self.discard = Discard::Off,
            "nofail" => self.nofail = true,
            _ => return false,
        }
        true
    }

    fn set_value(&mut self, option: &str, name: &str, value: Option<&str>) -> Result<(), String> {
        let wanted = || value.ok_or_else(|| format!("option {name} needs a value: {name}=..."));
        match name {
            "commit" => {
                let seconds = wanted()?;
                let number = seconds
                    .parse()
                    .map_err(|_| format!("option commit={seconds} is not a number of seconds"))?;
                self.commit = Some(number);
            }
            "threads" => {
                let threads = wanted()?;
                let number = threads.parse().ok().filter(|number| (1..=64).contains(number));
                let why = || format!("option threads={threads} is not a number from 1 to 64");
                self.threads = Some(number.ok_or_else(why)?);
            }
            "spin" => {
                let micros = wanted()?;
                let number = micros.parse().ok().filter(|number| *number <= 10_000);
                let why =
                    || format!("option spin={micros} is not a number of microseconds up to 10000");
                self.spin = Some(Duration::from_micros(number.ok_or_else(why)?));
            }
            "transport" => self.transport = wanted()?.parse()?,
            "open" => self.opens = wanted()?.parse()?,
            "snapdir" => self.snapdir = wanted()?.parse()?,
            "cache" => self.cache = Some(size::parse(wanted()?)?),
            "dirty_bytes" => self.dirty_bytes = Some(size::parse(wanted()?)?),
            "dirty" => {
                let how = wanted()?;
                self.dirty = how.parse().map_err(|why| match size::parse(how) {
                    // What this option meant before.
                    Ok(_) => format!("{why}; for a limit of memory write dirty_bytes={how}"),
                    Err(_) => why,
                })?;
            }
            "accounting" => self.accounting = wanted()?.parse()?,
            "batch" => self.batching = wanted()?.parse()?,
            "rename_log" => self.rename_log = wanted()?.parse()?,
            "fsync_wait" => self.fsync_wait = wanted()?.parse()?,
            "log_data" => {
                let bytes = size::parse(wanted()?)?;
                if bytes > LOG_DATA_MAX {
                    let most = size::show(LOG_DATA_MAX);
                    return Err(format!(
                        "option {option} is more than {most}, which a batch holds"
                    ));
                }
                self.log_data = usize::try_from(bytes).ok();
            }
            "slow_fsync" => {
                let millis = wanted()?;
                let why = || format!("option {option} is not a number of milliseconds");
                let limit = Duration::from_millis(millis.parse().map_err(|_| why())?);
                self.slow_fsync = Some(limit).filter(|limit| !limit.is_zero());
            }
            "recover" => self.recover = Some(seconds(wanted()?)?),
            "context" | "fscontext" | "defcontext" | "rootcontext" => {
                self.labels.push(format!("{name}={}", wanted()?));
            }
            "branch" => self.branch = Some(unquoted(wanted()?).into()),
            "snapshot" => {
                self.snapshot = Some(unquoted(wanted()?).into());
                self.read_only = true;
            }
            "log" => self.log = Some(wanted()?.into()),
            "fsname" => self.fsname = Some(wanted()?.into()),
            _ => {
                return Err(format!(
                    "unknown mount option {option:?}; `holdfast mount --help` lists them"
                ));
            }
        }
        Ok(())
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

    /// For the engine.
    pub(crate) fn volume(&self) -> VolumeOptions {
        let mut volume = VolumeOptions::new().read_only(self.read_only).discard(self.discard);
        if let Some(branch) = &self.branch {
            volume = volume.branch(branch);
        }
        if let Some(snapshot) = &self.snapshot {
            volume = volume.snapshot(snapshot);
        }
        if let Some(atime) = self.atime {
            volume = volume.atime(atime);
        }
        if let Some(seconds) = self.commit {
            volume = volume.commit_secs(seconds);
        }
        if let Some(bytes) = self.cache {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            volume = volume.cache_bytes(bytes).recent_bytes((bytes / 16).min(16 << 20));
        }
        if let Some(bytes) = self.dirty_bytes {
            volume = volume.dirty_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(budget) = self.recover {
            volume = volume.recover(budget);
        }
        if let Some(bytes) = self.log_data {
            volume = volume.log_data_bytes(bytes);
        }
        volume = volume.dirty(self.dirty).accounting(self.accounting);
        volume =
            volume.batching(self.batching).rename_log(self.rename_log).fsync_wait(self.fsync_wait);
        volume
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

/// A value without the quotes that keep its commas together.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

/// Seconds with a fraction, more than none.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("option recover={text} is not a number of seconds above 0"))
}

/// Whether an option means nothing here.
fn is_for_others(name: &str) -> bool {
    match name {
        // What fstab says to other programs: mount(8), init, the network.
        "" | "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nousers" | "owner"
        | "noowner" | "group" | "nogroup" | "_netdev" | "loop" | "comment" | "subtype"
        | "helper" | "uhelper" => true,
        // What holds here anyway, or is about something that is not kept here: access times always wait in memory,
        // attributes and lists are always there, nothing is logged aloud, and no version of an inode is counted.
        "lazytime" | "nolazytime" | "nostrictatime" | "norelatime" | "silent" | "loud" | "acl"
        | "user_xattr" | "iversion" | "noiversion" | "nomand" => true,
        _ => name.starts_with("x-") || name.starts_with("X-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fstab_lines_hold() {
        let options = MountOptions::parse(
            ["rw,noatime,nofail,x-systemd.automount,_netdev,user", "commit=30,cache=64M,ro"],
            false,
        )
        .unwrap();
        assert!(options.read_only && options.nofail);
        assert_eq!(options.atime, Some(Atime::Never));
        assert_eq!((options.commit, options.cache), (Some(30), Some(64 << 20)));
    }

    #[test]
    fn a_branch_or_snapshot_is_an_option_or_stands_behind_the_volume() {
        let of = |list: &str| MountOptions::parse([list], false).unwrap();
        let place = |branch: Option<&str>, snapshot: Option<&str>| Place {
            path: "/img".into(),
            branch: branch.map(|name| Name(name.into())),
            snapshot: snapshot.map(|name| Name(name.into())),
        };
        let option = of("snapshot=\"a,b\",branch=work,rw");
        assert_eq!(
            (option.branch.as_deref(), option.snapshot.as_deref()),
            (Some("work"), Some("a,b"))
        );
        assert!(option.read_only, "a snapshot never changes");
        let mut behind = of("rw");
        behind.choose(&place(Some("work"), Some("a,b"))).unwrap();
        assert!(behind.read_only);
        assert_eq!((&behind.branch, &behind.snapshot), (&option.branch, &option.snapshot));
        assert!(of("branch=work").choose(&place(Some("work"), None)).is_ok());
        assert!(of("branch=work").choose(&place(Some("other"), None)).is_err());
        let refused = of("branch=work").not_to_be_changed(&["branch=work", "branch=main"]);
        assert_eq!(refused, Ok(vec!["branch=main"]));
    }

    #[test]
    fn the_switches_and_limits_of_the_journal() {
        fn of(list: &str) -> MountOptions {
            MountOptions::parse([list], false).unwrap()
        }
        let options = of("dirty=ranges,accounting=changed,recover=0.5,commit=1,dirty_bytes=32M");
        assert_eq!(options.recover, Some(Duration::from_millis(500)));
        assert_eq!((options.commit, options.dirty_bytes), (Some(1), Some(32 << 20)));
        for position in Dirty::ALL {
            assert_eq!(of(&format!("dirty=ranges,dirty={position}")).dirty, *position);
        }
        for position in Accounting::ALL {
            assert_eq!(of(&format!("accounting={position}")).accounting, *position);
        }
        let usual = of("defaults");
        assert_eq!((usual.dirty, usual.accounting), (Dirty::Ranges, Accounting::Changed));
        assert_eq!((usual.recover, usual.commit, usual.dirty_bytes), (None, None, None));
    }

    #[test]
    fn what_was_done_before_is_there_or_it_is_said_where() {
        // The tests of the whole workspace have it; those of this crate alone are as the shipped program.
        let is_here = Dirty::ALL.len() > 1;
        for option in [
            "dirty=bitmap",
            "dirty=whole",
            "accounting=always",
            "batch=scan",
            "rename_log=directory",
            "fsync_wait=completion",
        ] {
            match MountOptions::parse([option], false) {
                Ok(options) => {
                    let usual = MountOptions { text: option.into(), ..MountOptions::default() };
                    assert!(is_here && options != usual, "{option}");
                }
                Err(why) => {
                    let said =
                        why.starts_with(&format!("option {option} ")) && why.contains("make dev");
                    assert!(!is_here && said, "{why}");
                }
            }
        }
    }

    #[test]
    fn the_switches_and_limits_of_the_log() {
        fn of(list: &str) -> MountOptions {
            MountOptions::parse([list], false).unwrap()
        }
        for position in Batching::ALL {
            assert_eq!(of(&format!("batch=indexed,batch={position}")).batching, *position);
        }
        for position in RenameLog::ALL {
            assert_eq!(of(&format!("rename_log={position}")).rename_log, *position);
        }
        for position in FsyncWait::ALL {
            assert_eq!(of(&format!("fsync_wait={position}")).fsync_wait, *position);
        }
        for position in Opens::ALL {
            assert_eq!(of(&format!("open=kernel,open={position}")).opens, *position);
        }
        for position in SnapDir::ALL {
            assert_eq!(of(&format!("snapdir=off,snapdir={position}")).snapdir, *position);
        }
        let usual = of("defaults");
        assert_eq!((usual.opens, usual.snapdir), (Opens::Server, SnapDir::Hidden));
        assert_eq!((usual.batching, usual.rename_log), (Batching::Indexed, RenameLog::Names));
        assert_eq!((usual.log_data, usual.slow_fsync), (None, Some(Duration::from_secs(1))));
        assert_eq!(of("slow_fsync=20").slow_fsync, Some(Duration::from_millis(20)));
        assert_eq!(of("slow_fsync=0").slow_fsync, None);
        assert_eq!(of("log_data=0").log_data, Some(0));
        assert_eq!(of("log_data=64k").log_data, Some(65536));
        assert!(!usual.noxattr && of("noxattr").noxattr && !of("noxattr,xattr").noxattr);
        assert_eq!((usual.spin, of("spin=0").spin), (None, Some(Duration::ZERO)));
    }

    #[test]
    fn what_mount_8_passes_on_has_its_meaning_or_none_that_is_missed() {
        let of = |list: &str| MountOptions::parse([list], false).unwrap();
        let ignored = "lazytime,nolazytime,nostrictatime,norelatime,silent,loud,acl,user_xattr,iversion,\
            noiversion,nousers,noowner,nogroup,user=me,uhelper=x";
        assert_eq!(of(ignored).fixed(), MountOptions::default());
        let options = of("nodiratime,sync,dirsync,nosymfollow,remount");
        assert!(options.nodiratime && options.sync && options.dirsync && options.nosymfollow);
        assert!(options.remount && !of("nodiratime,diratime,sync,async").sync);
        let labels = of("ro,context=\"a:b:c0,c1\",rootcontext=x,noexec");
        assert_eq!(labels.labels, ["context=\"a:b:c0,c1\"", "rootcontext=x"]);
        assert!(labels.read_only && labels.noexec);
        // Options whose absence would be missed are refused.
        for wrong in ["noacl", "nouser_xattr", "mand", "usrquota", "context"] {
            assert!(MountOptions::parse([wrong], false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_remount_changes_what_it_can_and_names_the_rest() {
        let options = MountOptions::parse(["commit=30,cache=64M,noatime"], false).unwrap();
        let refused = |list: &[&'static str]| options.not_to_be_changed(list).unwrap();
        assert!(
            refused(&["ro", "relatime", "sync", "noexec", "commit=30", "cache=65536k"]).is_empty()
        );
        assert_eq!(refused(&["ro", "commit=5", "dirsync"]), ["commit=5", "dirsync"]);
        assert!(options.not_to_be_changed(&["odd"]).is_err());
    }

    #[test]
    fn what_differs_for_a_volume_that_is_mounted_is_named() {
        let first = MountOptions::parse(["cache=64M,noatime,threads=3"], false).unwrap();
        let differing = |list: &'static str| first.of_volume_differing([list]).unwrap();
        let fine = "commit=5,cache=65536k,relatime,threads=7,log_data=0,ro,branch=x,dirty_bytes=8M";
        assert!(differing(fine).is_empty());
        assert_eq!(differing("ro,commit=9,cache=1M,log=/x"), ["commit=9", "cache=1M", "log=/x"]);
        assert!(first.of_volume_differing(["odd"]).is_err());
    }

    #[test]
    fn a_size_for_dirty_is_told_what_dirty_is_now() {
        let why = MountOptions::parse(["dirty=256M"], false).unwrap_err();
        assert!(why.contains("one of ranges") && why.contains("dirty_bytes=256M"), "{why}");
    }

    #[test]
    fn what_is_not_known_or_makes_no_sense_is_said() {
        let wrong = [
            "comit=3",
            "commit",
            "commit=soon",
            "commit=-1",
            "cache=3X",
            "data=journal",
            "dirty",
            "dirty=some",
            "dirty=Ranges",
            "dirty_bytes=much",
            "accounting=never",
            "accounting",
            "batch=all",
            "rename_log=no",
            "fsync_wait=long",
            "open=me",
            "log_data=1M",
            "log_data",
            "slow_fsync=1s",
            "slow_fsync=-1",
            "spin=10001",
            "spin=50us",
            "recover=0",
            "recover=-1",
            "recover=NaN",
            "recover=1s",
            "recover",
            "allow_other,nodefault_permissions",
            "nodefault_permissions,ro,allow_other",
        ];
        for wrong in wrong {
            assert!(MountOptions::parse([wrong], false).is_err(), "{wrong}");
        }
        assert!(MountOptions::parse(["data=journal,ro"], true).unwrap().read_only);
        assert!(MountOptions::parse(["commit=soon"], true).is_err());
        let alone = MountOptions::parse(["allow_other,nodefault_permissions,noallow_other"], false);
        assert!(!alone.unwrap().default_permissions, "the last word counts");
    }
}
