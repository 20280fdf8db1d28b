//! What each manual page has beyond the declaration of its arguments.

/// Beyond the declaration of a command.
pub(super) struct Page {
    /// The command behind `holdfast`, or the link.
    name: &'static str,
    pub(super) status: Status,
    /// What for, and the lines.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Pages and their sections, beside that of the program.
    see: &'static [(&'static str, &'static str)],
}

impl Page {
    /// The pages to go on with.
    pub(super) fn see_also(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = (!self.name.is_empty()).then_some(("holdfast", "1"));
        own.into_iter().chain(self.see.iter().copied())
    }
}

/// What exit codes mean. Commands that system programs call have theirs; all others agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Of most commands.
    Plain,
    /// Of those that read files.
    Reads,
    /// Of those that change what a mounted branch is.
    NewHead,
    /// As of mount(8).
    Mount,
    /// As of umount(8).
    Umount,
    /// As of fsck(8).
    Fsck,
    /// As of mkfs(8).
    Mkfs,
    /// As of diff(1).
    Diff,
    /// As of fsck(8), and stopped on the way.
    Scrub,
    /// Something may be missing.
    Partly,
    /// Of a copy.
    Copies,
    /// Another process serves, by whichever program.
    Restarted,
    /// Of those that run a program.
    Runs,
    Salvage,
    Transaction,
}

type Codes = &'static [(&'static str, &'static str)];

const PLAIN: Codes = &[
    ("0", "It is done."),
    ("1", "It has failed. One sentence on standard error says why, and what helps."),
    ("2", "The arguments make no sense."),
];

const PARTLY: Codes = &[
    ("0", "It is done."),
    ("1", "Something could not be done, and is named on standard error. The rest is done."),
    ("2", "The arguments make no sense."),
];

/// What is read of a damaged volume.
const DAMAGED: (&str, &str) = (
    "4",
    "It is done, but the volume is damaged and its last state is not whole, as standard error says.",
);

const READS: Codes = &[PLAIN[0], PLAIN[1], PLAIN[2], DAMAGED];
const COPIES: Codes = &[PARTLY[0], PARTLY[1], PARTLY[2], DAMAGED];

const RESTARTED: Codes = &[
    ("0", "The program that is installed serves the volume."),
    ("1", "Nothing was restarted."),
    ("2", "The arguments make no sense."),
    ("3", "Another process serves the volume, but by the program that was started first."),
];

const TRANSACTION: Codes = &[
    ("0", "COMMAND has succeeded, and what it has done is done."),
    ("that of COMMAND", "It has failed, and nothing has happened. 128+N if signal N has ended it."),
    ("75", "The branch has changed meanwhile: the fork is kept."),
    ("125", "Holdfast itself has failed."),
    ("126", "COMMAND cannot be run."),
    ("127", "There is no such COMMAND."),
];

impl Status {
    /// Codes and their meanings.
    pub(super) fn codes(self) -> Codes {
        match self {
            Status::Plain => PLAIN,
            Status::Reads => READS,
            Status::NewHead => &[
                ("0", "It is done."),
                ("1", "It has failed, and the branch is what it was."),
                ("2", "The arguments make no sense."),
                (
                    "3",
                    "It is done, but the kernel has not forgotten within 30 seconds what the branch was.",
                ),
            ],
            Status::Mount => &[
                ("0", "It is done."),
                ("1", "The arguments make no sense."),
                ("2", "The system gives no process, no thread or no memory for the daemon."),
                ("4", "The daemon has ended before the mount was ready."),
                ("32", "It has failed."),
            ],
            Status::Umount => &[
                ("0", "It is unmounted, and everything is durable."),
                ("1", "The arguments make no sense."),
                ("32", "It has failed."),
            ],
            Status::Scrub => &[
                ("0", "Nothing is damaged."),
                ("1", "All that was damaged is mended."),
                ("4", "Some of it is left."),
                ("8", "It could not be done; 12: and something was damaged."),
                ("16", "The arguments make no sense."),
                ("32", "It was stopped before its end; 36: and something was damaged."),
            ],
            Status::Fsck => &[
                ("0", "Nothing is wrong."),
                ("1", "All that was wrong is repaired."),
                ("4", "Errors are left. With 1 added, others are repaired."),
                (
                    "8",
                    "Nothing can be said: there is no such file, it is in use, it cannot be read, or what was found cannot be printed.",
                ),
                ("16", "The arguments make no sense."),
            ],
            Status::Mkfs => &[
                ("0", "The volume is there."),
                ("1", "It has failed, or the arguments make no sense."),
            ],
            Status::Diff => &[
                ("0", "It is compared; with --exit-code, nothing differs."),
                ("1", "With --exit-code or -q: something differs."),
                ("2", "It cannot be compared, or the arguments make no sense."),
                DAMAGED,
            ],
            Status::Restarted => RESTARTED,
            Status::Partly => PARTLY,
            Status::Copies => COPIES,
            Status::Runs => &[
                ("that of COMMAND", "It has run. 128+N if signal N has ended it."),
                ("125", "Holdfast itself has failed."),
                ("126", "COMMAND cannot be run."),
                ("127", "There is no such COMMAND."),
            ],
            Status::Salvage => &[
                ("0", "All is whole."),
                ("1", "Something is missing or not proven."),
                ("2", "The arguments make no sense."),
                ("8", "Nothing was found, or it could not be done."),
            ],
            Status::Transaction => TRANSACTION,
        }
    }
}

/// The page of a command.
pub(super) fn of(name: &str) -> &'static Page {
    let found = PAGES.iter().find(|page| page.name == name);
    found.unwrap_or_else(|| unreachable!("a test sees to it that {name:?} has a page"))
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.name)
}

macro_rules! pages {
    ($($name:literal, $status:ident, [$(($page:literal, $section:literal)),*] { $($what:literal: $line:literal,)* })*) => {
        const PAGES: &[Page] = &[$(Page {
            name: $name,
            status: Status::$status,
            examples: &[$(($what, $line)),*],
            see: &[$(($page, $section)),*],
        }),*];
    };
}

pages! {
    "", Plain, [("holdfast-mkfs", "1"), ("holdfast-mount", "1"), ("holdfast-snapshot", "1"), ("holdfast-fsck", "1")] {
        "A volume, a file in it, and the end": "holdfast mkfs --size 8G volume.img\nholdfast mount volume.img /mnt\nholdfast umount /mnt",
    }
    "mkfs", Mkfs, [("holdfast-mount", "1"), ("holdfast-resize", "1"), ("mkfs", "8")] {
        "A volume in a file that takes room only as it is filled": "holdfast mkfs --size 8G volume.img",
        "One on a disk, whose trees are stored twice": "holdfast mkfs -L data /dev/sdb1",
        "One in a file, in which also what fsyncs write is stored twice": "holdfast mkfs --copies metadata=2 --size 8G volume.img",
        "What would be done": "holdfast mkfs --dry-run --size 1.5T volume.img",
    }
    "mount", Mount, [("holdfast-umount", "1"), ("holdfast-list", "1"), ("mount.holdfast", "8"), ("fstab", "5")] {
        "Mount a volume": "holdfast mount volume.img /mnt",
        "Mount one of its branches beside it": "holdfast mount volume.img:work /mnt/work",
        "Look at a snapshot": "holdfast mount -o ro,snapshot=monday volume.img /mnt/monday",
        "Show everything as this user's, whoever the volume says it belongs to": "holdfast mount -o uid=1000,gid=1000 volume.img /mnt",
        "Go on after the death of the process that serves it": "holdfast mount -o supervised volume.img /mnt",
        "Let other users see it, and write everything every second": "holdfast mount -o allow_other,commit=1 volume.img /mnt",
    }
    "umount", Umount, [("holdfast-mount", "1"), ("umount.holdfast", "8"), ("fuser", "1")] {
        "Unmount, and wait until everything is durable": "holdfast umount /mnt",
        "All mounts of a volume": "holdfast umount volume.img",
    }
    "fsck", Fsck, [("holdfast-salvage", "1"), ("holdfast-scrub", "1"), ("fsck.holdfast", "8")] {
        "Look whether anything is wrong, data of files too": "holdfast fsck -n -d volume.img",
        "Repair it, and keep what is overwritten": "holdfast fsck -y -z undo.file volume.img",
        "Put that back": "holdfast fsck --undo undo.file volume.img",
    }
    "salvage", Salvage, [("holdfast-fsck", "1"), ("holdfast-image", "1")] {
        "See what is to be found": "holdfast salvage --list volume.img",
        "Copy out what is left": "holdfast salvage volume.img /srv/saved",
    }
    "image", Plain, [("holdfast-fsck", "1")] {
        "A copy without data of files, for a report of a bug": "holdfast image volume.img evidence.img",
        "The same without any name of a file": "holdfast image --scramble-names volume.img evidence.img",
    }
    "info", Plain, [("holdfast-list", "1"), ("holdfast-stats", "1")] {
        "What a volume is, whether it is mounted or not": "holdfast info volume.img",
        "The same for programs": "holdfast info --json /mnt",
    }
    "restart", Restarted, [("holdfast-mount", "1"), ("holdfast-list", "1")] {
        "A new version of the program for a mount in use": "holdfast restart /mnt",
    }
    "list", Plain, [("holdfast-info", "1"), ("holdfast-metrics", "1")] {
        "Which volumes are in use, and where": "holdfast list",
    }
    "ls", Reads, [("holdfast-cat", "1"), ("holdfast-cp", "1")] {
        "A directory of a volume": "holdfast ls -l volume.img:/etc",
        "The same as it was": "holdfast ls volume.img@monday:/etc",
        "Names of any bytes, for a program": "holdfast ls -0 volume.img:/etc | xargs -0 -n 1 echo",
    }
    "cat", Reads, [("holdfast-ls", "1"), ("holdfast-cp", "1")] {
        "A file of a volume": "holdfast cat volume.img:/etc/hostname",
    }
    "cp", Copies, [("holdfast-rm", "1"), ("holdfast-import", "1")] {
        "A tree into a volume, with owners and times": "holdfast cp -a src volume.img:/src",
        "A file out of it": "holdfast cp volume.img:/src/main.c .",
        "What another program prints, and back": "pg_dump app | holdfast cp - volume.img:/app.sql\nholdfast cp volume.img:/app.sql - | psql app",
    }
    "rm", Partly, [("holdfast-cp", "1")] {
        "A tree in a volume": "holdfast rm -r volume.img:/src",
    }
    "mkdir", Partly, [("holdfast-rm", "1"), ("holdfast-chmod", "1")] {
        "A directory, and those above": "holdfast mkdir -p volume.img:/var/log",
    }
    "mv", Partly, [("holdfast-cp", "1"), ("holdfast-rm", "1")] {
        "A new version in place of the old one": "holdfast mv -T volume.img:/new volume.img:/app",
        "Into a directory": "holdfast mv volume.img:/a volume.img:/b volume.img:/old",
    }
    "ln", Plain, [("holdfast-cp", "1")] {
        "A symbolic link in place of another one": "holdfast ln -sf releases/8 volume.img:/current",
        "One more name": "holdfast ln volume.img:/report volume.img:/latest",
    }
    "chmod", Partly, [("holdfast-chown", "1")] {
        "Only its owner reads it": "holdfast chmod 600 volume.img:/etc/shadow",
        "Others may look into all of a tree and change nothing": "holdfast chmod -R a+rX,go-w volume.img:/srv",
    }
    "chown", Partly, [("holdfast-chmod", "1")] {
        "A home directory": "holdfast chown -R 1000:1000 volume.img:/home/me",
    }
    "sync", Plain, [("sync", "1")] {
        "Make everything durable": "holdfast sync /mnt",
    }
    "stats", Plain, [("holdfast-metrics", "1"), ("holdfast-explain", "1")] {
        "What operations take, live": "holdfast stats --watch /mnt",
        "For programs": "holdfast stats --json /mnt",
    }
    "metrics", Plain, [("holdfast-stats", "1"), ("holdfast-list", "1")] {
        "Serve the statistics of all mounts on this machine": "holdfast metrics --listen 127.0.0.1:9741",
        "Print them for a collector that reads files": "holdfast metrics > holdfast.prom",
    }
    "trim", Plain, [("holdfast-mount", "1"), ("fstrim", "8")] {
        "Give free space back to the host": "holdfast trim /mnt",
    }
    "scrub", Scrub, [("holdfast-fsck", "1")] {
        "Verify all that is in use, at a rate that nobody feels": "holdfast scrub --rate 20M /mnt",
    }
    "resize", Plain, [("holdfast-mkfs", "1"), ("holdfast-tune", "1")] {
        "Ten GiB more, while it is in use": "holdfast resize /mnt +10G",
        "All that the device has": "holdfast resize /mnt max",
    }
    "tune", Plain, [("holdfast-info", "1")] {
        "Another label": "holdfast tune --label archive volume.img",
    }
    "snapshot", Plain, [("holdfast-snapshot-create", "1"), ("holdfast-snapshot-rollback", "1"), ("holdfast-prune", "1")] {}
    "snapshot create", Plain, [("holdfast-snapshot-rollback", "1"), ("holdfast-prune", "1")] {
        "Keep what is there now": "holdfast snapshot create /mnt before-upgrade",
    }
    "snapshot list", Plain, [("holdfast-snapshot-show", "1"), ("holdfast-branch-list", "1")] {
        "All snapshots": "holdfast snapshot list /mnt",
    }
    "snapshot show", Plain, [("holdfast-snapshot-list", "1")] {
        "One of them": "holdfast snapshot show /mnt monday",
    }
    "snapshot rename", Plain, [("holdfast-snapshot-list", "1")] {
        "Another name": "holdfast snapshot rename /mnt monday first",
    }
    "snapshot delete", Plain, [("holdfast-prune", "1"), ("holdfast-snapshot-hold", "1")] {
        "Two of them": "holdfast snapshot delete /mnt monday tuesday",
    }
    "snapshot hold", Plain, [("holdfast-snapshot-unhold", "1")] {
        "Keep one from being deleted": "holdfast snapshot hold --tag backup /mnt monday",
    }
    "snapshot unhold", Plain, [("holdfast-snapshot-hold", "1")] {
        "Let it be deleted again": "holdfast snapshot unhold --tag backup /mnt monday",
    }
    "snapshot rollback", NewHead, [("holdfast-snapshot-create", "1"), ("holdfast-branch-promote", "1")] {
        "Be what it was on Monday, and keep what it is": "holdfast snapshot rollback /mnt monday",
        "And throw away what it is": "holdfast snapshot rollback --discard /mnt monday",
    }
    "fork", Plain, [("holdfast-branch", "1"), ("holdfast-run", "1"), ("holdfast-txn", "1")] {
        "A branch that begins as what is there now": "holdfast fork /mnt work",
        "One that begins as a snapshot": "holdfast fork volume.img --from main@monday work",
    }
    "branch", Plain, [("holdfast-fork", "1"), ("holdfast-branch-list", "1"), ("holdfast-branch-promote", "1")] {}
    "branch list", Plain, [("holdfast-fork", "1")] {
        "All branches": "holdfast branch list volume.img",
    }
    "branch rename", Plain, [("holdfast-branch-list", "1")] {
        "Another name": "holdfast branch rename volume.img work done",
    }
    "branch delete", Plain, [("holdfast-fork", "1")] {
        "Throw a branch away": "holdfast branch delete volume.img work",
    }
    "branch limit", Plain, [("holdfast-branch-list", "1")] {
        "No more than two GiB for a branch": "holdfast branch limit volume.img work 2G",
    }
    "branch promote", NewHead, [("holdfast-txn", "1"), ("holdfast-snapshot-rollback", "1")] {
        "The mounted branch becomes what a fork is": "holdfast branch promote /mnt work",
    }
    "txn", Transaction, [("holdfast-run", "1"), ("holdfast-branch-promote", "1")] {
        "All of a build or nothing": "holdfast txn /mnt -- make install",
    }
    "run", Runs, [("holdfast-txn", "1"), ("holdfast-fork", "1")] {
        "A test that leaves nothing": "holdfast run /mnt -- make test",
        "One whose results are kept as a branch": "holdfast run --keep result /mnt -- make",
    }
    "diff", Diff, [("holdfast-snapshot", "1"), ("diff", "1")] {
        "What has changed since Monday": "holdfast diff /mnt@monday /mnt",
        "Of text, how": "holdfast diff -p volume.img @monday @tuesday",
    }
    "send", Reads, [("holdfast-receive", "1"), ("holdfast-export", "1")] {
        "A snapshot to another machine": "holdfast send /mnt@monday | ssh backup holdfast receive backup.img",
        "What has changed since then": "holdfast send /mnt@tuesday -i @monday > changes",
    }
    "receive", NewHead, [("holdfast-send", "1")] {
        "A stream of a file": "holdfast receive backup.img changes",
        "Where one that was cut goes on": "holdfast receive --resume-token backup.img",
    }
    "export", Reads, [("holdfast-import", "1"), ("holdfast-send", "1"), ("tar", "1")] {
        "A branch as an archive": "holdfast export --tar /mnt > tree.tar",
        "An image of one layer for each snapshot": "holdfast export --oci-layout image.tar --layer base --layer app volume.img",
    }
    "import", NewHead, [("holdfast-export", "1"), ("holdfast-cp", "1")] {
        "An archive, all of it or nothing": "holdfast import --tar volume.img tree.tar",
        "The layers of an image, one snapshot behind each": "holdfast import --oci image.tar volume.img",
    }
    "prune", Partly, [("holdfast-snapshot-delete", "1"), ("holdfast-snapshot-hold", "1")] {
        "One snapshot an hour for a day, one a day for a month": "holdfast prune --keep 24h:1h,30d:1d /mnt",
        "What would go": "holdfast prune --dry-run --keep 24h:1h /mnt",
        "Those that a script has named": "holdfast prune --prefix auto- --keep 1w:1d /mnt",
    }
    "explain", Plain, [("holdfast-stats", "1")] {
        "What the last fsync of a file has cost, and why": "holdfast explain /mnt/database",
    }
    "completions", Plain, [] {
        "For bash": "holdfast completions bash > holdfast",
    }
    "mkfs.holdfast", Mkfs, [("holdfast-mkfs", "1"), ("mkfs", "8")] {
        "By mkfs(8)": "mkfs -t holdfast /dev/sdb1",
    }
    "fsck.holdfast", Fsck, [("holdfast-fsck", "1"), ("fsck", "8")] {
        "By fsck(8)": "fsck -t holdfast /dev/sdb1",
    }
    "mount.holdfast", Mount, [("holdfast-mount", "1"), ("mount", "8"), ("fstab", "5")] {
        "By mount(8)": "mount -t holdfast volume.img /mnt",
        "In fstab(5)": "/srv/volume.img /mnt holdfast defaults,nofail 0 2",
    }
    "mount.fuse.holdfast", Mount, [("mount.holdfast", "8"), ("holdfast-mount", "1"), ("mount", "8")] {
        "Other options for what is mounted": "mount -o remount,noatime /mnt",
    }
    "umount.holdfast", Umount, [("holdfast-umount", "1"), ("umount", "8")] {
        "By umount(8)": "umount /mnt",
    }
    "umount.fuse.holdfast", Umount, [("umount.holdfast", "8"), ("holdfast-umount", "1")] {
        "By umount(8)": "umount /mnt",
    }
}
