//! What was published of the five mechanisms: their authors' figures, on their machines.
//!
//! Sources: the cover letters and commit messages of the kernel changes. They
//! are what our gains stand beside; that machines, kernels and loads differ is
//! why gains are compared and not figures.

/// Before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Both {
    pub(super) before: f64,
    pub(super) after: f64,
}

const fn both(before: f64, after: f64) -> Both {
    Both { before, after }
}

/// M1, btrfs, "do not update unchanged block group items": fio, 4 jobs with 512 MiB each, random direct writes
/// of 4 KiB, depth 64, 300 s, fsync at close. Nanoseconds of a commit's critical section; the authors give no unit.
pub(super) const CRITICAL_SECTION: Both = both(229_247_198.0, 215_000_000.0);
/// Of the same, the loop over block groups.
pub(super) const GROUP_LOOP: Both = both(23_133.0, 18_969.0);
/// Updates of a transaction: 2,062 in 101 transactions.
pub(super) const RECORDS: f64 = 2_062.0 / 101.0;
/// Share of the updates that were skipped: the least and the most.
pub(super) const SKIPPED: (f64, f64) = (0.4, 0.8);

/// M2, btrfs, "avoid logging all directory changes during renames": files, and milliseconds to rename all of them.
pub(super) const RENAMES: &[(u64, Both)] = &[
    (1_000, both(1_088.0, 905.0)),
    (2_000, both(2_550.0, 1_788.0)),
    (5_000, both(9_241.0, 4_642.0)),
    (10_000, both(27_399.0, 9_093.0)),
];

/// M3, XFS, ranges instead of bitmaps in the buffer log items: parallel creates of fs_mark per second with
/// directory blocks of 64 KiB, a debug kernel. Before it fell from 176,000 to 150,000; after it was 225,000 to 237,000.
pub(super) const CREATES_64K: Both = both(163_000.0, 231_000.0);
/// With blocks of 4 KiB; the authors give one figure.
pub(super) const CREATES_4K: f64 = 310_000.0;
/// Share of the processor for formatting.
pub(super) const FORMATTING: Both = both(0.23, 0.02);

/// M4, ext4, linear time for the dentries of a fast commit: fs_mark -L 100 -s 0 -S 5; directories, files in each,
/// and creates per second. The authors give both numbers as powers of two.
pub(super) const PENDING: &[(u64, u64, Both)] = &[
    (2, 2, both(16_900.0, 17_500.0)),
    (4, 4, both(32_100.0, 31_800.0)),
    (8, 8, both(54_000.0, 55_000.0)),
    (16, 16, both(78_900.0, 76_900.0)),
    (32, 32, both(95_800.0, 95_400.0)),
    (64, 64, both(87_900.0, 103_400.0)),
    (64, 1_024, both(730.0, 126_130.0)),
    (64, 16_384, both(2_330.0, 143_190.0)),
];

/// M5, btrfs, "fast fsync only waits for writeback": jobs, and MiB/s of sequential writes of 64 KiB, each with an fsync.
pub(super) const SEQUENTIAL: &[(u64, Both)] = &[
    (1, both(36.6, 40.2)),
    (2, both(35.8, 43.5)),
    (4, both(50.1, 64.5)),
    (8, both(64.0, 86.8)),
    (16, both(79.8, 107.0)),
    (32, both(93.2, 111.0)),
    (64, both(108.0, 133.0)),
];

/// M5, random writes of 4 KiB with an fsync after every sixteenth.
pub(super) const RANDOM: &[(u64, Both)] = &[
    (1, both(11.5, 11.6)),
    (2, both(12.8, 13.1)),
    (4, both(15.4, 17.8)),
    (8, both(19.9, 22.2)),
    (16, both(29.3, 30.4)),
    (32, both(36.9, 41.6)),
    (64, both(45.9, 48.8)),
];

/// The figures that belong to `key`.
pub(super) fn of(table: &[(u64, Both)], key: u64) -> Option<Both> {
    table.iter().find(|(at, _)| *at == key).map(|(_, both)| *both)
}
