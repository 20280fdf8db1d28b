//! Archives that are damaged, cut off or made to harm: an error that says where, and the branch as it was.

use holdfast::{FileType, OpenOptions, Volume, XattrFlags};
use holdfast_archive::{Error, Form, export, import};
use holdfast_base::prng::Prng;

fn small() -> Vec<u8> {
    let volume = Volume::in_memory(16 << 20).unwrap();
    volume.create_dir("/dir").unwrap();
    volume.write("/dir/file", b"content").unwrap();
    volume.set_xattr("/dir/file", "user.x", b"a\nb", XattrFlags::empty()).unwrap();
    volume.hard_link("/dir/file", "/link").unwrap();
    volume.symlink("/dir", "/way").unwrap();
    volume.create_node("/pipe", FileType::Fifo, 0o644, 0).unwrap();
    let how = OpenOptions::new().write(true).create(true);
    how.open(&volume, "/holes").unwrap().write_all_at(b"end", 100_000).unwrap();
    volume.write(format!("/{}", "n".repeat(200)), b"").unwrap();
    let mut bytes = Vec::new();
    export(&volume, Form::Tar, usize::MAX, &mut bytes).unwrap();
    bytes
}

/// Puts the checksums of all headers right.
fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    for block in bytes.as_chunks_mut::<512>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}

fn tried(volume: &Volume, bytes: &[u8], what: &str) -> Result<(), Error> {
    let done = import(volume, Form::Layer, "importing", bytes).map(drop);
    let main = volume.branch("main").unwrap();
    assert!(main.snapshots().unwrap().is_empty(), "{what}");
    assert_eq!(volume.branches().unwrap().len(), 1, "{what}: a fork is left");
    if done.is_err() {
        assert_eq!(volume.read_dir("/").unwrap().count(), 1, "{what}: a part is there");
        assert_eq!(volume.read("/before").unwrap(), b"as it was", "{what}");
    }
    done
}

fn fresh() -> Volume {
    let volume = Volume::in_memory(16 << 20).unwrap();
    volume.write("/before", b"as it was").unwrap();
    volume
}

#[test]
fn each_cut_is_an_error_and_leaves_nothing() {
    let bytes = small();
    let volume = fresh();
    for len in (0..bytes.len() - 512).step_by(97) {
        let error = tried(&volume, &bytes[..len], &format!("{len} bytes")).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. } | Error::Foreign(_)), "{len}: {error}");
    }
    tried(&volume, &bytes, "all of it").unwrap();
    assert_eq!(volume.read("/way/file").unwrap(), b"content");
}

#[test]
fn flipped_bytes_are_noticed_or_harmless() {
    let bytes = small();
    let mut whole = 0;
    let mut volume = fresh();
    for seed in 0..400 {
        let mut prng = Prng::seeded(seed);
        let mut changed = bytes.clone();
        for _ in 0..=prng.below(3) {
            let at = prng.below(changed.len() as u64) as usize;
            changed[at] = prng.next_u64() as u8;
        }
        if prng.one_in(2) {
            changed = repaired(changed);
        }
        if tried(&volume, &changed, &format!("seed {seed}")).is_ok() {
            whole += 1;
            volume = fresh();
        }
    }
    assert!((1..400).contains(&whole), "{whole} of 400 were taken");
}

/// A member by hand.
fn member(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(512), 0);
    repaired(block)
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut all = members.concat();
    all.extend_from_slice(&[0; 1024]);
    all
}

#[test]
fn what_would_harm_is_refused_and_says_so() {
    let volume = fresh();
    let huge = {
        let mut block = member("big", b'0', "", b"");
        block[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        repaired(block)
    };
    for (members, words) in [
        (vec![member("../out", b'0', "", b"x")], "`..`"),
        (vec![member("a/../../out", b'5', "", b"")], "`..`"),
        (vec![member("link", b'1', "../../etc/passwd", b"")], "`..`"),
        (vec![member("odd", b'Q', "", b"")], "type of member"),
        (vec![member("x", b'x', "", b"9 path=abc\n"), member("y", b'0', "", b"")], "pax record"),
        (vec![member("x", b'x', "", b"9 path=ab\n")], "a member should follow"),
        (vec![member("s", b'S', "", b"")], "holes"),
        (vec![huge], "more than there can be"),
        (vec![member("a", b'0', "", b""), member("a/b", b'0', "", b"")], "member `a/b`"),
    ] {
        let error = tried(&volume, &archive(&members), words).expect_err(words);
        assert!(error.to_string().contains(words), "{error} should say {words}");
    }
    let gzip = tried(&volume, &[0x1f, 0x8b, 8, 0, 0], "gzip").unwrap_err().to_string();
    assert!(gzip.contains("zcat FILE | holdfast import"), "{gzip}");
}

/// A directory is reached through a link that another member replaces: its attributes are given all the same.
#[test]
fn directories_behind_a_link_that_is_replaced_get_their_attributes() {
    let volume = fresh();
    let members = [
        member("real", b'5', "", b""),
        member("way", b'2', "real", b""),
        member("way/deep", b'5', "", b""),
        member("way", b'0', "", b"no way any more"),
        member("gone", b'5', "", b""),
        member("gone", b'0', "", b"a file in its place"),
    ];
    import(&volume, Form::Tar, "importing", &archive(&members)[..]).unwrap();
    for path in ["/real", "/real/deep"] {
        assert_eq!(volume.metadata(path).unwrap().mode() & 0o7777, 0o644, "{path}");
    }
    assert_eq!(volume.read("/gone").unwrap(), b"a file in its place");
}

fn record(text: &str) -> Vec<u8> {
    let mut len = text.len() + 2;
    while len != text.len() + 2 + len.to_string().len() {
        len = text.len() + 2 + len.to_string().len();
    }
    format!("{len} {text}\n").into_bytes()
}

/// What a global header says counts for all members behind it, unless they say something else. It is small.
#[test]
fn records_for_all_members_count_and_are_few() {
    let volume = fresh();
    let comment = record(&format!("comment={}", "x".repeat(100_000)));
    let members = [
        member(
            "all",
            b'g',
            "",
            &[comment, record("uid=7"), record("SCHILY.xattr.user.a=1")].concat(),
        ),
        member("one", b'0', "", b""),
        member("own", b'x', "", &[record("uid=8"), record("SCHILY.xattr.user.a=2")].concat()),
        member("two", b'0', "", b""),
        member("later", b'g', "", &record("gid=9")),
        member("three", b'0', "", b""),
    ];
    import(&volume, Form::Tar, "importing", &archive(&members)[..]).unwrap();
    for (path, uid, gid, value) in
        [("/one", 7, 0, b"1"), ("/two", 8, 0, b"2"), ("/three", 7, 9, b"1")]
    {
        let found = volume.metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), (uid, gid), "{path}");
        assert_eq!(volume.xattr(path, "user.a").unwrap(), value, "{path}");
    }
    let long = record(&format!("SCHILY.xattr.user.a={}", "x".repeat(5000)));
    let error = tried(&fresh(), &archive(&[member("all", b'g', "", &long)]), "long").unwrap_err();
    assert!(error.to_string().contains("records for all members"), "{error}");
}

/// Whiteouts that ask for the same directory again and again, beside many new files: those stay.
#[test]
fn many_whiteouts_of_one_directory_leave_what_is_new() {
    let volume = fresh();
    let base = [member("d", b'5', "", b""), member("d/old", b'0', "", b"")];
    import(&volume, Form::Layer, "importing", &archive(&base)[..]).unwrap();
    let mut layer = Vec::new();
    for at in 0..2000 {
        layer.push(member(&format!("d/new-{at}"), b'0', "", b""));
        layer.push(member("d/.wh..wh..opq", b'0', "", b""));
        layer.push(member(".wh.d", b'0', "", b""));
    }
    import(&volume, Form::Layer, "importing", &archive(&layer)[..]).unwrap();
    assert_eq!(volume.read_dir("/d").unwrap().count(), 2000);
    // One that is emptied first is removed all the same.
    let volume = fresh();
    import(&volume, Form::Layer, "importing", &archive(&base)[..]).unwrap();
    let both = [member("d/.wh..wh..opq", b'0', "", b""), member(".wh.d", b'0', "", b"")];
    import(&volume, Form::Layer, "importing", &archive(&both)[..]).unwrap();
    assert!(!volume.exists("/d").unwrap());
}

#[test]
fn links_lead_no_further_than_the_volume_and_are_replaced_by_their_name() {
    let volume = fresh();
    let members = [
        member("dir", b'5', "", b""),
        member("way", b'2', "/../../dir", b""),
        member("way/in", b'0', "", b"inside"),
        member("/abs", b'0', "", b"absolute"),
        member("to", b'2', "before", b""),
        member("to", b'0', "", b"itself"),
        member("self", b'0', "", b"same"),
        member("self", b'1', "self", b""),
    ];
    import(&volume, Form::Tar, "importing", &archive(&members)[..]).unwrap();
    assert_eq!(volume.read("/dir/in").unwrap(), b"inside");
    assert_eq!(volume.read("/abs").unwrap(), b"absolute");
    assert_eq!(volume.read("/to").unwrap(), b"itself");
    assert_eq!(volume.read("/before").unwrap(), b"as it was");
    assert_eq!(volume.read("/self").unwrap(), b"same");
}

#[test]
fn whiteouts_take_what_is_below_whatever_comes_first() {
    let volume = fresh();
    let base = [
        member("d", b'5', "", b""),
        member("d/old", b'0', "", b"old"),
        member("d/sub", b'5', "", b""),
        member("d/sub/deep", b'0', "", b"old"),
        member("gone", b'5', "", b""),
        member("gone/file", b'0', "", b"old"),
    ];
    import(&volume, Form::Layer, "importing", &archive(&base)[..]).unwrap();
    let layer = [
        member("d/new", b'0', "", b"new"),
        member("d/sub/new", b'0', "", b"new"),
        member("d/kept", b'1', "d/old", b""),
        member("d/.wh..wh..opq", b'0', "", b""),
        member(".wh.gone", b'0', "", b""),
        member("no/such/.wh.dir", b'0', "", b""),
        member(".wh..wh.plnk", b'5', "", b""),
    ];
    import(&volume, Form::Layer, "importing", &archive(&layer)[..]).unwrap();
    let mut names: Vec<_> =
        volume.read_dir("/d").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["kept", "new", "sub"]);
    assert_eq!(volume.read_dir("/d/sub").unwrap().count(), 1);
    assert!(!volume.exists("/gone").unwrap() && !volume.exists("/no").unwrap());
}
