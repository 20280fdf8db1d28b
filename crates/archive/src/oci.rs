//! Image layouts of OCI: a directory, or a tar archive of one, with an index, manifests and layers that are named by their sums.
//!
//! ```text
//!  index.json ─▶ manifest ─▶ layers, the lowest first      each by its digest: its bytes are summed while they are read
//!                        └─▶ config ─▶ the sums of the layers behind their compression
//! ```
//!
//! Always true: nothing of a blob counts before its digest was compared. The reader of a layer fails at its end if it does not fit, and an
//! import is there as a whole or not at all.

mod make;
mod zstd;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

pub use self::make::{NewBlob, NewLayout};
use self::zstd::Zstd;
use crate::Error;
use crate::read::{Kind, Members};

/// Bytes of an index, manifest or config that are read.
const DOCUMENT_MAX: u64 = 4 << 20;
/// Blobs that are remembered of an archive.
const BLOBS_MAX: usize = 1 << 16;
/// Indexes that name one another.
const DEPTH_MAX: usize = 4;
/// Layers of one image.
const LAYERS_MAX: usize = 1024;

type Result<T> = std::result::Result<T, Error>;

/// An image layout.
#[derive(Debug)]
pub struct Layout {
    path: PathBuf,
    /// Of an archive: where each file lies in it, and how long it is.
    files: Option<BTreeMap<String, (u64, u64)>>,
}

/// An image of a layout.
#[derive(Debug)]
pub struct Image<'a> {
    layout: &'a Layout,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    blob: Descriptor,
    packed: Packed,
    /// The digest behind the compression.
    diff_id: String,
}

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// It is not.
    Not,
    /// With gzip.
    Gzip,
    /// With zstd.
    Zstd,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

fn foreign<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Foreign(why.into()))
}

/// The 64 digits of a digest: nothing else becomes part of a path.
fn digits(digest: &str) -> Option<&str> {
    let digits = digest.strip_prefix("sha256:")?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == 64 && digits.bytes().all(is_hex)).then_some(digits)
}

impl Layout {
    /// Opens the directory of a layout, or a tar archive of one, which is read once from its begin to its end.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is none.
    pub fn open(path: &Path) -> Result<Layout> {
        let of = |source| Error::Volume { what: path.display().to_string(), source };
        let is_directory = path.metadata().map_err(of)?.is_dir();
        let files = match is_directory {
            true => None,
            false => Some(listed(BufReader::new(File::open(path).map_err(of)?))?),
        };
        let layout = Layout { path: path.into(), files };
        match layout.find("oci-layout") {
            Ok(_) => Ok(layout),
            Err(_) => {
                foreign(format!("{} is no image layout: it has no file oci-layout", path.display()))
            }
        }
    }

    /// The image of this name, as `org.opencontainers.image.ref.name` says it; without a name the only one, or of several the one
    /// for this machine.
    ///
    /// # Errors
    /// [`Error::Foreign`]: a document makes no sense, a digest does not fit, or it is not clear which image is meant; then
    /// the sentence names those that there are.
    pub fn image(&self, name: Option<&str>) -> Result<Image<'_>> {
        let index = self.document("index.json", None)?;
        let index: Index = parsed("index.json", &index)?;
        let mut found = Vec::new();
        for descriptor in index.manifests {
            if name.is_none_or(|name| ref_name(&descriptor) == Some(name)) {
                self.manifests(descriptor, 0, &mut found)?;
            }
        }
        let of_this = |of: &Descriptor| of.platform.as_ref().is_some_and(Platform::is_here);
        if found.len() > 1 && found.iter().filter(|of| of_this(of)).count() == 1 {
            found.retain(of_this);
        }
        match &found[..] {
            [one] => self.of_manifest(one),
            [] => foreign(match name {
                Some(name) => format!("{} has no image {name}", self.path.display()),
                None => format!("{} has no image", self.path.display()),
            }),
            several => {
                let list: Vec<String> = several.iter().map(called).collect();
                foreign(format!("{} has several images: {}", self.path.display(), list.join(", ")))
            }
        }
    }

    /// The manifests that a descriptor leads to.
    fn manifests(&self, of: Descriptor, depth: usize, found: &mut Vec<Descriptor>) -> Result<()> {
        let is_index = of.media_type.ends_with(".index.v1+json")
            || of.media_type.ends_with(".manifest.list.v2+json");
        if !is_index {
            // Builders put what they know of a build beside the image, for no platform.
            if of.platform.as_ref().is_none_or(|of| of.os != "unknown") {
                found.push(of);
            }
            return Ok(());
        }
        if depth >= DEPTH_MAX || found.len() > LAYERS_MAX {
            return foreign("the indexes of the layout lead to one another");
        }
        let (name, bytes) = (ref_name(&of).map(str::to_owned), self.blob_document(&of)?);
        let index: Index = parsed(&of.digest, &bytes)?;
        for mut below in index.manifests {
            if let (Some(name), None) = (&name, ref_name(&below)) {
                let annotations = below.annotations.get_or_insert_default();
                annotations.insert(REF_NAME.into(), name.clone());
            }
            self.manifests(below, depth + 1, found)?;
        }
        Ok(())
    }

    fn of_manifest(&self, of: &Descriptor) -> Result<Image<'_>> {
        let manifest: Manifest = parsed(&of.digest, &self.blob_document(of)?)?;
        let config: Config =
            parsed(&manifest.config.digest, &self.blob_document(&manifest.config)?)?;
        let diff_ids = config.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() || diff_ids.len() > LAYERS_MAX {
            return foreign(format!(
                "the manifest {} has {} layers, and its config tells of {}",
                of.digest,
                manifest.layers.len(),
                diff_ids.len()
            ));
        }
        let mut layers = Vec::new();
        for (blob, diff_id) in manifest.layers.into_iter().zip(diff_ids) {
            let packed = match blob.media_type.as_str() {
                kind if kind.ends_with("+gzip") || kind.ends_with(".tar.gzip") => Packed::Gzip,
                kind if kind.ends_with("+zstd") || kind.ends_with(".tar.zstd") => Packed::Zstd,
                kind if kind.ends_with(".tar") => Packed::Not,
                kind => {
                    return foreign(format!(
                        "the layer {} is of type {kind}; tar, and tar with gzip or zstd, can be read",
                        blob.digest
                    ));
                }
            };
            if digits(&diff_id).is_none() {
                return foreign(format!("the digest {diff_id:?} is not one of sha256"));
            }
            self.find_blob(&blob)?;
            layers.push(Layer { blob, packed, diff_id });
        }
        Ok(Image { layout: self, layers })
    }

    /// Where a file of the layout is: in an archive the byte, else 0, and its size.
    fn find(&self, name: &str) -> io::Result<(u64, u64)> {
        match &self.files {
            Some(files) => files.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into()),
            None => {
                let found = self.path.join(name).metadata()?;
                match found.is_file() {
                    true => Ok((0, found.len())),
                    false => Err(io::Error::new(ErrorKind::InvalidInput, "it is no file")),
                }
            }
        }
    }

    fn find_blob(&self, of: &Descriptor) -> Result<(String, u64, u64)> {
        let Some(digits) = digits(&of.digest) else {
            return foreign(format!("the digest {:?} is not one of sha256", of.digest));
        };
        let name = format!("blobs/sha256/{digits}");
        let missing =
            |source| Error::Volume { what: format!("{}: {name}", self.path.display()), source };
        let (at, len) = self.find(&name).map_err(missing)?;
        match len == of.size {
            true => Ok((name, at, len)),
            false => foreign(format!("{name} has {len} bytes, and {} are wanted", of.size)),
        }
    }

    fn open_at(&self, name: &str, at: u64, len: u64) -> io::Result<io::Take<File>> {
        let mut file = match &self.files {
            Some(_) => File::open(&self.path)?,
            None => File::open(self.path.join(name))?,
        };
        file.seek(SeekFrom::Start(at))?;
        Ok(file.take(len))
    }

    /// All of a small file, which has this digest if one is given.
    fn document(&self, name: &str, digest: Option<&str>) -> Result<Vec<u8>> {
        let of =
            |source| Error::Volume { what: format!("{}: {name}", self.path.display()), source };
        let (at, len) = self.find(name).map_err(of)?;
        if len > DOCUMENT_MAX {
            return foreign(format!("{name} is longer than 4 MiB"));
        }
        let mut bytes = Vec::new();
        let mut from = self.open_at(name, at, len).map_err(of)?;
        match digest {
            None => from.read_to_end(&mut bytes),
            Some(digest) => Summed::new(from, digest).read_to_end(&mut bytes),
        }
        .map_err(of)?;
        Ok(bytes)
    }

    fn blob_document(&self, of: &Descriptor) -> Result<Vec<u8>> {
        let (name, ..) = self.find_blob(of)?;
        self.document(&name, Some(&of.digest))
    }
}

impl Image<'_> {
    /// How many layers it has.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Each layer as a tar archive, the lowest first, to be given to [`import_all`](crate::import_all). One whose bytes are not those of its
    /// digests fails at its end at the latest.
    pub fn layers(&self) -> impl Iterator<Item = Box<dyn Read>> {
        self.layers.iter().map(|layer| -> Box<dyn Read> {
            match self.open(layer) {
                Ok(opened) => opened,
                Err(error) => Box::new(Broken(Some(error))),
            }
        })
    }

    fn open(&self, layer: &Layer) -> io::Result<Box<dyn Read>> {
        let found = self.layout.find_blob(&layer.blob).map_err(io::Error::other)?;
        let (name, at, len) = found;
        let file = self.layout.open_at(&name, at, len)?;
        let blob = Summed::new(BufReader::with_capacity(1 << 18, file), &layer.blob.digest);
        let diff_id = &layer.diff_id;
        Ok(match layer.packed {
            Packed::Gzip => Box::new(Summed::new(MultiGzDecoder::new(blob), diff_id)),
            Packed::Zstd => Box::new(Summed::new(Zstd::new(BufReader::new(blob)), diff_id)),
            Packed::Not => Box::new(Summed::new(blob, diff_id)),
        })
    }
}

/// What of a layer cannot be opened.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.take().unwrap_or_else(|| ErrorKind::Other.into()))
    }
}

/// Bytes that have a digest: the end comes only if it fits.
struct Summed<R> {
    from: R,
    sum: Sha256,
    digest: String,
    is_judged: bool,
}

impl<R> Summed<R> {
    fn new(from: R, digest: &str) -> Summed<R> {
        Summed { from, sum: Sha256::new(), digest: digest.into(), is_judged: false }
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(into)?;
        self.sum.update(into.get(..len).unwrap_or_default());
        if len == 0 && !into.is_empty() && !self.is_judged {
            let sum = std::mem::take(&mut self.sum).finalize();
            let found: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            if digits(&self.digest) != Some(found.as_str()) {
                let why = format!("{} is damaged: its bytes have the digest {found}", self.digest);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            self.is_judged = true;
        }
        Ok(len)
    }
}

const REF_NAME: &str = "org.opencontainers.image.ref.name";

fn ref_name(of: &Descriptor) -> Option<&str> {
    of.annotations.as_ref()?.get(REF_NAME).map(String::as_str)
}

/// What people call an image, or its digest.
fn called(of: &Descriptor) -> String {
    let name = ref_name(of).unwrap_or(&of.digest);
    match &of.platform {
        Some(Platform { os, architecture }) => format!("{name} ({os}/{architecture})"),
        None => name.to_owned(),
    }
}

impl Platform {
    /// Whether it is that of this machine, in the words of Go.
    fn is_here(&self) -> bool {
        self.os == "linux" && self.architecture == architecture()
    }
}

/// This machine, in the words of Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn parsed<'a, T: Deserialize<'a>>(name: &str, bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Foreign(format!("{name} makes no sense: {error}")))
}

/// The files of an archive that may be those of a layout.
fn listed(from: impl Read) -> Result<BTreeMap<String, (u64, u64)>> {
    let mut members = Members::new(from);
    let mut files = BTreeMap::new();
    while let Some(member) = members.next()? {
        let Ok(name) = String::from_utf8(member.name) else { continue };
        let name = name.trim_start_matches("./").to_owned();
        let is_one = matches!(name.as_str(), "oci-layout" | "index.json")
            || name.strip_prefix("blobs/sha256/").is_some_and(|it| it.len() == 64);
        if is_one && member.kind == Kind::File && member.segments.is_none() {
            files.insert(name, (members.offset(), member.len));
        }
        if files.len() > BLOBS_MAX {
            return foreign("the archive has too many blobs");
        }
    }
    Ok(files)
}
