//! `.snapshots`: the snapshots of a mounted branch, as directories in the root of its mount.
//!
//! The directory itself is nowhere on the volume: the server answers for it. Below it each snapshot is a filesystem that
//! is only read, opened when a request comes and closed when others are wanted more. Requests about
//! one are answered by a server of its own; the numbers that the kernel gets ([`number`]) say which.
//!
//! A snapshot never changes (P13), so the kernel may keep what it was told of one. What a name in `.snapshots` leads to may
//! change behind the kernel's back, by a command, so that is asked for each time.

pub(crate) mod number;

/// The name of the directory.
pub(crate) const NAME: &[u8] = b".snapshots";
