//! Image layouts are made: blobs first, each named by its digest when it is whole, then the documents that name them.
//!
//! All of it is made under another name beside its place and gets that in one step, so it is there whole or not at all. It is made in a
//! directory that is held open and closed to others until then: other users' changes of names around it lead nothing elsewhere. The same layers give
//! the same bytes: no document has a time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use holdfast_base::prng;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Packed, REF_NAME, architecture};
use crate::Error;

type Result<T> = std::result::Result<T, Error>;

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BLOBS: &str = "blobs/sha256";
/// Bytes that are written at once.
const BUFFER: usize = 1 << 18;

/// An image layout that is being made.
#[derive(Debug)]
pub struct NewLayout {
    /// Where it comes to: the directory, and its name there.
    to: PathBuf,
    above: OwnedFd,
    name: OsString,
    /// Where it is made: a directory, which goes when this is dropped, and its name there.
    dir: OwnedFd,
    made: String,
    /// It is there, whole.
    is_there: bool,
    is_archive: bool,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    blob: Descriptor,
    /// The digest behind the compression.
    diff_id: String,
    created_by: String,
}

/// A blob that has no name yet. What is written to it is a layer, as [`export`](crate::export) writes it.
#[derive(Debug)]
pub struct NewBlob {
    to: BufWriter<File>,
    name: String,
    sum: Sha256,
    size: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct Config<'a> {
    architecture: &'a str,
    os: &'a str,
    rootfs: RootFs<'a>,
    history: Vec<History<'a>>,
}

#[derive(Serialize)]
struct RootFs<'a> {
    r#type: &'a str,
    diff_ids: Vec<&'a str>,
}

#[derive(Serialize)]
struct History<'a> {
    created_by: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u32,
    media_type: &'a str,
    config: Descriptor,
    layers: Vec<&'a Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    schema_version: u32,
    media_type: &'a str,
    manifests: [Descriptor; 1],
}

fn hex(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl NewLayout {
    /// Begins a layout that comes to `to`: a directory, or a tar archive of one if the name ends in `.tar`.
    ///
    /// # Errors
    /// There is something else than an empty directory; what the host says.
    pub fn begin(to: &Path) -> Result<NewLayout> {
        let of = |source| Error::Volume { what: to.display().to_string(), source };
        let is_archive = to.extension().is_some_and(|of| of == "tar");
        let name = to.file_name().ok_or_else(|| of(ErrorKind::InvalidInput.into()))?.to_owned();
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(CWD, above(to), how, Mode::empty());
        let above = above.map_err(|error| of(error.into()))?;
        if !is_free(&above, &name, is_archive).map_err(of)? {
            return Err(of(io::Error::new(ErrorKind::AlreadyExists, "there is something already")));
        }
        let made = format!(".holdfast-new-{:016x}", prng::entropy());
        let dir = make_own(&above, &made).map_err(of)?;
        let layers = Vec::new();
        let (to, is_there) = (to.into(), false);
        let layout = NewLayout { to, above, name, dir, made, is_there, is_archive, layers };
        for dir in ["blobs", BLOBS] {
            let mode = Mode::from_raw_mode(0o777);
            rustix::fs::mkdirat(&layout.dir, dir, mode).map_err(|error| layout.of(error.into()))?;
        }
        Ok(layout)
    }

    fn of(&self, source: io::Error) -> Error {
        Error::Volume { what: self.to.display().to_string(), source }
    }

    /// Begins the next layer, above those that were added.
    ///
    /// # Errors
    /// What the host says.
    pub fn layer(&self) -> Result<NewBlob> {
        NewBlob::begin(&self.dir).map_err(|error| self.of(error))
    }

    /// Adds a layer that is whole. `created_by` says to people where it comes from.
    ///
    /// # Errors
    /// What the host says.
    pub fn add(&mut self, layer: NewBlob, created_by: &str) -> Result<()> {
        self.add_packed(layer, Packed::Not, None, created_by)
    }

    /// As [`NewLayout::add`], for a layer that is compressed already, with its digest (`sha256:` and 64 digits) behind that; without
    /// one it is taken for one that is not.
    ///
    /// # Errors
    /// What the host says.
    pub fn add_packed(
        &mut self,
        layer: NewBlob,
        packed: Packed,
        diff_id: Option<&str>,
        created_by: &str,
    ) -> Result<()> {
        let kind = match packed {
            Packed::Not => LAYER,
            Packed::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Packed::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        };
        let blob = layer.end(&self.dir, kind).map_err(|error| self.of(error))?;
        let diff_id = diff_id.unwrap_or(&blob.digest).to_owned();
        self.layers.push(Layer { blob, diff_id, created_by: created_by.to_owned() });
        Ok(())
    }

    /// Ends the layout: an image of these layers for Linux on `machine`, in the words of Go, or on this one; with a name if one is given.
    /// Returns the digest of its manifest. It is there whole when this returns, and durable.
    ///
    /// # Errors
    /// What the host says; then there is nothing.
    pub fn end(mut self, machine: Option<&str>, name: Option<&str>) -> Result<String> {
        self.made(machine, name).map_err(|error| self.of(error))
    }

    fn made(&mut self, machine: Option<&str>, name: Option<&str>) -> io::Result<String> {
        let diff_ids = self.layers.iter().map(|layer| layer.diff_id.as_str()).collect();
        let config = Config {
            architecture: machine.unwrap_or_else(|| architecture()),
            os: "linux",
            rootfs: RootFs { r#type: "layers", diff_ids },
            history: self.layers.iter().map(|it| History { created_by: &it.created_by }).collect(),
        };
        let config = self.document(CONFIG, &config)?;
        let layers = self.layers.iter().map(|layer| &layer.blob).collect();
        let manifest = Manifest { schema_version: 2, media_type: MANIFEST, config, layers };
        let mut manifest = self.document(MANIFEST, &manifest)?;
        let digest = manifest.digest.clone();
        manifest.annotations.extend(name.map(|name| (REF_NAME, name.to_owned())));
        let index = Index { schema_version: 2, media_type: INDEX, manifests: [manifest] };
        self.file("index.json", &serde_json::to_vec(&index)?)?;
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        match self.is_archive {
            true => self.archived()?,
            false => {
                for dir in [BLOBS, "blobs", "."] {
                    open(&self.dir, dir)?.sync_all()?;
                }
                // Others may come in now, as the umask lets them.
                let mode = rustix::fs::statat(&self.dir, "blobs", AtFlags::empty())?.st_mode;
                rustix::fs::fchmod(&self.dir, Mode::from_raw_mode(mode))?;
                rustix::fs::renameat(&self.above, &self.made, &self.above, &self.name)?;
                self.is_there = true;
            }
        }
        open(&self.above, ".")?.sync_all()?;
        Ok(digest)
    }

    /// A document as a blob.
    fn document(&self, kind: &'static str, of: &impl Serialize) -> io::Result<Descriptor> {
        let mut blob = NewBlob::begin(&self.dir)?;
        blob.write_all(&serde_json::to_vec(of)?)?;
        blob.end(&self.dir, kind)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = create(&self.dir, name)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// All of it as one file, in an order that always is the same.
    fn archived(&self) -> io::Result<()> {
        let archive = create(&self.dir, "archive")?;
        let mut to = tar::Builder::new(BufWriter::with_capacity(BUFFER, archive));
        let header = |kind, size| {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(if kind == tar::EntryType::Directory { 0o755 } else { 0o644 });
            header.set_size(size);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header
        };
        let mut blobs = names(&self.dir, BLOBS)?;
        blobs.sort();
        for dir in ["blobs/", "blobs/sha256/"] {
            to.append_data(&mut header(tar::EntryType::Directory, 0), dir, io::empty())?;
        }
        let blobs = blobs.into_iter().map(|name| format!("{BLOBS}/{name}"));
        for name in blobs.chain(["index.json".into(), "oci-layout".into()]) {
            let file = open(&self.dir, &name)?;
            let size = file.metadata()?.len();
            to.append_data(&mut header(tar::EntryType::Regular, size), &name, file)?;
        }
        to.into_inner()?.into_inner().map_err(io::Error::other)?.sync_all()?;
        Ok(rustix::fs::renameat(&self.dir, "archive", &self.above, &self.name)?)
    }
}

/// What is not whole leaves nothing.
impl Drop for NewLayout {
    fn drop(&mut self) {
        if self.is_there {
            return;
        }
        for dir in [BLOBS, "blobs", "."] {
            for name in names(&self.dir, dir).unwrap_or_default() {
                let path = format!("{dir}/{name}");
                let _ = rustix::fs::unlinkat(&self.dir, &path, AtFlags::empty());
                let _ = rustix::fs::unlinkat(&self.dir, &path, AtFlags::REMOVEDIR);
            }
        }
        let _ = rustix::fs::unlinkat(&self.above, &self.made, AtFlags::REMOVEDIR);
    }
}

impl NewBlob {
    fn begin(dir: &OwnedFd) -> io::Result<NewBlob> {
        let name = format!("blob-{:016x}", prng::entropy());
        let to = BufWriter::with_capacity(BUFFER, create(dir, &name)?);
        Ok(NewBlob { to, name, sum: Sha256::new(), size: 0 })
    }

    /// It gets its name.
    fn end(self, dir: &OwnedFd, media_type: &'static str) -> io::Result<Descriptor> {
        let NewBlob { to, name, sum, size } = self;
        to.into_inner().map_err(io::Error::other)?.sync_all()?;
        let digits = hex(sum);
        rustix::fs::renameat(dir, name, dir, format!("{BLOBS}/{digits}"))?;
        let digest = format!("sha256:{digits}");
        Ok(Descriptor { media_type, digest, size, annotations: BTreeMap::new() })
    }
}

impl Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.to.write(bytes)?;
        self.sum.update(bytes.get(..len).unwrap_or_default());
        self.size = self.size.saturating_add(len as u64);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn above(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

/// Whether there is nothing, or an empty directory where one comes.
fn is_free(above: &OwnedFd, name: &OsString, is_archive: bool) -> io::Result<bool> {
    let found = match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(error) if io::Error::from(error).kind() == ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    let is_dir = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    Ok(is_dir && !is_archive && names(above, name)?.is_empty())
}

/// A directory for this user alone. Others may have put one in its place that is not empty.
fn make_own(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o700))?;
    let how = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(above, name, how, Mode::empty())?;
    match names(&dir, ".")?.is_empty() {
        true => Ok(dir),
        false => Err(io::Error::other("something else has come into its place meanwhile")),
    }
}

fn create(dir: impl AsFd, name: &str) -> io::Result<File> {
    let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, how, Mode::from_raw_mode(0o666))?.into())
}

fn open(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<File> {
    let how = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, how, Mode::empty())?.into())
}

/// Names in a directory.
fn names(dir: impl AsFd, name: impl rustix::path::Arg) -> io::Result<Vec<String>> {
    let entries = Dir::new(OwnedFd::from(open(dir, name)?))?;
    let names = entries.map(|it| Ok(it?.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<io::Result<Vec<String>>>()?;
    Ok(names.into_iter().filter(|name| !matches!(&**name, "." | "..")).collect())
}
