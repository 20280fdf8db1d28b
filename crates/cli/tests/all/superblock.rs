//! Superblocks from the command line: an image that takes no space, a lost first MiB, another id, label and size.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{TestMount, can_mount};

fn holdfast(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).args(args).output().unwrap()
}

/// What a command says that must succeed.
fn ok(args: &[&str]) -> String {
    let output = holdfast(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn code(args: &[&str]) -> (Option<i32>, String) {
    let output = holdfast(args);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn image(dir: &Path) -> String {
    dir.join("volume.img").to_str().unwrap().to_owned()
}

/// A label may be a stranger's, and JSON be looked at in a terminal.
#[test]
fn a_label_gives_no_orders_to_a_terminal() {
    const LABEL: &str = "a\u{1b}[2J\u{9b}b\u{202e}c\u{2028}d";
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let made = ok(&["mkfs", "--size", "16M", "--label", LABEL, &image]);
    let json = ok(&["info", "--json", &image]);
    for said in [&made, &json, &ok(&["info", &image])] {
        let orders = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{2028}'];
        assert!(!said.contains(orders), "{said:?}");
    }
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["label"], LABEL);
}

#[test]
fn an_empty_image_of_any_size_takes_less_than_a_mib() {
    let dir = tempfile::tempdir().unwrap();
    for size in ["8M", "1G", "64G", "1T"] {
        let image = image(dir.path());
        ok(&["mkfs", "--size", size, &image]);
        let taken = fs::metadata(&image).unwrap().blocks() * 512;
        assert!(taken <= 1 << 20, "{size}: {taken} bytes");
        assert!(ok(&["fsck", &image]).contains("clean"), "{size}");
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn mkfs_makes_the_rings_as_large_as_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    ok(&["mkfs", "--size", "64M", "--log-size", "512k", "--journal-size", "2M", &image]);
    let info: serde_json::Value = serde_json::from_str(&ok(&["info", "--json", &image])).unwrap();
    assert_eq!(
        (&info["log_ring_bytes"], &info["journal_ring_bytes"]),
        (&(512 << 10).into(), &(2 << 20).into())
    );
    let (status, said) = code(&["mkfs", "--force", "--log-size", "100k", &image]);
    assert!(status == Some(1) && said.contains("at least 256 KiB"), "{status:?} {said}");
}

/// A volume that holds `/file`, and was closed.
fn image_with_a_file(dir: &Path) -> String {
    let image = image(dir);
    ok(&["mkfs", "--size", "64M", &image]);
    let source = dir.join("file");
    fs::write(&source, "content").unwrap();
    ok(&["cp", source.to_str().unwrap(), &format!("{image}:/file")]);
    image
}

#[test]
fn a_lost_first_mib_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["ls", &image]);
    assert!(status != Some(0) && said.contains("holdfast fsck -y"), "{said}");
    let (status, said) = code(&["fsck", &image]);
    assert!(status == Some(4) && said.contains("holdfast fsck -y"), "{said}");
    // Another filesystem has begun there: it stays, unless it is said that it need not.
    file.write_all_at(b"XFSB", 0).unwrap();
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    let forced = format!("`holdfast fsck --repair-superblock {image}`");
    assert!(status == Some(4) && said.contains("an XFS filesystem"), "{status:?} {said}");
    assert!(said.contains(&forced), "{said}");
    assert!(fs::read(&image).unwrap() == before, "nothing was written");
    let (status, said) = code(&["fsck", "--repair-superblock", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "--repair-superblock", "--json", &image]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let what = said["repairs"][0]["what"].as_str().unwrap_or_default();
    assert!(status == Some(1) && what.contains("written back"), "{status:?} {said}");
    let left = said["after"]["findings"].as_array().unwrap();
    assert!(left.iter().all(|finding| finding["severity"] == "note"), "{said}");
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    // The other slot is still lost: the next checkpoint would write it, and so does this.
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written anew"), "{status:?} {said}");
    assert!(!ok(&["fsck", &image]).contains("superblock"));
    assert!(ok(&["fsck", &image]).contains("clean"));
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    // Where more is wrong, nothing is written.
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let info = holdfast(&["info", &image]);
    assert!(!info.status.success());
    file.write_all_at(&vec![0x55; 8 << 20], 4 << 20).unwrap();
    let (status, said) = code(&["fsck", "--repair-superblock", &image]);
    assert!(status == Some(4) && !said.contains("written back"), "{status:?} {said}");
}

/// In a file that has become longer the signpost leads to the superblock at the volume's end; without it salvage says where that is.
#[test]
fn a_lost_first_mib_comes_back_in_a_file_that_has_become_longer() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(200 << 20).unwrap();
    let (status, said) = code(&["fsck", "-n", "--size", "64M", &image]);
    assert!(status == Some(8) && said.contains("leave --size out"), "{status:?} {said}");
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    // The signpost is lost as well.
    file.write_all_at(&vec![0; (1 << 20) + (64 << 10)], 0).unwrap();
    for command in [&["fsck", "-n", &image][..], &["fsck", "-y", &image], &["ls", &image]] {
        let (status, said) = code(command);
        assert!(status != Some(0) && said.contains("holdfast salvage --list"), "{status:?} {said}");
    }
    let list = ok(&["salvage", "--list", &image]);
    let size = list.lines().find_map(|line| line.strip_prefix("size: ")).unwrap();
    let size = size.split(' ').next().unwrap();
    assert_eq!(size, (64 << 20).to_string());
    let (status, said) = code(&["fsck", "-n", "--size", size, &image]);
    assert!(status == Some(4) && said.contains("holdfast fsck -y"), "{status:?} {said}");
    let (status, said) = code(&["fsck", "-y", "--size", size, &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    assert!(ok(&["fsck", "-n", &image]).contains("clean"));
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    ok(&["resize", &image, "max"]);
    assert!(ok(&["fsck", "-n", &image]).contains("clean"));
}

/// The newest node of a tree in an image, 1 of files, 2 of space: where it begins.
fn newest_node(image: &[u8], tree: u8) -> usize {
    let nodes = (0..image.len()).step_by(4096).filter(|at| {
        image[*at..].starts_with(b"hfNd") && image[*at + 5] == tree && image[*at + 16..].len() > 8
    });
    let epoch = |at: &usize| u64::from_le_bytes(image[at + 24..at + 32].try_into().unwrap());
    nodes.max_by_key(epoch).unwrap()
}

/// A space tree is made anew. In its only node branches may have stood: that takes a second word, and never happens at boot. With a node of
/// files something is lost, and that is said.
#[test]
fn a_damaged_tree_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let file = fs::File::options().write(true).open(&image).unwrap();
    let at = newest_node(&fs::read(&image).unwrap(), 2);
    file.write_all_at(&[0x55; 64], at as u64 + 100).unwrap();
    let (status, said) = code(&["fsck", &image]);
    assert!(status == Some(4) && said.contains("node-damaged"), "{status:?} {said}");
    for word in ["-p", "-y"] {
        let (status, said) = code(&["fsck", word, &image]);
        assert!(status == Some(4) && said.contains("--accept-loss"), "{status:?} {said}");
    }
    let (status, said) = code(&["fsck", "-n", "--json", &image]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let why = said["plan"]["refused"].as_str().unwrap_or_default();
    assert!(status == Some(4) && why.contains("--accept-loss"), "{said}");
    let (status, said) = code(&["fsck", "-y", "--accept-loss", &image]);
    assert!(status == Some(1) && said.contains("may have stood"), "{status:?} {said}");
    assert!(ok(&["fsck", &image]).contains("clean"));
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    let at = newest_node(&fs::read(&image).unwrap(), 1);
    file.write_all_at(&[0x55; 64], at as u64 + 100).unwrap();
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", "-p", "-f", &image]);
    assert!(status == Some(4) && said.contains("--accept-loss"), "{status:?} {said}");
    // All files of the branch go: that takes the second word as well.
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(4) && said.contains("main would be without its root"), "{said}");
    let (status, planned) = code(&["fsck", "-n", "--accept-loss", "--json", &image]);
    assert!(fs::read(&image).unwrap() == before, "nothing was written");
    let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
    assert!(status == Some(4) && planned["plan"]["loses"] == true, "{planned}");
    assert!(planned["plan"]["bytes"].as_u64().unwrap() >= 3 * 4096, "{planned}");
    let (status, said) = code(&["fsck", "-y", "--accept-loss", "--json", &image]);
    // One document, with the findings, what is done, and what is found behind it.
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(status == Some(1) && !said["findings"].as_array().unwrap().is_empty(), "{said}");
    assert!(said["repairs"].as_array().unwrap().iter().any(|it| it["loses"] == true), "{said}");
    assert_eq!(said["after"]["findings"], serde_json::json!([]));
    assert_eq!(planned["plan"]["repairs"], said["repairs"], "it is what is done");
    assert_eq!(planned["findings"], said["findings"]);
    assert!(ok(&["fsck", &image]).contains("clean"));
    ok(&["ls", &image]);
}

/// The plan is what `-y` does also where nothing is lost and nothing is wrong, and where `-y` refuses.
#[test]
fn a_plan_is_told_to_programs_wherever_something_would_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let json = |args: &[&str]| {
        let (status, said) = code(args);
        (status, serde_json::from_str::<serde_json::Value>(&said).unwrap())
    };
    let (status, clean) = json(&["fsck", "-n", "--json", &image]);
    assert!(status == Some(0) && clean["plan"].is_null(), "{clean}");
    let file = fs::File::options().write(true).open(&image).unwrap();
    let bytes = fs::read(&image).unwrap();
    let is_superblock = |at: &usize| bytes[*at..].starts_with(b"holdfast volume\n");
    let far = (0..bytes.len()).step_by(4096).rfind(is_superblock).unwrap();
    file.write_all_at(&[0x55; 64], far as u64 + 100).unwrap();
    let (status, planned) = json(&["fsck", "-n", "--json", &image]);
    assert!(status == Some(0) && planned["plan"]["loses"] == false, "{planned}");
    let (status, done) = json(&["fsck", "-y", "--json", &image]);
    assert_eq!((status, &planned["plan"]["repairs"]), (Some(1), &done["repairs"]));
    // Another filesystem was made there since.
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    file.write_all_at(&[0x55; 64], 64 << 10).unwrap();
    let (_, planned) = json(&["fsck", "-n", "--json", &image]);
    let (status, done) = code(&["fsck", "-y", &image]);
    let why = planned["plan"]["refused"].as_str().unwrap_or_default();
    assert!(status == Some(4) && why.contains("ext") && done.contains(why), "{planned} {done}");
}

/// What a repair overwrites is kept, and put back bit for bit; also twice, but not over what was written since, nor to another volume.
#[test]
fn a_repair_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let kept = dir.path().join("kept").to_str().unwrap().to_string();
    let file = fs::File::options().write(true).open(&image).unwrap();
    let at = newest_node(&fs::read(&image).unwrap(), 1);
    file.write_all_at(&[0x55; 64], at as u64 + 100).unwrap();
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", "-y", "--accept-loss", "-z", &kept, &image]);
    assert!(status == Some(1) && said.contains("repaired"), "{status:?} {said}");
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);
    let repaired = fs::read(&image).unwrap();
    assert!(repaired != before);
    // A file that may be needed is not written over.
    let (status, said) = code(&["fsck", "-y", "-z", &kept, &image]);
    assert!(status == Some(0) && said.contains("clean"), "{status:?} {said}");
    for _ in 0..2 {
        let (status, said) = code(&["fsck", "--undo", &kept, &image]);
        assert!(status == Some(0) && said.contains("bit for bit"), "{status:?} {said}");
        assert!(fs::read(&image).unwrap() == before);
    }
    let (status, said) = code(&["fsck", "-y", "--accept-loss", "-z", &kept, &image]);
    assert!(status == Some(8) && said.contains("it exists"), "{status:?} {said}");
    assert!(fs::read(&image).unwrap() == before);
    // A volume that was written to since.
    fs::write(&image, &repaired).unwrap();
    let volume = holdfast::Volume::open(&image).unwrap();
    volume.write("/new", b"new").unwrap();
    volume.close().unwrap();
    let now = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", "--undo", &kept, &image]);
    assert!(status == Some(4) && said.contains("changed since"), "{status:?} {said}");
    assert!(fs::read(&image).unwrap() == now);
    // One that is longer by now: that it was, and how long, is what is wrong.
    fs::write(&image, &repaired).unwrap();
    file.set_len(before.len() as u64 + (1 << 20)).unwrap();
    let (status, said) = code(&["fsck", "--undo", &kept, &image]);
    let then = format!("{} bytes when it was repaired", before.len());
    assert!(status == Some(4) && said.contains(&then), "{status:?} {said}");
    file.set_len(before.len() as u64).unwrap();
    let (status, said) = code(&["fsck", "--undo", &kept, &image]);
    assert!(status == Some(0) && said.contains("bit for bit"), "{status:?} {said}");
    // Another volume, and no such file.
    let other = dir.path().join("other").to_str().unwrap().to_string();
    ok(&["mkfs", "--size", &before.len().to_string(), &other]);
    let (status, said) = code(&["fsck", "--undo", &kept, &other]);
    assert!(status == Some(4) && said.contains("another volume"), "{status:?} {said}");
    let whole = fs::read(&kept).unwrap();
    for bytes in [&whole[..whole.len() - 1], b"something", b""] {
        fs::write(&kept, bytes).unwrap();
        let (status, said) = code(&["fsck", "--undo", &kept, &image]);
        assert!(status == Some(8) && said.contains("no whole undo file"), "{status:?} {said}");
    }
    let mut bytes = whole;
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&kept, bytes).unwrap();
    let (status, said) = code(&["fsck", "--undo", &kept, &image]);
    assert!(status == Some(8) && said.contains("checksum"), "{status:?} {said}");
}

/// Places of batches that were lost are named, written again from the other ones, and put back by an undo.
#[test]
fn a_bad_place_of_a_ring_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let (image, used) = (image(dir.path()), dir.path().join("used"));
    ok(&["mkfs", "--size", "64M", "--copies", "metadata=2", used.to_str().unwrap()]);
    let volume = holdfast::VolumeOptions::new().commit_secs(0).open(&used).unwrap();
    for number in 0..4 {
        let file = volume.create(format!("/file-{number}")).unwrap();
        file.sync_all().unwrap();
    }
    // What a killed program leaves.
    fs::copy(&used, &image).unwrap();
    volume.close().unwrap();
    let kept = dir.path().join("kept").to_str().unwrap().to_string();
    let file = fs::File::options().write(true).open(&image).unwrap();
    // The log begins at block 272, with a marker. Behind it is the first batch.
    let bytes = fs::read(&image).unwrap();
    let mut places = (272 * 4096..2 << 20).step_by(512);
    let first = places.next().unwrap();
    let batch = places.find(|at| bytes[*at..at + 4] == bytes[first..first + 4]).unwrap();
    file.write_all_at(&[0x55; 512], batch as u64).unwrap();
    let block = format!("block {}", batch / 4096);
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", &image]);
    assert!(status == Some(0) && said.contains("906 batch-place-bad"), "{status:?} {said}");
    assert!(fs::read(&image).unwrap() == before);
    let (status, said) = code(&["fsck", "-y", "-z", &kept, &image]);
    assert!(status == Some(1) && said.contains("repair 906 batch-place-bad"), "{status:?} {said}");
    assert!(said.contains(&block) && said.contains("repaired"), "{said}");
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(0) && !said.contains("906"), "{status:?} {said}");
    let (status, said) = code(&["fsck", "--undo", &kept, &image]);
    assert!(status == Some(0) && said.contains("bit for bit"), "{status:?} {said}");
    assert!(fs::read(&image).unwrap() == before);
    let (status, said) = code(&["fsck", "-y", "--json", &image]);
    assert!(status == Some(1) && said.contains("\"repairs\":[{\"id\":906"), "{status:?} {said}");
    let volume = holdfast::Volume::open(&image).unwrap();
    assert!((0..4).all(|number| volume.metadata(format!("/file-{number}")).is_ok()));
}

/// What cannot be mounted to be written is not passed over at boot.
#[test]
fn a_volume_whose_log_is_damaged_does_not_pass_at_boot() {
    let dir = tempfile::tempdir().unwrap();
    let (image, used) = (image(dir.path()), dir.path().join("used"));
    ok(&["mkfs", "--size", "64M", used.to_str().unwrap()]);
    let volume = holdfast::VolumeOptions::new().commit_secs(0).open(&used).unwrap();
    for number in 0..4 {
        volume.create(format!("/file-{number}")).unwrap().sync_all().unwrap();
    }
    // What a killed program leaves: sound, though its end is torn.
    fs::copy(&used, &image).unwrap();
    volume.close().unwrap();
    assert_eq!(code(&["fsck", "-p", &image]), (Some(0), String::new()));
    let (status, said) = code(&["fsck", "-p", "--json", &image]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(status == Some(0) && said["can_be_mounted"] == true, "{said}");
    assert!(ok(&["info", "--json", &image]).contains("\"recovery_missing\":[]"));
    // The log begins at block 272.
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0x55; 512], 273 * 4096).unwrap();
    let (status, said) = code(&["fsck", "-n", &image]);
    assert!(status == Some(4) && said.contains("901"), "{status:?} {said}");
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["fsck", "-p", &image]);
    assert!(status == Some(4) && said.contains("--accept-loss"), "{status:?} {said}");
    assert!(fs::read(&image).unwrap() == before);
    // `info`, which tells what a mount would take, says it too.
    let said = ok(&["info", &image]);
    assert!(said.contains("refused, but for reading: "), "{said}");
    let said: serde_json::Value = serde_json::from_str(&ok(&["info", "--json", &image])).unwrap();
    assert!(said["recovery_missing"].as_array().is_some_and(|it| !it.is_empty()), "{said}");
    assert!(holdfast::Volume::open(&image).is_err());
}

/// The superblock tells of a fault, and its slots are lost beside that: the one is mended, the other stays until all data was read.
#[test]
fn a_lost_superblock_comes_back_beside_a_fault_that_it_tells_of() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    ok(&["mkfs", "--size", "64M", &image]);
    let content: Vec<u8> = (0..1_000_000u32).map(|n| (n / 7) as u8).collect();
    let volume = holdfast::Volume::open(&image).unwrap();
    volume.write("/file", &content).unwrap();
    volume.close().unwrap();
    let whole = fs::read(&image).unwrap();
    let at = whole.windows(4096).position(|bytes| bytes == &content[8192..12_288]).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0x55; 4096], at as u64).unwrap();
    let volume = holdfast::Volume::open(&image).unwrap();
    assert!(volume.read("/file").is_err());
    volume.write("/other", b"so that there is another superblock").unwrap();
    volume.close().unwrap();
    // The device reads again.
    file.write_all_at(&content[8192..12_288], at as u64).unwrap();
    let (status, said) = code(&["fsck", "-d", &image]);
    assert!(status == Some(4) && said.contains("fault"), "{status:?} {said}");
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(4) && said.contains("fault"), "without -d it stays: {status:?} {said}");
    let (status, said) = code(&["fsck", "-y", "-d", &image]);
    assert!(status == Some(1) && said.contains("forgotten"), "{status:?} {said}");
    assert!(ok(&["fsck", "-d", &image]).contains("clean"));
    assert_eq!(holdfast::Volume::open(&image).unwrap().read("/file").unwrap(), content);
}

/// One slot is valid, so the volume can be mounted; but something else says that it begins there.
#[test]
fn nothing_is_written_beside_the_signature_of_another_filesystem_unless_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let file = fs::File::options().write(true).open(&image).unwrap();
    let whole = fs::read(&image).unwrap();
    let slots = whole.chunks(4096).take(256).enumerate();
    let mut slots = slots.filter(|(_, block)| block.starts_with(b"holdfast volume\n"));
    let (first, second) = (slots.next().unwrap().0, slots.next().unwrap().0);
    for lost in [first, second] {
        file.write_all_at(&whole, 0).unwrap();
        file.write_all_at(b"XFSB", 0).unwrap();
        file.write_all_at(&[0x55; 4096], lost as u64 * 4096).unwrap();
        let before = fs::read(&image).unwrap();
        let (status, said) = code(&["fsck", &image]);
        assert!(status == Some(0) && said.contains("slot"), "{status:?} {said}");
        let (status, said) = code(&["fsck", "-y", &image]);
        assert!(status == Some(4) && said.contains("an XFS filesystem"), "{status:?} {said}");
        assert!(fs::read(&image).unwrap() == before, "nothing was written");
        let (status, said) = code(&["fsck", "--repair-superblock", "-y", &image]);
        assert!(status == Some(1) && said.contains("written anew"), "{status:?} {said}");
        assert!(!ok(&["fsck", &image]).contains("slot"));
        assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    }
}

#[test]
fn a_copy_gets_an_id_and_a_label_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    ok(&["mkfs", "--size", "64M", "--label", "old", &image]);
    let info = |field: &str| -> serde_json::Value {
        let text = ok(&["info", "--json", &image]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[field].clone()
    };
    let before = info("uuid");
    ok(&["tune", "--uuid", "random", &image]);
    assert_ne!(info("uuid"), before);
    let id = "00112233-4455-6677-8899-aabbccddeeff";
    ok(&["tune", "--uuid", id, "--label", "new", &image]);
    assert_eq!((info("uuid"), info("label")), (id.into(), "new".into()));
    assert!(ok(&["fsck", &image]).contains("clean"));
    let (status, _) = code(&["tune", &image]);
    assert_ne!(status, Some(0), "nothing to do");
}

#[test]
fn a_volume_at_rest_becomes_larger() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_a_file(dir.path());
    let size = || {
        let text = ok(&["info", "--json", &image]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["volume_bytes"].as_u64().unwrap()
            >> 20
    };
    let before = size();
    assert!(ok(&["resize", &image, "+100M"]).contains("before"));
    assert_eq!(size(), before + 100);
    assert_eq!(fs::metadata(&image).unwrap().len() >> 20, before + 100);
    assert!(fs::metadata(&image).unwrap().blocks() * 512 < 40 << 20, "it is sparse");
    ok(&["resize", &image, "0.5G"]);
    assert_eq!(size(), 512);
    assert!(ok(&["resize", &image, "512M"]).contains("already"));
    // As a growth that was cut short leaves it.
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(800 << 20).unwrap();
    let info = ok(&["info", &image]);
    assert!(info.contains(&format!("`holdfast resize {image} max`")), "{info}");
    ok(&["resize", &image, "max"]);
    assert!(size() == 800 && !ok(&["info", &image]).contains("resize"));
    for (wanted, word) in [("2000T", "TiB"), ("much", "not a size")] {
        let (status, said) = code(&["resize", &image, wanted]);
        assert!(status.is_some_and(|code| code != 0) && said.contains(word), "{status:?} {said}");
    }
    assert!(ok(&["fsck", "-n", "-d", &image]).contains("clean"));
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
    // Its far copy is where the new size puts it.
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    assert_eq!(ok(&["cat", &format!("{image}:/file")]), "content");
}

/// `df` shows it at once, and what is written uses it; label and limit change live, the id does not.
#[test]
fn a_mounted_volume_becomes_larger_and_gets_another_label() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    let blocks = || rustix::fs::statvfs(place.dir()).unwrap();
    let before = blocks().f_blocks * blocks().f_frsize;
    fs::write(place.dir.join("kept"), vec![5; 3 << 20]).unwrap();
    let said = place.run(&["resize", place.dir(), "+64M"]).fine();
    assert!(said.contains("128.0 MiB"), "{said}");
    let after = blocks().f_blocks * blocks().f_frsize;
    assert!(after >= before + (63 << 20), "{before} {after}");
    // By its image as well, which the daemon has.
    place.run(&["resize", place.image(), "192M"]).fine();
    fs::write(place.dir.join("large"), vec![7; 140 << 20]).unwrap();
    place.run(&["resize", place.dir(), "8M"]).fails(1, "unmount it first");
    place.run(&["resize", place.image(), "8M"]).fails(1, "unmount it first");
    place.run(&["tune", "--label", "while in use", "--limit", "180M", place.dir()]).fine();
    place.run(&["tune", "--uuid", "random", place.image()]).fails(1, "unmount it first");
    assert!(place.run(&["list", "--json"]).fine().contains("while in use"));
    assert_eq!(blocks().f_blocks * blocks().f_frsize, 180 << 20);
    place.run(&["tune", "--limit", "none", place.image()]).fine();
    place.umount();
    place.fsck();
    let info = place.run(&["info", place.image()]).fine();
    assert!(info.contains("192.0 MiB") && info.contains("while in use"), "{info}");
    assert_eq!(place.run(&["cat", &place.inside("/large")]).fine().len(), 140 << 20);
}

/// What a smaller volume has is what it had, in branches and snapshots as well, and its file is that long.
#[test]
fn a_volume_at_rest_becomes_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let (image, file) = (image(dir.path()), dir.path().join("content"));
    ok(&["mkfs", "--size", "256M", &image]);
    let put = |size: usize, seed: u8, to: &str| {
        let bytes: Vec<u8> = (0..size).map(|at| (at / 4096 + at % 255) as u8 ^ seed).collect();
        fs::write(&file, &bytes).unwrap();
        ok(&["cp", file.to_str().unwrap(), &format!("{image}:{to}")]);
        bytes
    };
    put(150 << 20, 1, "/large");
    let small = put(3 << 20, 2, "/small");
    ok(&["snapshot", "create", &image, "s"]);
    let changed = put(2 << 20, 3, "/small");
    ok(&["fork", &image, "b"]);
    let read = |place: &str| {
        let output = holdfast(&["cat", &format!("{image}{place}")]);
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let before = fs::read(&image).unwrap();
    let (status, said) = code(&["resize", &image, "100M"]);
    assert!(status == Some(1) && said.contains("it can have about"), "{status:?} {said}");
    ok(&["fsck", "-n", "-d", &image]);
    assert_eq!(fs::read(&image).unwrap().len(), before.len(), "it has its length");
    for to in ["200M", "-10M"] {
        ok(&["resize", &image, to]);
        let said = ok(&["fsck", "-n", "-d", &image]);
        assert!(said.contains("clean"), "{said}");
        assert!(read("@s:/small") == small && read(":/small") == changed, "{to}");
        assert!(read(":b:/small") == changed, "{to}");
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 190 << 20);
    // Its far copy is where the new size puts it, and what it has can be written on and become larger again.
    let device = fs::OpenOptions::new().write(true).open(&image).unwrap();
    device.write_all_at(&vec![0; 1 << 20], 0).unwrap();
    let (status, said) = code(&["fsck", "-y", &image]);
    assert!(status == Some(1) && said.contains("written back"), "{status:?} {said}");
    ok(&["resize", &image, "220M"]);
    put(30 << 20, 4, "/more");
    assert!(ok(&["fsck", "-n", "-d", &image]).contains("clean"));
}
