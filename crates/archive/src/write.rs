//! One file after the other on its way into an archive.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use holdfast::{Dir, File, FileType, Metadata, OpenOptions};
use tar::EntryType;

use crate::header::{BLOCK, Said, pad};
use crate::sparse::line;
use crate::{Error, Form, whiteout};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

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
    /// Files with names that are still to come, by inode number: the first name, and how many.
    linked: HashMap<u64, (Vec<u8>, u32)>,
    buffer: Vec<u8>,
    pub(crate) exported: Exported,
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

/// What is written in front of the bytes of a file.
#[derive(Default)]
struct Holes {
    segments: u64,
    stored: u64,
    ends_in_hole: bool,
    /// Bytes of the map, filled up to a block.
    map: u64,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(to: W, form: Form) -> Writer<W> {
        let (linked, exported) = (HashMap::new(), Exported::default());
        Writer { to, form, linked, buffer: vec![0; CHUNK], exported }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(Error::Write)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Result<Exported> {
        self.put(&[0; 2 * BLOCK as usize])?;
        self.to.flush().map_err(Error::Write)?;
        Ok(self.exported)
    }

    /// A file without bytes that says something about others.
    pub(crate) fn marker(&mut self, path: &[u8]) -> Result<()> {
        let said = Said {
            path,
            kind: EntryType::Regular,
            link: None,
            mode: 0o644,
            uid: 0,
            gid: 0,
            device: (0, 0),
            mtime: holdfast_base::Timestamp { secs: 0, nanos: 0 },
            size: 0,
            real_size: None,
            xattrs: &[],
        };
        self.exported.members += 1;
        self.put(&said.blocks())
    }

    /// What is called `name` in `dir`, as `path`; the root is `.` and has no path.
    pub(crate) fn member(&mut self, dir: &Dir, name: &OsStr, path: &[u8]) -> Result<FileType> {
        let found = dir.symlink_metadata(name).of(path)?;
        let file_type = found.file_type();
        if file_type == FileType::Socket {
            self.exported.sockets += 1;
            return Ok(file_type);
        }
        if self.form == Form::Layer && name.as_bytes().starts_with(whiteout::PREFIX) {
            let why = "a layer cannot have a name that begins with `.wh.`";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why)).of(path);
        }
        if !found.is_dir() && found.nlink() > 1 {
            if let Some((first, left)) = self.linked.get_mut(&found.ino()) {
                let first = first.clone();
                *left -= 1;
                if *left == 0 {
                    self.linked.remove(&found.ino());
                }
                self.plain(&found, path, EntryType::Link, Some(&first), &[])?;
                return Ok(file_type);
            }
            self.linked.insert(found.ino(), (path.to_vec(), found.nlink() - 1));
        }
        let xattrs = xattrs(dir, name).of(path)?;
        match file_type {
            FileType::Regular => self.file(dir, name, path, &found, &xattrs)?,
            FileType::Directory => {
                let path = if path.is_empty() { b"./".to_vec() } else { [path, b"/"].concat() };
                self.plain(&found, &path, EntryType::Directory, None, &xattrs)?;
            }
            FileType::Symlink => {
                let target = dir.read_link(name).of(path)?.into_os_string().into_vec();
                self.plain(&found, path, EntryType::Symlink, Some(&target), &xattrs)?;
            }
            FileType::CharDevice => self.plain(&found, path, EntryType::Char, None, &xattrs)?,
            FileType::BlockDevice => self.plain(&found, path, EntryType::Block, None, &xattrs)?,
            FileType::Fifo => self.plain(&found, path, EntryType::Fifo, None, &xattrs)?,
            FileType::Socket => {}
        }
        Ok(file_type)
    }

    /// A member without bytes.
    fn plain(
        &mut self,
        found: &Metadata,
        path: &[u8],
        kind: EntryType,
        link: Option<&[u8]>,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let said = Said { link, xattrs, ..said(found, path, kind) };
        self.exported.members += 1;
        self.put(&said.blocks())
    }

    fn file(
        &mut self,
        dir: &Dir,
        name: &OsStr,
        path: &[u8],
        found: &Metadata,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let how = OpenOptions::new().read(true).noatime(true).follow(false);
        let file = dir.open_with(name, &how).of(path)?;
        let len = found.len();
        let holes = holes(&file, len).of(path)?;
        let is_sparse = holes.stored < len;
        let said = Said {
            size: if is_sparse { holes.map + holes.stored } else { len },
            real_size: is_sparse.then_some(len),
            xattrs,
            ..said(found, path, EntryType::Regular)
        };
        self.exported.members += 1;
        self.exported.bytes += holes.stored;
        self.put(&said.blocks())?;
        if is_sparse {
            self.map(&file, path, len, &holes)?;
        }
        let mut at = 0;
        while let Some((start, end)) = data_after(&file, at, len).of(path)? {
            self.copy(&file, path, start, end)?;
            at = end;
        }
        self.put(&[0; BLOCK as usize][..(holes.stored.wrapping_neg() % BLOCK) as usize])
    }

    /// The map of a file with holes. The file is asked again: there may be more segments than should be kept.
    fn map(&mut self, file: &File, path: &[u8], len: u64, holes: &Holes) -> Result<()> {
        let mut map = line(holes.segments + u64::from(holes.ends_in_hole)).into_bytes();
        let mut at = 0;
        let mut written = 0;
        while let Some((start, end)) = data_after(file, at, len).of(path)? {
            map.extend_from_slice(line(start).as_bytes());
            map.extend_from_slice(line(end - start).as_bytes());
            at = end;
            if map.len() >= CHUNK {
                written += map.len() as u64;
                self.put(&map)?;
                map.clear();
            }
        }
        if holes.ends_in_hole {
            map.extend_from_slice(line(len).as_bytes());
            map.extend_from_slice(line(0).as_bytes());
        }
        let wanted = holes.map - written;
        if map.len().next_multiple_of(BLOCK as usize) as u64 != wanted {
            return Err(changed()).of(path);
        }
        pad(&mut map);
        self.put(&map)
    }

    fn copy(&mut self, file: &File, path: &[u8], mut at: u64, end: u64) -> Result<()> {
        while at < end {
            let want = (end - at).min(CHUNK as u64) as usize;
            let len = file.read_at(&mut self.buffer[..want], at).of(path)?;
            if len == 0 {
                return Err(changed()).of(path);
            }
            self.to.write_all(&self.buffer[..len]).map_err(Error::Write)?;
            at += len as u64;
        }
        Ok(())
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was read; take a snapshot and export that")
}

fn said<'a>(found: &Metadata, path: &'a [u8], kind: EntryType) -> Said<'a> {
    let rdev = found.rdev();
    Said {
        path,
        kind,
        link: None,
        mode: found.permissions().mode(),
        uid: found.uid(),
        gid: found.gid(),
        device: (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
        mtime: found.modified().into(),
        size: 0,
        real_size: None,
        xattrs: &[],
    }
}

/// Names and values in the order of the names.
fn xattrs(dir: &Dir, name: &OsStr) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = dir.xattrs(name)?;
    names.sort_unstable();
    let value = |of: std::ffi::OsString| Ok((of.as_bytes().to_vec(), dir.xattr(name, &of)?));
    names.into_iter().map(value).collect()
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

fn holes(file: &File, len: u64) -> io::Result<Holes> {
    let mut holes = Holes::default();
    let mut text = 0;
    let mut at = 0;
    while let Some((start, end)) = data_after(file, at, len)? {
        holes.segments += 1;
        holes.stored += end - start;
        text += (line(start).len() + line(end - start).len()) as u64;
        at = end;
    }
    holes.ends_in_hole = at < len;
    if holes.ends_in_hole {
        text += (line(len).len() + line(0).len()) as u64;
    }
    text += line(holes.segments + u64::from(holes.ends_in_hole)).len() as u64;
    holes.map = text.next_multiple_of(BLOCK);
    Ok(holes)
}
