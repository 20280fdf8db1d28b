//! The flags of a file or directory, as lsattr(1) and chattr(1) ask for them by ioctl(2).

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileFlags};

use super::Server;
use super::new_head::StopOnPanic;
use crate::interface::{Answer, Errno, Request};
use crate::notices::Notice;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of the longest answer.
const ANSWER_MOST: usize = 32;
/// What `struct fsxattr` has beside the flags and can be set: a hint of a size, a project, another hint. None is kept.
const FSXATTR_REST: [std::ops::Range<usize>; 2] = [4..8, 12..20];

/// Flags, and what each is in the two forms in which a program may ask: FS_IMMUTABLE_FL and FS_APPEND_FL, or FS_XFLAG_IMMUTABLE and
/// FS_XFLAG_APPEND.
const WORDS: [(FileFlags, [u32; 2]); 2] =
    [(FileFlags::IMMUTABLE, [0x10, 0x08]), (FileFlags::APPEND_ONLY, [0x20, 0x10])];

/// What an ioctl of flags is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlagsIoctl {
    pub(crate) sets: bool,
    /// Which of the forms.
    form: usize,
}

impl FlagsIoctl {
    /// `None`: it is about something else.
    pub(crate) fn of(cmd: u32) -> Option<FlagsIoctl> {
        let (sets, form) = match cmd {
            FS_IOC_GETFLAGS => (false, 0),
            FS_IOC_SETFLAGS => (true, 0),
            FS_IOC_FSGETXATTR => (false, 1),
            FS_IOC_FSSETXATTR => (true, 1),
            _ => return None,
        };
        Some(FlagsIoctl { sets, form })
    }
}

impl Server {
    /// Says which flags there are, in `size` bytes, or sets them as `bytes` say.
    pub(crate) fn flags_ioctl(
        &self,
        request: &Request,
        inode: InodeNo,
        of: FlagsIoctl,
        (bytes, size): (&[u8], u32),
    ) -> Answer<Vec<u8>> {
        let fs = self.fs()?;
        if !of.sets {
            let flags = fs.file_flags(inode)?;
            let all = WORDS.iter().filter(|(flag, _)| flags.contains(*flag));
            let word = all.fold(0, |word, (_, forms)| word | forms[of.form]);
            let mut answer = word.to_ne_bytes().to_vec();
            answer.resize(ANSWER_MOST.min(size as usize), 0);
            return Ok(answer);
        }
        // Requests of this kind look only, as a rule.
        let _stop = StopOnPanic(&fs);
        let word = *bytes.first_chunk().ok_or(Errno(libc::EINVAL))?;
        let mut word = u32::from_ne_bytes(word);
        let mut flags = FileFlags::empty();
        for (flag, forms) in WORDS {
            flags.set(flag, word & forms[of.form] != 0);
            word &= !forms[of.form];
        }
        let has_more = FSXATTR_REST.iter().filter_map(|at| bytes.get(at.clone())).flatten();
        if word != 0 || of.form == 1 && has_more.into_iter().any(|byte| *byte != 0) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // A kernel that maps owners does not name the caller. It has looked itself whether that is the owner, and has CAP_LINUX_IMMUTABLE.
        let caller = match request.uid {
            u32::MAX => Caller::root(),
            _ => self.caller(&fs, request)?,
        };
        if fs.file_flags(inode)? != flags {
            // What is in mappings is judged by the flags as they were, and what comes meanwhile by the new ones.
            self.drop_pages(inode);
            fs.set_file_flags(&caller, inode, flags)?;
            self.drop_pages(inode);
        }
        Ok(Vec::new())
    }

    /// The kernel writes what programs have stored into mappings of an inode, and asks again for all that it knew of it. Not waited for
    /// long: it may be waiting for this server.
    fn drop_pages(&self, inode: InodeNo) {
        if self.kernel.get().is_some() {
            self.notices.note(Notice::Inode(inode.0));
            self.notices.drain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{FileId, Mode, Write};
    use crate::server::fresh;

    /// Linux writes what a program has stored, whatever the flags say; the next caller that syncs would get an error.
    #[test]
    fn what_a_mapping_has_stored_is_dropped_where_flags_forbid_it() {
        let fs = fresh::mount(&fresh::volume());
        let mut server = fresh::server(&fs);
        // So that a write would take the capabilities away.
        server.options.noxattr = true;
        server.set_kernel_opens();
        let request = Request { uid: 0, gid: 0, pid: 0 };
        let mode = Mode { mode: libc::S_IFREG | 0o666, umask: 0 };
        let made = server.mknod(&request, InodeNo::ROOT, b"f", mode, 0).unwrap();
        let inode = made.attr.unwrap().inode;
        let capabilities = b"security.capability";
        let write = |bytes: &[u8], flags, is_cached| {
            let file = FileId { inode, fh: 0, flags };
            let write = Write { file, offset: 0, bytes, kill_suid_sgid: false, is_cached };
            server.write(&request, &write)
        };
        assert_eq!(write(b"as it was", 0, false), Ok(9));
        let none = holdfast_posix::XattrFlags::empty();
        fs.setxattr(&Caller::root(), inode, capabilities, b"all", none).unwrap();
        for flags in [FileFlags::IMMUTABLE, FileFlags::APPEND_ONLY] {
            fs.set_file_flags(&Caller::root(), inode, flags).unwrap();
            assert_eq!(write(b"changed", 0, false), Err(Errno(libc::EPERM)));
            assert_eq!(write(b"changed", libc::O_APPEND, true), Ok(7));
            assert_eq!(write(b"changed", 0, true), Ok(7));
            let mut bytes = [0; 20];
            let file = FileId { inode, fh: 0, flags: 0 };
            assert_eq!(server.read(file, 0, &mut bytes), Ok(9));
            assert!(bytes.starts_with(b"as it was\0"));
            assert!(fs.getxattr(&Caller::root(), inode, capabilities).is_ok());
        }
        server.close();
    }
}
