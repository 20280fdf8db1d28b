//! Image layouts: their layers become snapshots, or an error says why not, and nothing has changed.

use std::io::{Read, Write};
use std::path::Path;

use holdfast::Volume;
use holdfast_archive::{Error, Form, export, export_difference, import_all, oci};
use sha2::{Digest, Sha256};

use crate::common::assert_same;

fn digest(bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    format!("sha256:{}", sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn put(dir: &Path, bytes: &[u8]) -> String {
    let digest = digest(bytes);
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(&digest[7..]), bytes).unwrap();
    digest
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn descriptor(kind: &str, digest: &str, size: usize, more: &str) -> String {
    format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":{size}{more}}}"#)
}

/// A volume with two snapshots, as an image of two layers: the first compressed, the second not.
struct Made {
    dir: tempfile::TempDir,
    volume: Volume,
    layers: [Vec<u8>; 2],
    manifest: String,
}

fn made() -> Made {
    let volume = Volume::in_memory(64 << 20).unwrap();
    volume.create_dir("/etc").unwrap();
    volume.write("/etc/name", vec![b'n'; 100_000]).unwrap();
    volume.write("/gone", b"gone").unwrap();
    let main = volume.branch("main").unwrap();
    let first = main.snapshot("first").unwrap();
    volume.remove_file("/gone").unwrap();
    volume.write("/app", b"app").unwrap();
    let second = main.snapshot("second").unwrap();
    let (old, new) = (first.open().unwrap(), second.open().unwrap());
    let mut layers = [Vec::new(), Vec::new()];
    export(&old, Form::Layer, usize::MAX, &mut layers[0]).unwrap();
    export_difference(&old, &new, first.diff(&second).unwrap(), usize::MAX, &mut layers[1])
        .unwrap();
    old.close().unwrap();
    new.close().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut made = Made { dir, volume, layers, manifest: String::new() };
    made.manifest = made.manifest_with(&digest(&made.layers[0]));
    made.index(&[made.manifest.clone()]);
    made
}

impl Made {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes blobs and a manifest, with this digest of the first layer behind its compression. Returns its descriptor.
    fn manifest_with(&self, diff_id: &str) -> String {
        const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
        let (first, second) = (gzip(&self.layers[0]), self.layers[1].clone());
        let layers = [(format!("{LAYER}+gzip"), first), (LAYER.into(), second)]
            .map(|(kind, of)| descriptor(&kind, &put(self.path(), &of), of.len(), ""));
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["{diff_id}","{}"]}}}}"#,
            digest(&self.layers[1])
        );
        let config = descriptor(
            "application/vnd.oci.image.config.v1+json",
            &put(self.path(), config.as_bytes()),
            config.len(),
            "",
        );
        let manifest =
            format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, layers.join(","));
        let kind = "application/vnd.oci.image.manifest.v1+json";
        descriptor(kind, &put(self.path(), manifest.as_bytes()), manifest.len(), "")
    }

    fn index(&self, manifests: &[String]) {
        let path = self.path();
        std::fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, manifests.join(","));
        std::fs::write(path.join("index.json"), index).unwrap();
    }
}

/// With these words about it.
fn named(manifest: &str, more: &str) -> String {
    format!("{}{more}}}", manifest.strip_suffix('}').unwrap())
}

fn imported(layout: &Path, name: Option<&str>) -> Result<Volume, Error> {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let done = (|| {
        let layout = oci::Layout::open(layout)?;
        let image = layout.image(name)?;
        let names = (1..).map(|at| Some(format!("layer-{at}")));
        let layers = image.layers().zip(names);
        import_all(&volume.branch_here().unwrap(), Form::Layer, "importing", layers, &mut |_, _| {})
    })();
    let main = volume.branch("main").unwrap();
    assert_eq!(volume.branches().unwrap().len(), 1, "{done:?}");
    match done {
        Ok(_) => Ok(volume),
        Err(error) => {
            assert_eq!(volume.read_dir("/").unwrap().count(), 0, "{error}");
            assert!(main.snapshots().unwrap().is_empty(), "{error}");
            Err(error)
        }
    }
}

fn expect_both_layers(made: &Made, found: &Volume, what: &str) {
    let main = found.branch("main").unwrap();
    for (ours, theirs) in [("layer-1", "first"), ("layer-2", "second")] {
        let found = main.snapshot_named(ours).unwrap().open().unwrap();
        let wanted = made.volume.branch("main").unwrap().snapshot_named(theirs).unwrap();
        let wanted = wanted.open().unwrap();
        assert_same(&found, &wanted, false, &format!("{what}, {ours}"));
        found.close().unwrap();
        wanted.close().unwrap();
    }
}

#[test]
fn the_layers_of_a_layout_become_snapshots() {
    let made = made();
    expect_both_layers(&made, &imported(made.path(), None).unwrap(), "a directory");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut archive = tar::Builder::new(file.reopen().unwrap());
    archive.append_dir_all(".", made.path()).unwrap();
    archive.finish().unwrap();
    expect_both_layers(&made, &imported(file.path(), None).unwrap(), "an archive");
}

#[test]
fn of_several_images_one_is_chosen_by_its_name_or_its_platform() {
    let made = made();
    let name =
        |name: &str| format!(r#","annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#);
    let platform =
        |os: &str, of: &str| format!(r#","platform":{{"os":"{os}","architecture":"{of}"}}"#);
    let [one, other] = ["one", "other"].map(|it| named(&made.manifest, &name(it)));
    made.index(&[one, other]);
    let error = imported(made.path(), None).unwrap_err().to_string();
    assert!(error.contains("several images: one, other"), "{error}");
    expect_both_layers(&made, &imported(made.path(), Some("other")).unwrap(), "by name");
    let error = imported(made.path(), Some("third")).unwrap_err().to_string();
    assert!(error.contains("no image third"), "{error}");
    // An index below, with what a builder says of the build, and another machine's.
    let here = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let below = [("unknown", "unknown"), ("linux", "vax"), ("linux", here)];
    let below = below.map(|(os, of)| named(&made.manifest, &platform(os, of)));
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, below.join(","));
    let kind = "application/vnd.oci.image.index.v1+json";
    let at = put(made.path(), index.as_bytes());
    made.index(&[descriptor(kind, &at, index.len(), &name("both"))]);
    expect_both_layers(&made, &imported(made.path(), None).unwrap(), "by platform");
    expect_both_layers(&made, &imported(made.path(), Some("both")).unwrap(), "by both");
}

#[test]
fn what_does_not_fit_its_digest_is_refused() {
    let made = made();
    let refused = |words: &str| {
        let error = imported(made.path(), None).unwrap_err().to_string();
        assert!(error.contains(words), "{error} should say {words}");
    };
    // Each blob, one byte of it.
    let blobs = made.path().join("blobs/sha256");
    for blob in std::fs::read_dir(&blobs).unwrap() {
        let blob = blob.unwrap().path();
        let bytes = std::fs::read(&blob).unwrap();
        let mut damaged = bytes.clone();
        // In the padding of the layer that is not compressed nothing else tells it.
        *damaged.last_mut().unwrap() ^= 1;
        std::fs::write(&blob, &damaged).unwrap();
        imported(made.path(), None).unwrap_err();
        std::fs::write(&blob, &bytes[..bytes.len() - 1]).unwrap();
        refused("are wanted");
        std::fs::write(&blob, &bytes).unwrap();
    }
    let wrong = made.manifest_with(&digest(b"another layer"));
    made.index(&[wrong]);
    refused("is damaged");
    let out = descriptor("application/vnd.oci.image.manifest.v1+json", "sha256:../../x", 1, "");
    made.index(&[out]);
    refused("not one of sha256");
    made.index(&[]);
    refused("no image");
    std::fs::write(made.path().join("index.json"), b"{").unwrap();
    refused("makes no sense");
    std::fs::remove_file(made.path().join("oci-layout")).unwrap();
    refused("no image layout");
    // What a reader gets of a layer that is read alone.
    let mut nothing = Vec::new();
    assert!(std::io::empty().read_to_end(&mut nothing).is_ok());
}

/// A layout that is made of snapshots, as a directory and as an archive, is read back to the bit, and is the same each time.
#[test]
fn what_is_made_is_read_back_and_always_the_same() {
    let made = made();
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let to = dir.path().join(name);
        let mut layout = oci::NewLayout::begin(&to).unwrap();
        for (at, bytes) in made.layers.iter().enumerate() {
            let mut layer = layout.layer().unwrap();
            layer.write_all(bytes).unwrap();
            layout.add(layer, &format!("layer {at}")).unwrap();
        }
        let digest = layout.end(Some("amd64"), Some("app:1")).unwrap();
        (to, digest)
    };
    let (first, digest) = make("first");
    let (second, other) = make("second");
    let (archive, archived) = make("archive.tar");
    let (again, _) = make("again.tar");
    assert_eq!((&digest, &digest), (&other, &archived));
    let files = |of: &Path| -> Vec<(String, Vec<u8>)> {
        let blobs = std::fs::read_dir(of.join("blobs/sha256")).unwrap();
        let mut names: Vec<String> = blobs
            .map(|it| format!("blobs/sha256/{}", it.unwrap().file_name().to_str().unwrap()))
            .collect();
        names.extend(["index.json".into(), "oci-layout".into()]);
        names.sort();
        names
            .into_iter()
            .map(|name| (name.clone(), std::fs::read(of.join(name)).unwrap()))
            .collect()
    };
    assert_eq!(files(&first), files(&second));
    assert_eq!(files(&first).len(), 6, "two layers, a config, a manifest and two documents");
    assert_eq!(std::fs::read(&archive).unwrap(), std::fs::read(&again).unwrap());
    for layout in [&first, &archive] {
        for name in [None, Some("app:1")] {
            let volume = imported(layout, name).unwrap();
            expect_both_layers(&made, &volume, &layout.display().to_string());
            volume.close().unwrap();
        }
    }
    // Nothing is left beside.
    let mut names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["again.tar", "archive.tar", "first", "second"]);
    // What is there is not written over, and what is given up leaves nothing.
    for taken in [&first, &archive] {
        let error = oci::NewLayout::begin(taken).unwrap_err().to_string();
        assert!(error.contains("there is something already"), "{error}");
    }
    let given_up = oci::NewLayout::begin(&dir.path().join("third")).unwrap();
    given_up.layer().unwrap().write_all(b"some").unwrap();
    drop(given_up);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

/// Layers that zstd has compressed, in several frames, some of which are to be skipped.
#[test]
fn layers_of_zstd_are_read_and_damaged_ones_refused() {
    let made = made();
    let layer = &made.layers[0];
    // Frames of raw blocks, as the format has them: a program may read what no compressor of ours has made.
    let frame = |bytes: &[u8]| {
        let mut all = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
        all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        let mut parts = bytes.chunks(100_000).peekable();
        while let Some(part) = parts.next() {
            let head = (part.len() as u32) << 3 | u32::from(parts.peek().is_none());
            all.extend_from_slice(&head.to_le_bytes()[..3]);
            all.extend_from_slice(part);
        }
        all
    };
    let (half, rest) = layer.split_at(layer.len() / 2);
    let skipped = [&0x184d_2a50_u32.to_le_bytes()[..], &5_u32.to_le_bytes(), b"hello"].concat();
    let whole = [skipped.clone(), frame(half), skipped, frame(rest)].concat();
    let layout = |packed: &[u8]| {
        let kind = "application/vnd.oci.image.layer.v1.tar+zstd";
        let of = descriptor(kind, &put(made.path(), packed), packed.len(), "");
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            digest(layer)
        );
        let kind = "application/vnd.oci.image.config.v1+json";
        let config = descriptor(kind, &put(made.path(), config.as_bytes()), config.len(), "");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{of}]}}"#);
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = descriptor(kind, &put(made.path(), manifest.as_bytes()), manifest.len(), "");
        made.index(&[manifest]);
        imported(made.path(), None)
    };
    let volume = layout(&whole).unwrap();
    assert_eq!(volume.read("/etc/name").unwrap(), vec![b'n'; 100_000]);
    volume.close().unwrap();
    for at in [0, 5, 22, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(layout(&damaged).is_err(), "byte {at}");
        assert!(layout(&whole[..at]).is_err(), "cut at {at}");
    }
    // One that asks for more memory than any compressor does: a window of 2 GiB.
    let huge = [0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8, 1, 0, 0].to_vec();
    let error = layout(&huge).unwrap_err().to_string();
    assert!(error.contains("zstd"), "{error}");
}
