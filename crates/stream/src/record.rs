//! What the records of a stream say. docs/STREAM.md describes each byte.
//!
//! The fields of a body stand one after the other as postcard has them: numbers as LEB128, signed ones in zigzag, byte strings
//! and lists behind their length, an option behind a byte 0 or 1, arrays of bytes as they are.

use postcard::Deserializer;
use postcard::de_flavors::Flavor;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// Most bytes of data in one record.
pub(crate) const DATA_MAX: usize = 1 << 20;
/// Most bytes of a body.
pub(crate) const BODY_MAX: usize = DATA_MAX + (1 << 14);
/// Most files that a stream speaks of at a time.
pub(crate) const TABLE_MAX: usize = 1 << 20;
/// Most ids of one snapshot.
pub(crate) const IDS_MAX: usize = 8;
/// The sender's number of the root directory.
pub(crate) const ROOT: u64 = 1;
/// How this program makes a stream of two snapshots. A stream goes on only with a program that makes it alike.
pub(crate) const GENERATOR: u32 = 1;

/// A snapshot, as no other snapshot of any volume is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The id of its volume.
    pub(crate) volume: [u8; 16],
    /// Its number there.
    pub(crate) number: u64,
    /// The last operation before it.
    pub(crate) lsn: u64,
    /// Seconds since 1970 when it was taken.
    pub(crate) secs: i64,
    /// Nanoseconds of that second.
    pub(crate) nanos: u32,
}

/// A snapshot that is sent, or that the receiver has to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) branch: String,
    pub(crate) snapshot: String,
    /// Its own id; then those of the snapshots that it is a copy of.
    pub(crate) ids: Vec<Identity>,
}

/// Where a stream goes on that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resume {
    /// Bytes of the stream before that, as it would be without a cut.
    pub(crate) position: u64,
    /// The checksum of the record before that.
    pub(crate) sum: u64,
}

/// The first record: what the stream is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// Names the stream: the same two snapshots have the same.
    pub(crate) stream: [u8; 16],
    pub(crate) generator: u32,
    /// Bytes of a block of the sender.
    pub(crate) block_bytes: u32,
    /// Files in the snapshot, for progress.
    pub(crate) inodes: u64,
    pub(crate) snapshot: Named,
    pub(crate) base: Option<Named>,
    pub(crate) resume: Option<Resume>,
}

impl Begin {
    /// `main@tuesday`.
    pub fn snapshot(&self) -> String {
        format!("{}@{}", self.snapshot.branch, self.snapshot.snapshot)
    }

    /// What `stream` has to be: the same for the same snapshots, so that a receive that begins anew finds what is left of the
    /// last one.
    pub(crate) fn stream_id(&self) -> [u8; 16] {
        let id = |ids: &Vec<Identity>| ids.first().cloned();
        let of = (id(&self.snapshot.ids), self.base.as_ref().and_then(|base| id(&base.ids)));
        let bytes = postcard::to_allocvec(&of).expect("plain fields go into memory");
        xxh3_128(&bytes).to_le_bytes()
    }

    /// Whether it is of the same stream, which may go on with it. Snapshots may have got other names meanwhile.
    pub(crate) fn goes_on(&self, before: &Begin) -> bool {
        let of = |begin: &Begin| {
            let base = begin.base.as_ref().map(|base| base.ids.clone());
            (begin.stream, begin.generator, begin.snapshot.ids.clone(), base)
        };
        of(self) == of(before)
    }

    /// Bytes of its body where the stream begins, in a stream that was never cut.
    pub(crate) fn body_bytes(&self) -> u64 {
        let begin = Begin { resume: None, ..self.clone() };
        Record::Begin(begin).encode().1.len() as u64
    }

    /// What it continues, if it does.
    pub fn base(&self) -> Option<String> {
        self.base.as_ref().map(|base| format!("{}@{}", base.branch, base.snapshot))
    }
}

/// Where a file is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Where {
    /// Under a name in the base.
    Base,
    /// Under a name in what the stream has made so far.
    Now,
    /// Parked.
    Parked,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Time {
    pub(crate) secs: i64,
    pub(crate) nanos: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known<'a> {
    pub(crate) id: u64,
    pub(crate) at: Where,
    pub(crate) dir: u64,
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gone<'a> {
    pub(crate) dir: u64,
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
    pub(crate) park: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Make<'a> {
    pub(crate) id: u64,
    pub(crate) dir: Option<u64>,
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
    pub(crate) kind: Kind,
    pub(crate) rdev: u64,
    #[serde(borrow)]
    pub(crate) target: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Named3<'a> {
    pub(crate) id: u64,
    pub(crate) dir: u64,
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    pub(crate) id: u64,
    pub(crate) perm: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) accessed: Time,
    pub(crate) modified: Time,
    pub(crate) created: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) records: u64,
    pub(crate) data_bytes: u64,
}

/// A record. The first one here has the type 1 in a frame, the next one 2, and so on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record<'a> {
    Begin(Begin),
    /// A file that the receiver has.
    Known(#[serde(borrow)] Known<'a>),
    /// All files that were spoken of, but for the root, are spoken of no more.
    Reset,
    /// A name goes; what it leads to is parked, or is gone with its last name.
    Gone(#[serde(borrow)] Gone<'a>),
    /// A new file, in a directory or parked.
    Make(#[serde(borrow)] Make<'a>),
    /// What is parked gets a name, and is parked no more.
    Move(#[serde(borrow)] Named3<'a>),
    /// A file gets one more name.
    Link(#[serde(borrow)] Named3<'a>),
    Data {
        id: u64,
        offset: u64,
        /// The rest of the body, as it is.
        #[serde(skip)]
        bytes: &'a [u8],
    },
    /// A range reads as zeros.
    Hole {
        id: u64,
        offset: u64,
        len: u64,
    },
    Size {
        id: u64,
        size: u64,
    },
    Xattr {
        id: u64,
        name: &'a [u8],
        value: &'a [u8],
    },
    NoXattr {
        id: u64,
        name: &'a [u8],
    },
    /// Attributes of a file. Unless it is a directory, it is spoken of no more.
    Attributes(Attributes),
    End(End),
}

/// How many types there are.
const TYPES: u8 = 14;

/// The number of a variant, and what comes behind it.
struct Numbered<'a> {
    number: Option<u8>,
    body: &'a [u8],
}

impl<'a> Flavor<'a> for Numbered<'a> {
    type Remainder = &'a [u8];
    type Source = &'a [u8];

    fn pop(&mut self) -> postcard::Result<u8> {
        self.number.take().map_or_else(|| Ok(self.try_take_n(1)?[0]), Ok)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.body.len())
    }

    fn try_take_n(&mut self, count: usize) -> postcard::Result<&'a [u8]> {
        self.body.split_off(..count).ok_or(postcard::Error::DeserializeUnexpectedEnd)
    }

    fn finalize(self) -> postcard::Result<&'a [u8]> {
        Ok(self.body)
    }
}

impl<'a> Record<'a> {
    /// The type and the body.
    pub(crate) fn encode(&self) -> (u8, Vec<u8>) {
        let mut body = postcard::to_allocvec(self).expect("plain fields go into memory");
        let number = body.remove(0);
        if let Record::Data { bytes, .. } = self {
            body.extend_from_slice(bytes);
        }
        (number + 1, body)
    }

    /// Bytes of the body of a [`Record::Data`] of so many bytes.
    pub(crate) fn data_body_len(id: u64, offset: u64, len: usize) -> usize {
        Record::Data { id, offset, bytes: &[] }.encode().1.len() + len
    }

    /// Reads a body. `None`: the type is unknown.
    pub(crate) fn decode(kind: u8, body: &'a [u8]) -> Result<Option<Record<'a>>, &'static str> {
        let Some(number) = kind.checked_sub(1).filter(|_| kind <= TYPES) else { return Ok(None) };
        let mut from = Deserializer::from_flavor(Numbered { number: Some(number), body });
        let record = Record::deserialize(&mut from);
        match (record, from.finalize().unwrap_or_default()) {
            (Ok(Record::Data { .. }), bytes) if bytes.is_empty() || bytes.len() > DATA_MAX => {
                Err("a record of data has 1 byte to 1 MiB")
            }
            (Ok(Record::Data { id, offset, .. }), bytes) => {
                Ok(Some(Record::Data { id, offset, bytes }))
            }
            (Ok(record), []) => Ok(Some(record)),
            (Ok(_), _) => Err("bytes are left in the record"),
            (Err(_), _) => Err("the fields of the record make no sense"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_stream_is_of_the_same_snapshots() {
        let id = |number| Identity { volume: [7; 16], number, lsn: 4, secs: 5, nanos: 6 };
        let named = |name: &str, ids: &[u64]| Named {
            branch: "main".into(),
            snapshot: name.into(),
            ids: ids.iter().map(|number| id(*number)).collect(),
        };
        let begin = |snapshot, base| Begin {
            stream: [1; 16],
            generator: GENERATOR,
            block_bytes: 4096,
            inodes: 3,
            snapshot,
            base,
            resume: None,
        };
        let first = begin(named("b", &[2]), Some(named("a", &[1])));
        assert!(begin(named("new", &[2]), Some(named("name", &[1]))).goes_on(&first));
        for other in [
            begin(named("b", &[3]), Some(named("a", &[1]))),
            begin(named("b", &[2]), Some(named("a", &[1, 9]))),
            begin(named("b", &[2]), Some(named("a", &[9]))),
            begin(named("b", &[2]), None),
        ] {
            assert!(!other.goes_on(&first), "{other:?}");
        }
        let long = begin(named("longer", &[2]), Some(named("a", &[1])));
        assert_eq!(long.body_bytes(), first.body_bytes() + 5);
        let resume = Some(Resume { position: 1 << 40, sum: 3 });
        assert_eq!(Begin { resume, ..long.clone() }.body_bytes(), long.body_bytes());
    }

    #[test]
    fn bodies_are_those_of_the_document() {
        let known = Known { id: 300, at: Where::Now, dir: 1, name: b"ab" };
        assert_eq!(Record::Known(known).encode(), (2, vec![0xac, 0x02, 1, 1, 2, b'a', b'b']));
        let data = Record::Data { id: 5, offset: 128, bytes: b"xyz" };
        assert_eq!(data.encode(), (8, vec![5, 0x80, 0x01, b'x', b'y', b'z']));
        assert_eq!(Record::data_body_len(5, 128, 3), 6);
        let gone = Gone { dir: 7, name: b"n", park: None };
        assert_eq!(Record::Gone(gone.clone()).encode(), (4, vec![7, 1, b'n', 0]));
        assert_eq!(Record::decode(4, &[7, 1, b'n', 0]), Ok(Some(Record::Gone(gone))));
        assert_eq!(Record::decode(200, &[]), Ok(None));
        for wrong in [&[7u8, 1, b'n', 0, 0][..], &[7, 9, b'n', 0], &[], &[7, 1, b'n', 2]] {
            assert!(Record::decode(4, wrong).is_err(), "{wrong:?}");
        }
        assert!(Record::decode(8, &[5, 0]).is_err(), "no data");
        assert!(Record::decode(3, &[0]).is_err());
    }
}
