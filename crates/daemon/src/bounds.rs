//! What a caller of another user may take of a daemon: no more for a mount than the daemon takes for its own.

use std::time::Duration;

use holdfast_fuse::{FuseOptions, Transport};
use holdfast_service::size;

use crate::mount_options::DaemonOptions;

/// Mounts of one user.
pub(super) const MOUNTS_OF_ONE: usize = 256;
/// Bytes of all that stands behind `-o`: it is kept, and shown in lists.
const TEXT_MAX: usize = 4096;

/// Refuses what is beyond `own`, which the first mount of the daemon has, with `bytes` of memory for written data. What `asked` leaves
/// open becomes as there.
pub(super) fn bound(
    asked: &mut DaemonOptions,
    own: &DaemonOptions,
    bytes: u64,
) -> Result<(), String> {
    let why = |option: &str, most: &str| {
        Err(format!(
            "{option}: another user's process serves this volume, which allows {most}; ask for less, or leave it out"
        ))
    };
    if asked.text.len() > TEXT_MAX {
        return why("-o", &format!("{TEXT_MAX} letters of options"));
    }
    let threads = FuseOptions { threads: own.threads, ..FuseOptions::default() }.readers();
    match asked.threads {
        Some(wanted) if wanted > threads => {
            return why(&format!("threads={wanted}"), &format!("at most {threads}"));
        }
        Some(_) => {}
        None => asked.threads = own.threads,
    }
    match asked.dirty_bytes {
        Some(wanted) if wanted > bytes => {
            let option = format!("dirty_bytes={wanted}");
            return why(&option, &format!("at most {}", size::show(bytes)));
        }
        Some(_) => {}
        None => asked.dirty_bytes = Some(bytes),
    }
    let spin = own.spin.unwrap_or(FuseOptions::default().spin);
    match asked.spin {
        Some(wanted) if wanted > spin => {
            let option = format!("spin={}", wanted.as_micros());
            return why(&option, &format!("at most {}", spin.as_micros()));
        }
        Some(_) => {}
        None => asked.spin = own.spin,
    }
    if asked.transport == Transport::Rings && own.transport != Transport::Rings {
        return why("transport=rings", "requests through /dev/fuse only");
    }
    // Each is a line in the log of the daemon.
    let slow_fsync = asked.slow_fsync().zip(own.slow_fsync());
    asked.slow_fsync = Some(slow_fsync.map_or(Duration::ZERO, |(asked, own)| asked.max(own)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_gets_no_more_than_the_daemon_has() {
        let options = |text: &str| DaemonOptions::parse([text], false).unwrap();
        let own = options("threads=3,dirty_bytes=64M,spin=20,slow_fsync=500");
        let bounded = |text: &str| {
            let mut asked = options(text);
            bound(&mut asked, &own, 64 << 20).map(|()| asked)
        };
        let usual = bounded("noatime").unwrap();
        assert_eq!(
            (usual.threads, usual.dirty_bytes, usual.spin),
            (own.threads, own.dirty_bytes, own.spin)
        );
        let less = bounded("threads=1,dirty_bytes=8M,spin=0").unwrap();
        assert_eq!((less.threads, less.dirty_bytes), (Some(1), Some(8 << 20)));
        assert_eq!(bounded("slow_fsync=1").unwrap().slow_fsync(), own.slow_fsync());
        assert_eq!(bounded("slow_fsync=0").unwrap().slow_fsync(), None);
        for more in ["threads=4", "dirty_bytes=65M", "spin=21", "transport=rings"] {
            let why = bounded(more).unwrap_err();
            assert!(why.contains("allows"), "{more}: {why}");
        }
        assert!(bounded(&format!("x-{}", "a".repeat(TEXT_MAX))).is_err());
    }
}
