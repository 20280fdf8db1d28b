//! What a command asks of files that it does not open itself, and what is answered: postcard behind its length, and bytes of
//! files behind that.

use std::io::{self, Read};

use holdfast::{FileType, Metadata};
use holdfast_base::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Bytes of a message: extended attributes of one file are the longest.
const MESSAGE_MAX: usize = 16 << 20;
/// Bytes of a file that travel at once.
pub const DATA_MAX: usize = 1 << 20;
/// Names of a directory in one answer.
pub(super) const NAMES: usize = 1024;

/// A path from the root of the tree, or a name.
pub type Bytes = Vec<u8>;
/// A moment: seconds since 1970, nanoseconds.
pub type Time = (i64, u32);

/// What is asked. Each has one answer, but for `Begin` and `Write`: what they meet is told by `End`.
#[derive(Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "a variant says what its fields are")]
pub enum Request {
    /// What is there; symbolic links followed or not.
    Found { path: Bytes, follow: bool },
    /// Names in a directory; with `more` those behind the ones of the last answer.
    Names { path: Bytes, more: bool },
    /// Where a symbolic link leads.
    Target { path: Bytes },
    /// Extended attributes.
    Xattrs { path: Bytes },
    /// To read a file from now on.
    Open { path: Bytes },
    /// The next range with data from `at` on.
    Data { at: u64 },
    /// Bytes of the file that is open.
    Read { at: u64, len: u32 },
    /// A new file for this path, which has no name before `End`.
    Begin { path: Bytes },
    /// Bytes of it, which stand behind the request.
    Write { at: u64 },
    /// It is whole, and gets its attributes and its name in one step; what was there before goes.
    End { path: Bytes, len: u64, attributes: Attributes, sync: bool },
    /// Make a directory, unless there is one, that its owner alone can use. A link to one is none, unless `follow`.
    MakeDirectory { path: Bytes, follow: bool },
    /// Make a symbolic link; what was there before goes.
    Symlink { path: Bytes, target: Bytes, attributes: Attributes },
    /// Make a pipe, a socket or a device; what was there before goes.
    Node { path: Bytes, mode: u32, rdev: u64, attributes: Attributes },
    /// Give a file one more name; what was there before goes.
    Link { old: Bytes, new: Bytes },
    /// Set attributes.
    Attributes { path: Bytes, attributes: Attributes },
}

/// Attributes that are set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub struct Attributes {
    /// Permission bits.
    pub mode: Option<u32>,
    pub owner: Option<(u32, u32)>,
    /// Of the last access, and of the last change of the content.
    pub times: Option<(Time, Time)>,
    pub xattrs: Vec<(Bytes, Bytes)>,
}

/// What is answered. Bytes of a file stand behind it.
#[derive(Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub enum Reply {
    Done,
    Found(FileStat),
    Names {
        names: Vec<Bytes>,
        more: bool,
    },
    Target(Bytes),
    Xattrs(Vec<(Bytes, Bytes)>),
    /// Start and end, unless only a hole is left.
    Data(Option<(u64, u64)>),
    /// It failed: the number of the error, if it has one, or else its kind as a word of ours, and the sentence.
    Failed {
        number: Option<i32>,
        why: String,
    },
    /// It is done, without these extended attributes: a volume does not have them.
    DoneWithout(Vec<Bytes>),
}

/// What copying wants to know of a file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub struct FileStat {
    /// Type and permission bits, as `st_mode` has them.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub len: u64,
    pub nlink: u64,
    pub rdev: u64,
    pub inode: u64,
    pub accessed: Time,
    pub modified: Time,
}

/// A moment as it travels.
pub(crate) fn time(of: std::time::SystemTime) -> Time {
    let of = Timestamp::from(of);
    (of.secs, of.nanos)
}

/// And back.
pub(crate) fn moment((secs, nanos): Time) -> Timestamp {
    Timestamp { secs, nanos: nanos.min(999_999_999) }
}

impl FileStat {
    pub(crate) fn of(found: &Metadata) -> FileStat {
        FileStat {
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            len: found.len(),
            nlink: found.nlink().into(),
            rdev: found.rdev(),
            inode: found.ino(),
            accessed: time(found.accessed()),
            modified: time(found.modified()),
        }
    }

    /// What it is.
    ///
    /// # Errors
    /// It is nothing that there is.
    pub fn file_type(&self) -> io::Result<FileType> {
        FileType::from_mode(self.mode).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The permission bits.
    pub fn perm(&self) -> u32 {
        self.mode & 0o7777
    }
}

impl Reply {
    /// A failure as it travels.
    pub(crate) fn failed(error: &io::Error) -> Reply {
        Reply::Failed { number: error.raw_os_error(), why: error.to_string() }
    }

    /// And back.
    ///
    /// # Errors
    /// That failure.
    pub fn read(self) -> io::Result<Reply> {
        match self {
            Reply::Failed { number: Some(number), .. } => Err(io::Error::from_raw_os_error(number)),
            Reply::Failed { number: None, why } => Err(io::Error::other(why)),
            other => Ok(other),
        }
    }
}

/// A message and the bytes behind it, as one piece.
///
/// # Errors
/// They are too long.
pub fn written(message: &impl Serialize, data: &[u8]) -> io::Result<Vec<u8>> {
    let message = postcard::to_allocvec(message).map_err(io::Error::other)?;
    if message.len() > MESSAGE_MAX || data.len() > DATA_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a message is too long"));
    }
    let lengths = [message.len() as u32, data.len() as u32].map(u32::to_le_bytes);
    Ok([&lengths[0][..], &lengths[1], &message, data].concat())
}

/// Reads such a piece. `None`: nothing comes any more.
///
/// # Errors
/// It ends in the middle, or makes no sense.
pub fn read<T: DeserializeOwned>(
    from: &mut impl Read,
    data: &mut Vec<u8>,
) -> io::Result<Option<T>> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "a message makes no sense");
    let mut lengths = [0; 8];
    if from.read(&mut lengths[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut lengths[1..])?;
    let [message, bytes] = [0, 4].map(|at| {
        let length: [u8; 4] = std::array::from_fn(|byte| lengths[at + byte]);
        u32::from_le_bytes(length) as usize
    });
    if message > MESSAGE_MAX || bytes > DATA_MAX {
        return Err(nonsense());
    }
    let mut encoded = Vec::new();
    // No memory for what does not come.
    if from.take(message as u64).read_to_end(&mut encoded)? != message {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    data.clear();
    if from.take(bytes as u64).read_to_end(data)? != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&encoded) {
        Ok((message, [])) => Ok(Some(message)),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_nonsense_is_refused() {
        let request = Request::Write { at: 7 };
        let whole = written(&request, b"bytes").unwrap();
        let mut data = Vec::new();
        let back: Option<Request> = read(&mut &whole[..], &mut data).unwrap();
        assert!(matches!(back, Some(Request::Write { at: 7 })) && data == b"bytes");
        assert!(read::<Request>(&mut &[][..], &mut data).unwrap().is_none());
        for cut in 1..whole.len() {
            read::<Request>(&mut &whole[..cut], &mut data).unwrap_err();
        }
        for nonsense in [[0xff; 8], [0, 0, 0, 2, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 16, 0], [0; 8]] {
            read::<Request>(&mut &nonsense[..], &mut data).unwrap_err();
        }
        assert!(written(&request, &vec![0; DATA_MAX + 1]).is_err());
    }

    #[test]
    fn a_failure_keeps_its_number() {
        let back = |error: io::Error| Reply::failed(&error).read().unwrap_err();
        assert_eq!(back(io::Error::from_raw_os_error(28)).raw_os_error(), Some(28));
        assert_eq!(back(io::Error::other("a sentence")).to_string(), "a sentence");
    }
}
