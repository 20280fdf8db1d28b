//! Records as bytes: each behind a head with its type, its length, and a checksum that covers the checksum before it.
//!
//! So a record that is damaged, missing, doubled or in another place is found when it comes, and the last checksum is one of the
//! whole stream.

use std::io::{ErrorKind, Read, Write};

use crc_fast::CrcAlgorithm::Crc64Nvme;

use crate::record::{BODY_MAX, Record, Resume};
use crate::{Result, StreamError};

/// What a stream begins with.
const MAGIC: &[u8; 16] = b"holdfast-stream\n";
/// The version of the stream.
const VERSION: u32 = 1;
/// Bytes before the first record.
pub(crate) const START_BYTES: usize = 24;
/// Bytes of the head of a record.
pub(crate) const HEAD_BYTES: usize = 16;
/// In a head: a reader that does not know the type may pass the record over.
const MAY_SKIP: u8 = 1;

fn start() -> [u8; START_BYTES] {
    let mut start = [0; START_BYTES];
    start[..16].copy_from_slice(MAGIC);
    start[16..20].copy_from_slice(&VERSION.to_le_bytes());
    start
}

fn sum(before: u64, head: &[u8], body: &[u8]) -> u64 {
    let mut digest = crc_fast::Digest::new(Crc64Nvme);
    digest.update(&before.to_le_bytes());
    digest.update(head);
    digest.update(body);
    digest.finalize()
}

fn first_sum(start: &[u8]) -> u64 {
    crc_fast::checksum(Crc64Nvme, start)
}

/// Where records go.
pub(crate) trait Sink {
    /// Takes a record.
    fn put(&mut self, record: &Record<'_>) -> Result<()>;
    /// Bytes of the records until now.
    fn position(&self) -> u64;
    /// Whether what is put now was received already.
    fn is_skipping(&self) -> bool {
        false
    }
    /// Counts a record of data that was received already.
    fn pass_data(&mut self, _id: u64, _offset: u64, _len: usize) -> Result<()> {
        Ok(())
    }
}

/// Writes records. While it skips, it only counts.
pub(crate) struct FrameWriter<W> {
    out: W,
    sum: u64,
    /// Bytes of the stream, as it is without a cut.
    position: u64,
    records: u64,
    data_bytes: u64,
    /// Where it begins to write.
    skip_to: Option<Resume>,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream, or goes on with one that was cut: then `begin` is its first record, and what lies before `resume` is
    /// not written.
    pub(crate) fn new(mut out: W, begin: &Record<'_>, resume: Option<Resume>) -> Result<Self> {
        let start = start();
        out.write_all(&start).map_err(StreamError::Io)?;
        let (sum, position) = (first_sum(&start), START_BYTES as u64);
        let mut writer =
            FrameWriter { out, sum, position, records: 0, data_bytes: 0, skip_to: None };
        writer.put(begin)?;
        if resume.is_some() {
            (writer.position, writer.records) = (START_BYTES as u64, 0);
            writer.skip_to = resume;
        }
        Ok(writer)
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.records, self.data_bytes)
    }

    /// Counts the first record, which was received already and had a body of so many bytes.
    pub(crate) fn pass_begin(&mut self, body: u64) -> Result<()> {
        self.pass(usize::try_from(body).unwrap_or(usize::MAX))
    }

    fn pass(&mut self, body: usize) -> Result<()> {
        // A token is what a user gives: no sum of it may overflow.
        self.position = self.position.saturating_add(HEAD_BYTES as u64).saturating_add(body as u64);
        self.records += 1;
        let Some(to) = self.skip_to else { return Ok(()) };
        if self.position > to.position {
            return StreamError::refused(
                "this token is of another stream: the snapshots are not those that were sent",
            );
        }
        if self.position == to.position {
            self.sum = to.sum;
            self.skip_to = None;
        }
        Ok(())
    }

    /// Everything is with the reader.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.is_skipping() {
            return StreamError::refused("this token lies behind the end of the stream");
        }
        self.out.flush().map_err(StreamError::Io)
    }
}

impl<W: Write> Sink for FrameWriter<W> {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        let (kind, body) = record.encode();
        if let Record::Data { bytes, .. } = record {
            self.data_bytes += bytes.len() as u64;
        }
        if self.is_skipping() {
            return self.pass(body.len());
        }
        let mut head = [0; HEAD_BYTES];
        head[0] = kind;
        head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.sum = sum(self.sum, &head[..8], &body);
        head[8..].copy_from_slice(&self.sum.to_le_bytes());
        self.out
            .write_all(&head)
            .and_then(|()| self.out.write_all(&body))
            .map_err(StreamError::Io)?;
        self.position += (HEAD_BYTES + body.len()) as u64;
        self.records += 1;
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn is_skipping(&self) -> bool {
        self.skip_to.is_some()
    }

    fn pass_data(&mut self, id: u64, offset: u64, len: usize) -> Result<()> {
        self.data_bytes += len as u64;
        self.pass(Record::data_body_len(id, offset, len))
    }
}

/// Reads records.
pub(crate) struct FrameReader<R> {
    from: R,
    sum: u64,
    position: u64,
    records: u64,
    body: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Reads what a stream begins with.
    pub(crate) fn new(mut from: R) -> Result<FrameReader<R>> {
        let mut found = [0; START_BYTES];
        let len = fill(&mut from, &mut found).map_err(StreamError::Io)?;
        if found[..16] != MAGIC[..] {
            return match len < START_BYTES && found[..len.min(16)] == MAGIC[..len.min(16)] {
                true => Err(StreamError::Cut { position: len as u64 }),
                false => StreamError::refused("this is no stream of `holdfast send`"),
            };
        }
        if len < START_BYTES {
            return Err(StreamError::Cut { position: len as u64 });
        }
        let (_, rest) = found.split_at(16);
        let version = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        let features = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]);
        if version != VERSION {
            return StreamError::refused(format!(
                "the stream is of version {version}; this program reads version {VERSION}"
            ));
        }
        if features != 0 {
            return StreamError::refused(format!(
                "the stream needs features that this program does not know ({features:#x})"
            ));
        }
        let (sum, position) = (first_sum(&found), START_BYTES as u64);
        Ok(FrameReader { from, sum, position, records: 0, body: Vec::new() })
    }

    /// Goes on as if all before had come.
    pub(crate) fn resume(&mut self, at: Resume, records: u64) {
        (self.sum, self.position, self.records) = (at.sum, at.position, records);
    }

    /// Where it is: behind the last record that came whole.
    pub(crate) fn place(&self) -> Resume {
        Resume { position: self.position, sum: self.sum }
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// The next record, and where it begins.
    pub(crate) fn next(&mut self) -> Result<(u64, Record<'_>)> {
        loop {
            let at = self.position;
            let kind = self.read_frame()?;
            let may_skip = kind.1 & MAY_SKIP != 0;
            let malformed = |why: &str| StreamError::Malformed { position: at, why: why.into() };
            // Once more below, as a body that is lent cannot be kept over a turn of the loop.
            match Record::decode(kind.0, &self.body).map_err(malformed)? {
                None if may_skip => {}
                None => {
                    let why =
                        format!("a record is of type {}, which this program does not know", kind.0);
                    return Err(StreamError::Malformed { position: at, why });
                }
                Some(_) => {
                    let record = Record::decode(kind.0, &self.body).map_err(malformed)?;
                    return record
                        .map(|record| (at, record))
                        .ok_or_else(|| malformed("it changed"));
                }
            }
        }
    }

    /// Reads a head and a body, and judges their checksum. Returns type and flags.
    fn read_frame(&mut self) -> Result<(u8, u8)> {
        let at = self.position;
        let cut = |got: usize| StreamError::Cut { position: at + got as u64 };
        let malformed = |why: String| StreamError::Malformed { position: at, why };
        let mut head = [0; HEAD_BYTES];
        let got = fill(&mut self.from, &mut head).map_err(StreamError::Io)?;
        if got < HEAD_BYTES {
            return Err(cut(got));
        }
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if len > BODY_MAX || head[2..4] != [0, 0] || head[1] & !MAY_SKIP != 0 {
            return Err(malformed("the head of a record makes no sense".into()));
        }
        self.body.clear();
        // No more is allocated than comes.
        let read = (&mut self.from).take(len as u64).read_to_end(&mut self.body);
        let got = read.map_err(StreamError::Io)?;
        if got < len {
            return Err(cut(HEAD_BYTES + got));
        }
        let (fields, stored) = head.split_at(8);
        let sum = sum(self.sum, fields, &self.body);
        if sum.to_le_bytes() != *stored {
            return Err(malformed("the checksum of a record does not fit".into()));
        }
        self.sum = sum;
        self.position += (HEAD_BYTES + len) as u64;
        self.records += 1;
        Ok((head[0], head[1]))
    }

    /// Reads all that comes, and looks at nothing of it.
    pub(crate) fn drain(&mut self) -> Result<()> {
        std::io::copy(&mut self.from, &mut std::io::sink()).map(drop).map_err(StreamError::Io)
    }

    /// Fails if there are bytes behind the end.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        let mut byte = [0];
        match fill(&mut self.from, &mut byte).map_err(StreamError::Io)? {
            0 => Ok(()),
            _ => {
                let why = "there are bytes behind its end".into();
                Err(StreamError::Malformed { position: self.position, why })
            }
        }
    }
}

/// A stream with all checksums put right, as far as its frames can be followed: what an attacker of a receiver would send.
pub fn repaired(stream: &[u8]) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    let Some((start, mut rest)) = bytes.split_at_mut_checked(START_BYTES) else { return bytes };
    let mut before = first_sum(start);
    while let Some((head, behind)) = rest.split_at_mut_checked(HEAD_BYTES) {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some((body, behind)) = behind.split_at_mut_checked(len) else { break };
        before = sum(before, &head[..8], body);
        head[8..].copy_from_slice(&before.to_le_bytes());
        rest = behind;
    }
    bytes
}

/// Reads until the buffer is full or nothing comes any more. Returns how much came.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(len) => got += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
