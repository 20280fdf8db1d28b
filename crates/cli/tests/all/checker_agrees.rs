//! Checker and writer agree on every state that one command alone can make, and two of them.

use std::fs;
use std::sync::Arc;

use holdfast_check::{Options, check};
use holdfast_device::{Device, FileDevice, OpenMode};

use crate::common::TestMount;

/// Commands that change a volume; `V` stands for the image, `D` for a directory of the host.
const COMMANDS: [&str; 28] = [
    "branch limit V main 12M",
    "branch limit V main none",
    "branch rename V main other",
    "branch delete V fork",
    "branch promote V fork",
    "branch promote --force --discard V fork",
    "branch limit V fork 12M",
    "branch rename V fork try",
    "tune --limit 12M V",
    "tune --label name V",
    "tune --uuid random V",
    "snapshot create V one",
    "snapshot create V",
    "snapshot rename V one two",
    "snapshot hold V one",
    "snapshot rollback V one",
    "snapshot rollback --discard V one",
    "snapshot delete V one",
    "fork V fork",
    "prune --all-names --keep 1s:1s V",
    "cp -r D V:/",
    "mkdir V:/new",
    "rm -r V:/D",
    "trim V",
    "scrub V",
    "resize V +4M",
    "resize V -2M",
    "fsck -y V",
];

/// Whether the command says that it has done something.
fn runs(place: &TestMount, command: &str) -> bool {
    let dir = place.dir();
    let name = dir.rsplit('/').next().unwrap();
    let word = |word: &str| match word {
        "V" => place.image().to_owned(),
        "D" => dir.to_owned(),
        "V:/D" => place.inside(&format!("/{name}")),
        _ => word.replacen("V:", &format!("{}:", place.image()), 1),
    };
    let words: Vec<String> = command.split(' ').map(word).collect();
    let said = place.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    said.code == 0
}

fn expect_clean(place: &TestMount, commands: &[&str]) {
    let device = FileDevice::open(place.image(), OpenMode::ReadOnly).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let report = check(&*device, &Options { data: true, progress: None }).unwrap();
    assert!(report.is_clean() && report.findings.is_empty(), "{commands:?}: {:?}", report.findings);
}

/// Each command on a fresh volume, and behind each that has done something each other one.
fn sweep(copies: &str) {
    let place = TestMount::new();
    fs::write(place.dir.join("file"), vec![7; 100_000]).unwrap();
    place.run(&["mkfs", "-q", "--size", "16M", "--copies", copies, place.image()]).fine();
    let fresh = fs::read(place.image()).unwrap();
    for first in COMMANDS {
        fs::write(place.image(), &fresh).unwrap();
        let is_done = runs(&place, first);
        expect_clean(&place, &[first]);
        if !is_done {
            continue;
        }
        let then = fs::read(place.image()).unwrap();
        for second in COMMANDS {
            fs::write(place.image(), &then).unwrap();
            if runs(&place, second) {
                expect_clean(&place, &[first, second]);
            }
        }
    }
}

#[test]
fn a_check_finds_nothing_behind_any_command() {
    sweep("metadata=1");
}

#[test]
fn a_check_finds_nothing_behind_any_command_where_nodes_are_stored_twice() {
    sweep("metadata=2");
}
