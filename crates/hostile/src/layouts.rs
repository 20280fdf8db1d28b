//! Image layouts: their layers are imported whole, or refused, and then nothing has changed (P10).
//!
//! The bytes are a tar archive of a layout as it is; and they are one layer, compressed in each way, of a layout whose other parts are
//! honest, so that what stands behind the digests is judged as well.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::Volume;
use holdfast_archive::oci::{Layout, NewLayout, Packed};
use holdfast_archive::{Form, import_all};

/// A file that goes when this does.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Temporary {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdfast-layout-{}-{number}.tar", std::process::id());
        Temporary(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A layout of this layer, said to be compressed so, as one file.
fn made(layer: &[u8], packed: Packed) -> Temporary {
    let to = Temporary::new();
    let mut layout = NewLayout::begin(&to.0).expect("nobody has the name");
    let mut blob = layout.layer().expect("the host has room");
    blob.write_all(layer).expect("the host has room");
    layout.add_packed(blob, packed, None, "by hand").expect("the host has room");
    layout.end(Some("amd64"), None).expect("the host has room");
    to
}

/// An archive of a layout, and what begins as compressed layers do.
pub fn seeds() -> Vec<Vec<u8>> {
    let layout = made(&crate::archives::seeds().swap_remove(1), Packed::Not);
    let zstd = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 3, 0, 0, 0, 25, 0, 0][..], b"abc"].concat();
    let gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
    vec![std::fs::read(&layout.0).expect("it was made"), zstd, gzip]
}

/// Imports them.
pub fn layout(data: &[u8]) {
    let whole = Temporary::new();
    std::fs::write(&whole.0, data).expect("the host has room");
    imported(&whole.0);
    for packed in [Packed::Not, Packed::Gzip, Packed::Zstd] {
        imported(&made(data, packed).0);
    }
}

fn imported(path: &Path) {
    let volume = Volume::in_memory(16 << 20).expect("there is memory");
    let done = (|| {
        let layout = Layout::open(path)?;
        let image = layout.image(None)?;
        let layers = image.layers().map(|layer| (layer, None));
        import_all(
            &volume.branch_here().expect("it is whole"),
            Form::Layer,
            "importing",
            layers,
            &mut |_, _| {},
        )
    })();
    if done.is_err() {
        assert_eq!(volume.read_dir("/").expect("it is whole").count(), 0, "P12: a part is there");
    }
    assert_eq!(volume.branches().expect("it is whole").len(), 1, "a fork is left after {done:?}");
    volume.close().expect("it is whole");
}
