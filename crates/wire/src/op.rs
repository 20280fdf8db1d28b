//! What a request asks for, decoded without a copy.
//!
//! Names end at their zero byte, and lengths that a request states must fit what it brings. Unsupported kinds come out
//! as [`Op::Other`].

use std::fmt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, opcode};
use crate::init::Dialect;

/// The request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel's request contradicts itself")
    }
}

impl std::error::Error for Malformed {}

/// A request: the caller, the inode, and what is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its header.
    pub header: abi::InHeader,
    /// What is wanted.
    pub op: Op<'a>,
}

impl<'a> Request<'a> {
    /// Decodes a message of /dev/fuse: header, fixed struct and the rest, in this order.
    pub fn decode(message: &'a [u8], dialect: Dialect) -> Result<Request<'a>, Malformed> {
        let (header, fixed, rest) = split(message, dialect)?;
        Ok(Request { header, op: Op::decode(&header, fixed, rest)? })
    }
}

/// The header of a message, its fixed struct, and the rest.
pub fn split(message: &[u8], dialect: Dialect) -> Result<(abi::InHeader, &[u8], &[u8]), Malformed> {
    let (header, body) = abi::InHeader::read_from_prefix(message).map_err(|_| Malformed)?;
    if header.len as usize != message.len() {
        return Err(Malformed);
    }
    let (fixed, rest) =
        body.split_at_checked(fixed_size(header.opcode, dialect)).ok_or(Malformed)?;
    // Behind the arguments there may be extensions that were not asked for.
    let rest_len = rest.len().checked_sub(usize::from(header.total_extlen) * 8).ok_or(Malformed)?;
    Ok((header, fixed, &rest[..rest_len]))
}

fn fixed_size(code: u32, dialect: Dialect) -> usize {
    use abi::*;
    match code {
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::GETATTR => size_of::<GetattrIn>(),
        opcode::SETATTR => size_of::<SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR if dialect.long_setxattr => size_of::<SetxattrIn>(),
        opcode::SETXATTR => SETXATTR_SHORT,
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::FLUSH => size_of::<FlushIn>(),
        opcode::INIT => size_of::<InitIn>(),
        opcode::ACCESS => size_of::<AccessIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::IOCTL => size_of::<IoctlIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::COPY_FILE_RANGE => size_of::<CopyFileRangeIn>(),
        opcode::STATX => size_of::<StatxIn>(),
        opcode::INTERRUPT => size_of::<InterruptIn>(),
        _ => 0,
    }
}

/// What is wanted. The inode is in the header.
#[allow(missing_docs, reason = "the words are those of the system calls")]
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget(abi::ForgetIn),
    /// Whole [`abi::ForgetOne`]s; see [`Op::forgotten`].
    BatchForget(&'a [u8]),
    Getattr,
    Setattr(abi::SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        new: abi::MknodIn,
        name: &'a [u8],
    },
    Mkdir {
        new: abi::MkdirIn,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        how: abi::Rename2In,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        old: u64,
        name: &'a [u8],
    },
    Open(abi::OpenIn),
    Read(abi::ReadIn),
    Write {
        how: abi::WriteIn,
        bytes: &'a [u8],
    },
    Statfs,
    Release(abi::ReleaseIn),
    Fsync(abi::FsyncIn),
    Setxattr {
        how: abi::SetxattrIn,
        name: &'a [u8],
        value: &'a [u8],
    },
    Getxattr {
        size: u32,
        name: &'a [u8],
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush,
    Init(abi::InitIn),
    Opendir,
    Readdir(abi::ReadIn),
    Readdirplus(abi::ReadIn),
    Releasedir,
    Fsyncdir,
    Access {
        mask: u32,
    },
    Create {
        how: abi::CreateIn,
        name: &'a [u8],
    },
    Tmpfile(abi::CreateIn),
    Ioctl {
        how: abi::IoctlIn,
        bytes: &'a [u8],
    },
    Fallocate(abi::FallocateIn),
    Lseek(abi::LseekIn),
    CopyFileRange(abi::CopyFileRangeIn),
    Statx(abi::StatxIn),
    Syncfs,
    /// The program of another request wants its answer no more.
    Interrupt(abi::InterruptIn),
    Destroy,
    /// An unsupported kind.
    Other(u32),
}

impl<'a> Op<'a> {
    /// Decodes the fixed struct and the rest of a request.
    pub fn decode(
        header: &abi::InHeader,
        fixed: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Op<'a>, Malformed> {
        Ok(match header.opcode {
            opcode::LOOKUP => Op::Lookup { name: only_name(rest)? },
            opcode::FORGET => Op::Forget(take(fixed)?),
            opcode::BATCH_FORGET => {
                let batch: abi::BatchForgetIn = take(fixed)?;
                let len = (batch.count as usize).checked_mul(size_of::<abi::ForgetOne>());
                Op::BatchForget(len.and_then(|len| rest.get(..len)).ok_or(Malformed)?)
            }
            opcode::GETATTR => Op::Getattr,
            opcode::SETATTR => Op::Setattr(take(fixed)?),
            opcode::READLINK => Op::Readlink,
            opcode::SYMLINK => {
                let (name, rest) = name(rest)?;
                Op::Symlink { name, target: only_name(rest)? }
            }
            opcode::MKNOD => Op::Mknod { new: take(fixed)?, name: only_name(rest)? },
            opcode::MKDIR => Op::Mkdir { new: take(fixed)?, name: only_name(rest)? },
            opcode::UNLINK => Op::Unlink { name: only_name(rest)? },
            opcode::RMDIR => Op::Rmdir { name: only_name(rest)? },
            opcode::RENAME => {
                let old: abi::RenameIn = take(fixed)?;
                rename(abi::Rename2In { newdir: old.newdir, ..Default::default() }, rest)?
            }
            opcode::RENAME2 => rename(take(fixed)?, rest)?,
            opcode::LINK => {
                let link: abi::LinkIn = take(fixed)?;
                Op::Link { old: link.oldnodeid, name: only_name(rest)? }
            }
            opcode::OPEN => Op::Open(take(fixed)?),
            opcode::READ => Op::Read(take(fixed)?),
            opcode::WRITE => {
                let how: abi::WriteIn = take(fixed)?;
                Op::Write { how, bytes: rest.get(..how.size as usize).ok_or(Malformed)? }
            }
            opcode::STATFS => Op::Statfs,
            opcode::RELEASE => Op::Release(take(fixed)?),
            opcode::FSYNC => Op::Fsync(take(fixed)?),
            opcode::SETXATTR => {
                let how = setxattr(fixed)?;
                let (name, rest) = name(rest)?;
                let value = rest.get(..how.size as usize).ok_or(Malformed)?;
                Op::Setxattr { how, name, value }
            }
            opcode::GETXATTR => {
                Op::Getxattr { size: take::<abi::GetxattrIn>(fixed)?.size, name: only_name(rest)? }
            }
            opcode::LISTXATTR => Op::Listxattr { size: take::<abi::GetxattrIn>(fixed)?.size },
            opcode::REMOVEXATTR => Op::Removexattr { name: only_name(rest)? },
            opcode::FLUSH => Op::Flush,
            opcode::INIT => Op::Init(take(fixed)?),
            opcode::OPENDIR => Op::Opendir,
            opcode::READDIR => Op::Readdir(take(fixed)?),
            opcode::READDIRPLUS => Op::Readdirplus(take(fixed)?),
            opcode::RELEASEDIR => Op::Releasedir,
            opcode::FSYNCDIR => Op::Fsyncdir,
            opcode::ACCESS => Op::Access { mask: take::<abi::AccessIn>(fixed)?.mask },
            opcode::CREATE => Op::Create { how: take(fixed)?, name: only_name(rest)? },
            opcode::TMPFILE => Op::Tmpfile(take(fixed)?),
            opcode::IOCTL => {
                let how: abi::IoctlIn = take(fixed)?;
                Op::Ioctl { how, bytes: rest.get(..how.in_size as usize).ok_or(Malformed)? }
            }
            opcode::FALLOCATE => Op::Fallocate(take(fixed)?),
            opcode::LSEEK => Op::Lseek(take(fixed)?),
            opcode::COPY_FILE_RANGE => Op::CopyFileRange(take(fixed)?),
            opcode::STATX => Op::Statx(take(fixed)?),
            opcode::SYNCFS => Op::Syncfs,
            opcode::INTERRUPT => Op::Interrupt(take(fixed)?),
            opcode::DESTROY => Op::Destroy,
            other => Op::Other(other),
        })
    }

    /// The inodes of a [`Op::BatchForget`].
    pub fn forgotten(ones: &'a [u8]) -> impl Iterator<Item = abi::ForgetOne> + 'a {
        ones.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(|one| take(one).ok())
    }
}

fn rename(how: abi::Rename2In, rest: &[u8]) -> Result<Op<'_>, Malformed> {
    let (old, rest) = name(rest)?;
    Ok(Op::Rename { how, name: old, new_name: only_name(rest)? })
}

/// The second half is zeros if only the first was sent.
fn setxattr(fixed: &[u8]) -> Result<abi::SetxattrIn, Malformed> {
    let mut whole = [0; size_of::<abi::SetxattrIn>()];
    let len = fixed.len().min(whole.len());
    if len < abi::SETXATTR_SHORT {
        return Err(Malformed);
    }
    whole[..len].copy_from_slice(&fixed[..len]);
    take(&whole)
}

/// The fixed struct; a ring's buffer for it is longer.
fn take<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T, Malformed> {
    T::read_from_prefix(bytes).map(|(fixed, _)| fixed).map_err(|_| Malformed)
}

/// A name and what follows its zero byte.
fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn only_name(bytes: &[u8]) -> Result<&[u8], Malformed> {
    name(bytes).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn message(code: u32, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let len = (size_of::<abi::InHeader>() + body.len()) as u32;
        let header =
            abi::InHeader { len, opcode: code, unique: 7, nodeid: 1, ..Default::default() };
        [header.as_bytes(), &body].concat()
    }

    #[test]
    fn names_and_bytes_come_out_as_they_were_sent() {
        let how = abi::Rename2In { newdir: 9, flags: 1, padding: 0 };
        let sent = message(opcode::RENAME2, &[how.as_bytes(), b"old\0new\0"]);
        let request = Request::decode(&sent, Dialect::default()).unwrap();
        let Op::Rename { how, name, new_name } = request.op else { panic!("{request:?}") };
        assert_eq!((how.newdir, how.flags, name, new_name), (9, 1, &b"old"[..], &b"new"[..]));

        let how = abi::WriteIn { fh: 3, offset: 4096, size: 5, ..Default::default() };
        let sent = message(opcode::WRITE, &[how.as_bytes(), b"bytes and more"]);
        let Op::Write { how, bytes } = Request::decode(&sent, Dialect::default()).unwrap().op
        else {
            panic!()
        };
        assert_eq!((how.offset, bytes), (4096, &b"bytes"[..]));

        let how = abi::SetxattrIn { size: 5, flags: 1, setxattr_flags: 1, padding: 0 };
        let (short, name) = (&how.as_bytes()[..abi::SETXATTR_SHORT], b"user.a\0value");
        for (sent, long_setxattr) in [
            (message(opcode::SETXATTR, &[how.as_bytes(), name]), true),
            (message(opcode::SETXATTR, &[short, name]), false),
        ] {
            let request = Request::decode(&sent, Dialect { long_setxattr }).unwrap();
            let Op::Setxattr { how, name, value } = request.op else { panic!("{request:?}") };
            assert_eq!((name, value, how.flags), (&b"user.a"[..], &b"value"[..], 1));
            assert_eq!(how.setxattr_flags, u32::from(long_setxattr));
        }

        let ones = [abi::ForgetOne { nodeid: 5, nlookup: 6 }; 2];
        let batch = abi::BatchForgetIn { count: 2, dummy: 0 };
        let sent = message(opcode::BATCH_FORGET, &[batch.as_bytes(), ones.as_bytes()]);
        let Op::BatchForget(ones) = Request::decode(&sent, Dialect::default()).unwrap().op else {
            panic!()
        };
        assert_eq!(Op::forgotten(ones).map(|one| one.nlookup).collect::<Vec<_>>(), [6, 6]);
    }

    #[test]
    fn requests_that_contradict_themselves_are_refused() {
        let how = abi::WriteIn { size: 6, ..Default::default() };
        let batch = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
        let messages = [
            message(opcode::LOOKUP, &[b"no end"]),
            message(opcode::WRITE, &[how.as_bytes(), b"bytes"]),
            message(opcode::GETATTR, &[b"short"]),
            message(opcode::BATCH_FORGET, &[batch.as_bytes(), &[0; 16]]),
            message(opcode::SYMLINK, &[b"name\0target without end"]),
            message(opcode::LOOKUP, &[b"name\0"])[..42].to_vec(),
            vec![0; 39],
        ];
        for sent in messages {
            assert_eq!(
                Request::decode(&sent, Dialect::default()).map(|request| request.header.unique),
                Err(Malformed)
            );
        }
        let mut sent = message(opcode::LOOKUP, &[b"name\0"]);
        // Extensions longer than the message.
        sent[36] = 9;
        assert!(Request::decode(&sent, Dialect::default()).is_err());
    }

    #[test]
    fn any_bytes_decode_or_are_refused() {
        let mut bytes = [0u8; 128];
        let mut state = 1u64;
        for _ in 0..200_000 {
            for byte in bytes.iter_mut() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 33) as u8;
            }
            let len = (state >> 40) as usize % bytes.len();
            bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            bytes[4..8].copy_from_slice(&((state >> 50) as u32 % 60).to_ne_bytes());
            bytes[36..38].copy_from_slice(&[0, 0]);
            let _ =
                Request::decode(&bytes[..len], Dialect { long_setxattr: len.is_multiple_of(2) });
        }
    }
}
