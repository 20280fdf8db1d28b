//! Commands that work without a mount: ls, cat, cp, fsck, and the program's own help.

mod left_out;
mod live;
mod names;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use crate::common::{TestMount, can_mount};

/// A tree with one of everything that a user can make.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("dir/below")).unwrap();
    fs::write(at.join("dir/below/small"), "small").unwrap();
    let large: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_246_822_519) >> 23) as u8).collect();
    fs::write(at.join("large"), large).unwrap();
    fs::write(at.join("empty"), "").unwrap();
    fs::write(at.join("name with \"odd\" ünïcode\n"), "x").unwrap();
    fs::set_permissions(at.join("empty"), fs::Permissions::from_mode(0o6741)).unwrap();
    fs::set_permissions(at.join("dir"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("dir/below/small", at.join("link")).unwrap();
    symlink("nowhere", at.join("dangling")).unwrap();
    fs::hard_link(at.join("large"), at.join("dir/large-too")).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 40 << 20).unwrap();
    sparse.set_len((40 << 20) + 5000).unwrap();
}

/// Everything below `at` that a copy must keep.
fn picture(at: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![at.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(at).unwrap().to_path_buf();
            let content = match found.file_type() {
                kind if kind.is_symlink() => {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                }
                kind if kind.is_dir() => {
                    waiting.push(path.clone());
                    String::new()
                }
                _ => {
                    let bytes = fs::read(&path).unwrap();
                    let sum = bytes
                        .iter()
                        .fold(0u64, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
                    format!("{} bytes, sum {sum}, {} names", bytes.len(), found.nlink())
                }
            };
            let time = (found.mtime(), found.mtime_nsec());
            lines.push(format!("{name:?} {:o} {time:?} {content}", found.mode()));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_copied_in_and_out_again_is_the_same() {
    let place = TestMount::with_volume();
    let source = place.root.path().join("source");
    tree(&source);
    place.run(&["cp", "-a", &place.path("source"), &place.inside("/")]).fine();
    place.fsck();
    place.run(&["cp", "-a", &place.inside("/source"), &place.path("back")]).fine();
    assert_eq!(picture(&source), picture(&place.root.path().join("back")));
    let sparse = place.root.path().join("back/sparse").metadata().unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "a hole was filled");

    if can_mount() {
        place.mount();
        assert_eq!(picture(&source), picture(&place.dir.join("source")));
        // Into a new directory inside, with the host's own cp.
        let copied = std::process::Command::new("cp")
            .args(["-a", &place.path("source"), &format!("{}/host", place.dir())])
            .status();
        assert!(copied.unwrap().success());
        assert_eq!(picture(&source), picture(&place.dir.join("host")));
        place.umount();
        place.fsck();
    }
}

#[test]
fn ls_and_cat_show_what_is_there() {
    let place = TestMount::with_volume();
    tree(&place.root.path().join("source"));
    place.run(&["cp", "-r", &place.path("source"), &place.inside("/top")]).fine();
    assert_eq!(place.run(&["ls", place.image()]).fine(), "top\n");
    let names = place.run(&["ls", "-R", &place.inside("/top")]).fine();
    assert!(names.contains("dir/below/small\n"), "{names}");
    let long = place.run(&["ls", "-l", &place.inside("/top")]).fine();
    assert!(long.contains("drwxrwxrwt"), "{long}");
    assert!(long.contains("link -> dir/below/small"), "{long}");
    let json = place.run(&["ls", "--json", &place.inside("/top/link")]).fine();
    assert!(
        json.contains("\"type\":\"symlink\"") && json.contains("\"target\":\"dir/below/small\"")
    );
    // cat follows links.
    assert_eq!(place.run(&["cat", &place.inside("/top/link")]).fine(), "small");
    place.run(&["cat", &place.inside("/top/dangling")]).fails(1, "No such file");
    place.run(&["cat", &place.inside("/top/dir")]).fails(1, "directory");
    place.run(&["ls", &place.inside("/none")]).fails(1, "No such file");
    place.run(&["ls", "missing.img:/"]).fails(1, "missing.img");
}

#[test]
fn cp_says_what_it_cannot_do_and_does_the_rest() {
    let place = TestMount::with_volume();
    fs::write(place.path("one"), "1").unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    let said = place.run(&["cp", &place.path("one"), &place.path("folder"), &place.inside("/")]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("folder") && said.err.contains("-r"), "{said:?}");
    assert_eq!(place.run(&["ls", place.image()]).fine(), "one\n");
    place.run(&["cp", &place.path("none"), &place.inside("/x")]).fails(1, "none");
    place.run(&["cp", &place.path("one")]).fails(2, "--help");
    place
        .run(&["cp", &place.path("one"), &place.path("one"), &place.inside("/nodir")])
        .fails(1, &format!("{} is not a directory", place.inside("/nodir")));
}

#[test]
fn cp_names_what_is_missing_as_the_user_wrote_it() {
    let place = TestMount::with_volume();
    fs::write(place.path("one"), "1").unwrap();
    // Run where the image is, and called by its relative name.
    place
        .run(&["cp", "volume.img:/none", "."])
        .fails(1, "holdfast: volume.img:/none: No such file");
    place.run(&["cp", "one", "volume.img:/no/dir"]).fails(1, ": volume.img:/no/dir: No such file");
    place.run(&["cp", "one", "no/dir"]).fails(1, "holdfast: no/dir: No such file");
    place.run(&["cp", "none", "volume.img:/x"]).fails(1, "holdfast: none: No such file");
    let missing = "the image missing.img is missing: No such file";
    for to in ["missing.img:/x", "missing.img:/", "missing.img:/x/"] {
        place.run(&["cp", "one", to]).fails(1, missing);
        place.run(&["cp", "--", "one", "one", to]).fails(1, missing);
        place.run(&["cp", to, "two"]).fails(1, missing);
        place.run(&["cp", to, "-"]).fails(1, missing);
    }
    place.run(&["cp", "one", "missing.img:work@s:/x"]).fails(1, "missing.img:work@s is missing");
    fs::create_dir(place.path("folder")).unwrap();
    place.run(&["cp", "one", "folder:/x"]).fails(1, "folder is not a mounted Holdfast volume");
    // A directory of the host may be called so.
    fs::create_dir(place.path("host:")).unwrap();
    place.run(&["cp", "one", "host:/x"]).fine();
    assert_eq!(fs::read(place.path("host:/x")).unwrap(), b"1");
}

#[test]
fn names_that_are_no_text_are_listed_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt;
    let place = TestMount::with_volume();
    let source = place.root.path().join("source");
    fs::create_dir(&source).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(source.join(odd), "").unwrap();
    symlink(odd, source.join("link")).unwrap();
    fs::write(source.join("plain"), "").unwrap();
    place.run(&["cp", "-r", &place.path("source"), &place.inside("/")]).fine();
    let json = place.run(&["ls", "--json", &place.inside("/source")]).fine();
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 3, "{json}");
    assert!(lines[0].contains("\"path\":\"caf\u{fffd}\",\"path_hex\":\"636166e9\""), "{json}");
    assert!(lines[1].contains("\"target_hex\":\"636166e9\""), "{json}");
    assert!(!lines[1].contains("path_hex") && !lines[2].contains("_hex"), "{json}");
    // Programs get the bytes themselves.
    let bytes = |args: &[&str]| place.command(args).output().unwrap().stdout;
    let top = place.inside("/source");
    assert_eq!(bytes(&["ls", &top]), b"caf\xe9\nlink\nplain\n");
    assert_eq!(bytes(&["ls", "-0", &top]), b"caf\xe9\0link\0plain\0");
    let long = bytes(&["ls", "-l", &top]);
    assert!(long.windows(12).any(|it| it == b"link -> caf\xe9"), "{long:?}");
    assert_eq!(place.run(&["ls", "-0", "--json", &top]).code, 2);
    if can_mount() {
        place.mount();
        let live = format!("{}:/source", place.dir());
        assert_eq!(bytes(&["ls", "-0", &live]), b"caf\xe9\0link\0plain\0");
        place.umount();
    }
}

#[test]
fn a_foreign_image_is_called_what_it_is() {
    let place = TestMount::new();
    let mut bytes = vec![0; 1 << 20];
    bytes[..4].copy_from_slice(b"XFSB");
    fs::write(&place.image, bytes).unwrap();
    let image = place.image();
    let what = "not a Holdfast volume, but an XFS filesystem";
    place.run(&["mount", image, place.dir()]).fails(32, what);
    place.run(&["fsck", image]).fails(8, what);
    place.run(&["fsck", "-p", image]).fails(8, what);
    place.run(&["info", image]).fails(1, what);
    place.run(&["ls", image]).fails(1, what);
}

#[test]
fn links_explain_themselves_by_their_own_names() {
    let place = TestMount::new();
    for name in ["mkfs.holdfast", "fsck.holdfast", "mount.holdfast", "umount.holdfast"] {
        let help = place.run_as(name, &["--help"]).fine();
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
        assert!(place.run_as(name, &["--version"]).fine().starts_with(&format!("{name} ")));
        let code = if name == "fsck.holdfast" { 16 } else { 1 };
        place.run_as(name, &["--wrong"]).fails(code, &format!("see `{name} --help`"));
    }
    let dir = place.root.path().to_str().unwrap();
    place.run(&["man", "--links", dir]).fine();
    let page = fs::read_to_string(place.path("mkfs.holdfast.8")).unwrap();
    assert!(page.contains("node\\-size"), "{page}");
    assert!(!place.root.path().join("holdfast.1").exists());
}

/// As a filter: what comes in is whole or not there, and goes out as it is.
#[test]
fn cp_takes_standard_input_and_gives_standard_output() {
    let place = TestMount::with_volume();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    let through = |args: &[&str], input: &[u8]| {
        let mut command = place.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // One that does not read has ended, or will say why.
        let feed = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feed.join().unwrap();
        output
    };
    let (file, empty) = (place.inside("/file"), place.inside("/empty"));
    let done = through(&["cp", "-", &file], &bytes);
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    assert!(through(&["cp", "-", &empty], b"").status.success());
    let back = through(&["cp", &file, &empty, &file, "-"], b"").stdout;
    assert!(back == [&bytes[..], &bytes].concat(), "{} bytes", back.len());
    let long = place.run(&["ls", "-l", &place.inside("/")]).fine();
    assert!(long.contains("-rw-r--r--"), "{long}");
    let refused = |args: &[&str], words: &str| {
        let output = through(args, b"x");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(words), "{said}");
    };
    refused(&["cp", "-", &place.inside("/")], "has no name");
    refused(&["cp", "-", "-"], "no copy");
    refused(&["cp", &place.inside("/"), "-"], "directory");
    refused(&["cp", &place.inside("/nothing"), "-"], "/nothing");
    refused(&["cp", "-", &place.inside("/no/dir")], "/no/dir");
    // A file of that name is still to be had.
    fs::write(place.path("-"), "dash").unwrap();
    place.run(&["cp", "./-", &file]).fine();
    assert_eq!(place.run(&["cat", &file]).fine(), "dash");
    place.fsck();
}

#[test]
fn cp_between_and_within_volumes() {
    let place = TestMount::with_volume();
    let second = place.path("second.img");
    place.run(&["mkfs", "-q", "--size", "64M", &second]).fine();
    fs::write(place.path("one"), "first").unwrap();
    place.run(&["cp", &place.path("one"), &place.inside("/a")]).fine();
    place.run(&["cp", &place.inside("/a"), &place.inside("/b")]).fine();
    place.run(&["cp", &place.inside("/a"), &place.inside("/b"), &format!("{second}:")]).fine();
    assert_eq!(place.run(&["ls", &second]).fine(), "a\nb\n");
    assert_eq!(place.run(&["cat", &format!("{second}:/b")]).fine(), "first");
    place.run(&["cp", &place.inside("/a"), &place.inside("/a")]).fails(1, "same file");
    assert_eq!(place.run(&["cat", &place.inside("/a")]).fine(), "first");
}

#[test]
fn fsck_has_the_exit_bits_of_its_manual_page() {
    let place = TestMount::with_volume();
    fs::write(place.path("file"), vec![7; 200_000]).unwrap();
    place.run(&["cp", &place.path("file"), &place.inside("/victim")]).fine();
    place.run(&["fsck", "-p", place.image()]).fine();
    place.run(&["fsck", "-y", "-f", "-v", place.image()]).fine();
    place.run_as("fsck.holdfast", &["-a", place.image()]).fine();
    for progress in [&["-C0"][..], &["-C", "0"], &["-C=0"], &["-C"]] {
        let args = [&["-f"], progress, &[place.image()]].concat();
        place.run_as("fsck.holdfast", &args).fine();
        place.run(&[&["fsck"], args.as_slice()].concat()).fine();
    }
    place.run(&["fsck", "--wrong", place.image()]).fails(16, "--help");
    place.run(&["fsck", "missing.img"]).fails(8, "missing.img");

    // One byte of the file's data, found by its content.
    let mut bytes = fs::read(&place.image).unwrap();
    let at = bytes.windows(4096).rposition(|block| block.iter().all(|&b| b == 7)).unwrap();
    bytes[at] = 8;
    fs::write(&place.image, &bytes).unwrap();
    place.run(&["fsck", "-n", place.image()]).fine();
    let said = place.run(&["fsck", "-n", "-d", place.image()]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.out.contains("701") && said.out.contains("/victim"), "{said:?}");
    let json = place.run(&["fsck", "-n", "-d", "--json", place.image()]);
    assert_eq!(json.code, 4);
    assert!(json.out.contains("\"path\":\"/victim\""), "{json:?}");
    // The engine does not hand it out either (P6).
    let read = place.run(&["cat", &place.inside("/victim")]);
    assert_eq!(read.code, 1, "{read:?}");

    // Both superblocks.
    for slot in [16, 48] {
        bytes[slot * 4096 + 100] ^= 1;
    }
    fs::write(&place.image, &bytes).unwrap();
    let said = place.run(&["fsck", "-n", place.image()]);
    assert!(matches!(said.code, 4 | 8), "{said:?}");
    let before = fs::read(&place.image).unwrap();
    place.run(&["ls", place.image()]).fails(1, "superblock");
    place.run(&["mount", place.image(), place.dir()]).fails(32, "superblock");
    assert!(fs::read(&place.image).unwrap() == before, "a refusal wrote something");
}

#[test]
fn the_program_explains_itself() {
    let place = TestMount::new();
    let version = place.run(&["--version"]).fine();
    let format = format!("(on-disk format {})", holdfast::FORMAT_VERSION);
    assert!(version.starts_with("holdfast ") && version.contains(&format), "{version}");
    for command in ["mkfs", "mount", "umount", "fsck", "info", "ls", "cat", "cp", "sync", "stats"] {
        let help = place.run(&[command, "--help"]).fine();
        assert!(help.contains("Usage:"), "{help}");
    }
    place.run(&["frobnicate"]).fails(2, "frobnicate");
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).fine().contains("holdfast"));
    }
    place.run(&["man", place.root.path().to_str().unwrap()]).fine();
    assert!(place.root.path().join("holdfast-mount.1").exists());
}

#[test]
fn commands_for_development_are_elsewhere_and_the_program_says_where() {
    let place = TestMount::new();
    let help = place.run(&["--help"]).fine();
    for command in ["bench", "crashtest", "dump"] {
        for words in [&[command][..], &[command, "--help"], &[command, "mechanisms", "--keep", "x"]]
        {
            place.run(words).fails(2, "holdfast-dev; `make dev`");
        }
        assert!(!help.contains(command), "{help}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = TestMount::with_volume();
    fs::write(place.path("file"), vec![b'x'; 10_000_000]).unwrap();
    place.run(&["cp", &place.path("file"), &place.inside("/file")]).fine();
    let mut cat = place
        .command(&["cat", &place.inside("/file")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(cat.stdout.take());
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

/// A copy over a volume is hardly what anybody means who forgets a colon.
#[test]
fn a_copy_takes_the_place_of_no_volume() {
    let place = TestMount::with_volume();
    fs::write(place.path("file"), "content").unwrap();
    let before = fs::read(place.image()).unwrap();
    place.run(&["cp", &place.path("file"), place.image()]).fails(1, "is a volume");
    assert!(fs::read(place.image()).unwrap() == before);
    fs::create_dir(place.path("dir")).unwrap();
    place.run(&["cp", place.image(), &place.path("dir")]).fine();
    place.run(&["cp", place.image(), &place.path("copy")]).fine();
    assert!(fs::read(place.path("copy")).unwrap() == before);
}

/// A caller that cannot be told why a command fails gets the exit code all the same, and what it made is made.
#[test]
fn exit_codes_need_nobody_who_reads() {
    let place = TestMount::with_volume();
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let code = |args: &[&str], out: Stdio, err: Stdio| {
        place.command(args).stdout(out).stderr(err).status().unwrap().code().unwrap()
    };
    let null = Stdio::null;
    for (args, expected) in [
        (&["fsck", "/nowhere"][..], 8),
        (&["ls", "--json", "/nowhere"], 1),
        (&["umount", "/nowhere"], 32),
        (&["nothing"], 2),
    ] {
        assert_eq!(code(args, null(), full()), expected, "{args:?}");
    }
    fs::write(place.path("file"), "content").unwrap();
    place.run(&["cp", &place.path("file"), &place.inside("/file")]).fine();
    let both = [&place.inside("/missing"), &place.inside("/file")];
    assert_eq!(code(&["rm", both[0], both[1]], null(), full()), 1);
    place.run(&["cat", both[1]]).fails(1, "file");
    let new = place.path("new.img");
    assert_eq!(code(&["mkfs", "--size", "16M", &new], full(), null()), 1);
    place.run(&["fsck", &new]).fine();
    assert_eq!(code(&["salvage", "--list", &new], full(), null()), 8);
}

#[test]
fn fsck_that_cannot_say_what_it_found_has_not_been_made() {
    let place = TestMount::with_volume();
    let into = |args: &[&str], out: Stdio| {
        place.command(args).stdout(out).stderr(Stdio::piped()).output().unwrap()
    };
    for args in [&["-n"][..], &["-y"], &["-n", "-v"], &["-n", "--json"], &["-y", "--json"]] {
        let args = [&["fsck"], args, &[place.image()]].concat();
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = into(&args, full.into());
        assert_eq!(output.status.code(), Some(8), "{args:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
        // Nor without a listener.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = into(&args, writer.into());
        assert_eq!(output.status.code(), Some(8), "{args:?}: {output:?}");
    }
    place.fsck();
}

#[test]
fn fsck_at_boot_does_not_pass_a_volume_that_cannot_be_mounted() {
    let place = TestMount::with_volume();
    place.run(&["fsck", "-p", place.image()]).fine();
    let mut image = fs::read(place.image()).unwrap();
    let nodes: Vec<usize> =
        (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"hfNd")).collect();
    assert!(nodes.len() >= 2);
    nodes.iter().for_each(|at| image[at + 300] ^= 1);
    fs::write(place.image(), image).unwrap();
    place
        .run(&["fsck", "-p", place.image()])
        .fails(4, "may have stood in a damaged node of the space tree");
}
