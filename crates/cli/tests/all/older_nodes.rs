//! A damaged node whose older version is still on the device, from the command line: what comes back is said before and behind, and is right.

use std::collections::BTreeMap;
use std::fs;

use crate::common::TestMount;

const BLOCK: usize = 4096;

/// Leaves of files that an image holds, with their epochs.
fn leaves(image: &[u8]) -> Vec<(usize, u64)> {
    let blocks = image.chunks_exact(BLOCK).enumerate();
    let leaves = blocks.filter(|(_, block)| block.starts_with(b"hfNd\x00\x01"));
    let epoch = |block: &[u8]| u64::from_le_bytes(block[24..32].try_into().unwrap());
    leaves.map(|(number, block)| (number, epoch(block))).collect()
}

#[test]
fn an_older_version_of_a_node_gives_back_what_is_right() {
    let place = TestMount::new();
    place.run(&["mkfs", "-q", "--size", "64M", "--node-size", "4k", place.image()]).fine();
    let source = place.path("src");
    fs::create_dir(&source).unwrap();
    let mut files = BTreeMap::new();
    for number in 0..150 {
        let name = format!("a-file-with-a-longer-name-{number}");
        let content = format!("{number} ").repeat(2000);
        fs::write(format!("{source}/{name}"), &content).unwrap();
        files.insert(name, content);
    }
    place.run(&["cp", "-r", &source, &place.inside("/")]).fine();
    // The directory gets one more: its leaves and the way to them are written anew, and the old ones stay where they are.
    fs::write(place.path("one-more"), "new").unwrap();
    place.run(&["cp", &place.path("one-more"), &place.inside("/src/one-more")]).fine();
    place.fsck();
    let sound = fs::read(place.image()).unwrap();
    let newest = leaves(&sound).into_iter().map(|(_, epoch)| epoch).max().unwrap();
    let mut back = 0;
    for (block, _) in leaves(&sound).into_iter().filter(|(_, epoch)| *epoch + 1 >= newest) {
        let mut image = sound.clone();
        image[block * BLOCK + 1000] ^= 1;
        fs::write(place.image(), &image).unwrap();
        let before = place.run(&["fsck", "-n", place.image()]);
        if before.code == 0 {
            // It is an old one.
            continue;
        }
        assert_eq!(before.code, 4, "{before:?}");
        let plan = before.out.split_once("with -y:\n").expect("it says what would be done").1;
        assert_eq!(fs::read(place.image()).unwrap(), image, "-n has written something");
        let done = place.run(&["fsck", "-y", place.image()]);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(plan.lines().all(|line| done.out.contains(line)), "{plan}\n{done:?}");
        back += plan.matches("comes back from a version of epoch").count();
        // What does not come back does not read, and is no error of the volume any more.
        place.run(&["fsck", "-n", place.image()]).fine();
        for (name, content) in files.iter().step_by(23) {
            let there = place.run(&["cat", &place.inside(&format!("/src/{name}"))]);
            let mut losses = plan.lines().filter(|line| line.starts_with("loss"));
            match there.code {
                0 => assert!(
                    there.out == *content || losses.any(|line| line.contains(&**name)),
                    "{name}: {plan}"
                ),
                // Of a name that is lost only the directory is known.
                _ => assert!(losses.next().is_some(), "{name}: {there:?}, {plan}"),
            }
        }
    }
    assert!(back > 0, "no name came back");
}
