//! The handshake: what the kernel offers, and what is taken of it.

use crate::abi::{InitIn, InitOut, VERSION};

/// What the kernel can do.
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod flag {
    pub const ASYNC_READ: u64 = 1;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bytes of a page, the unit of `max_pages`.
const PAGE: u32 = 4096;

/// What a server wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// [`flag`]s; what is not offered is left out.
    pub flags: u64,
    /// Most bytes of a write, and of a read ahead. Whole pages.
    pub max_write: u32,
    /// Readahead and asynchronous direct requests that are sent before answers are waited for.
    pub max_background: u16,
}

/// What the handshake has written back about the form of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// [`flag::SETXATTR_EXT`] was taken.
    pub long_setxattr: bool,
}

/// A handshake that is over, for another process that goes on with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Everything that the kernel offered.
    pub offered: u64,
    /// What was taken of it.
    pub taken: u64,
}

impl Agreed {
    /// What became of an answer.
    pub fn on(init: &InitIn, answer: &InitOut) -> Agreed {
        let taken = u64::from(answer.flags) | u64::from(answer.flags2) << 32;
        Agreed { offered: offered(init), taken }
    }

    /// Whether the kernel offered all of these.
    pub fn offers(&self, flags: u64) -> bool {
        self.offered & flags == flags
    }

    /// Whether all of these were taken.
    pub fn takes(&self, flags: u64) -> bool {
        self.taken & flags == flags
    }

    /// The form of requests.
    pub fn dialect(&self) -> Dialect {
        Dialect { long_setxattr: self.takes(flag::SETXATTR_EXT) }
    }
}

/// Everything that the kernel offers.
pub fn offered(init: &InitIn) -> u64 {
    let high = if u64::from(init.flags) & flag::INIT_EXT != 0 { u64::from(init.flags2) } else { 0 };
    u64::from(init.flags) | high << 32
}

/// The answer: what is wanted and offered. `None` if the kernel speaks another language, before version 7.31.
pub fn answer(init: &InitIn, wanted: &Wanted) -> Option<InitOut> {
    if init.major != VERSION.0 || init.minor < 31 {
        return None;
    }
    let flags = (wanted.flags | flag::MAX_PAGES | flag::INIT_EXT) & offered(init);
    Some(InitOut {
        major: VERSION.0,
        minor: VERSION.1,
        max_readahead: init.max_readahead.min(wanted.max_write),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: wanted.max_background,
        congestion_threshold: wanted.max_background / 4 * 3,
        max_write: wanted.max_write,
        time_gran: 1,
        max_pages: u16::try_from(wanted.max_write / PAGE).unwrap_or(u16::MAX),
        ..InitOut::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        flags: flag::ASYNC_READ | flag::POSIX_ACL | flag::OVER_IO_URING,
        max_write: 1 << 20,
        max_background: 64,
    };

    #[test]
    fn what_is_not_offered_is_not_taken() {
        let low = (flag::ASYNC_READ | flag::INIT_EXT | flag::MAX_PAGES) as u32;
        let init =
            InitIn { major: 7, minor: 45, flags: low, flags2: u32::MAX, ..Default::default() };
        let out = answer(&init, &WANTED).unwrap();
        assert_eq!((out.flags, u64::from(out.flags2) << 32), (low, flag::OVER_IO_URING));
        assert_eq!((out.max_write, out.max_pages), (1 << 20, 256));
        // An old kernel's second word means nothing.
        let old = InitIn { flags: flag::ASYNC_READ as u32, ..init };
        assert_eq!(answer(&old, &WANTED).unwrap().flags2, 0);
        assert!(answer(&InitIn { minor: 12, ..init }, &WANTED).is_none());
    }
}
