//! Words that mount(8), FUSE and other filesystems know, and that set nothing here: which are ignored and which refused, and why.
//!
//! mount(8) keeps most of them to itself, and does what they ask for. They come here from `holdfast mount`, and from other programs that
//! read fstab. What would be missed is refused.

/// What becomes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing.
    Ignored,
    /// The mount fails, and this is said behind the option.
    Refused(&'static str),
}

/// Words with one fate, with or without a value, and the reason.
pub(super) const GENERIC: [(&str, Fate); 14] = [
    // For mount(8), init and the network. The loop device is there by now, or not needed.
    (
        "defaults auto noauto nouser nousers noowner nogroup _netdev comment helper uhelper loop",
        Fate::Ignored,
    ),
    // For libfuse. The source is the volume, the type that of this program, and a block device is locked in any case.
    ("subtype blkdev nonempty", Fate::Ignored),
    // What /proc/mounts shows: fstab lines are made from it.
    ("user_id group_id max_read blksize seclabel", Fate::Ignored),
    // What holds here anyway, or is about something that is not kept here: access times always wait in memory, attributes and lists are
    // always there, nothing is logged aloud, and no version of an inode is counted.
    (
        "lazytime nolazytime norelatime silent loud acl user_xattr iversion noiversion nomand noquota",
        Fate::Ignored,
    ),
    (
        "bind rbind",
        Fate::Refused(
            "shows a directory elsewhere: `mount --bind` does that, with a directory of a mounted volume",
        ),
    ),
    ("move", Fate::Refused("moves what is mounted: `mount --move` does that")),
    (
        "shared slave private unbindable rshared rslave rprivate runbindable",
        Fate::Refused("is about mounts below it: once it is mounted, `mount --make-...` does that"),
    ),
    (
        "offset sizelimit encryption",
        Fate::Refused(
            "is for loop devices: make one with `losetup`, or mount with mount(8), which does, and mount that",
        ),
    ),
    ("mand", Fate::Refused("asks for mandatory locks, which Linux has no more: leave it out")),
    (
        "allow_root",
        Fate::Refused(
            "is not known to the kernel: allow_other lets root in too, and permissions are checked for all others",
        ),
    ),
    (
        "auto_unmount",
        Fate::Refused(
            "is not there: `holdfast umount --dead DIR` takes away what has lost its process, and with supervised none is lost",
        ),
    ),
    ("fd rootmode", Fate::Refused("is set by the program that mounts: leave it out")),
    (
        "quota usrquota grpquota prjquota",
        Fate::Refused(
            "asks for quotas, which there are none of: `holdfast branch limit` bounds a branch",
        ),
    ),
    ("noacl nouser_xattr", Fate::Refused("is not there alone: noxattr leaves out both")),
];

/// What becomes of an option of this name; `None` if it is none of these.
pub(super) fn fate(name: &str) -> Option<Fate> {
    if name.is_empty() || name.starts_with("x-") || name.starts_with("X-") {
        return Some(Fate::Ignored);
    }
    let of = |(words, fate): &(&str, Fate)| words.split(' ').any(|it| it == name).then_some(*fate);
    GENERIC.iter().find_map(of)
}
