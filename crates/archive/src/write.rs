//! One file after the other on its way into an archive.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use holdfast::{Dir, File, FileType, Metadata, OpenOptions};
use tar::EntryType;

use crate::header::{BLOCK, MemberHeader, pad};
use crate::sparse::{self, SEGMENTS_MAX, line};
use crate::{Error, Form, whiteout};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// How often a name is looked up that leads to another file each time.
const TRIES: u32 = 4;

type Result<T> = std::result::Result<T, Error>;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Members of the archive.
    pub members: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Sockets, which no archive has a place for, and which were left out.
    pub sockets: u64,
}

/// Writes members.
pub(crate) struct Writer<W> {
    to: W,
    form: Form,
    linked: Linked,
    buffer: Vec<u8>,
    /// The first file that changed while it was read, and how many others did.
    changed: Option<(Vec<u8>, u64)>,
    pub(crate) exported: Exported,
}

/// Files with names that are still to come, by inode number: the first name, and how many.
#[derive(Debug)]
struct Linked {
    files: HashMap<u64, (Vec<u8>, u32)>,
    /// What they take, and may take.
    bytes: usize,
    most: usize,
}

/// What a file with several names takes, beside the first of them.
const LINKED_BYTES: usize = 64;

impl Linked {
    /// The first name of a file, of which another one has come.
    fn first_of(&mut self, inode: u64) -> Option<Vec<u8>> {
        let (first, left) = self.files.get_mut(&inode)?;
        *left = left.saturating_sub(1);
        match left {
            0 => {
                let (first, _) = self.files.remove(&inode)?;
                self.bytes -= LINKED_BYTES + first.len();
                Some(first)
            }
            _ => Some(first.clone()),
        }
    }

    fn insert(&mut self, inode: u64, path: &[u8], left: u32) -> Result<()> {
        self.bytes += LINKED_BYTES + path.len();
        self.files.insert(inode, (path.to_vec(), left));
        match self.bytes > self.most {
            true => {
                Err(Error::TooMuch { what: "paths of files with several names", most: self.most })
            }
            false => Ok(()),
        }
    }

    /// The member at a path was not written.
    fn forget(&mut self, path: &[u8]) {
        let bytes = &mut self.bytes;
        self.files.retain(|_, (first, _)| {
            let stays = first != path;
            *bytes -= if stays { 0 } else { LINKED_BYTES + first.len() };
            stays
        });
    }
}

/// Says which file an error is about.
pub(crate) trait Of<T> {
    fn of(self, path: &[u8]) -> Result<T>;
}

impl<T> Of<T> for io::Result<T> {
    fn of(self, path: &[u8]) -> Result<T> {
        let path = if path.is_empty() { b"./" } else { path };
        self.map_err(|source| Error::File { path: path.into(), source })
    }
}

/// An extended attribute: name and value.
type Xattr = (Vec<u8>, Vec<u8>);

/// Extended attributes of a file.
struct Xattrs {
    all: Vec<Xattr>,
    /// Some went while they were read.
    are_fewer: bool,
}

/// Where a file has data: the begin and the end of each stretch.
#[derive(Debug, Default)]
struct Layout {
    segments: Vec<(u64, u64)>,
    /// Bytes of all of them.
    stored: u64,
    ends_in_hole: bool,
}

impl<W: Write> Writer<W> {
    /// `most`: bytes that it may remember of files with several names.
    pub(crate) fn new(to: W, form: Form, most: usize) -> Writer<W> {
        let linked = Linked { files: HashMap::new(), bytes: 0, most };
        let exported = Exported::default();
        Writer { to, form, linked, buffer: vec![0; CHUNK], changed: None, exported }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(Error::Write)
    }

    /// Ends the archive. One in which a file has changed is whole, and an error all the same.
    pub(crate) fn finish(mut self) -> Result<Exported> {
        self.put(&[0; 2 * BLOCK as usize])?;
        self.to.flush().map_err(Error::Write)?;
        match self.changed {
            None => Ok(self.exported),
            Some((path, others)) => Err(Error::Changed { path, others }),
        }
    }

    /// A file without bytes that says something about others.
    pub(crate) fn marker(&mut self, path: &[u8]) -> Result<()> {
        self.exported.members += 1;
        self.put(&MemberHeader::new(path, EntryType::Regular).blocks())
    }

    /// What is called `name` in `dir`, as `path`; the root is `.` and has no path. `None`: it has gone meanwhile. Where another
    /// file takes the name meanwhile, that one is written.
    pub(crate) fn member(
        &mut self,
        dir: &Dir,
        name: &OsStr,
        path: &[u8],
    ) -> Result<Option<Metadata>> {
        for _ in 0..TRIES {
            let found = match dir.symlink_metadata(name) {
                Err(error) if is_missing(&error) && !path.is_empty() => break,
                found => found.of(path)?,
            };
            let before = self.exported.members;
            match self.found(dir, name, path, &found) {
                Ok(true) => return Ok(Some(found)),
                Ok(false) => {}
                Err(error) => {
                    // A name that leads elsewhere by now is no failure as long as no part of the member is written.
                    let is_another = self.exported.members == before
                        && matches!(error, Error::File { .. })
                        && !is_at(dir, name, &found);
                    if !is_another {
                        return Err(error);
                    }
                }
            }
            // No other name can lead to a member that was not written.
            self.linked.forget(path);
        }
        self.has_changed(path);
        Ok(None)
    }

    /// Writes what was found under a name. False: by now it is another file's, and nothing was written.
    fn found(&mut self, dir: &Dir, name: &OsStr, path: &[u8], found: &Metadata) -> Result<bool> {
        let file_type = found.file_type();
        if file_type == FileType::Socket {
            self.exported.sockets += 1;
            return Ok(true);
        }
        if self.form == Form::Layer && name.as_bytes().starts_with(whiteout::PREFIX) {
            let why = "a layer cannot have a name that begins with `.wh.`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why)).of(path);
        }
        if !found.is_dir() && found.nlink() > 1 {
            if let Some(first) = self.linked.first_of(found.ino()) {
                self.plain(found, path, EntryType::Link, Some(&first), &[])?;
                return Ok(true);
            }
            self.linked.insert(found.ino(), path, found.nlink() - 1)?;
        }
        let Xattrs { all: xattrs, are_fewer } = xattrs(dir, name).of(path)?;
        let target = match file_type {
            FileType::Regular => {
                let is_it = self.file(dir, name, path, (found, &xattrs))?;
                if is_it && are_fewer {
                    self.has_changed(path);
                }
                return Ok(is_it);
            }
            FileType::Symlink => Some(dir.read_link(name).of(path)?.into_os_string().into_vec()),
            _ => None,
        };
        // What was read by its name is of that file.
        if !is_at(dir, name, found) {
            return Ok(false);
        }
        if are_fewer {
            self.has_changed(path);
        }
        match file_type {
            FileType::Directory => {
                let path = if path.is_empty() { b"./".to_vec() } else { [path, b"/"].concat() };
                self.plain(found, &path, EntryType::Directory, None, &xattrs)?;
            }
            FileType::Symlink => {
                self.plain(found, path, EntryType::Symlink, target.as_deref(), &xattrs)?;
            }
            FileType::CharDevice => self.plain(found, path, EntryType::Char, None, &xattrs)?,
            FileType::BlockDevice => self.plain(found, path, EntryType::Block, None, &xattrs)?,
            FileType::Fifo => self.plain(found, path, EntryType::Fifo, None, &xattrs)?,
            FileType::Regular | FileType::Socket => {}
        }
        Ok(true)
    }

    /// A member without bytes.
    fn plain(
        &mut self,
        found: &Metadata,
        path: &[u8],
        kind: EntryType,
        link: Option<&[u8]>,
        xattrs: &[Xattr],
    ) -> Result<()> {
        let said = MemberHeader { link, xattrs, ..said(found, path, kind) };
        self.exported.members += 1;
        self.put(&said.blocks())
    }

    /// A regular file. False if the name leads to another one by now.
    fn file(
        &mut self,
        dir: &Dir,
        name: &OsStr,
        path: &[u8],
        (found, xattrs): (&Metadata, &[Xattr]),
    ) -> Result<bool> {
        let how = OpenOptions::new().read(true).noatime(true).follow(false);
        let file = dir.open_with(name, &how).of(path)?;
        let wanted = found.ino();
        let found = file.metadata().of(path)?;
        // Other names of the one that was found would be written as links to this.
        if found.ino() != wanted {
            return Ok(false);
        }
        let len = found.len();
        let layout = Layout::of(&file, len, SEGMENTS_MAX).of(path)?;
        let is_sparse = layout.stored < len;
        let map = match is_sparse {
            true => layout.lines(len).map(|line| line.len() as u64).sum::<u64>(),
            false => 0,
        };
        let said = MemberHeader {
            size: map.next_multiple_of(BLOCK) + layout.stored,
            real_size: is_sparse.then_some(len),
            xattrs,
            ..said(&found, path, EntryType::Regular)
        };
        self.exported.members += 1;
        self.exported.bytes += layout.stored;
        self.put(&said.blocks())?;
        if is_sparse {
            self.map(layout.lines(len))?;
        }
        let mut is_whole = true;
        for segment in &layout.segments {
            is_whole &= self.copy(&file, path, *segment)?;
        }
        self.put(&[0; BLOCK as usize][..(layout.stored.wrapping_neg() % BLOCK) as usize])?;
        let now = file.metadata().of(path)?;
        let of = |of: &Metadata| (of.len(), of.modified(), of.changed());
        if !is_whole || of(&now) != of(&found) {
            self.has_changed(path);
        }
        Ok(true)
    }

    /// The map of a file with holes, filled up to a block.
    fn map(&mut self, lines: impl Iterator<Item = String>) -> Result<()> {
        let mut map = Vec::new();
        for line in lines {
            map.extend_from_slice(line.as_bytes());
            if map.len() >= CHUNK {
                let rest = map.split_off(map.len() / BLOCK as usize * BLOCK as usize);
                self.put(&map)?;
                map = rest;
            }
        }
        pad(&mut map);
        self.put(&map)
    }

    /// Copies what a header has promised, which is what is written: of a file that has become shorter meanwhile zeros. False
    /// for such a one.
    fn copy(&mut self, file: &File, path: &[u8], (mut at, end): (u64, u64)) -> Result<bool> {
        let mut is_whole = true;
        while at < end {
            let want = (end - at).min(CHUNK as u64) as usize;
            let len = match is_whole {
                true => file.read_at(&mut self.buffer[..want], at).of(path)?,
                false => want,
            };
            if len == 0 {
                is_whole = false;
                self.buffer.fill(0);
                continue;
            }
            self.to.write_all(&self.buffer[..len]).map_err(Error::Write)?;
            at += len as u64;
        }
        Ok(is_whole)
    }

    /// A file was not the same all the time.
    pub(crate) fn has_changed(&mut self, path: &[u8]) {
        match &mut self.changed {
            Some((_, others)) => *others += 1,
            first => *first = Some((path.to_vec(), 0)),
        }
    }
}

/// Whether a name was there, and is there no more.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether a name leads to a file still. If that cannot be told, it does: what went wrong is told then.
pub(crate) fn is_at(dir: &Dir, name: &OsStr, file: &Metadata) -> bool {
    match dir.symlink_metadata(name) {
        Ok(now) => now.ino() == file.ino(),
        Err(error) => !is_missing(&error),
    }
}

fn said<'a>(found: &Metadata, path: &'a [u8], kind: EntryType) -> MemberHeader<'a> {
    let rdev = found.rdev();
    MemberHeader {
        mode: found.permissions().mode(),
        uid: found.uid(),
        gid: found.gid(),
        device: (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
        mtime: found.modified().into(),
        ..MemberHeader::new(path, kind)
    }
}

/// Names and values in the order of the names.
fn xattrs(dir: &Dir, name: &OsStr) -> io::Result<Xattrs> {
    let mut names = dir.xattrs(name)?;
    names.sort_unstable();
    values(dir, name, names)
}

/// The values of attributes that were listed.
fn values(dir: &Dir, name: &OsStr, names: Vec<OsString>) -> io::Result<Xattrs> {
    let (mut all, mut are_fewer) = (Vec::new(), false);
    for of in names {
        match dir.xattr(name, &of) {
            Ok(value) => all.push((of.into_vec(), value)),
            Err(error) if dir.xattrs(name)?.contains(&of) => return Err(error),
            Err(_) => are_fewer = true,
        }
    }
    Ok(Xattrs { all, are_fewer })
}

/// The next stretch of data at or after `at`.
fn data_after(file: &File, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= len {
        return Ok(None);
    }
    match file.seek_data(at)?.filter(|start| *start < len) {
        Some(start) => Ok(Some((start, file.seek_hole(start)?.min(len)))),
        None => Ok(None),
    }
}

impl Layout {
    /// Asks a file once where it has data. Fails if there are more than `most` stretches: no program could read the archive.
    fn of(file: &File, len: u64, most: usize) -> io::Result<Layout> {
        let mut layout = Layout::default();
        let mut at = 0;
        while let Some((start, end)) = data_after(file, at, len)? {
            // The end of a hole at the end takes one place of the map.
            if layout.segments.len() + 1 >= most {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, sparse::TOO_MANY));
            }
            layout.segments.push((start, end));
            layout.stored += end - start;
            at = end;
        }
        layout.ends_in_hole = at < len;
        Ok(layout)
    }

    /// The lines of the map of version 1.0.
    fn lines(&self, len: u64) -> impl Iterator<Item = String> {
        let end = self.ends_in_hole.then_some((len, len));
        let count = line(self.segments.len() as u64 + u64::from(self.ends_in_hole));
        let segments = self.segments.iter().copied().chain(end);
        let lines = segments.flat_map(|(start, end)| [line(start), line(end - start)]);
        std::iter::once(count).chain(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between a look at a name and the opening of it another file takes the name: the other names of the first are no links to
    /// that.
    #[test]
    fn a_file_that_takes_a_name_meanwhile_is_not_taken_for_the_one_before() {
        let volume = holdfast::Volume::in_memory(16 << 20).expect("there is memory");
        let write = |path: &str, bytes: &[u8]| volume.write(path, bytes).expect("there is space");
        write("/a", b"first");
        volume.hard_link("/a", "/b").expect("it is there");
        let name = OsStr::new("a");
        let found = volume.symlink_metadata(name).expect("it is there");
        write("/new", b"second");
        volume.rename("/new", "/a").expect("it is there");
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, Form::Tar, 1 << 20);
        let written = writer.found(&volume, name, b"a", &found).expect("it is no failure");
        assert!(!written && writer.exported.members == 0);
        // As for the first turn of `member`: nothing of it is left.
        writer.linked.forget(b"a");
        for path in ["a", "b"] {
            let member = writer.member(&volume, OsStr::new(path), path.as_bytes());
            assert!(member.expect("it is there").is_some());
        }
        writer.finish().expect("each file is one");
        let copy = holdfast::Volume::in_memory(16 << 20).expect("there is memory");
        crate::import(&copy, Form::Tar, "importing", &bytes[..]).expect("it is whole");
        assert_eq!(copy.read("/a").expect("it is there"), b"second");
        assert_eq!(copy.read("/b").expect("it is there"), b"first");
    }

    /// A symbolic link, a device and a directory have taken the name of something else.
    #[test]
    fn a_name_that_is_something_else_by_now_is_written_as_that() {
        let volume = holdfast::Volume::in_memory(16 << 20).expect("there is memory");
        volume.write("/file", b"file").expect("there is space");
        volume.symlink("elsewhere", "/link").expect("there is space");
        volume.create_dir("/dir").expect("there is space");
        let all = ["file", "link", "dir"];
        let stat = |name: &str| volume.symlink_metadata(name).expect("it is there");
        for (was, now) in all.iter().flat_map(|was| all.map(|now| (*was, now))) {
            if was == now {
                continue;
            }
            let (found, mut bytes) = (stat(was), Vec::new());
            let mut writer = Writer::new(&mut bytes, Form::Tar, 1 << 20);
            // Found under this name, before it was given to another file.
            let done = writer.found(&volume, OsStr::new(now), now.as_bytes(), &found);
            let is_at = is_at(&volume, OsStr::new(now), &found);
            assert!(!is_at && !matches!(done, Ok(true)), "{was} is {now}");
            assert_eq!(writer.exported.members, 0, "{was} is {now}");
        }
    }

    #[test]
    fn an_attribute_that_goes_meanwhile_is_left_out() {
        let volume = holdfast::Volume::in_memory(16 << 20).expect("there is memory");
        volume.write("/f", b"").expect("there is space");
        let flags = holdfast::XattrFlags::empty();
        volume.set_xattr("/f", "user.b", b"value", flags).expect("there is space");
        let names = ["user.a", "user.b"].map(OsString::from).into();
        let found = values(&volume, OsStr::new("f"), names).expect("one of them is there");
        assert!(found.are_fewer);
        assert_eq!(found.all, [(b"user.b".to_vec(), b"value".to_vec())]);
        assert!(!xattrs(&volume, OsStr::new("f")).expect("it is there").are_fewer);
    }

    #[test]
    fn a_file_of_more_holes_than_can_be_read_is_refused() {
        let volume = holdfast::Volume::in_memory(16 << 20).expect("there is memory");
        let file = volume.create("/holes").expect("there is space");
        for at in 0..9 {
            file.write_all_at(&[1; 4096], at * 16384).expect("there is space");
        }
        file.set_len(1 << 20).expect("a file may be longer");
        let file = volume.open_file("/holes").expect("it is there");
        let layout = |most| Layout::of(&file, 1 << 20, most);
        let all = layout(10).expect("there are nine");
        assert_eq!((all.segments.len(), all.stored, all.ends_in_hole), (9, 9 * 4096, true));
        let lines: String = all.lines(1 << 20).collect();
        assert!(lines.starts_with("10\n0\n4096\n16384\n") && lines.ends_with("\n1048576\n0\n"));
        assert_eq!(layout(9).expect_err("there are more").kind(), io::ErrorKind::InvalidInput);
    }
}
