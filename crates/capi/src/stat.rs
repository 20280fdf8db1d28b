//! Attributes, as C has them.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast::Metadata;

/// A moment: seconds since 1970, and nanoseconds behind them, 0 to 999999999.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct holdfast_time {
    /// Seconds, negative before 1970.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: i64,
}

/// Attributes of a file, as stat(2) has them.
#[repr(C)]
pub struct holdfast_stat_t {
    /// Inode number: never given to another file in the volume's life.
    pub ino: u64,
    /// Bytes of a file; entries of a directory.
    pub size: u64,
    /// Units of 512 bytes in use.
    pub blocks: u64,
    /// Device number of a device file.
    pub rdev: u64,
    /// Type and permission bits: S_IFREG and its kin, 0644.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: holdfast_time,
    /// Last change of the content.
    pub mtime: holdfast_time,
    /// Last change of content or attributes.
    pub ctime: holdfast_time,
    /// Creation.
    pub btime: holdfast_time,
}

impl From<SystemTime> for holdfast_time {
    fn from(time: SystemTime) -> holdfast_time {
        let (sec, nsec) = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs() as i64, since.subsec_nanos()),
            Err(before) => {
                let (sec, nsec) = (before.duration().as_secs(), before.duration().subsec_nanos());
                match nsec {
                    0 => (-(sec as i64), 0),
                    _ => (-(sec as i64) - 1, 1_000_000_000 - nsec),
                }
            }
        };
        holdfast_time { sec, nsec: nsec.into() }
    }
}

impl holdfast_time {
    /// The moment, unless it is none.
    pub(crate) fn to_system(self) -> Option<SystemTime> {
        let nsec = u32::try_from(self.nsec).ok().filter(|&nsec| nsec < 1_000_000_000)?;
        let sec = std::time::Duration::from_secs(self.sec.unsigned_abs());
        let whole = match self.sec < 0 {
            true => UNIX_EPOCH.checked_sub(sec)?,
            false => UNIX_EPOCH.checked_add(sec)?,
        };
        whole.checked_add(std::time::Duration::from_nanos(nsec.into()))
    }
}

impl From<Metadata> for holdfast_stat_t {
    fn from(of: Metadata) -> holdfast_stat_t {
        holdfast_stat_t {
            ino: of.ino(),
            size: of.len(),
            blocks: of.blocks(),
            rdev: of.rdev(),
            mode: of.mode(),
            nlink: of.nlink(),
            uid: of.uid(),
            gid: of.gid(),
            atime: of.accessed().into(),
            mtime: of.modified().into(),
            ctime: of.changed().into(),
            btime: of.created().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_there_and_back() {
        for (sec, nsec) in [(0, 0), (5, 999_999_999), (-1, 1), (-7, 0), (1 << 33, 5)] {
            let time = holdfast_time { sec, nsec };
            assert_eq!(holdfast_time::from(time.to_system().expect("a moment")), time);
        }
        for (sec, nsec) in [(0, -1), (0, 1_000_000_000), (i64::MAX, 999_999_999), (i64::MIN, 0)] {
            // Nothing panics, whatever it is taken for.
            let _ = holdfast_time { sec, nsec }.to_system();
        }
        assert!(holdfast_time { sec: 0, nsec: 1_000_000_000 }.to_system().is_none());
    }
}
