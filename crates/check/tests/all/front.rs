//! What a caller meets before any pass: volumes, other things, newer things, and dumps.

use std::cell::RefCell;

use holdfast_base::{BLOCK_SIZE, BlockNo, TreeId};
use holdfast_check::pass::PASSES;
use holdfast_check::{CheckError, Issue, Options, Progress, Subject, check, dump, identify, probe};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::Superblock;
use holdfast_format::checksum::crc64_with_hole;
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::superblock::VERSION;

use crate::common::*;

fn printed(device: &dyn Device, what: Subject) -> String {
    let mut out = Vec::new();
    dump(device, &what, &mut out).expect("there is something to print");
    String::from_utf8(out).expect("a dump is text")
}

#[test]
fn a_volume_is_recognised() {
    let made = Maker::sample().make();
    let summary = probe(&made.device).expect("it is a volume");
    assert_eq!((summary.label.as_str(), summary.inodes), ("sample", 8));
    assert_eq!(summary.volume_bytes, 8 << 20);
    assert_eq!(identify(&made.device), Some("a Holdfast volume"));
}

#[test]
fn other_things_are_not() {
    let empty = MemoryDevice::new(8 << 20);
    let error = check(&empty, &Options::default()).expect_err("it is empty");
    assert_eq!(error.to_string(), "not a Holdfast volume");
    assert!(probe(&empty).is_none());
    let mut image = vec![0; 8 << 20];
    image[..4].copy_from_slice(b"XFSB");
    let error = check(&MemoryDevice::from_image(&image), &Options::default());
    let error = error.expect_err("it is something else");
    assert_eq!(error.to_string(), "not a Holdfast volume, but an XFS filesystem");
    let error = dump(&empty, &Subject::Superblocks, &mut Vec::new()).expect_err("it is empty");
    assert!(matches!(error, CheckError::NotHoldfast { found: None }));
    for tiny in [0, 1, 100_000] {
        let tiny = MemoryDevice::new(tiny);
        assert!(check(&tiny, &Options::default()).is_err());
    }
}

#[test]
fn a_newer_format_is_an_error_and_not_damage() {
    let newer = VERSION as u8 + 1;
    let words = format!("version {newer}");
    for (at, byte, name) in [(40, newer, words.as_str()), (64, 2, "features")] {
        let made = Maker::sample().make();
        for slot in SUPERBLOCK_SLOTS {
            made.poke(slot, BLOCK_SIZE, |bytes| {
                bytes[at] = byte;
                let sum = crc64_with_hole(bytes, 16);
                bytes[16..24].copy_from_slice(&sum.to_le_bytes());
            });
        }
        let error = check(&made.device, &Options::default()).expect_err("it is too new");
        assert!(matches!(error, CheckError::Newer(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(identify(&made.device), Some("a Holdfast volume"));
    }
}

/// No program makes a volume of so many EiB, but one that reads may meet it: it says what is there.
#[test]
fn a_volume_as_large_as_can_be_is_judged() {
    let made = Maker::sample().make();
    let mut large = made.superblock.clone();
    large.geometry.volume_blocks = i64::MAX as u64 / 4096;
    for slot in [0, 1] {
        large.epoch.0 += slot as u64;
        made.write_superblock(slot, &large);
    }
    made.write_signpost(&large);
    let report = check(&made.device, &Options::default()).unwrap();
    let issues: Vec<_> = report.findings.iter().map(holdfast_check::Finding::issue).collect();
    assert_eq!(issues, [Issue::VolumeCutShort], "{:?}", report.findings);
}

/// Both slots ask for a newer program. A far copy of the same volume that is of a later checkpoint counts all the same: the volume
/// has given up what asked for it. One that is not later, or of another volume, does not.
#[test]
fn a_later_far_copy_counts_more_than_slots_that_are_too_new() {
    for (later, is_same, counts) in
        [(true, true, true), (false, true, false), (true, false, false), (false, false, false)]
    {
        let made = Maker::sample().make();
        let here = made.superblock.clone();
        let epoch = if later { here.epoch.next() } else { here.epoch };
        made.write_far_copy(&Superblock { epoch, ..here.clone() });
        let mut slots = here;
        if !is_same {
            slots.created.secs += 1;
        }
        for (slot, at) in SUPERBLOCK_SLOTS.into_iter().enumerate() {
            made.write_superblock(slot, &slots);
            made.poke(at, BLOCK_SIZE, |bytes| {
                bytes[64] = 2;
                let sum = crc64_with_hole(bytes, 16);
                bytes[16..24].copy_from_slice(&sum.to_le_bytes());
            });
        }
        let checked = check(&made.device, &Options::default());
        let what = format!("later {later}, the same volume {is_same}: {checked:?}");
        assert_eq!(!matches!(checked, Err(CheckError::Newer(_))), counts, "{what}");
        assert_eq!(checked.is_ok(), counts, "{what}");
    }
}

#[test]
fn a_check_never_writes() {
    let made = Maker::sample().make();
    let before = made.device.to_image();
    let device = made.device.snapshot();
    check_all(&device);
    printed(&device, Subject::Tree(TreeId::Files));
    let stats = device.stats();
    assert_eq!((stats.writes, stats.flushes, stats.discards), (0, 0, 0));
    assert!(stats.reads > 0);
    assert!(device.to_image() == before);
}

#[test]
fn data_is_read_only_when_asked_for() {
    let made = Maker::sample().make();
    let report = check(&made.device, &Options::default()).expect("it is a volume");
    assert_eq!(report.facts.verified_bytes, 0);
    assert!(report.is_clean());
}

#[test]
fn progress_names_a_pass() {
    let mut maker = Maker::sample();
    maker.leaf_items = 2;
    for index in 0..9000u64 {
        let number = holdfast_base::InodeNo(100 + index);
        let item = inode(holdfast_format::item::FileType::Regular, 1, 0);
        maker.inode(number, item);
        let file_type = holdfast_format::item::FileType::Regular;
        maker.dentry(SUB, &format!("{index}"), number, file_type);
    }
    maker.leaf_items = 20;
    maker.change(SUB, |item| item.size = 9000);
    maker.superblock(|superblock| superblock.inode_next.0 = 20_000);
    let seen = RefCell::new(Vec::<Progress>::new());
    let note = |progress| seen.borrow_mut().push(progress);
    let options = Options { data: true, progress: Some(&note) };
    let report = check(&maker.make().device, &options).expect("it is a volume");
    assert_eq!(report.findings, []);
    let seen = seen.into_inner();
    assert!(seen.iter().all(|progress| PASSES.iter().any(|pass| pass.name == progress.pass)));
    for pass in ["trees", "inodes", "directories"] {
        assert!(seen.iter().any(|progress| progress.pass == pass), "{pass}");
    }
}

#[test]
fn passes_need_only_earlier_ones() {
    for (index, pass) in PASSES.iter().enumerate() {
        assert!(PASSES[..index].iter().all(|earlier| earlier.number != pass.number));
        for need in pass.needs {
            assert!(PASSES[..index].iter().any(|earlier| earlier.name == *need), "{need}");
        }
    }
}

#[test]
fn dumps_print_each_thing_on_a_line() {
    let mut maker = Maker::sample();
    maker.leaf_items = 6;
    let made = maker.make();
    let text = printed(&made.device, Subject::Superblocks);
    assert!(text.contains("superblock slot=0 block=16 valid=true counts=true\n"), "{text}");
    assert!(text.contains("superblock slot=1 label=\"sample\"\n"), "{text}");
    assert!(text.contains("zone name=log block=272 count=64\n"), "{text}");
    let text = printed(&made.device, Subject::Tree(TreeId::Files));
    let items = text.lines().filter(|line| line.starts_with("item ")).count();
    assert_eq!(items, 26);
    assert!(text.contains("kind=Dentry"), "{text}");
    assert!(text.contains("name=\"user.short\" len=5 bytes=\"value\""), "{text}");
    assert!(text.contains(" unwritten"), "{text}");
    let text = printed(&made.device, Subject::Tree(TreeId::Space));
    assert!(text.contains("kind=Group offset=0x0 used_blocks="), "{text}");
    let by_path = printed(&made.device, Subject::path(b"/dir//data"));
    assert_eq!(by_path, printed(&made.device, Subject::Inode(DATA)));
    assert!(by_path.lines().all(|line| line.contains(" inode=18 ")), "{by_path}");
    let text = printed(&made.device, Subject::Node(made.root()));
    assert!(text.contains("level=1"), "{text}");
    assert!(text.contains("child node="), "{text}");
}

#[test]
fn dumps_show_damage_and_go_on() {
    let mut maker = Maker::sample();
    maker.leaf_items = 6;
    let made = maker.make();
    let bad = made.files[1].block;
    made.poke(bad, BLOCK_SIZE, |bytes| bytes[2000] ^= 1);
    let text = printed(&made.device, Subject::Tree(TreeId::Files));
    assert!(text.contains(&format!("DAMAGED node={bad} tree=files level=0 why=")), "{text}");
    assert!(text.contains(&format!("node={} ", made.files[2].block)), "{text}");
    // The body of the node is sound; only its sum is not.
    let text = printed(&made.device, Subject::Node(bad));
    assert!(text.contains("DAMAGED"), "{text}");
    assert!(text.contains("item node="), "{text}");
    let missing = dump(&made.device, &Subject::Node(BlockNo(70)), &mut Vec::new());
    assert!(matches!(missing, Err(CheckError::Missing(_))));
    let missing = dump(&made.device, &Subject::path(b"/no/such"), &mut Vec::new());
    let words = missing.expect_err("there is no such file").to_string();
    assert_eq!(words, "/no/such: there is no \"no\" in inode 1");
}
