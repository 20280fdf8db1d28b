//! A copy of metadata: fsck finds in it what it finds in the volume, and nothing of the content of files is in it.

use holdfast_base::prng::Prng;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_base::{BLOCK_SIZE, BlockNo};
use holdfast_check::{Options, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::{Stored, Superblock};
use holdfast_salvage::{Choice, HowMuch, Scan, Tolerant, image};

use crate::accidents::read;
use crate::common::World;

fn copy(device: &MemoryDevice, content: bool) -> MemoryDevice {
    let tolerant = Tolerant::new(device);
    let scan = Scan::read(&tolerant, &|_| ());
    let copy = MemoryDevice::new(device.len());
    let mut write = |block: u64, bytes: &[u8]| {
        copy.write(block * BLOCK_BYTES, bytes).map_err(std::io::Error::other)
    };
    let content = if content { HowMuch::Content } else { HowMuch::Names };
    let imaged = image(&tolerant, &scan, &Choice::default(), content, &|_| (), &mut write).unwrap();
    assert_eq!(imaged.len, device.len());
    copy
}

/// Numbers of findings and which structures they are of.
fn findings(device: &MemoryDevice) -> Vec<(u16, String)> {
    let report = check(device, &Options::default()).unwrap();
    report.findings.iter().map(|finding| (finding.id, finding.to_string())).collect()
}

#[test]
fn fsck_finds_the_same_in_it() {
    let world = World::new(70, true);
    assert_eq!(findings(&copy(&world.image, false)), []);
    let blocks = 256..world.image.len() / BLOCK_BYTES;
    let nodes: Vec<u64> =
        blocks.filter(|block| read(&world.image, *block).starts_with(b"hfNd")).collect();
    for seed in 0..20 {
        let mut prng = Prng::seeded(seed);
        let device = world.image.snapshot();
        for _ in 0..1 + prng.below(10) {
            let block = *prng.pick(&nodes);
            let mut bytes = vec![0; BLOCK_SIZE];
            device.read(block * BLOCK_BYTES, &mut bytes).unwrap();
            bytes[1000] ^= 1;
            device.write(block * BLOCK_BYTES, &bytes).unwrap();
        }
        let ids = |device: &MemoryDevice| -> Vec<u16> {
            findings(device).into_iter().map(|(id, _)| id).collect()
        };
        // Why a node is damaged is said with other words where nothing of it is left.
        assert_eq!(ids(&device), ids(&copy(&device, false)), "seed {seed}");
        assert_eq!(findings(&device), findings(&copy(&device, true)), "seed {seed}");
    }
    let crashed = World::new(71, false);
    assert_eq!(findings(&crashed.image), findings(&copy(&crashed.image, true)));
    let report = check(&copy(&crashed.image, false), &Options::default()).unwrap();
    assert!(report.is_clean(), "it is in the state of its superblock: {:?}", report.findings);
}

#[test]
fn a_place_that_is_bad_is_bad_in_the_copy_and_a_device_that_was_cut_is_as_short() {
    let device = std::sync::Arc::new(MemoryDevice::new(16 << 20));
    let target: std::sync::Arc<dyn Device> = device.clone();
    let options = holdfast::CreateOptions::new().node_size(4096).metadata_copies(2);
    options.format(&target).unwrap();
    let volume = holdfast::VolumeOptions::new().open_device(target).unwrap();
    for file in 0..200 {
        volume.write(format!("/{file}"), b"content").unwrap();
    }
    volume.close().unwrap();
    let ids = |device: &MemoryDevice| -> Vec<u16> {
        findings(device).into_iter().map(|(id, _)| id).collect()
    };
    let slots = [16, 48].map(|slot| {
        Superblock::decode(read(&device, slot)[..].try_into().unwrap(), BlockNo(slot)).unwrap()
    });
    let root = slots.iter().max_by_key(|slot| slot.epoch).unwrap();
    for place in root.geometry.places_of_node(root.files.block, Stored::Twice) {
        let device = device.snapshot();
        let mut bytes = read(&device, place.start.0);
        bytes[1000] ^= 1;
        device.write(place.start.0 * BLOCK_BYTES, &bytes).unwrap();
        assert_eq!(ids(&device), [211], "{place:?}");
        assert_eq!(ids(&copy(&device, false)), [211], "{place:?}");
        assert_eq!(findings(&copy(&device, true)), findings(&device), "{place:?}");
    }
    let short = MemoryDevice::new(device.len() / 2);
    short.write(0, &device.to_image()[..short.len() as usize]).unwrap();
    assert_eq!(ids(&copy(&short, true)), ids(&short));
    assert!(!ids(&short).is_empty());
}

#[test]
fn the_content_of_files_stays_behind() {
    let world = World::new(72, false);
    let holds = |device: &MemoryDevice, words: &[u8]| {
        device.to_image().windows(words.len()).any(|window| window == words)
    };
    let words = b"content of 17 content of 17";
    assert!(holds(&world.image, words) && holds(&copy(&world.image, true), words));
    let copy = copy(&world.image, false);
    assert!(!holds(&copy, b"content of"), "small files lie in nodes");
    assert!(copy.allocated_bytes() < world.image.allocated_bytes() / 2);
}
