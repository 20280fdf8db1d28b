//! What random scripts are made of.

/// What random scripts are made of.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Operations.
    pub ops: usize,
    /// Different names in a directory.
    pub names: u64,
    /// Deepest directory.
    pub depth: usize,
    /// Most bytes of one write.
    pub write_max: u64,
    /// Offsets lie below this, mostly.
    pub offset_max: u64,
    /// Sometimes an offset lies near this (a sparse file); 0 for never.
    pub far: u64,
    /// Longest attribute value, in bytes. ext4 keeps about 3 KiB in all.
    pub xattr_max: u64,
    /// Open handles by name, and work through them.
    pub handles: bool,
    /// O_TMPFILE (the kernel's FUSE library does not pass it on).
    pub tmpfile: bool,
    /// Zeroing ranges (tmpfs cannot).
    pub zero: bool,
    /// Devices, pipes and sockets.
    pub specials: bool,
    /// Weight of fsync, fdatasync, fsyncdir and sync against about 100 of everything else.
    pub syncs: u32,
    /// Weight of a remount.
    pub remounts: u32,
    /// Weight of a crash.
    pub crashes: u32,
    /// Weight of dropping caches.
    pub evicts: u32,
    /// Weight of operations on branches and snapshots; 0 for targets that have none.
    pub branches: u32,
    /// Holds on snapshots among them.
    pub holds: bool,
    /// Weight of ranges that are collapsed and inserted; 0 for targets that cannot, which most mounts are.
    pub shifts: u32,
}

impl Profile {
    /// Many ranges that are collapsed and inserted, in files that snapshots have as well.
    pub fn shifts() -> Profile {
        let usual = Profile::default();
        Profile {
            ops: 60,
            names: 3,
            far: 0,
            offset_max: 100_000,
            branches: 12,
            shifts: 30,
            ..usual
        }
    }

    /// Several snapshots and forks in 60 operations, with work in several branches between them.
    pub fn branches() -> Profile {
        let usual = Profile::default();
        Profile { ops: 60, names: 4, far: 0, write_max: 12_000, syncs: 12, branches: 60, ..usual }
    }
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            ops: 100,
            names: 5,
            depth: 3,
            write_max: 40_000,
            offset_max: 200_000,
            far: 8 << 40,
            xattr_max: 300,
            handles: true,
            tmpfile: true,
            zero: true,
            specials: true,
            syncs: 8,
            remounts: 1,
            crashes: 0,
            evicts: 2,
            branches: 0,
            holds: true,
            shifts: 0,
        }
    }
}
