//! The options of `mount -o`, one row for each: its words, what they set, how far that holds, and its sentence in `holdfast mount --help`.
//! Parsing, joining, remounts, the help and the lists in docs/SEMANTICS.md come from here.

use std::time::Duration;

use holdfast::{Atime, Discard};
use holdfast_fuse::{Owners, SLOW_FSYNC, Squash, Transport};
use holdfast_service::{mode, owner};

use super::DaemonOptions;
use super::given::Given;

/// Seconds of `commit=` where nothing is said.
const COMMIT_DEFAULT: u32 = 5;
/// A batch of the log is much larger, whatever else it holds.
const LOG_DATA_MAX: u64 = 512 << 10;

/// How far an option holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// For one mount, as long as it is there.
    Mount,
    /// For one mount, and a remount can change it.
    Remount,
    /// For the volume: a mount that joins says the same of it, or nothing.
    Volume,
    /// For the call that mounts. A remount ignores it.
    Call,
}

/// A word that can stand behind `-o`. The form of its value is as help shows it; empty: it has none.
pub(super) struct Word {
    pub(super) name: &'static str,
    pub(super) form: &'static str,
    pub(super) set: fn(&mut DaemonOptions, &Given<'_>) -> Result<(), String>,
}

/// Words of which help says one thing: those that it shows, and others that say the same or end it.
pub(super) struct Row {
    pub(super) scope: Scope,
    pub(super) words: &'static [Word],
    pub(super) also: &'static [Word],
    pub(super) help: &'static str,
}

/// Rows below one heading of help; an empty one: they are to measure mechanisms, and docs/MECHANISMS.md alone has them.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) rows: &'static [Row],
}

macro_rules! options {
    (@word $o:ident $it:ident $name:literal [$($form:literal)?] $set:expr) => {
        Word { name: $name, form: concat!($($form)?), set: |$o, $it| { let _ = $it; $set; Ok(()) } }
    };
    (|$o:ident, $it:ident| $($title:literal {$(
        $scope:ident $($name:literal $(= $form:literal)? => $set:expr),+;
        $(also $($other:literal $(= $of:literal)? => $does:expr),+;)?
        $help:literal
    )*})* refused {$($words:literal $why:literal)*} apart {$($both:expr => $sentence:literal)*}) => {
        /// All options that mean something here.
        pub(super) static GROUPS: &[Group] = &[$(Group { title: $title, rows: &[$(Row {
            scope: Scope::$scope,
            words: &[$(options!(@word $o $it $name [$($form)?] $set)),+],
            also: &[$($(options!(@word $o $it $other [$($of)?] $does)),+)?],
            help: $help,
        }),*] }),*];

        /// Words whose absence would be missed, so that the mount fails, and what is said behind each.
        pub(super) const REFUSED: &[(&str, &str)] = &[$(($words, $why)),*];

        /// What makes no sense together, and what is said of it.
        pub(super) const APART: &[(fn(&DaemonOptions) -> bool, &str)] = &[$((|$o| $both, $sentence)),*];
    };
}

options! { |o, it|
"Safety and speed" {
    Volume "commit" = "SECONDS" => {
        o.commit = Some(it.number(0..=u32::MAX, "a number of seconds")?).filter(|it| *it != COMMIT_DEFAULT);
    };
        "a power cut takes at most the changes of the last SECONDS that no fsync made durable (default 5). More saves writes; 0: time
         alone makes nothing durable"
    Volume "recover" = "SECONDS" => o.recover = Some(it.seconds()?);
        "about how long mounting may take after a crash, fractions allowed (default 1). Less means more writes in the background"
    Mount "log_data" = "SIZE" => o.log_data = Some(it.size(LOG_DATA_MAX)? as usize);
        "an fsync with at most this much new data is one write; more data is written to its place first (default 16k, less on volumes
         below 64M; at most 512k). Raise it if programs fsync larger pieces on a device whose writes take long to begin"
    Mount "slow_fsync" = "MS" => {
        let limit = Duration::from_millis(it.number(0..=u64::MAX, "a number of milliseconds")?);
        o.slow_fsync = Some(limit).filter(|it| *it != SLOW_FSYNC);
    };
        "an fsync that takes longer than MS milliseconds gets a line in the log of the mount (default 1000; 0: none does)"
    Remount "sync" => o.sync = true; "every change is durable before its call returns: as slow as an fsync each time"
    Remount "async" => o.sync = false; "end that (default)"
    Mount "dirsync" => o.dirsync = true; "changes of names (create, rename, remove) are durable before the call returns"
    Mount "handover" => o.handover = true;
        "the host has every change before its call returns: a daemon that is killed loses none, a power cut may take them as without.
         One write for each change"
    Mount "nohandover" => o.handover = false; "end that (default)"
    Volume "supervised" => o.supervised = true;
        "a second process keeps the mounts of the volume when their filesystem process dies, and starts another one: programs see a
         pause. It means handover"
    Volume "nosupervised" => o.supervised = false; "end that (default)"
}
"What is mounted, for fstab; the same as behind the volume" {
    Mount "branch" = "NAME" => o.branch = Some(it.unquoted().into()); "this branch (default main)"
    Mount "snapshot" = "NAME" => (o.snapshot, o.read_only) = (Some(it.unquoted().into()), true);
        "this snapshot of the branch, read-only. Quotes keep the commas of a name together: branch=\"a,b\""
}
"Memory" {
    Volume "cache" = "SIZE" => o.cache = Some(it.size(u64::MAX)?);
        "for names, attributes and other metadata (default 256M). Raise it if `holdfast stats` shows a low share of look-ups answered
         from memory"
    Mount "dirty_bytes" = "SIZE" => o.dirty_bytes = Some(it.size(u64::MAX)?);
        "for written data that is not on the device yet (default 256M, at least 4M). Programs that write faster than the device wait
         when it is full"
}
"Free space" {
    Volume "discard" => o.discard = Discard::On;
        "some seconds after it was used last, it becomes holes of the file, or is discarded on the block device (default for files
         with holes)"
    Volume "nodiscard" => o.discard = Discard::Off;
        "it stays with the volume until `holdfast trim` (default for block devices)"
}
"Reading and access times" {
    Remount "ro" => o.read_only = true, "rw" => o.read_only = false; "write nothing at all, or allow it (default rw)"
    Remount "noatime" => o.atime = Some(Atime::Never); "reading never changes access times"
    Remount "relatime" => o.atime = Some(Atime::Relative);
    also "atime" => o.atime = Some(Atime::Relative);
        "it does so once a day, and after each change of the file (default)"
    Remount "strictatime" => o.atime = Some(Atime::Always);
    also "nostrictatime" => if o.atime == Some(Atime::Always) { o.atime = Some(Atime::Relative); };
        "it always does so"
    Remount "nodiratime" => o.nodiratime = true;
    also "diratime" => o.nodiratime = false;
        "reading a directory never changes its access time"
}
"Users and permissions" {
    Mount "allow_other" => o.allow_other = Some(true); "other users may use the mount (default if root mounts)"
    Mount "noallow_other" => o.allow_other = Some(false); "they may not (default if another user mounts)"
    Mount "nodefault_permissions" => o.nodefault_permissions = true;
    also "default_permissions" => o.nodefault_permissions = false;
        "the kernel leaves the check of permissions to the filesystem process. Then only the user who mounts may use the mount. For
         tests"
    Mount "uid" = "USER" => o.owners.uid = Some(owner::user(it.value)?),
        "gid" = "GROUP" => o.owners.gid = Some(owner::group(it.value)?);
        "everything is shown as this user's or group's, and what is made belongs to the owner of the volume's root directory. Set-id
         bits and access control lists mean nothing then"
    Mount "umask" = "OCTAL" => {
        let bits = mode::octal(it.value).ok().filter(|bits| *bits <= 0o777);
        o.owners.umask = bits.ok_or_else(|| it.is_not("octal, like umask=022"))?;
    };
        "nothing has these permission bits"
    Mount "squash" = "WHO" => o.owners.squash = it.value.parse()?;
        "root, or all: they act as the owner of the root directory, as with NFS (default none)"
    Remount "nodev" => o.nodev = true, "nosuid" => o.nosuid = true, "noexec" => o.noexec = true,
        "nosymfollow" => o.nosymfollow = true;
    also "dev" => o.nodev = false, "suid" => o.nosuid = false, "exec" => o.noexec = false,
        "symfollow" => o.nosymfollow = false;
        "as in mount(8)"
    Remount "user" => (o.noexec, o.nosuid, o.nodev) = (true, true, true),
        "users" => (o.noexec, o.nosuid, o.nodev) = (true, true, true);
        "noexec,nosuid,nodev, unless later options say otherwise"
    Remount "owner" => (o.nosuid, o.nodev) = (true, true), "group" => (o.nosuid, o.nodev) = (true, true);
        "nosuid,nodev, likewise"
    Call "context" = "LABEL" => o.labels.push(it.option.into());
    also "fscontext" = "LABEL" => o.labels.push(it.option.into()),
        "defcontext" = "LABEL" => o.labels.push(it.option.into()),
        "rootcontext" = "LABEL" => o.labels.push(it.option.into());
        "goes to SELinux, if there is one; so do fscontext=, defcontext= and rootcontext="
}
"How the kernel and the filesystem process talk; the defaults suit nearly everything" {
    Mount "threads" = "N" => o.threads = Some(it.number(1..=64, "a number from 1 to 64")?);
        "threads that take requests at the same time, 1 to 64 (default: processors, but 2 to 16). More if many programs read at once
         from a fast device"
    Mount "spin" = "MICROSECONDS" => {
        let micros = it.number(0..=10_000, "a number of microseconds up to 10000")?;
        o.spin = Some(Duration::from_micros(micros));
    };
        "how long a thread looks for the next request before it sleeps (default 50, above four processors 0; at most 10000). 0 saves
         processor time and makes requests slower"
    Mount "transport" = "WAY" => o.transport = it.value.parse()?;
        "how requests come: auto (default), device (/dev/fuse), or rings (io_uring; saves time where several threads do not fsync).
         Where root has not allowed rings, the mount says on a terminal how to allow them for good"
    Mount "noxattr" => o.noxattr = true;
    also "xattr" => o.noxattr = false;
        "no extended attributes, access control lists or file capabilities: a fifth fewer requests while files are unpacked"
    Mount "open" = "SIDE" => o.opens = it.value.parse()?;
        "what opens files: server (default), or kernel, which opens and closes files without a request. Faster for programs that open
         the same files again and again; errors of lost data are then kept for a file, not for each program that has it open"
}
"Snapshots" {
    Mount "snapdir" = "WHO" => o.snapdir = it.value.parse()?;
        ".snapshots in the root of the mount has the snapshots of the branch: mkdir takes one, rmdir deletes one, mv renames one. hidden
         (default: it is there, and not listed), visible (listed), or off"
}
"Mounting" {
    Call "remount" => o.remount = true; "change a mount in use. What was opened read-only stays so"
    Call "nofail" => o.nofail = true; "a missing volume is no error"
    Volume "log" = "FILE" => o.log = Some(it.value.into());
        "the messages of the filesystem process go here instead of the system log; only the owner reads a file that is new, as lines
         name files"
}
"" {
    Volume "dirty" = "HOW" => o.dirty = it.dirty()?; "how a node remembers what changed"
    Volume "accounting" = "HOW" => o.accounting = it.value.parse()?; "which records of block groups a commit writes"
    Volume "batch" = "HOW" => o.batching = it.value.parse()?; "how a batch of the log finds the inode of a name"
    Mount "rename_log" = "HOW" => o.rename_log = it.value.parse()?; "what a rename adds to the log"
    Mount "fsync_wait" = "HOW" => o.fsync_wait = it.value.parse()?; "what an fsync waits for after its data was written"
}
refused {
    "noacl nouser_xattr" "is not there alone: noxattr leaves out both"
    "bind rbind" "shows a directory elsewhere: `mount --bind` does that, with a directory of a mounted volume"
    "move" "moves what is mounted: `mount --move` does that"
    "shared slave private unbindable rshared rslave rprivate runbindable"
        "is about mounts below it: once it is mounted, `mount --make-...` does that"
    "offset sizelimit encryption"
        "is for loop devices: make one with `losetup`, or mount with mount(8), which does, and mount that"
    "mand" "asks for mandatory locks, which Linux has no more: leave it out"
    "quota usrquota grpquota prjquota"
        "asks for quotas, which there are none of: `holdfast branch limit` bounds a branch"
    "allow_root"
        "is not known to the kernel: allow_other lets root in too, and permissions are checked for all others"
    "auto_unmount"
        "is not there: `holdfast umount --dead DIR` takes away what has lost its process, and with supervised none is lost"
    "fd rootmode" "is set by the program that mounts: leave it out"
}
apart {
    o.allow_other == Some(true) && o.nodefault_permissions =>
        "allow_other and nodefault_permissions exclude each other: without the kernel's checks other users could list what is not theirs"
    o.nodefault_permissions && o.owners != Owners::default() =>
        "uid=, gid=, umask= and squash= need default_permissions: leave out nodefault_permissions"
    o.owners.squash == Squash::All && o.owners.umask != 0 =>
        "squash=all and umask= exclude each other: all act as the owner, for whom the permissions of the volume count; chmod them there"
    o.supervised && o.transport == Transport::Rings =>
        "supervised and transport=rings exclude each other: rings end with the process that has made them"
}
}

/// Words that mount(8), FUSE and other filesystems know, and that mean nothing here; so do all that begin with `x-` or `X-`.
pub(super) const IGNORED: &[&str] = &[
    // For mount(8), init and the network. The loop device is there by now, or not needed.
    "defaults auto noauto nouser nousers noowner nogroup _netdev comment helper uhelper loop",
    // For libfuse. The source is the volume, the type that of this program, and a block device is locked in any case.
    "subtype fsname blkdev nonempty",
    // What /proc/mounts shows: fstab lines are made from it.
    "user_id group_id max_read blksize seclabel",
    // What holds here anyway, or is about something that is not kept here: access times always wait in memory, attributes and lists are
    // always there, nothing is logged aloud, and no version of an inode is counted.
    "lazytime nolazytime norelatime silent loud acl user_xattr iversion noiversion nomand noquota",
];
