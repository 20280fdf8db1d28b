//! One header: names, numbers and what they become where they do not fit.

use holdfast_base::Timestamp;
use tar::{EntryType, Header};

use crate::number::time_text;
use crate::pax;

/// Bytes of a header, and what everything is filled up to.
pub(crate) const BLOCK: u64 = 512;

/// The largest number of an octal field of eight bytes, and of twelve.
const SMALL_MAX: u64 = (1 << 21) - 1;
const LARGE_MAX: u64 = (1 << 33) - 1;

/// What is written of a member besides its bytes.
pub(crate) struct MemberHeader<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) kind: EntryType,
    pub(crate) link: Option<&'a [u8]>,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: (u32, u32),
    pub(crate) mtime: Timestamp,
    /// Bytes that follow.
    pub(crate) size: u64,
    /// The size of a file with holes, of which a map and less than this follow.
    pub(crate) real_size: Option<u64>,
    pub(crate) xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl<'a> MemberHeader<'a> {
    /// Of a member without an owner, times and bytes.
    pub(crate) fn new(path: &'a [u8], kind: EntryType) -> MemberHeader<'a> {
        MemberHeader {
            path,
            kind,
            link: None,
            mode: 0o644,
            uid: 0,
            gid: 0,
            device: (0, 0),
            mtime: Timestamp { secs: 0, nanos: 0 },
            size: 0,
            real_size: None,
            xattrs: &[],
        }
    }

    /// The blocks of the member up to its bytes.
    pub(crate) fn blocks(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let mut header = Header::new_ustar();
        header.set_entry_type(self.kind);
        header.set_mode(self.mode);
        let small = |value: u32| u64::from(value).min(SMALL_MAX);
        header.set_uid(small(self.uid));
        header.set_gid(small(self.gid));
        header.set_size(self.size.min(LARGE_MAX));
        let secs = u64::try_from(self.mtime.secs).unwrap_or(0).min(LARGE_MAX);
        header.set_mtime(secs);
        self.put_names(&mut header, &mut records);
        if let EntryType::Char | EntryType::Block = self.kind {
            // These headers have both fields.
            let _ = header.set_device_major(small(self.device.0) as u32);
            let _ = header.set_device_minor(small(self.device.1) as u32);
        }
        self.put_numbers(secs, &mut records);
        if let Some(real_size) = self.real_size {
            pax::put(&mut records, b"GNU.sparse.major", b"1");
            pax::put(&mut records, b"GNU.sparse.minor", b"0");
            pax::put(&mut records, b"GNU.sparse.name", self.path);
            pax::put(&mut records, b"GNU.sparse.realsize", real_size.to_string().as_bytes());
        }
        for (name, value) in self.xattrs {
            pax::put(&mut records, &pax::xattr_key(name), value);
        }
        header.set_cksum();
        let mut blocks = Vec::new();
        if !records.is_empty() {
            put_records(self.path, &records, &mut blocks);
        }
        blocks.extend_from_slice(header.as_bytes());
        blocks
    }

    fn put_names(&self, header: &mut Header, records: &mut Vec<u8>) {
        let odd = |text: &[u8]| std::str::from_utf8(text).is_err();
        let must_be_told = |text: &[u8]| !text.is_ascii();
        let link = self.link.unwrap_or_default();
        let path_fits = put_path(header, self.path);
        let path_told = self.real_size.is_none() && (!path_fits || must_be_told(self.path));
        let link_told = must_be_told(link) || link.len() > header.as_old().linkname.len();
        if path_told && odd(self.path) || link_told && odd(link) {
            pax::put(records, b"hdrcharset", b"BINARY");
        }
        if path_told {
            pax::put(records, b"path", self.path);
        }
        fill(&mut header.as_old_mut().linkname, link);
        if link_told {
            pax::put(records, b"linkpath", link);
        }
    }

    fn put_numbers(&self, secs: u64, records: &mut Vec<u8>) {
        let mut number = |key: &[u8], value: u64, most: u64| {
            if value > most {
                pax::put(records, key, value.to_string().as_bytes());
            }
        };
        number(b"size", self.size, LARGE_MAX);
        number(b"uid", self.uid.into(), SMALL_MAX);
        number(b"gid", self.gid.into(), SMALL_MAX);
        number(b"SCHILY.devmajor", self.device.0.into(), SMALL_MAX);
        number(b"SCHILY.devminor", self.device.1.into(), SMALL_MAX);
        if self.mtime.nanos != 0 || i128::from(secs) != i128::from(self.mtime.secs) {
            pax::put(records, b"mtime", time_text(self.mtime).as_bytes());
        }
    }
}

/// A member of its own, with records about the next.
fn put_records(path: &[u8], records: &[u8], blocks: &mut Vec<u8>) {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(records.len() as u64);
    // Seen only by readers that do not know such records.
    let name = path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).unwrap_or(b".");
    let name = [&b"PaxHeaders/"[..], name].concat();
    fill(&mut header.as_old_mut().name, &name);
    header.set_cksum();
    blocks.extend_from_slice(header.as_bytes());
    blocks.extend_from_slice(records);
    pad(blocks);
}

/// Fills up to a block.
pub(crate) fn pad(blocks: &mut Vec<u8>) {
    blocks.resize(blocks.len().next_multiple_of(BLOCK as usize), 0);
}

/// Puts as much of `text` as there is room for.
fn fill(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// Puts a path, cut at a slash if it is long. False if only its beginning fits.
fn put_path(header: &mut Header, path: &[u8]) -> bool {
    let Some(ustar) = header.as_ustar_mut() else {
        return false;
    };
    if path.len() <= ustar.name.len() {
        fill(&mut ustar.name, path);
        return true;
    }
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let fits = |at: &usize| {
        let rest = path.len() - at - 1;
        (1..=ustar.prefix.len()).contains(at) && (1..=ustar.name.len()).contains(&rest)
    };
    match { slashes }.find(fits) {
        Some(at) => {
            fill(&mut ustar.prefix, &path[..at]);
            fill(&mut ustar.name, &path[at + 1..]);
            true
        }
        None => {
            fill(&mut ustar.name, path);
            false
        }
    }
}

/// A path for people.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
