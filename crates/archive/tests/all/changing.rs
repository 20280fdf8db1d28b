//! Files that change while they are exported: whole archives all the same.

use std::io::Write;

use holdfast::{OpenOptions, Volume};
use holdfast_archive::{Error, Form, export, import};

/// An archive that changes the volume behind the first bytes of a member.
struct Meddler<'a, F: FnMut(&Volume)> {
    volume: &'a Volume,
    bytes: Vec<u8>,
    behind: usize,
    change: Option<F>,
}

impl<F: FnMut(&Volume)> Write for Meddler<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= self.behind
            && let Some(mut change) = self.change.take()
        {
            change(self.volume);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Exports a volume with a small file, a large one, one with holes and another small one, and changes it meanwhile.
fn exported(behind: usize, change: impl FnMut(&Volume)) -> (Result<(), Error>, Vec<u8>) {
    let volume = Volume::in_memory(64 << 20).unwrap();
    volume.write("/a-small", b"first").unwrap();
    volume.write("/b-large", vec![2; 3 << 20]).unwrap();
    let holes = volume.create("/c-holes").unwrap();
    for at in [0, 1 << 20, 3 << 20] {
        holes.write_all_at(&[3; 5000], at).unwrap();
    }
    drop(holes);
    volume.write("/d-small", b"last").unwrap();
    let mut to = Meddler { volume: &volume, bytes: Vec::new(), behind, change: Some(change) };
    let done = export(&volume, Form::Tar, usize::MAX, &mut to).map(drop);
    let bytes = to.bytes;
    (done, bytes)
}

fn write(volume: &Volume) -> OpenOptions {
    let _ = volume;
    OpenOptions::new().write(true)
}

type Changes = fn(&Volume);

#[test]
fn a_file_that_changes_has_the_bytes_that_its_header_says() {
    // Where: behind the header of the large file, in its middle, and behind the header of the one with holes.
    let cases: [(&str, usize, Changes, &str); 7] = [
        ("cut off", 4096, |v| v.open_file("/b-large").map(drop).unwrap(), ""),
        (
            "shorter",
            4096,
            |v| write(v).open(v, "/b-large").unwrap().set_len(1000).unwrap(),
            "b-large",
        ),
        (
            "shorter in the middle",
            2 << 20,
            |v| write(v).open(v, "/b-large").unwrap().set_len(1 << 20).unwrap(),
            "b-large",
        ),
        (
            "longer",
            4096,
            |v| write(v).open(v, "/b-large").unwrap().write_all_at(b"more", 3 << 20).unwrap(),
            "b-large",
        ),
        (
            "holes are filled",
            (3 << 20) + 6000,
            |v| {
                let file = write(v).open(v, "/c-holes").unwrap();
                file.write_all_at(&vec![9; 3 << 20], 100).unwrap();
            },
            "c-holes",
        ),
        (
            "holes and no data",
            (3 << 20) + 6000,
            |v| write(v).open(v, "/c-holes").unwrap().set_len(10).unwrap(),
            "c-holes",
        ),
        ("gone", 2048, |v| v.remove_file("/d-small").unwrap(), "d-small"),
    ];
    for (what, behind, change, named) in cases {
        let (done, bytes) = exported(behind, change);
        match done {
            Ok(()) => assert_eq!(named, "", "{what}"),
            Err(error @ Error::Changed { .. }) => {
                let said = error.to_string();
                assert!(said.contains(named) && said.contains("changed"), "{what}: {said}");
            }
            Err(error) => panic!("{what}: {error}"),
        }
        let copy = Volume::in_memory(64 << 20).unwrap();
        import(&copy, Form::Tar, "importing", &bytes[..])
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(copy.read("/a-small").unwrap(), b"first", "{what}");
        let large = copy.read("/b-large").unwrap();
        let holes = copy.read("/c-holes").unwrap();
        assert_eq!((large.len(), holes.len()), (3 << 20, (3 << 20) + 5000), "{what}");
        // What was read before counts, and behind a cut there are zeros, whatever the file had there.
        let cut = match what {
            "shorter" => 1000,
            // Two portions were read by then.
            "shorter in the middle" => 2 << 20,
            _ => large.len(),
        };
        assert!(large[..cut].iter().all(|byte| *byte == 2), "{what}");
        assert!(large[cut..].iter().all(|byte| *byte == 0), "{what}");
        // Where a hole was when its header was written there is one.
        let segments = [0..5000, 1 << 20..(1 << 20) + 5000, 3 << 20..(3 << 20) + 5000];
        for (at, byte) in holes.iter().enumerate() {
            // Data is kept in whole blocks.
            let is_beside = segments.iter().any(|of| (of.end..of.start + 8192).contains(&at));
            let wanted = match what {
                _ if !segments.iter().any(|of| of.contains(&at)) => 0,
                "holes are filled" if (100..(3 << 20) + 100).contains(&at) => 9,
                "holes and no data" if at >= 10 => 0,
                _ => 3,
            };
            assert!(is_beside || *byte == wanted, "{what}: {byte} at {at}");
        }
        if named != "d-small" {
            assert_eq!(copy.read("/d-small").unwrap(), b"last", "{what}");
        }
    }
}

/// The first of two names of a file goes when it was about to be read: the other is a file, and no link to what is not there.
#[test]
fn no_link_leads_to_a_file_that_has_gone() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    volume.write("/a", vec![1; 3 << 20]).unwrap();
    volume.write("/b", b"linked").unwrap();
    volume.hard_link("/b", "/c").unwrap();
    let change = |volume: &Volume| volume.remove_file("/b").unwrap();
    let mut to = Meddler { volume: &volume, bytes: Vec::new(), behind: 4096, change: Some(change) };
    assert!(matches!(export(&volume, Form::Tar, usize::MAX, &mut to), Err(Error::Changed { .. })));
    let bytes = to.bytes;
    let copy = Volume::in_memory(64 << 20).unwrap();
    import(&copy, Form::Tar, "importing", &bytes[..]).unwrap();
    assert_eq!(copy.read("/c").unwrap(), b"linked");
}

/// A directory goes, or becomes something else, when its header is written: it is empty in the archive, which goes on behind it.
#[test]
fn a_directory_that_goes_behind_its_header_is_left_empty() {
    let cases: [(&str, Changes); 3] = [
        ("gone", |volume| volume.remove_dir_all("/b").unwrap()),
        ("a link", |volume| {
            volume.rename("/b", "/z").unwrap();
            volume.symlink("/", "/b").unwrap();
        }),
        ("a file", |volume| {
            volume.rename("/b", "/z").unwrap();
            volume.write("/b", b"a file").unwrap();
        }),
    ];
    for (what, change) in cases {
        let volume = Volume::in_memory(64 << 20).unwrap();
        volume.create_dir("/b").unwrap();
        volume.write("/b/inside", b"inside").unwrap();
        volume.write("/c", b"behind").unwrap();
        let mut before = Vec::new();
        export(&volume, Form::Tar, usize::MAX, &mut before).unwrap();
        // The first bytes of its header, which is written at once.
        let behind = before.windows(3).position(|it| it == b"b/\0").unwrap() + 1;
        let mut to = Meddler { volume: &volume, bytes: Vec::new(), behind, change: Some(change) };
        let error = export(&volume, Form::Tar, usize::MAX, &mut to).unwrap_err();
        assert!(matches!(&error, Error::Changed { path, .. } if path == b"b"), "{what}: {error}");
        let bytes = to.bytes;
        let copy = Volume::in_memory(64 << 20).unwrap();
        import(&copy, Form::Tar, "importing", &bytes[..]).unwrap();
        assert_eq!(copy.read_dir("/b").unwrap().count(), 0, "{what}");
        assert_eq!(copy.read("/c").unwrap(), b"behind", "{what}");
    }
}
