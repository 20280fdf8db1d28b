//! As what requests are counted, and how the log calls them.

use holdfast_wire::Op;

use crate::statistics::RequestKind;

/// As what `op` is counted.
pub(super) fn kind(op: &Op<'_>) -> Option<RequestKind> {
    Some(match op {
        Op::Lookup { .. } => RequestKind::Lookup,
        Op::Forget(_) | Op::BatchForget(_) => RequestKind::Forget,
        Op::Getattr => RequestKind::GetAttr,
        Op::Statx(_) => RequestKind::StatX,
        Op::Setattr(_) => RequestKind::SetAttr,
        Op::Readlink => RequestKind::ReadLink,
        Op::Symlink { .. } => RequestKind::Symlink,
        Op::Mknod { .. } => RequestKind::MkNod,
        Op::Mkdir { .. } => RequestKind::MkDir,
        Op::Unlink { .. } => RequestKind::Unlink,
        Op::Rmdir { .. } => RequestKind::RmDir,
        Op::Rename { .. } => RequestKind::Rename,
        Op::Link { .. } => RequestKind::Link,
        Op::Open(_) => RequestKind::Open,
        Op::Read(_) => RequestKind::Read,
        Op::Write { .. } => RequestKind::Write,
        Op::Statfs => RequestKind::StatFs,
        Op::Release(_) => RequestKind::Release,
        Op::Fsync(_) => RequestKind::Fsync,
        Op::Setxattr { .. } => RequestKind::SetXattr,
        Op::Getxattr { .. } => RequestKind::GetXattr,
        Op::Listxattr { .. } => RequestKind::ListXattr,
        Op::Removexattr { .. } => RequestKind::RemoveXattr,
        Op::Flush => RequestKind::Flush,
        Op::Opendir => RequestKind::OpenDir,
        Op::Readdir(_) => RequestKind::ReadDir,
        Op::Readdirplus(_) => RequestKind::ReadDirPlus,
        Op::Releasedir => RequestKind::ReleaseDir,
        Op::Fsyncdir => RequestKind::FsyncDir,
        Op::Access { .. } => RequestKind::Access,
        Op::Create { .. } => RequestKind::Create,
        Op::Tmpfile(_) => RequestKind::TmpFile,
        Op::Ioctl { .. } => RequestKind::Ioctl,
        Op::Fallocate(_) => RequestKind::Fallocate,
        Op::Lseek(_) => RequestKind::Seek,
        Op::CopyFileRange(_) => RequestKind::CopyRange,
        Op::Init(_) | Op::Interrupt(_) | Op::Destroy | Op::Syncfs | Op::Other(_) => return None,
    })
}
