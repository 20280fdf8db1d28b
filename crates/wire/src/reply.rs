//! Answers and messages to the kernel.

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::{
    NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, NOTIFY_RESEND,
    NOTIFY_STORE, NotifyInvalEntry, NotifyInvalInode, NotifyPrune, NotifyStore, OutHeader,
};

/// Bytes of the header that every answer on /dev/fuse begins with.
pub const HEADER: usize = size_of::<OutHeader>();

/// The header of an answer with `len` bytes behind it; `error` is 0 or a positive errno.
pub fn header(unique: u64, error: i32, len: usize) -> OutHeader {
    OutHeader { len: (HEADER + len) as u32, error: -error, unique }
}

/// Puts `value` at the front of `out` and answers its length.
///
/// # Panics
/// If `out` is shorter: buffers for answers hold every fixed struct.
pub fn put<T: IntoBytes + Immutable>(out: &mut [u8], value: &T) -> usize {
    let bytes = value.as_bytes();
    out[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

/// A message that the attributes of an inode are not true any more; its pages stay.
pub fn attributes_changed(inode: u64) -> Vec<u8> {
    // A negative offset: no pages.
    inode_changed(NotifyInvalInode { ino: inode, off: -1, len: 0 })
}

/// A message that neither the attributes nor any page of an inode are true any more.
pub fn content_changed(inode: u64) -> Vec<u8> {
    // No length: up to the end.
    inode_changed(NotifyInvalInode { ino: inode, off: 0, len: 0 })
}

/// A message that neither the attributes nor `len` bytes from `offset` on are true any more, nor what shares pages with them.
pub fn bytes_changed(inode: u64, offset: u64, len: u64) -> Vec<u8> {
    let [off, len] = [offset, len].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    inode_changed(NotifyInvalInode { ino: inode, off, len })
}

/// A message with bytes of a file, which is at least so long: the kernel does not believe any more that it ends before.
pub fn stored(inode: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let body = NotifyStore { nodeid: inode, offset, size: bytes.len() as u32, padding: 0 };
    notice(NOTIFY_STORE, &[body.as_bytes(), bytes].concat())
}

/// A message that requests which were read and not answered shall come again. Kernels before 6.9 do not know it.
pub fn send_again() -> Vec<u8> {
    notice(NOTIFY_RESEND, &[])
}

/// A message that no name leads any more to where it led, in any directory. Kernels before 6.16 do not know it.
pub fn all_names_changed() -> Vec<u8> {
    notice(NOTIFY_INC_EPOCH, &[])
}

/// A message that these inodes are not wanted in memory if no program uses them. Kernels before 6.18 do not know it.
pub fn unwanted(inodes: &[u64]) -> Vec<u8> {
    let body = NotifyPrune { count: inodes.len() as u32, padding: 0, spare: 0 };
    notice(NOTIFY_PRUNE, &[body.as_bytes(), inodes.as_bytes()].concat())
}

/// A message that a name in a directory does not lead any more to where it led, if anywhere.
pub fn name_changed(parent: u64, name: &[u8]) -> Vec<u8> {
    let body = NotifyInvalEntry { parent, namelen: name.len() as u32, flags: 0 };
    notice(NOTIFY_INVAL_ENTRY, &[body.as_bytes(), name, b"\0"].concat())
}

fn inode_changed(body: NotifyInvalInode) -> Vec<u8> {
    notice(NOTIFY_INVAL_INODE, body.as_bytes())
}

fn notice(code: i32, body: &[u8]) -> Vec<u8> {
    let mut header = OutHeader::new_zeroed();
    header.len = (HEADER + body.len()) as u32;
    header.error = code;
    [header.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_count_themselves_and_errors_are_negative() {
        let header = header(7, 2, 0);
        assert_eq!((header.len, header.error, header.unique), (16, -2, 7));
        assert_eq!((attributes_changed(5).len(), content_changed(5).len()), (40, 40));
        assert_eq!((bytes_changed(5, 4096, 8192).len(), stored(5, 4096, b"x").len()), (40, 41));
        assert_eq!((all_names_changed().len(), name_changed(1, b"name").len()), (16, 37));
        assert_eq!((unwanted(&[5, 6]).len(), unwanted(&[5, 6])[16]), (48, 2));
        assert_eq!(send_again()[..8], [16, 0, 0, 0, 7, 0, 0, 0]);
        let mut out = [0xff; 32];
        assert_eq!(put(&mut out, &header), 16);
        assert_eq!((&out[..4], out[16]), (&16u32.to_ne_bytes()[..], 0xff));
    }
}
