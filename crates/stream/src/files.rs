//! The files of a fork, in which records are obeyed.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast::FileSystem;
use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileType, FsError, OpenFile, SetAttr};

use crate::error::Doing;
use crate::flags::Flags;
use crate::record::ROOT;
use crate::{Result, StreamError};

/// Names that are removed at once.
const PORTION: usize = 256;

/// A file that is spoken of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) inode: InodeNo,
    pub(crate) file_type: FileType,
}

/// The directory of a fork for what has no place yet, or none any more.
#[derive(Clone, Debug)]
pub(crate) struct Parking {
    pub(crate) inode: InodeNo,
    /// Its name in the root.
    pub(crate) name: Vec<u8>,
}

/// The files of a fork, and what is known of them while records come.
pub(crate) struct Files {
    pub(crate) fs: Arc<FileSystem>,
    /// What the records continue, which is looked at only.
    pub(crate) base: Option<Arc<FileSystem>>,
    /// What the fork began with, if that is not the base: others have changed that as well.
    pub(crate) theirs: Option<Arc<FileSystem>>,
    /// The flags of both, then.
    pub(crate) flags: Option<Flags>,
    pub(crate) caller: Caller,
    pub(crate) parking: Parking,
    pub(crate) table: HashMap<u64, Entry>,
    /// The file that was written last.
    pub(crate) open: Option<Arc<OpenFile>>,
    /// What the root directory is in the end.
    pub(crate) root: SetAttr,
    pub(crate) data_bytes: u64,
    pub(crate) files: u64,
    /// A record was obeyed in part, perhaps.
    pub(crate) is_broken: bool,
}

impl Files {
    /// Nothing was obeyed yet.
    pub(crate) fn new(
        fs: Arc<FileSystem>,
        base: Option<Arc<FileSystem>>,
        parking: Parking,
        root: SetAttr,
    ) -> Files {
        let entry = Entry { inode: InodeNo::ROOT, file_type: FileType::Directory };
        Files {
            fs,
            base,
            theirs: None,
            flags: None,
            caller: Caller::root(),
            parking,
            table: HashMap::from([(ROOT, entry)]),
            open: None,
            root,
            data_bytes: 0,
            files: 0,
            is_broken: false,
        }
    }

    /// What is still parked is gone, and the directory for it.
    pub(crate) fn leave_parking(&mut self) -> Result<()> {
        self.open = None;
        let (fs, caller, parking) = (&self.fs, &self.caller, self.parking.inode);
        let what = || "what is parked".to_string();
        loop {
            let mut names = Vec::new();
            fs.readdir(parking, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.file_type));
                }
                names.len() < PORTION
            })
            .doing(what)?;
            if names.is_empty() {
                break;
            }
            for (name, file_type) in names {
                let done = match file_type {
                    FileType::Directory => fs.rmdir(caller, parking, &name),
                    _ => fs.unlink(caller, parking, &name),
                };
                match done {
                    Err(FsError::NotEmpty) => {
                        return StreamError::refused(
                            "the stream removes a directory and leaves names in it",
                        );
                    }
                    done => done.doing(what)?,
                }
            }
        }
        fs.rmdir(caller, InodeNo::ROOT, &self.parking.name).doing(what)
    }

    /// The root becomes what it is in the end, and all flags.
    pub(crate) fn end_root(&self) -> Result<()> {
        let set = self.fs.setattr(&self.caller, InodeNo::ROOT, None, self.root);
        set.map(drop).doing(|| "the root directory".into())?;
        let put_back = self.flags.as_ref().map_or(Ok(()), |flags| flags.put_back(&self.fs));
        put_back.doing(|| "the flags of files".into())
    }
}

/// Makes the directory for what has no place, which inherits nothing that would come to all that is parked.
pub(crate) fn make_parking(volume: &holdfast::Volume, name: String) -> std::io::Result<Parking> {
    let path = format!("/{name}");
    volume.create_dir_with_mode(&path, 0o700)?;
    for attribute in volume.xattrs(&path)? {
        volume.remove_xattr(&path, &*attribute.to_string_lossy())?;
    }
    let inode = InodeNo(volume.metadata(&path)?.ino());
    Ok(Parking { inode, name: name.into_bytes() })
}
