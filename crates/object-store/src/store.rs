//! The store, and what it is asked for.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use blocking::unblock;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use holdfast::{Dir, File, OpenOptions, Volume};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    TagSet,
};

use crate::error::of_object;
use crate::inner::Inner;
use crate::object::file_path;
use crate::publish::Target;
use crate::upload::{Upload, write};
use crate::{attributes, list};

/// Deletions of one stream that are under way at once: they share flushes.
const DELETIONS: usize = 16;

/// A volume, or one of its directories, as a store. Clones are one store.
#[derive(Clone, Debug)]
pub struct HoldfastStore {
    inner: Arc<Inner>,
}

impl HoldfastStore {
    /// All of a volume.
    pub fn new(volume: Arc<Volume>) -> HoldfastStore {
        let root = Dir::clone(&volume);
        HoldfastStore::of(Inner::new(volume, root, true))
    }

    /// A directory of a volume, which is made if it is not there.
    pub fn in_directory(
        volume: Arc<Volume>,
        path: impl AsRef<std::path::Path>,
    ) -> io::Result<HoldfastStore> {
        volume.create_dir_all(&path)?;
        let root = volume.open_dir(path)?;
        Ok(HoldfastStore::of(Inner::new(volume, root, true)))
    }

    /// Whether each change is durable when it returns. Default: true, as programs expect of a store. With `false` a crash takes
    /// at most what the volume's `commit` interval allows, from the end (P3, P11); [`Volume::sync`] makes all of it durable.
    pub fn durable(self, yes: bool) -> HoldfastStore {
        HoldfastStore::of(self.inner.with_durable(yes))
    }

    /// The volume that the objects are in.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.inner.volume
    }

    fn of(inner: Inner) -> HoldfastStore {
        HoldfastStore { inner: Arc::new(inner) }
    }

    /// Makes a call that blocks.
    async fn call<T: Send + 'static>(
        &self,
        location: &Path,
        call: impl FnOnce(&Arc<Inner>, Path) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (inner, location) = (self.inner.clone(), location.clone());
        unblock(move || call(&inner, location)).await
    }
}

impl Inner {
    /// A file without a name, with the attributes of an object.
    fn new_file(&self, location: &Path, attributes: &Attributes, tags: &TagSet) -> Result<File> {
        if !tags.encoded().is_empty() {
            let source = "a store in a volume has no tags; attributes are kept".into();
            return Err(Error::NotSupported { source });
        }
        let make = || {
            let file = self.root.tmpfile(".", &OpenOptions::new().read(true).write(true))?;
            attributes::set(&file, attributes)?;
            Ok(file)
        };
        make().map_err(|error| of_object(location, error))
    }

    fn put(&self, location: &Path, payload: &PutPayload, options: PutOptions) -> Result<PutResult> {
        let file = self.new_file(location, &options.attributes, &options.tags)?;
        write(&file, payload, 0).map_err(|error| of_object(location, error))?;
        self.publish(&file, location, options.mode.into())
    }

    fn copy(&self, from: &Path, to: &Path, target: Target) -> Result<()> {
        let (old, meta) = self.open(from)?;
        let kept = attributes::get(&old).map_err(|error| of_object(from, error))?;
        let new = self.new_file(to, &kept, &TagSet::default())?;
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < meta.size {
            let read = old.read_at(&mut buffer, at).map_err(|error| of_object(from, error))?;
            if read == 0 {
                break;
            }
            new.write_all_at(&buffer[..read], at).map_err(|error| of_object(to, error))?;
            at += read as u64;
        }
        self.publish(&new, to, target).map(drop)
    }
}

impl fmt::Display for HoldfastStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.inner.volume.info().map(|info| info.uuid).unwrap_or_default();
        write!(
            f,
            "HoldfastStore({:032x}, inode {})",
            u128::from_be_bytes(id),
            self.inner.root.ino()
        )
    }
}

#[async_trait]
impl ObjectStore for HoldfastStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.call(location, move |inner, location| inner.put(&location, &payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.call(location, move |inner, location| {
            file_path(&location)?;
            let file = inner.new_file(&location, &options.attributes, &options.tags)?;
            Ok(Box::new(Upload::new(inner.clone(), location, file)) as Box<dyn MultipartUpload>)
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.call(location, move |inner, location| inner.get(&location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let ranges = ranges.to_vec();
        self.call(location, move |inner, location| inner.get_ranges(&location, &ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = self.inner.clone();
        let delete = move |location: Result<Path>| {
            let inner = inner.clone();
            unblock(move || {
                let location = location?;
                inner.delete(&location)?;
                Ok(location)
            })
        };
        locations.map(delete).buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::list(self.inner.clone(), prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned();
        self.call(&Path::default(), move |inner, _| list::list_one(inner, prefix.as_ref())).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let to = to.clone();
        self.call(from, move |inner, from| inner.copy(&from, &to, options.mode.into())).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let to = to.clone();
        self.call(from, move |inner, from| inner.rename(&from, &to, options.target_mode.into()))
            .await
    }
}
