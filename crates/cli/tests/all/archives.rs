//! `holdfast export` and `import`, and what other programs make of our archives and we of theirs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast::{OpenOptions, Volume, XattrFlags};

use crate::common::{self, Said, TestMount, said};

fn filled() -> TestMount {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.create_dir("/dir").unwrap();
    volume.write("/dir/file", "content").unwrap();
    volume.set_xattr("/dir/file", "user.key", b"value", XattrFlags::empty()).unwrap();
    volume.hard_link("/dir/file", "/link").unwrap();
    volume.symlink("dir/file", "/symlink").unwrap();
    let how = OpenOptions::new().write(true).create(true);
    how.open(&volume, "/holes").unwrap().write_all_at(b"end", 10 << 20).unwrap();
    volume.write(format!("/{}", "ü".repeat(100)), "long").unwrap();
    volume.close().unwrap();
    place
}

fn export(place: &TestMount, of: &str, args: &[&str], to: &str) {
    let file = File::create(place.path(to)).unwrap();
    let args = [&["export", of], args].concat();
    said(place.command(&args).stdout(file).stderr(Stdio::piped()).output().unwrap()).fine();
}

fn import(place: &TestMount, into: &str, args: &[&str], from: &str) -> Said {
    let file = File::open(place.path(from)).unwrap();
    let args = [&["import", into], args].concat();
    said(place.command(&args).stdin(file).output().unwrap())
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        holdfast_base::skip::skipped(format!("there is no {program} here"));
    }
    there
}

fn judge(dir: &Path) {
    use std::os::unix::fs::MetadataExt;
    let found = |name: &str| fs::symlink_metadata(dir.join(name)).unwrap();
    assert_eq!(fs::read(dir.join("dir/file")).unwrap(), b"content");
    assert_eq!(found("link").ino(), found("dir/file").ino());
    assert_eq!(fs::read_link(dir.join("symlink")).unwrap(), Path::new("dir/file"));
    let holes = fs::read(dir.join("holes")).unwrap();
    assert!(holes.len() == (10 << 20) + 3 && holes.ends_with(b"\0end"));
    assert_eq!(fs::read(dir.join("ü".repeat(100))).unwrap(), b"long");
}

#[test]
fn other_programs_read_ours_and_we_theirs() {
    let place = filled();
    export(&place, place.image(), &["--tar"], "ours.tar");
    for (program, extract, create) in [
        ("tar", &["--xattrs", "-xf"][..], &["--xattrs", "--format=pax", "-Scf"][..]),
        ("bsdtar", &["-xpf"], &["--format=pax", "-cf"]),
        ("tar", &["--xattrs", "-xf"], &["--format=gnu", "-Scf"]),
    ] {
        if !is_there(program) {
            continue;
        }
        let dir =
            place.root.path().join(format!("{program}-{}", create[0].len() + create[1].len()));
        fs::create_dir(&dir).unwrap();
        let run = |args: &[&str], file: &str, rest: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).arg(place.path(file)).arg("-C").arg(&dir).args(rest);
            said(command.env("LC_ALL", "C.UTF-8").output().unwrap()).fine();
        };
        run(extract, "ours.tar", &[]);
        judge(&dir);
        run(create, "theirs.tar", &["."]);
        let other = TestMount::with_volume();
        fs::copy(place.path("theirs.tar"), other.path("theirs.tar")).unwrap();
        import(&other, other.image(), &["--tar"], "theirs.tar").fine();
        other.fsck();
        let (from, to) = (other.inside("/"), other.path("out"));
        other.run(&["cp", "-a", &from, &to]).fine();
        judge(Path::new(&to));
    }
}

#[test]
fn pythons_tarfile_reads_ours() {
    if !is_there("python3") {
        return;
    }
    let place = filled();
    export(&place, place.image(), &["--tar"], "ours.tar");
    let script = "import sys, tarfile; t = tarfile.open(sys.argv[1]); h = t.getmember('holes'); \
        print(t.getmember('dir/file').pax_headers['SCHILY.xattr.user.key'], h.size, \
        t.extractfile(h).read()[-3:], t.getmember('link').islnk(), len(t.getmembers()))";
    let ran = Command::new("python3").args(["-c", script, &place.path("ours.tar")]).output();
    assert_eq!(said(ran.unwrap()).fine(), "value 10485763 b'end' True 7\n");
}

#[test]
fn a_layer_of_what_changed_makes_one_snapshot_of_the_other() {
    let place = filled();
    let image = place.image();
    place.run(&["snapshot", "create", image, "a"]).fine();
    let volume = Volume::open(image).unwrap();
    volume.write("/dir/file", "changed").unwrap();
    volume.remove_file("/symlink").unwrap();
    volume.rename("/dir", "/moved").unwrap();
    volume.close().unwrap();
    place.run(&["snapshot", "create", image, "b"]).fine();
    let at = |name: &str| format!("{image}@{name}");
    export(&place, &at("a"), &["--oci-layer"], "base.tar");
    export(&place, &at("b"), &["--oci-layer", "-i", "@a"], "layer.tar");
    export(&place, &at("b"), &["--tar"], "b.tar");
    let other = TestMount::with_volume();
    let layers = ["base.tar", "layer.tar"].map(|name| place.path(name));
    other.run(&["import", other.image(), "--oci-layer", &layers[0], &layers[1]]).fine();
    other.fsck();
    export(&other, &format!("{}@layer-2", other.image()), &["--tar"], "again.tar");
    assert!(fs::read(place.path("b.tar")).unwrap() == fs::read(other.path("again.tar")).unwrap());
    let again = other.run(&["import", other.image(), "--oci-layer", &layers[0]]);
    again.fails(1, "has a snapshot main@layer-1");
}

/// Puts a file among the blobs of a layout, under the sum that sha256sum says. Returns the descriptor.
fn blob(layout: &Path, kind: &str, bytes: &[u8]) -> String {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join("new"), bytes).unwrap();
    let sum = Command::new("sha256sum").arg(blobs.join("new")).output().unwrap().stdout;
    let digits = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
    fs::rename(blobs.join("new"), blobs.join(&digits)).unwrap();
    let len = bytes.len();
    format!(r#"{{"mediaType":"{kind}","digest":"sha256:{digits}","size":{len}}}"#)
}

/// The digest in a descriptor.
fn digest(descriptor: &str) -> &str {
    let at = descriptor.find("sha256:").unwrap();
    &descriptor[at..at + 71]
}

#[test]
fn an_image_layout_becomes_snapshots() {
    if !is_there("sha256sum") {
        return;
    }
    let place = filled();
    export(&place, place.image(), &["--oci-layer"], "layer.tar");
    export(&place, place.image(), &["--tar"], "ours.tar");
    let layout = Path::new(&place.path("layout")).to_owned();
    let layer = fs::read(place.path("layer.tar")).unwrap();
    let layer = blob(&layout, "application/vnd.oci.image.layer.v1.tar", &layer);
    let config = format!(r#"{{"rootfs":{{"diff_ids":["{}"]}}}}"#, digest(&layer));
    let config = blob(&layout, "application/vnd.oci.image.config.v1+json", config.as_bytes());
    let manifest = format!(r#"{{"config":{config},"layers":[{layer}]}}"#);
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = blob(&layout, kind, manifest.as_bytes());
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    fs::write(layout.join("index.json"), format!(r#"{{"manifests":[{manifest}]}}"#)).unwrap();
    let other = TestMount::with_volume();
    let layout = layout.to_str().unwrap();
    other.run(&["import", other.image(), "--oci", layout]).fine();
    other.fsck();
    export(&other, &format!("{}@layer-1", other.image()), &["--tar"], "again.tar");
    assert!(
        fs::read(place.path("ours.tar")).unwrap() == fs::read(other.path("again.tar")).unwrap()
    );
    other.run(&["import", other.image(), "--oci", layout]).fails(1, "has a snapshot main@layer-1");
    let named = ["import", other.image(), "--oci", layout, "--image", "latest"];
    other.run(&named).fails(1, "has no image latest");
    other.run(&["import", other.image(), "--oci", other.image()]).fails(1, "is no image layout");
}

#[test]
fn an_archive_that_is_damaged_leaves_the_branch_as_it_was() {
    let place = filled();
    export(&place, place.image(), &["--tar"], "ours.tar");
    let bytes = fs::read(place.path("ours.tar")).unwrap();
    fs::write(place.path("cut.tar"), &bytes[..bytes.len() - 2000]).unwrap();
    let other = TestMount::with_volume();
    fs::copy(place.path("cut.tar"), other.path("cut.tar")).unwrap();
    import(&other, other.image(), &["--tar"], "cut.tar").fails(1, "in the middle of");
    assert_eq!(other.run(&["ls", &other.inside("/")]).fine(), "");
    assert_eq!(other.run(&["snapshot", "list", other.image()]).fine().lines().count(), 1);
}

/// Snapshots become the layers of an image, of a volume at rest and in use, and come back from it.
#[test]
fn an_image_layout_is_made_of_snapshots_and_read_back() {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.write("/base", "base").unwrap();
    let main = volume.branch("main").unwrap();
    main.snapshot("monday").unwrap();
    volume.remove_file("/base").unwrap();
    volume.create_dir("/app").unwrap();
    volume.write("/app/run", "run").unwrap();
    main.snapshot("tuesday").unwrap();
    volume.close().unwrap();
    let layers = ["--layer", "monday", "--layer", "main@tuesday", "--name", "app:1"];
    let make = |to: &str| {
        let to = place.path(to);
        place.run(&[&["export", place.image(), "--oci-layout", &to][..], &layers].concat()).fine()
    };
    let digest = make("rest");
    assert!(digest.starts_with("sha256:") && digest.len() == 72, "{digest}");
    assert_eq!(make("rest.tar"), digest);
    place.run(&["export", place.image(), "--oci-layout", &place.path("rest")]).fails(1, "already");
    place
        .run(&["export", place.image(), "--oci-layout", &place.path("x"), "--layer", "no"])
        .fails(1, "no");
    assert!(!Path::new(&place.path("x")).exists());
    let names = |dir: &str| -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(".holdfast"))
            .collect();
        names.sort();
        names
    };
    assert!(names(place.root.path().to_str().unwrap()).is_empty(), "something is left");
    let back = |layout: &str| {
        let copy = place.path("copy.img");
        let _ = fs::remove_file(&copy);
        place.run(&["mkfs", "-q", "--size", "64M", &copy]).fine();
        place.run(&["import", &copy, "--oci", &place.path(layout), "--image", "app:1"]).fine();
        assert_eq!(place.run(&["ls", "-R", &format!("{copy}@layer-1:/")]).fine(), "base\n");
        assert_eq!(place.run(&["ls", "-R", &copy]).fine(), "app\napp/run\n");
        assert_eq!(place.run(&["cat", &format!("{copy}:/app/run")]).fine(), "run");
    };
    back("rest");
    back("rest.tar");
    if !common::can_mount() {
        return;
    }
    place.mount();
    assert_eq!(make("live"), digest);
    fs::write(place.dir.join("now"), "now").unwrap();
    place.run(&["export", place.dir(), "--oci-layout", &place.path("one")]).fine();
    place.umount();
    let of = |name: &str| fs::read(Path::new(&place.path(name)).join("index.json")).unwrap();
    assert_eq!(of("live"), of("rest"));
    back("live");
    let copy = place.path("one.img");
    place.run(&["mkfs", "-q", "--size", "64M", &copy]).fine();
    place.run(&["import", &copy, "--oci", &place.path("one")]).fine();
    assert_eq!(place.run(&["cat", &format!("{copy}:/now")]).fine(), "now");
}

#[test]
fn archives_are_taken_from_files_and_from_standard_input_among_them() {
    let place = filled();
    export(&place, place.image(), &["--tar"], "tree.tar");
    let more = Volume::create_new(place.path("more.img"), 64 << 20).unwrap();
    more.write("/more", "more").unwrap();
    more.close().unwrap();
    export(&place, &place.path("more.img"), &["--tar"], "more.tar");
    let copy = |name: &str| {
        let copy = place.path(name);
        place.run(&["mkfs", "-q", "--size", "64M", &copy]).fine();
        copy
    };
    let [both, mixed] = ["both.img", "mixed.img"].map(copy);
    place.run(&["import", "--tar", &both, "tree.tar", "more.tar"]).fine();
    import(&place, &mixed, &["--tar", "-", "more.tar"], "tree.tar").fine();
    for of in [&both, &mixed] {
        assert_eq!(place.run(&["cat", &format!("{of}:/more")]).fine(), "more");
        assert_eq!(place.run(&["cat", &format!("{of}:/link")]).fine(), "content");
        let list = place.run(&["snapshot", "list", of]).fine();
        assert!(!list.contains("layer-"), "{list}");
    }
    place.run(&["import", "--tar", &both, "tree.tar", "no.tar"]).fails(1, "no.tar");
    import(&place, &both, &["--tar", "-", "-"], "tree.tar").fails(2, "only once");
    // Nothing of the first is there if the second is damaged.
    fs::write(place.path("damaged.tar"), "no archive").unwrap();
    let third = copy("third.img");
    place.run(&["import", "--tar", &third, "tree.tar", "damaged.tar"]).fails(1, "damaged.tar");
    assert_eq!(place.run(&["ls", &third]).fine(), "");
    // A stream as well.
    place.run(&["snapshot", "create", place.image(), "s"]).fine();
    let stream = File::create(place.path("stream")).unwrap();
    let sent = place.command(&["send", &format!("{}@s", place.image())]).stdout(stream).output();
    said(sent.unwrap()).fine();
    place.run(&["receive", &third, "no-stream"]).fails(1, "no-stream");
    place.run(&["receive", &third, "stream", "--branch", "new"]).fine();
    assert_eq!(place.run(&["cat", &format!("{third}:new:/link")]).fine(), "content");
}

/// Attributes of other systems have no place in a volume: the content comes, and each member is told of once.
#[test]
fn what_a_volume_does_not_take_of_an_archive_is_told_and_the_rest_is_imported() {
    let place = TestMount::with_volume();
    let script = "import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w', format=tarfile.PAX_FORMAT) as tar:
    for name, keys in (('other', ['com.apple.a', 'com.apple.b', 'user.c']), ('plain', [])):
        member = tarfile.TarInfo(name)
        member.pax_headers = {'SCHILY.xattr.' + key: 'value' for key in keys}
        member.size = len(name)
        tar.addfile(member, io.BytesIO(name.encode()))";
    let made = Command::new("python3").args(["-c", script, &place.path("mac.tar")]).status();
    assert!(made.unwrap().success());
    let told = import(&place, place.image(), &["--tar"], "mac.tar");
    assert_eq!((told.code, told.err.lines().count()), (1, 1), "{told:?}");
    let words = "other: is copied without com.apple.a, com.apple.b, which cannot be set there";
    assert!(told.err.contains(words), "{told:?}");
    for name in ["other", "plain"] {
        assert_eq!(place.run(&["cat", &place.inside(&format!("/{name}"))]).fine(), name);
    }
    // What lies in a volume can be copied to another one, and there is nothing to tell.
    place.run(&["cp", "-a", &place.inside("/other"), &place.path("out")]).fine();
}
