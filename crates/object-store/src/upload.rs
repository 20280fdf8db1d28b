//! An object that comes in parts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use blocking::unblock;
use holdfast::File;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::error::{NAME, of_object};
use crate::inner::Inner;
use crate::publish::Target;

/// A file without a name, which a crash or a drop leaves nothing of.
pub(crate) struct Upload {
    store: Arc<Inner>,
    location: Path,
    /// `None`: it was completed or aborted.
    file: Option<Arc<File>>,
    /// Where the next part begins.
    end: u64,
    /// Bytes of the parts that are written.
    written: Arc<AtomicU64>,
}

impl Upload {
    pub(crate) fn new(store: Arc<Inner>, location: Path, file: File) -> Upload {
        Upload { store, location, file: Some(Arc::new(file)), end: 0, written: Arc::default() }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload({}, {} bytes)", self.location, self.end)
    }
}

fn is_over(location: &Path) -> Error {
    let why = format!("{location}: the upload was completed or aborted before");
    Error::Generic { store: NAME, source: why.into() }
}

/// Writes what a payload has, from an offset on.
pub(crate) fn write(file: &File, payload: &PutPayload, offset: u64) -> std::io::Result<()> {
    let mut at = offset;
    for bytes in payload {
        file.write_all_at(bytes, at)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, payload: PutPayload) -> UploadPart {
        let offset = self.end;
        let len = payload.content_length() as u64;
        self.end += len;
        let (file, location, written) =
            (self.file.clone(), self.location.clone(), self.written.clone());
        let write_part = move || {
            let file = file.ok_or_else(|| is_over(&location))?;
            write(&file, &payload, offset).map_err(|error| of_object(&location, error))?;
            // The file goes first: `complete` wants to have it alone.
            drop(file);
            written.fetch_add(len, Ordering::Release);
            Ok(())
        };
        // `unblock` begins at once, a future when it is polled first: a part that is dropped
        // before is never written, whichever thread is faster.
        Box::pin(async { unblock(write_part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let file = self.file.as_ref().ok_or_else(|| is_over(&self.location))?;
        if self.written.load(Ordering::Acquire) != self.end || Arc::strong_count(file) > 1 {
            let why = format!("{}: not all parts have been written", self.location);
            return Err(Error::Generic { store: NAME, source: why.into() });
        }
        let (store, location, file) = (self.store.clone(), self.location.clone(), file.clone());
        let made = unblock(move || store.publish(&file, &location, Target::Any)).await?;
        self.file = None;
        Ok(made)
    }

    async fn abort(&mut self) -> Result<()> {
        let file = self.file.take();
        // Its space becomes free.
        unblock(move || drop(file)).await;
        Ok(())
    }
}
