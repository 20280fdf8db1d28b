//! An archive as a stream of members, each with its attributes, and its bytes behind it.

use std::collections::BTreeMap;
use std::io::Read;

use holdfast_base::Timestamp;
use tar::{EntryType, Header};

use crate::header::BLOCK;
use crate::number::{decimal, time, unsigned};
use crate::pax::{self, Records};
use crate::source::WANT_MAX;
use crate::sparse::{self, Segment, SparseRecords};
use crate::stream::Stream;
use crate::{Error, acl};

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    /// One more name of the member of this name.
    HardLink(Vec<u8>),
    Symlink(Vec<u8>),
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
}

/// A member without its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Where its header begins.
    pub(crate) offset: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: (u32, u32),
    pub(crate) mtime: Timestamp,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) xattrs: Xattrs,
    /// Of a file: its size.
    pub(crate) len: u64,
    /// Of a file: where its bytes belong, upwards; what lies between is holes. `None`: all of it is there.
    pub(crate) segments: Option<Vec<Segment>>,
}

/// Extended attributes by their names.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes of records for all members that are kept. Each member gets them, so there are no more than a few for each byte of a header.
const GLOBAL_MAX: usize = 4 << 10;

/// What headers in front of a member say of it.
#[derive(Clone, Default)]
struct Ahead {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<Timestamp>,
    atime: Option<Timestamp>,
    device: (Option<u64>, Option<u64>),
    xattrs: Xattrs,
    sparse: SparseRecords,
}

impl Ahead {
    /// About how many bytes of memory it has.
    fn bytes(&self) -> usize {
        let texts = [&self.path, &self.link].into_iter().flatten().map(Vec::len).sum::<usize>();
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 1);
        texts + xattrs.sum::<usize>() + self.sparse.bytes()
    }
}

/// Reads members one after the other.
pub(crate) struct Members<R> {
    stream: Stream<R>,
    /// What counts for all members behind it, unless headers of their own say something else.
    global: Ahead,
}

type Result<T> = std::result::Result<T, Error>;

impl<R: Read> Members<R> {
    pub(crate) fn new(from: R) -> Members<R> {
        Members { stream: Stream::new(from), global: Ahead::default() }
    }

    /// Where the next bytes of the present member lie in the archive.
    pub(crate) fn offset(&self) -> u64 {
        self.stream.source.offset()
    }

    /// The next bytes of the present member. See [`Stream::bytes`].
    pub(crate) fn bytes(&mut self, most: u64) -> Result<&[u8]> {
        self.stream.bytes(most)
    }

    /// Goes on behind bytes that [`Members::bytes`] has shown.
    pub(crate) fn take(&mut self, len: usize) {
        self.stream.take(len);
    }

    fn malformed(&self, why: &'static str) -> Error {
        self.stream.malformed(why)
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>> {
        self.stream.offset = self.stream.source.offset();
        self.stream.name.clear();
        let is_first = self.stream.offset == 0;
        let block = self.stream.source.want(BLOCK as usize)?;
        let there = block.len();
        if there < BLOCK as usize {
            let why = if is_first { foreign(block) } else { None };
            return Err(why.map_or_else(|| self.stream.truncated(there), Error::Foreign));
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        self.stream.source.take(BLOCK as usize);
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return self.end().map(|()| None);
        }
        if !is_whole(&header) {
            return Err(match is_first {
                true => Error::Foreign(
                    foreign(header.as_bytes()).unwrap_or_else(|| "this is no tar archive".into()),
                ),
                false => self.malformed("its header has another checksum, so it is damaged"),
            });
        }
        Ok(Some(header))
    }

    /// Reads what is behind the first block of zeros: another one, and padding, or the sender would be cut off.
    fn end(&mut self) -> Result<()> {
        let block = self.stream.source.want(BLOCK as usize)?;
        if block.iter().any(|byte| *byte != 0) {
            return Err(self.malformed("there is more behind a single block of zeros"));
        }
        loop {
            let len = self.stream.source.want(WANT_MAX)?.len();
            if len == 0 {
                return Ok(());
            }
            self.stream.source.take(len);
        }
    }

    /// The next member; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>> {
        self.stream.skip()?;
        let (mut long_name, mut long_link, mut of_pax) = (None, None, None);
        loop {
            let Some(header) = self.header()? else {
                return match of_pax.is_some() || long_name.is_some() || long_link.is_some() {
                    true => Err(self.malformed("the archive ends where a member should follow")),
                    false => Ok(None),
                };
            };
            let size = unsigned(&header.as_old().size);
            let size = size.ok_or_else(|| self.malformed("its size is no number"))?;
            let kind = header.entry_type();
            match kind {
                EntryType::XGlobalHeader => {
                    self.stream.expect_body(size)?;
                    let records = self.stream.whole()?;
                    let mut global = std::mem::take(&mut self.global);
                    self.records(&records, &mut global)?;
                    if global.bytes() > GLOBAL_MAX {
                        return Err(self.malformed("its records for all members are too long"));
                    }
                    self.global = global;
                }
                EntryType::XHeader => {
                    self.stream.expect_body(size)?;
                    of_pax = Some(self.stream.whole()?);
                }
                EntryType::GNULongName | EntryType::GNULongLink => {
                    self.stream.expect_body(size)?;
                    let mut text = self.stream.whole()?;
                    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
                    match kind {
                        EntryType::GNULongName => long_name = Some(text),
                        _ => long_link = Some(text),
                    }
                }
                _ => {
                    let mut ahead = self.global.clone();
                    ahead.path = long_name.take().or(ahead.path);
                    ahead.link = long_link.take().or(ahead.link);
                    if let Some(records) = of_pax.take() {
                        self.records(&records, &mut ahead)?;
                    }
                    if let Some(member) = self.member(&header, size, ahead)? {
                        return Ok(Some(member));
                    }
                }
            }
            self.stream.skip()?;
        }
    }

    fn records(&self, records: &[u8], ahead: &mut Ahead) -> Result<()> {
        // Access control lists that this header has as attributes as well.
        let mut own = [false; 2];
        for record in Records::new(records) {
            let (key, value) = record.map_err(|why| self.malformed(why))?;
            self.record(key, value, ahead, &mut own)?;
        }
        Ok(())
    }

    fn record(
        &self,
        key: &[u8],
        value: &[u8],
        ahead: &mut Ahead,
        [has_access, has_default]: &mut [bool; 2],
    ) -> Result<()> {
        let text = || Some(value.to_vec()).filter(|text| !text.is_empty());
        let number = || match value.is_empty() {
            true => Ok(None),
            false => decimal(value)
                .map(Some)
                .ok_or_else(|| self.malformed("a pax record should be a number")),
        };
        let moment = || match value.is_empty() {
            true => Ok(None),
            false => {
                time(value).map(Some).ok_or_else(|| self.malformed("a pax record should be a time"))
            }
        };
        match key {
            b"path" => ahead.path = text(),
            b"linkpath" => ahead.link = text(),
            b"size" => ahead.size = number()?,
            b"uid" => ahead.uid = number()?,
            b"gid" => ahead.gid = number()?,
            b"mtime" => ahead.mtime = moment()?,
            b"atime" => ahead.atime = moment()?,
            b"SCHILY.devmajor" => ahead.device.0 = number()?,
            b"SCHILY.devminor" => ahead.device.1 = number()?,
            b"SCHILY.acl.access" | b"SCHILY.acl.default" if !value.is_empty() => {
                let (name, has_attribute) = match key.ends_with(b"access") {
                    true => (acl::ACCESS, *has_access),
                    false => (acl::DEFAULT, *has_default),
                };
                let why = "its access control list cannot be read, or names users without numbers";
                let value = acl::value(value).ok_or_else(|| self.malformed(why))?;
                // The attribute itself, if it is in the same header, says the same. One for all members gives way.
                if !has_attribute {
                    ahead.xattrs.insert(name.to_vec(), value);
                }
            }
            _ if key.starts_with(pax::XATTR) => {
                let name = pax::xattr_name(&key[pax::XATTR.len()..]);
                *has_access |= name == acl::ACCESS;
                *has_default |= name == acl::DEFAULT;
                ahead.xattrs.insert(name, value.to_vec());
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                let key = &key[b"GNU.sparse.".len()..];
                ahead.sparse.put(key, value).map_err(|why| self.malformed(why))?;
            }
            // Comments, names of users, and what only other programs know.
            _ => {}
        }
        Ok(())
    }

    /// `None` for one that is no file and can be left out.
    fn member(&mut self, header: &Header, size: u64, mut ahead: Ahead) -> Result<Option<Member>> {
        let name = ahead.sparse.name.take().or(ahead.path.take());
        self.stream.name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let kind = match self.kind(header, ahead.link.take())? {
            Some(kind) => kind,
            None => {
                self.stream.expect_body(ahead.size.unwrap_or(size))?;
                return Ok(None);
            }
        };
        let is_file = kind == Kind::File;
        self.stream.expect_body(if is_file { ahead.size.unwrap_or(size) } else { 0 })?;
        let (mut len, mut segments) = (self.stream.left, None);
        if is_file && header.entry_type() == EntryType::GNUSparse {
            let map = sparse::of_header(&mut self.stream, header)?;
            (len, segments) = (map.0, Some(map.1));
        } else if is_file && let Some(map) = ahead.sparse.read(&mut self.stream)? {
            (len, segments) = (map.0, Some(map.1));
        }
        if let Some(segments) = &segments {
            sparse::check(segments, len, self.stream.left).map_err(|why| self.malformed(why))?;
        }
        let old = header.as_old();
        let id = |given: Option<u64>, field: &[u8]| {
            let id = given.or_else(|| unsigned(field)).ok_or(())?;
            u32::try_from(id).map_err(|_| ())
        };
        let whole = crate::number::of_field(&old.mtime)
            .and_then(|secs| i64::try_from(secs).ok())
            .map(|secs| Timestamp { secs, nanos: 0 });
        let device = match header.as_ustar().map(|of| (of.dev_major, of.dev_minor)) {
            Some(device) => Some(device),
            None => header.as_gnu().map(|of| (of.dev_major, of.dev_minor)),
        };
        let (major, minor) = device.unwrap_or_default();
        let numbers = (|| {
            let mode = unsigned(&old.mode).ok_or(())?;
            let (uid, gid) = (id(ahead.uid, &old.uid)?, id(ahead.gid, &old.gid)?);
            let device = match kind {
                Kind::CharDevice | Kind::BlockDevice => {
                    (id(ahead.device.0, &major)?, id(ahead.device.1, &minor)?)
                }
                _ => (0, 0),
            };
            Ok(((mode & 0o7777) as u32, uid, gid, device))
        })();
        let (mode, uid, gid, device) =
            numbers.map_err(|()| self.malformed("its mode, owner or device is no number"))?;
        let mtime = ahead.mtime.or(whole);
        let mtime = mtime.ok_or_else(|| self.malformed("its time is no number"))?;
        Ok(Some(Member {
            offset: self.stream.offset,
            name: self.stream.name.clone(),
            kind,
            mode,
            uid,
            gid,
            device,
            mtime,
            atime: ahead.atime,
            xattrs: ahead.xattrs,
            len,
            segments,
        }))
    }

    fn kind(&self, header: &Header, link: Option<Vec<u8>>) -> Result<Option<Kind>> {
        let target = || {
            let target = link.or_else(|| Some(header.link_name_bytes()?.into_owned()));
            target.ok_or_else(|| self.malformed("it is a link that leads nowhere"))
        };
        Ok(Some(match header.entry_type() {
            // Before there was a type for directories.
            EntryType::Regular if self.stream.name.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Link => Kind::HardLink(target()?),
            EntryType::Symlink => Kind::Symlink(target()?),
            EntryType::Char => Kind::CharDevice,
            EntryType::Block => Kind::BlockDevice,
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            other => match other.as_byte() {
                0 => Kind::File,
                // The label of a volume of tapes.
                b'V' => return Ok(None),
                _ => return Err(self.malformed("nobody here knows this type of member")),
            },
        }))
    }
}

/// Whether the checksum is right.
fn is_whole(header: &Header) -> bool {
    let mut again = header.clone();
    again.set_cksum();
    let sum = |of: &Header| unsigned(&of.as_old().cksum);
    sum(header).is_some() && sum(header) == sum(&again)
}

/// What the first bytes are if they are no tar archive, and what to do then.
fn foreign(block: &[u8]) -> Option<String> {
    let kinds: [(&[u8], &str, &str); 5] = [
        (&[0x1f, 0x8b], "gzip", "zcat"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstdcat"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xzcat"),
        (b"BZh", "bzip2", "bzcat"),
        (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4cat"),
    ];
    let found = kinds.iter().find(|(magic, ..)| block.starts_with(magic));
    match found {
        Some((_, kind, program)) => Some(format!(
            "this is compressed with {kind}; run: {program} FILE | holdfast import ..."
        )),
        None if block.is_empty() => Some("there is no archive: the input is empty".into()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::new(kind));
        header.set_size(content.len() as u64);
        header.as_old_mut().name[0] = b'n';
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        crate::header::pad(&mut bytes);
        bytes
    }

    /// As many attributes as a header may have, and many members behind a global header as long as it may be: all are read, and
    /// no member gets more than the few bytes of that which count.
    #[test]
    fn many_records_are_read_and_few_are_given_to_all_members() {
        let (mut attributes, mut count) = (Vec::new(), 0);
        while attributes.len() < 7 << 20 {
            let name = format!("SCHILY.xattr.user.{count:x}");
            pax::put(&mut attributes, name.as_bytes(), b"");
            count += 1;
        }
        let mut global = Vec::new();
        pax::put(&mut global, b"comment", &vec![b'c'; 7 << 20]);
        pax::put(&mut global, b"SCHILY.xattr.user.all", &vec![b'v'; 4000]);
        let mut archive = [header(b'x', &attributes), header(b'0', b"")].concat();
        archive.extend(header(b'g', &global));
        for _ in 0..4000 {
            archive.extend(header(b'0', b""));
        }
        archive.extend([0; 1024]);
        let mut members = Members::new(&archive[..]);
        let first = members.next().expect("it is whole").expect("there is one");
        assert_eq!(first.xattrs.len(), count);
        let mut others = 0;
        while let Some(member) = members.next().expect("it is whole") {
            assert_eq!(member.xattrs.len(), 1);
            others += 1;
        }
        assert_eq!(others, 4000);
        assert!(members.global.bytes() <= GLOBAL_MAX, "{} bytes", members.global.bytes());
    }

    /// A list of access of a member's own header counts, whether it comes as text or as an attribute, and whatever a header for
    /// all members says.
    #[test]
    fn a_list_of_access_is_the_members_own() {
        let text = |text: &str| {
            let mut record = Vec::new();
            pax::put(&mut record, b"SCHILY.acl.access", text.as_bytes());
            record
        };
        let attribute = |text: &str| {
            let key = [pax::XATTR, acl::ACCESS].concat();
            let mut record = Vec::new();
            pax::put(&mut record, &key, &acl::value(text.as_bytes()).expect("it is a list"));
            record
        };
        let (all, own, other) = [6, 5, 4]
            .map(|user| format!("user::rwx,user:{user}:r--,group::r--,mask::r--,other::---"))
            .into();
        let value = |text: &String| acl::value(text.as_bytes());
        for (of_all, of_member, wanted) in [
            (text(&all), text(&own), &own),
            (attribute(&all), text(&own), &own),
            (text(&all), attribute(&own), &own),
            (text(&all), Vec::new(), &all),
            (Vec::new(), [text(&other), attribute(&own)].concat(), &own),
            (Vec::new(), [attribute(&own), text(&other)].concat(), &own),
            (text(&all), [attribute(&own), text(&other)].concat(), &own),
        ] {
            let archive =
                [header(b'g', &of_all), header(b'x', &of_member), header(b'0', b""), vec![0; 1024]];
            let archive = archive.concat();
            let mut members = Members::new(&archive[..]);
            let member = members.next().expect("it is whole").expect("there is one");
            assert_eq!(member.xattrs.get(acl::ACCESS).cloned(), value(wanted));
        }
    }
}
