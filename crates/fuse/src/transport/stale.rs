//! A request about an inode that is not there.
//!
//! ENOENT says that a name is missing. A request without a name is about what the kernel has open or remembers: if that is gone,
//! because its branch was rolled back, or another client removed it a moment ago, the answer is ESTALE. A program that
//! came by a path does not see it: the kernel looks the path up once more.

use holdfast_wire::Op;

use crate::interface::{Answer, Errno};

/// The answer to `op`.
pub(super) fn judged<T>(op: &Op<'_>, answer: Answer<T>) -> Answer<T> {
    if has_name(op) { answer } else { of_inode(answer) }
}

/// The answer to a request without a name.
pub(super) fn of_inode<T>(answer: Answer<T>) -> Answer<T> {
    match answer {
        Err(Errno(libc::ENOENT)) => Err(Errno(libc::ESTALE)),
        answer => answer,
    }
}

/// Whether it leads to something by a name.
fn has_name(op: &Op<'_>) -> bool {
    !matches!(
        op,
        Op::Getattr
            | Op::Statx(_)
            | Op::Setattr(_)
            | Op::Readlink
            | Op::Open(_)
            | Op::Opendir
            | Op::Read(_)
            | Op::Write { .. }
            | Op::Fsync(_)
            | Op::Fsyncdir
            | Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. }
            | Op::Access { .. }
            | Op::Fallocate(_)
            | Op::Lseek(_)
            | Op::CopyFileRange(_)
            | Op::Readdir(_)
            | Op::Readdirplus(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_by_name_is_missing_and_what_was_known_is_stale() {
        let missing: Answer<()> = Err(Errno(libc::ENOENT));
        assert_eq!(judged(&Op::Lookup { name: b"x" }, missing), missing);
        assert_eq!(judged(&Op::Getattr, missing), Err(Errno(libc::ESTALE)));
        assert_eq!(judged(&Op::Getattr, Ok(3)), Ok(3));
        assert_eq!(judged::<()>(&Op::Getattr, Err(Errno(libc::EIO))), Err(Errno(libc::EIO)));
    }
}
