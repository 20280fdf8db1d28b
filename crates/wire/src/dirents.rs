//! Entries of a directory on their way to the kernel.

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};

/// Fills a buffer with entries, each padded to eight bytes.
#[derive(Debug)]
pub struct Dirents<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl<'a> Dirents<'a> {
    /// No entry yet.
    pub fn new(out: &'a mut [u8]) -> Dirents<'a> {
        Dirents { out, used: 0 }
    }

    /// Adds an entry, with attributes for readdirplus; false if it has no room. `kind` is that of readdir(3).
    pub fn add(
        &mut self,
        plus: Option<&EntryOut>,
        inode: u64,
        cookie: u64,
        kind: u32,
        name: &[u8],
    ) -> bool {
        let dirent = Dirent { ino: inode, off: cookie, namelen: name.len() as u32, kind };
        let plus = plus.map_or(&[][..], |plus| plus.as_bytes());
        let len = (plus.len() + size_of::<Dirent>() + name.len()).next_multiple_of(8);
        let Some(mut to) = self.out.get_mut(self.used..self.used + len) else {
            return false;
        };
        for part in [plus, dirent.as_bytes(), name] {
            let (front, rest) = to.split_at_mut(part.len());
            front.copy_from_slice(part);
            to = rest;
        }
        to.fill(0);
        self.used += len;
        true
    }

    /// Takes all entries out again.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Bytes used.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_stop_where_there_is_no_room() {
        let mut out = [0xff; 70];
        let mut dirents = Dirents::new(&mut out);
        assert!(dirents.add(None, 5, 6, 8, b"name"));
        assert_eq!(dirents.used(), 32);
        assert!(dirents.add(None, 5, 7, 8, b"12345678"));
        assert!(!dirents.add(None, 5, 8, 8, b""), "64 bytes are used");
        assert!(!dirents.add(Some(&EntryOut::default()), 5, 8, 8, b""));
        assert_eq!(dirents.used(), 64);
        assert_eq!(&out[24..32], b"name\0\0\0\0");
        assert_eq!(out[64], 0xff);
    }
}
