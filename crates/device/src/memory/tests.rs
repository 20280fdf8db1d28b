//! The memory device against a plain vector.

use super::*;
use holdfast_base::prng::{Prng, entropy};

#[test]
fn agrees_with_a_vector_of_bytes() {
    let seed = entropy();
    println!("seed {seed}");
    let mut prng = Prng::seeded(seed);
    let len = 5 * REGION / 2;
    let device = MemoryDevice::new(len);
    let mut model = vec![0u8; len as usize];
    for _ in 0..200 {
        let at = prng.below(len / 512) * 512;
        let most = u64::min((len - at) / 512, 2048);
        let mut bytes = vec![0; (prng.below(most + 1) * 512) as usize];
        prng.fill(&mut bytes);
        device.write(at, &bytes).unwrap();
        model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        let at = prng.below(len);
        let mut read = vec![7; prng.below(u64::min(len - at, 1 << 20) + 1) as usize];
        device.read(at, &mut read).unwrap();
        assert!(read == model[at as usize..at as usize + read.len()]);
    }
    assert!(device.to_image() == model);
    assert!(MemoryDevice::from_image(&model).to_image() == model);
}

#[test]
fn a_huge_device_costs_only_what_was_written() {
    let device = MemoryDevice::new(64 << 30);
    device.write((64 << 30) - 512, &[9; 512]).unwrap();
    assert_eq!(device.allocated_bytes(), 4096);
    let mut end = [0; 513];
    device.read((64 << 30) - 513, &mut end).unwrap();
    assert_eq!((end[0], end[1], end[512]), (0, 9, 9));
}

#[test]
fn a_snapshot_and_its_origin_do_not_see_each_others_writes() {
    let device = MemoryDevice::new(1 << 20);
    device.write(0, &[1; 4096]).unwrap();
    let copy = device.snapshot();
    device.write(512, &[2; 512]).unwrap();
    copy.write(0, &[3; 512]).unwrap();
    assert_eq!(device.to_image()[..1024], [[1; 512], [2; 512]].concat());
    assert_eq!(copy.to_image()[..1024], [[3; 512], [1; 512]].concat());
    assert_eq!(copy.stats().writes, 1);
}

#[test]
fn calls_outside_or_across_sectors_are_refused() {
    let device = MemoryDevice::with_sector_size(8192, 4096);
    assert!(matches!(device.write(512, &[0; 4096]), Err(DeviceError::Io { .. })));
    assert!(matches!(device.write(0, &[0; 512]), Err(DeviceError::Io { .. })));
    for at in [8192, u64::MAX - 1] {
        assert!(matches!(device.write(at, &[0; 4096]), Err(DeviceError::BeyondEnd { .. })));
        assert!(matches!(device.read(at, &mut [0; 2]), Err(DeviceError::BeyondEnd { .. })));
        assert!(matches!(device.discard(at, 4096), Err(DeviceError::BeyondEnd { .. })));
    }
    device.read(8190, &mut [0; 2]).unwrap();
}

#[test]
fn discarded_pages_give_their_memory_back() {
    let device = MemoryDevice::new(1 << 20);
    device.write(0, &[1; 16384]).unwrap();
    device.discard(512, 12288).unwrap();
    assert_eq!(device.allocated_bytes(), 8192);
    assert_eq!(
        device.stats(),
        DeviceStats { writes: 1, written_bytes: 16384, discards: 1, ..DeviceStats::default() }
    );
}
