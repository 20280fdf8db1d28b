//! The bytes of an object.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use blocking::unblock;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use holdfast::{File, OpenOptions};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResult, GetResultPayload, ObjectMeta, Result};

use crate::attributes;
use crate::error::{NAME, of_object};
use crate::inner::Inner;
use crate::object::{describe, file_path};

/// What is read at once: the volume reads extents, and a thread is woken for each.
const PIECE_BYTES: u64 = 1 << 20;

impl Inner {
    /// Opens an object.
    pub(crate) fn open(&self, location: &Path) -> Result<(File, ObjectMeta)> {
        let path = file_path(location)?;
        let open = || {
            // Before it is opened: to open a FIFO would wait.
            if !self.root.symlink_metadata(path)?.is_file() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let file = self.root.open_with(path, &OpenOptions::new().read(true).follow(false))?;
            let found = file.metadata()?;
            Ok((file, describe(location.clone(), &found)))
        };
        open().map_err(|error| of_object(location, error))
    }

    pub(crate) fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.version.is_some() {
            let source = "a store in a volume has no versions of objects".into();
            return Err(Error::NotSupported { source });
        }
        let (file, meta) = self.open(location)?;
        options.check_preconditions(&meta)?;
        let range = match options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|why| Error::Generic { store: NAME, source: why.into() })?,
            None => 0..meta.size,
        };
        let attributes = attributes::get(&file).map_err(|error| of_object(location, error))?;
        let wanted = if options.head { 0..0 } else { range.clone() };
        let payload = GetResultPayload::Stream(bytes(file, location.clone(), wanted));
        Ok(GetResult { payload, meta, range, attributes, extensions: Default::default() })
    }

    pub(crate) fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (file, meta) = self.open(location)?;
        let get = |range: &Range<u64>| {
            if range.start >= meta.size || range.start >= range.end {
                let (Range { start, end }, size) = (range, meta.size);
                let why = format!("{location} has {size} bytes, and none from {start} to {end}");
                return Err(Error::Generic { store: NAME, source: why.into() });
            }
            read(&file, range.start..range.end.min(meta.size))
                .map_err(|error| of_object(location, error))
        };
        ranges.iter().map(get).collect()
    }
}

/// The bytes of a range, piece by piece.
fn bytes(file: File, location: Path, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let file = Arc::new(file);
    let pieces = (range.start..range.end).step_by(PIECE_BYTES as usize);
    let piece = move |start: u64| {
        let (file, location, end) =
            (file.clone(), location.clone(), range.end.min(start + PIECE_BYTES));
        unblock(move || read(&file, start..end).map_err(|error| of_object(&location, error)))
    };
    stream::iter(pieces).then(piece).boxed()
}

/// The bytes of a range that the file has.
fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let len = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}
