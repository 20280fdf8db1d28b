//! The filesystems under test, one after the other on one loop device.
//!
//! A [`Bed`] is a file that was written from end to end, and mostly a loop device
//! over it that uses direct I/O and discards nothing: no host allocates
//! during an fsync. A [`System`] says how a filesystem is made on it, a
//! [`Mounted`] is one that is in use. All but ours need root, and undo
//! themselves when they are dropped, see `undo.rs`.

mod bed;
pub(crate) mod meter;
pub(crate) mod mounted;

pub use crate::undo::{signal, watch};
pub use bed::Bed;
pub use mounted::{Mounted, Ours};

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use holdfast_base::clock::Deadline;

/// How long a server may take until its mount is there, and to end after it is gone, and what is busy to become free.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// A filesystem, or what stands for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Holdfast as it is mounted by default.
    Holdfast,
    /// Holdfast with requests through rings, which are allowed for as long as it is mounted.
    Rings,
    /// ext4 as it is made by default.
    Ext4,
    /// ext4 with fast commits.
    #[value(name = "ext4-fc")]
    Ext4Fast,
    /// XFS.
    Xfs,
    /// btrfs with one copy of its metadata.
    Btrfs,
    /// btrfs with two.
    BtrfsDup,
    /// ext4 served from userspace: for users who may not mount it.
    #[value(name = "fuse2fs")]
    Fuse2fs,
    /// An overlay served from userspace, over ext4: what containers without rights use.
    FuseOverlayfs,
    /// A directory of ext4 passed on from userspace: what every request costs that goes through a server.
    Bindfs,
    /// The loop device without a filesystem: the floor.
    Raw,
}

/// How a filesystem is made: the program, its package, and its arguments.
struct Recipe {
    program: &'static str,
    package: &'static str,
    args: &'static [&'static str],
    /// What mount(2) calls it, if the kernel mounts it.
    kind: &'static str,
}

impl System {
    /// A word for options and keys.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }

    /// The head of a column.
    pub fn title(self) -> &'static str {
        match self {
            System::Holdfast => "Holdfast",
            System::Rings => "Holdfast, rings",
            System::Ext4 => "ext4",
            System::Ext4Fast => "ext4, fast commits",
            System::Xfs => "XFS",
            System::Btrfs => "btrfs, single",
            System::BtrfsDup => "btrfs, dup",
            System::Fuse2fs => "fuse2fs",
            System::FuseOverlayfs => "fuse-overlayfs on ext4",
            System::Bindfs => "bindfs on ext4",
            System::Raw => "bare device",
        }
    }

    /// Whether it is Holdfast.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Holdfast | System::Rings)
    }

    /// Whether it is a filesystem of the kernel: what Holdfast is compared with. Servers in userspace are only shown
    /// beside it, because an fsync of a directory does nothing in some of them (bindfs, fuse2fs), and nothing is fast.
    pub fn is_peer(self) -> bool {
        self.recipe().is_some() && self.server().is_none()
    }

    /// The server of a filesystem in userspace that is not ours. Debian's packages are called as the programs.
    fn server(self) -> Option<&'static str> {
        match self {
            System::Fuse2fs => Some("fuse2fs"),
            System::FuseOverlayfs => Some("fuse-overlayfs"),
            System::Bindfs => Some("bindfs"),
            _ => None,
        }
    }

    /// Nothing is left to be initialised in the background, and nothing is discarded.
    fn recipe(self) -> Option<Recipe> {
        let ext4 = |args| Recipe { program: "mkfs.ext4", package: "e2fsprogs", args, kind: "ext4" };
        let btrfs =
            |args| Recipe { program: "mkfs.btrfs", package: "btrfs-progs", args, kind: "btrfs" };
        const EAGER: &str = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        match self {
            System::Holdfast | System::Rings | System::Raw => None,
            System::Ext4 | System::Fuse2fs | System::FuseOverlayfs | System::Bindfs => {
                Some(ext4(&["-q", "-F", "-E", EAGER]))
            }
            System::Ext4Fast => Some(ext4(&["-q", "-F", "-O", "fast_commit", "-E", EAGER])),
            System::Xfs => Some(Recipe {
                program: "mkfs.xfs",
                package: "xfsprogs",
                args: &["-q", "-f", "-K"],
                kind: "xfs",
            }),
            System::Btrfs => Some(btrfs(&["-q", "-f", "-K", "-m", "single", "-d", "single"])),
            System::BtrfsDup => Some(btrfs(&["-q", "-f", "-K", "-m", "dup", "-d", "single"])),
        }
    }

    /// The package that has to be installed before this system can be made, if its program is missing.
    pub fn missing_package(self) -> Option<&'static str> {
        let recipe = self.recipe()?;
        let server = self.server().map(|name| (name, name));
        let needed = std::iter::once((recipe.program, recipe.package)).chain(server);
        let mut missing = needed.filter(|(program, _)| find_program(program).is_none());
        missing.next().map(|(_, package)| package)
    }
}

/// The one command that installs what `systems` lack; `None` if they lack nothing.
pub fn install_command(systems: &[System]) -> Option<String> {
    let mut packages: Vec<&str> =
        systems.iter().filter_map(|system| system.missing_package()).collect();
    packages.sort_unstable();
    packages.dedup();
    (!packages.is_empty())
        .then(|| format!("apt-get install -y --no-install-recommends {}", packages.join(" ")))
}

/// Where a program is. Tools for the superuser are not in every user's search path.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

/// Whether loop devices and mounts can be made at all; if not, why.
pub fn can_mount() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("loop devices and mounts need root".into());
    }
    if find_program("losetup").is_none() {
        return Err("losetup is missing (package mount)".into());
    }
    let absent =
        ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists());
    absent.map_or(Ok(()), |path| Err(format!("there is no {path} here")))
}

/// Looks until `is_so`, but not for ever; whether it is so.
fn patiently(mut is_so: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let until = Deadline::after(PATIENCE);
    while !is_so()? {
        if until.is_over() {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_kept_results_and_recipes_belong_to_peers() {
        let words: Vec<_> = System::value_variants().iter().map(|system| system.word()).collect();
        let known =
            "holdfast rings ext4 ext4-fc xfs btrfs btrfs-dup fuse2fs fuse-overlayfs bindfs raw";
        assert_eq!(words.join(" "), known);
        assert!(System::value_variants().iter().all(|of| !(of.is_ours() && of.is_peer())));
        assert!(System::Ext4.is_peer() && !System::Bindfs.is_peer() && !System::Raw.is_peer());
        assert_eq!(System::Holdfast.missing_package(), None);
        assert_eq!(install_command(&[System::Holdfast, System::Raw]), None);
    }
}
