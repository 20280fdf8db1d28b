//! From the flags of system calls to those of the filesystem.

use holdfast_posix::{Access, FallocateFlags, OpenFlags, RenameFlags, Seek, XattrFlags};

use crate::interface::{Answer, Errno};

/// How a file is opened. `None` for an access mode that does not exist.
///
/// O_APPEND is judged and does nothing: the kernel has already turned it into an offset, and pages that it
/// writes back through such a handle must not go to the end. O_SYNC and O_DSYNC are left out:
/// each write says by itself whether it must be durable, see [`write_is_durable`].
pub(crate) fn open(flags: i32) -> Answer<OpenFlags> {
    let mut open = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => OpenFlags::READ,
        libc::O_WRONLY => OpenFlags::WRITE,
        libc::O_RDWR => OpenFlags::READ | OpenFlags::WRITE,
        _ => return Err(Errno(libc::EINVAL)),
    };
    open.set(OpenFlags::TRUNCATE, flags & libc::O_TRUNC != 0);
    open.set(OpenFlags::NOATIME, flags & libc::O_NOATIME != 0);
    open.set(OpenFlags::APPENDS, flags & libc::O_APPEND != 0);
    Ok(open)
}

/// Whether a write with these flags must be durable before it is answered. Only for files opened with
/// O_DIRECT: for others the kernel sends an fsync after the last piece of the write. For those it does
/// so if it opened them itself and the caller waits, but not after asynchronous writes.
pub(crate) fn write_is_durable(flags: i32) -> bool {
    // O_SYNC contains the bit of O_DSYNC.
    flags & libc::O_DSYNC != 0
}

/// Flags of renameat2.
pub(crate) fn rename(flags: u32) -> Answer<RenameFlags> {
    RenameFlags::from_bits(flags).ok_or(Errno(libc::EINVAL))
}

/// Flags of setxattr.
pub(crate) fn xattr(flags: i32) -> Answer<XattrFlags> {
    let known = XattrFlags::CREATE | XattrFlags::REPLACE;
    XattrFlags::from_bits(flags as u32)
        .filter(|all| known.contains(*all))
        .ok_or(Errno(libc::EINVAL))
}

/// Mode of fallocate. What we do not do is EOPNOTSUPP, as for any filesystem.
pub(crate) fn fallocate(mode: i32) -> Answer<FallocateFlags> {
    FallocateFlags::from_bits(mode as u32).ok_or(Errno(libc::EOPNOTSUPP))
}

/// Whence of lseek; the kernel handles all others itself.
pub(crate) fn seek(whence: i32) -> Answer<Seek> {
    match whence {
        libc::SEEK_DATA => Ok(Seek::Data),
        libc::SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Mask of access(2).
pub(crate) fn access(mask: i32) -> Answer<Access> {
    Access::from_bits(mask as u32).ok_or(Errno(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_flags_keep_what_the_server_decides_and_drop_what_the_kernel_did() {
        assert_eq!(open(libc::O_RDONLY), Ok(OpenFlags::READ));
        assert_eq!(
            open(libc::O_WRONLY | libc::O_APPEND | libc::O_SYNC | libc::O_DIRECT),
            Ok(OpenFlags::WRITE | OpenFlags::APPENDS)
        );
        assert_eq!(
            open(libc::O_RDWR | libc::O_TRUNC | libc::O_NOATIME),
            Ok(OpenFlags::READ | OpenFlags::WRITE | OpenFlags::TRUNCATE | OpenFlags::NOATIME)
        );
        assert_eq!(open(libc::O_ACCMODE), Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn both_kinds_of_synchronous_writes_are_durable() {
        assert!(write_is_durable(libc::O_WRONLY | libc::O_DSYNC));
        assert!(write_is_durable(libc::O_RDWR | libc::O_SYNC));
        assert!(!write_is_durable(libc::O_RDWR | libc::O_DIRECT | libc::O_APPEND));
    }

    #[test]
    fn numbers_are_those_of_the_system_calls() {
        assert_eq!(rename(libc::RENAME_NOREPLACE), Ok(RenameFlags::NOREPLACE));
        assert_eq!(rename(libc::RENAME_EXCHANGE), Ok(RenameFlags::EXCHANGE));
        assert_eq!(rename(libc::RENAME_WHITEOUT), Ok(RenameFlags::WHITEOUT));
        assert_eq!(rename(8), Err(Errno(libc::EINVAL)));
        assert_eq!(xattr(libc::XATTR_CREATE), Ok(XattrFlags::CREATE));
        assert_eq!(xattr(libc::XATTR_REPLACE), Ok(XattrFlags::REPLACE));
        let ours = XattrFlags::KILL_SGID.bits() as i32;
        assert_eq!(xattr(ours), Err(Errno(libc::EINVAL)), "not for callers");
        assert_eq!(
            fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            Ok(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        );
        assert_eq!(fallocate(libc::FALLOC_FL_ZERO_RANGE), Ok(FallocateFlags::ZERO_RANGE));
        assert_eq!(fallocate(libc::FALLOC_FL_COLLAPSE_RANGE), Ok(FallocateFlags::COLLAPSE_RANGE));
        assert_eq!(fallocate(libc::FALLOC_FL_UNSHARE_RANGE), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(access(libc::R_OK | libc::X_OK), Ok(Access::READ | Access::EXECUTE));
        assert_eq!(seek(libc::SEEK_END), Err(Errno(libc::EINVAL)));
    }
}
