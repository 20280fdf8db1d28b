//! Archives and layers of images: imported whole, or refused, and then nothing has changed (P10).
//!
//! An archive is imported as it is, and once more with the checksums of its headers put right, so that what stands behind them is judged
//! as well; each as a tar archive and as a layer.

use std::sync::LazyLock;

use holdfast::{FileType, OpenOptions, XattrFlags};
use holdfast_archive::{Form, export, export_difference, import};

use crate::fresh::{copy_of, empty, ends_clean, open};
use crate::golden::pinned;

/// Bytes of a header, and what everything is filled up to.
const BLOCK: usize = 512;

/// A volume that archives are put into, and archives.
struct Golden {
    target: Vec<u8>,
    archives: Vec<Vec<u8>>,
}

static GOLDEN: LazyLock<Golden> = LazyLock::new(|| golden().expect("honest trees are exported"));

fn golden() -> std::io::Result<Golden> {
    let _pinned = pinned();
    let source = open(&empty(1)?)?;
    let main = source.branch("main")?;
    source.create_dir_all("/dir/below")?;
    source.write("/dir/file", vec![1; 3000])?;
    source.write("/dir/below/other", b"other")?;
    source.hard_link("/dir/file", "/link")?;
    source.symlink("dir", "/way")?;
    source.create_node("/pipe", FileType::Fifo, 0o644, 0)?;
    source.write(format!("/{}", "n".repeat(150)), b"")?;
    source.set_xattr("/dir", "user.name", b"value", XattrFlags::empty())?;
    let holes = OpenOptions::new().write(true).create(true).open(&source, "/holes")?;
    holes.write_all_at(b"end", 100_000)?;
    drop(holes);
    let first = main.snapshot("first")?;
    source.remove_dir_all("/dir/below")?;
    source.remove_file("/pipe")?;
    source.write("/way/file", vec![2; 100])?;
    source.create_dir("/dir/below")?;
    let second = main.snapshot("second")?;
    let (old, new) = (first.open()?, second.open()?);
    let mut archives = vec![Vec::new(), Vec::new()];
    let failed = std::io::Error::other::<holdfast_archive::Error>;
    export(&old, Form::Tar, usize::MAX, &mut archives[0]).map_err(failed)?;
    export_difference(&old, &new, first.diff(&second)?, usize::MAX, &mut archives[1])
        .map_err(failed)?;
    archives.push(by_hand());
    old.close()?;
    new.close()?;
    source.close()?;
    let target = empty(2)?;
    let volume = open(&target)?;
    volume.write("/before", b"as it was")?;
    volume.create_dir_all("/dir/old")?;
    volume.write("/dir/old/file", b"old")?;
    volume.close()?;
    // Each is taken: what is made of it later begins where something happens.
    for archive in &archives {
        let (_, volume) = copy_of(&target.to_image());
        import(&volume, Form::Layer, "importing", &archive[..]).map_err(failed)?;
        volume.close()?;
    }
    Ok(Golden { target: target.to_image(), archives })
}

/// What this project does not write: records for all members, long names as GNU tar has them, maps of holes of three kinds, a member
/// of each type, and whiteouts.
fn by_hand() -> Vec<u8> {
    let mut all = Vec::new();
    let mut member = |name: &str, kind: u8, link: &str, content: &[u8]| {
        let mut block = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| {
            if let Some(field) = block.get_mut(at..at + text.len()) {
                field.copy_from_slice(text);
            }
        };
        put(0, name.as_bytes());
        put(100, b"0000755\0");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, if kind == b'S' { b"ustar  \0" } else { b"ustar\x0000" });
        if kind == b'S' {
            put(386, format!("{:011o}\0{:011o}\0", 4096, content.len()).as_bytes());
            put(483, format!("{:011o}", 8192).as_bytes());
        }
        all.extend_from_slice(&block);
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(BLOCK), 0);
    };
    member("all", b'g', "", b"16 comment=text\n10 uid=77\n");
    member("name", b'L', "", b"dir/a-long-name\0");
    member("link", b'K', "", b"before\0");
    member("short", b'2', "", b"");
    member("hard", b'1', "before", b"");
    member("dir", b'5', "", b"");
    member("dir/old/.wh..wh..opq", b'0', "", b"");
    member(".wh.before", b'0', "", b"");
    member("device", b'3', "", b"");
    member("sparse", b'S', "", b"data");
    let map = b"22 GNU.sparse.major=0\n22 GNU.sparse.minor=1\n24 GNU.sparse.size=9000\n\
        22 GNU.sparse.map=5,4\n";
    member("map", b'x', "", map);
    member("mapped", b'0', "", b"data");
    member("acl", b'x', "", b"53 SCHILY.acl.access=user::rwx,group::r-x,other::r--\n");
    member("listed", b'7', "", b"");
    all.extend_from_slice(&[0; 2 * BLOCK]);
    repaired(&all)
}

/// An archive with the checksums of its headers put right, as far as it can be followed.
fn repaired(archive: &[u8]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    let mut at = 0_usize;
    while let Some(block) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<BLOCK>()) {
        if block.iter().all(|byte| *byte == 0) {
            break;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[124..136].iter().copied().take_while(u8::is_ascii_digit);
        let size = digits.fold(0_usize, |size, digit| {
            size.saturating_mul(8).saturating_add(usize::from(digit - b'0'))
        });
        let behind = size.checked_next_multiple_of(BLOCK).and_then(|size| size.checked_add(BLOCK));
        let Some(next) = behind.and_then(|behind| at.checked_add(behind)) else { break };
        at = next;
    }
    bytes
}

/// Archives as they are written.
pub fn seeds() -> Vec<Vec<u8>> {
    GOLDEN.archives.clone()
}

/// Imports an archive, and the same with its checksums put right, in each form.
pub fn archive(data: &[u8]) {
    let repaired = repaired(data);
    for form in [Form::Tar, Form::Layer] {
        into_a_volume(data, form);
        if repaired != data {
            into_a_volume(&repaired, form);
        }
    }
}

fn into_a_volume(bytes: &[u8], form: Form) {
    let golden = &*GOLDEN;
    let _pinned = pinned();
    let (device, volume) = copy_of(&golden.target);
    let done = import(&volume, form, "importing", bytes);
    let branches = volume.branches().expect("the volume is whole");
    assert_eq!(branches.len(), 1, "a fork is left after {done:?}");
    if let Err(error) = &done {
        let names = volume.read_dir("/").expect("it is whole").count();
        assert_eq!(names, 2, "P12: a part is there: {error}");
        for (path, content) in [("/before", &b"as it was"[..]), ("/dir/old/file", b"old")] {
            assert_eq!(volume.read(path).expect("it was there"), content, "P12: {error}");
        }
    }
    // What came in goes out, or is told: whatever names and sizes it has.
    if done.is_ok() {
        let _ = export(&volume, form, usize::MAX, Limited(64 << 20));
    }
    ends_clean(volume, &device, &done);
}

/// Takes so many bytes, and no more: a file may be longer than can be written.
struct Limited(usize);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => return Err(std::io::ErrorKind::StorageFull.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
