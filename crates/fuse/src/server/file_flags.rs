//! The flags of a file or directory, as lsattr(1) and chattr(1) ask for them by ioctl(2).

use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileFlags};

use super::Server;
use super::new_head::StopOnPanic;
use crate::interface::{Answer, Errno, Request};

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
        // A kernel that maps owners does not say who asks. It has looked itself whether that is the owner, and has CAP_LINUX_IMMUTABLE.
        let caller = match request.uid {
            u32::MAX => Caller::root(),
            _ => self.caller(&fs, request)?,
        };
        fs.set_file_flags(&caller, inode, flags)?;
        self.tell_attr_changed(inode);
        Ok(Vec::new())
    }
}
