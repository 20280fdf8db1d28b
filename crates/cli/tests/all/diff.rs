//! `holdfast diff` on a volume that is not mounted.

use std::fs;
use std::process::Command;

use holdfast::{OpenOptions, Permissions, Volume};

use crate::common::TestMount;

/// A volume with a snapshot `a`, and much that has become of it in the branch.
fn changed() -> TestMount {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.create_dir("/dir").unwrap();
    volume.write("/dir/text", "one\ntwo\nthree\n").unwrap();
    volume.write("/dir/gone", "x\n").unwrap();
    volume.write("/large", vec![0; 1 << 20]).unwrap();
    volume.write("/moved", "as it was\n").unwrap();
    volume.write("/mode", "same\n").unwrap();
    volume.write("/dir/below", "as it was\n").unwrap();
    volume.write("/replaced", "caf\u{e9}\n").unwrap();
    let main = volume.branch("main").unwrap();
    main.snapshot("a").unwrap();
    volume.rename("/dir", "/folder").unwrap();
    volume.write("/folder/text", "one\n2\nthree\n").unwrap();
    volume.remove_file("/folder/gone").unwrap();
    let large = OpenOptions::new().write(true).open(&volume, "/large").unwrap();
    large.write_all_at(&[8; 10], 8192).unwrap();
    drop(large);
    volume.rename("/moved", "/folder/moved").unwrap();
    volume.set_permissions("/mode", Permissions::from_mode(0o600)).unwrap();
    volume.write("/new \u{1b}[1m", "new\n").unwrap();
    // As editors save.
    volume.write("/saved", b"caf\xe9\rau lait").unwrap();
    volume.rename("/saved", "/replaced").unwrap();
    drop(main);
    volume.close().unwrap();
    place
}

#[test]
fn each_file_is_told_once() {
    let place = changed();
    let image = place.image();
    let said = place.run(&["diff", image, "@a"]).fine();
    let wanted = "\
renamed     dir/ -> folder/
removed     dir/gone
renamed     moved -> folder/moved
changed     folder/text
changed     large
attributes  mode (mode)
created     new \u{1b}[1m
removed     replaced
created     replaced
";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&said), sorted(wanted), "{said}");
    // The other way round.
    let said = place.run(&["diff", image, "main", "@a"]).fine();
    assert!(said.contains("renamed     folder/ -> dir/\n"), "{said}");
    assert!(said.contains("created     dir/gone\n"), "{said}");
    // Programs get paths with a zero byte behind each.
    let said = place.run(&["diff", "-0", "--name-only", image, "@a"]).fine();
    let mut paths: Vec<&str> = said.split_terminator('\0').collect();
    paths.sort_unstable();
    let wanted = [
        "dir/gone",
        "folder",
        "folder/moved",
        "folder/text",
        "large",
        "mode",
        "new \u{1b}[1m",
        "replaced",
        "replaced",
    ];
    assert_eq!(paths, wanted);
    let said = place.run(&["diff", "--ranges", image, "@a"]).fine();
    assert!(said.contains("changed     large\n            bytes 8192 to 12287 (4096)\n"), "{said}");
    let said = place.run(&["diff", "--stat", image, "@a"]).fine();
    assert_eq!(
        said,
        "2 created, 2 removed, 2 renamed, 2 changed, 1 attributes only; 4106 bytes differ\n"
    );
    let said = place.run(&["diff", "--json", image, "@a"]).fine();
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moved = lines.iter().find(|line| line["path"] == "folder/moved").unwrap();
    assert_eq!((&moved["change"], &moved["old_path"]), (&"renamed".into(), &"moved".into()));
    place.fsck();
}

#[test]
fn exit_codes_say_whether_anything_differs() {
    let place = changed();
    let image = place.image();
    assert_eq!(place.run(&["diff", "-q", image, "@a", "@a"]).fine(), "");
    place.run(&["diff", "--exit-code", image, "@a", "@a"]).fine();
    let said = place.run(&["diff", "-q", image, "@a"]);
    assert_eq!((said.code, &said.out[..], &said.err[..]), (1, "", ""));
    place.run(&["diff", image, "@b"]).fails(2, "there is no snapshot `b`");
    place.run(&["diff", "nowhere.img"]).fails(2, "nowhere.img: No such file or directory");
    let other = place.path("other.img");
    place.run(&["mkfs", "-q", "--size", "16M", &other]).fine();
    let other = format!("{other}@a");
    place.run(&["diff", image, &other]).fails(2, "only trees of one volume are compared");
    place.run(&["diff", "nowhere.img", "@a"]).fails(2, "No such file or directory");
}

/// A patch of a volume brings a copy of the old tree to the new one, but for what no patch says.
#[test]
fn a_patch_is_one() {
    let place = changed();
    let image = place.image();
    let copy = |of: &str| {
        let dir = place.path(&format!("copy-{}", of.len()));
        place.run(&["cp", "-r", &format!("{image}{of}:/"), &dir]).fine();
        dir
    };
    let (old, new) = (copy("@a"), copy(""));
    let output = place.command(&["diff", "--patch", image, "@a"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Not all of it is UTF-8.
    let bytes = output.stdout;
    let patch = String::from_utf8_lossy(&bytes).into_owned();
    assert!(patch.contains("rename from moved\nrename to folder/moved\n"), "{patch}");
    assert!(patch.contains("--- a/dir/text\n+++ b/folder/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n"));
    assert!(patch.contains("Binary files a/large and b/large differ\n"), "{patch}");
    assert!(patch.contains("rename from dir/below\nrename to folder/below\n"), "{patch}");
    assert!(!patch.contains("deleted file mode 100644\n--- a/replaced"), "{patch}");
    // git cannot make up binary files.
    let find = |from: usize, what: &[u8]| {
        bytes[from..].windows(what.len()).position(|here| here == what).map(|at| from + at)
    };
    let at = find(0, b"diff --git a/large").unwrap();
    let end = find(at + 1, b"diff --git").unwrap_or(bytes.len());
    fs::write(place.path("patch"), [&bytes[..at], &bytes[end..]].concat()).unwrap();
    let applied = Command::new("git")
        .args(["apply", "-p1", "--unsafe-paths", &place.path("patch")])
        .current_dir(&old)
        .env("GIT_CEILING_DIRECTORIES", place.path(""))
        .output()
        .unwrap();
    assert!(applied.status.success(), "{patch}\n{applied:?}");
    fs::copy(format!("{new}/large"), format!("{old}/large")).unwrap();
    let compared = Command::new("diff").args(["-r", &old, &new]).output().unwrap();
    // The directory that is gone is empty here: patches know no directories.
    let said = String::from_utf8(compared.stdout).unwrap();
    assert!(said.lines().all(|line| line.ends_with(": dir")), "{said}");
}

/// The content of a file with several names is patched under one of them, and none of its names goes.
#[test]
fn hard_links_are_no_renames() {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.write("/a", "one\n").unwrap();
    volume.write("/x", "one\n").unwrap();
    volume.hard_link("/x", "/y").unwrap();
    volume.remove_file("/y").unwrap();
    let main = volume.branch("main").unwrap();
    main.snapshot("a").unwrap();
    volume.hard_link("/a", "/b").unwrap();
    volume.write("/a", "two\n").unwrap();
    volume.hard_link("/x", "/z").unwrap();
    volume.write("/x", "two\n").unwrap();
    drop(main);
    volume.close().unwrap();
    let output = place.command(&["diff", "--patch", place.image(), "@a"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        !said.contains("rename") && said.contains("new file mode 100644\n--- /dev/null\n+++ b/b\n"),
        "{said}"
    );
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(warned.contains("hard links"), "{warned}");
}
