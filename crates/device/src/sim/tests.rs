//! The alarm works: images really contain lost and torn writes, and never lose flushed ones.

use super::*;
use holdfast_base::prng::entropy;
use std::collections::HashSet;

fn base() -> MemoryDevice {
    MemoryDevice::new(1 << 20)
}

/// The first byte of each of the first `count` sectors.
fn heads(image: &MemoryDevice, count: usize) -> Vec<u8> {
    (0..count)
        .map(|sector| {
            let mut byte = [0];
            image.read(sector as u64 * 512, &mut byte).unwrap();
            byte[0]
        })
        .collect()
}

fn all_heads(cut: &Cut, policy: &Policy, count: usize) -> HashSet<Vec<u8>> {
    let images = cut.images(policy);
    images.map(|image| heads(&image.device(), count)).collect()
}

#[test]
fn every_subset_of_few_writes_appears_once_and_nothing_else() {
    let device = SimDevice::new(&base());
    for sector in 0..4u64 {
        device.write(sector * 512, &[sector as u8 + 1; 512]).unwrap();
    }
    let images: Vec<Vec<u8>> =
        device.cut().images(&Policy::default()).map(|image| heads(&image.device(), 4)).collect();
    let expected: HashSet<Vec<u8>> =
        (0..16u8).map(|subset| (0..4).map(|i| (subset >> i & 1) * (i + 1)).collect()).collect();
    assert_eq!(images.len(), 16);
    assert_eq!(images.into_iter().collect::<HashSet<_>>(), expected);
}

#[test]
fn flushed_writes_are_in_every_image_and_later_ones_are_not_certain() {
    let device = SimDevice::new(&base());
    device.write(0, &[1; 512]).unwrap();
    let _ = device.flush().unwrap();
    device.write(0, &[2; 512]).unwrap();
    device.write(512, &[3; 512]).unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 2);
    let expected = [[1, 0], [2, 0], [1, 3], [2, 3]].map(Vec::from);
    assert_eq!(found, HashSet::from(expected));
    let before = all_heads(&device.recording().cut_at(1), &Policy::default(), 2);
    assert_eq!(before, HashSet::from([vec![0, 0], vec![1, 0]]));
    let after = all_heads(&device.recording().cut_at(2), &Policy::default(), 2);
    assert_eq!(after, HashSet::from([vec![1, 0]]));
}

#[test]
fn a_write_is_torn_at_every_sector() {
    let device = SimDevice::new(&base());
    device.write(0, &[7; 4096]).unwrap();
    let policy = Policy { torn: 100, ..Policy::default() };
    let found = all_heads(&device.cut(), &policy, 8);
    for kept in 0..=8 {
        let image: Vec<u8> = (0..8).map(|i| if i < kept { 7 } else { 0 }).collect();
        assert!(found.contains(&image), "{image:?}");
    }
    let cut = device.cut();
    let whole: Vec<_> = cut.images(&Policy { torn: 0, ..policy }).collect();
    assert_eq!(whole.len(), 2);
    // Three sectors are few: every part appears, also the middle alone.
    let device = SimDevice::new(&base());
    device.write(0, &[7; 1536]).unwrap();
    let found = all_heads(&device.cut(), &policy, 3);
    assert_eq!(found.len(), 8);
    assert!(found.contains(&vec![0, 7, 0]));
}

#[test]
fn a_sector_of_4096_does_not_tear() {
    let device = SimDevice::new(&MemoryDevice::with_sector_size(1 << 20, 4096));
    device.write(0, &[7; 4096]).unwrap();
    assert_eq!(device.cut().images(&Policy::default()).count(), 2);
}

/// A disk of 512e: what lies beside a write that was torn is gone with it, though it was flushed long ago.
#[test]
fn a_torn_write_takes_its_physical_sector_along() {
    let device = SimDevice::new(&MemoryDevice::with_sector_sizes(1 << 20, 512, 4096));
    device.write(0, &[9; 8192]).unwrap();
    let _ = device.flush().unwrap();
    device.write(4096 + 512, &[2; 512]).unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 16);
    let destroyed = found.iter().filter(|heads| heads[8] != 9).collect::<Vec<_>>();
    assert_eq!((found.len(), destroyed.len()), (3, 1), "old, new and neither: {found:?}");
    assert_eq!(destroyed[0][..8], [9; 8], "the sector before it is whole");
    assert!(destroyed[0][8..].iter().all(|&head| head != 9 && head != 2));

    // Bytes that are written over themselves stay, or no superblock could be made durable again.
    let _ = device.flush().unwrap();
    device.write(0, &[9; 4096]).unwrap();
    assert_eq!(all_heads(&device.cut(), &Policy::default(), 8), HashSet::from([vec![9; 8]]));
    // New ones may leave neither the new nor the old.
    device.write(0, &[3; 4096]).unwrap();
    let found = all_heads(&device.cut(), &Policy { torn: 100, ..Policy::default() }, 8);
    assert!(found.iter().any(|heads| heads.iter().all(|&head| head != 9 && head != 3)));
}

#[test]
fn many_writes_lose_each_one_and_stop_at_each_one() {
    let device = SimDevice::new(&base());
    for sector in 0..12u64 {
        device.write(sector * 512, &[1; 512]).unwrap();
    }
    let found = all_heads(&device.cut(), &Policy::default(), 12);
    for dropped in 0..12 {
        let image: Vec<u8> = (0..12).map(|i| u8::from(i != dropped)).collect();
        assert!(found.contains(&image), "{image:?}");
    }
    for len in 0..=12 {
        let image: Vec<u8> = (0..12).map(|i| u8::from(i < len)).collect();
        assert!(found.contains(&image), "{image:?}");
    }
    assert!(found.len() > 2 * 12 + 8);
}

#[test]
fn overlapping_writes_apply_in_the_order_of_issue() {
    let device = SimDevice::new(&base());
    device.write(0, &[1; 512]).unwrap();
    device.write(0, &[2; 512]).unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 1);
    assert_eq!(found, HashSet::from([vec![0], vec![1], vec![2]]));
    let _ = device.flush().unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 1);
    assert_eq!(found, HashSet::from([vec![2]]));
}

#[test]
fn a_flush_does_not_cover_a_write_that_returns_after_it_began() {
    let mut cut = Cut::new(&base());
    let write = |returned| Event::Write { at: 0, bytes: Arc::from(vec![1; 512]), returned };
    cut.advance(&write(None));
    cut.advance(&Event::Flush { began: 1 });
    assert_eq!(cut.unflushed(), 1);
    let mut cut = Cut::new(&base());
    cut.advance(&write(Some(1)));
    cut.advance(&Event::Flush { began: 1 });
    assert_eq!(cut.unflushed(), 0);
}

#[test]
fn after_a_failed_flush_no_flush_makes_the_old_writes_certain() {
    let device = SimDevice::new(&base());
    device.write(0, &[1; 512]).unwrap();
    device.write(512, &[1; 512]).unwrap();
    device.set_faults(Faults::fail_once(Call::Flush, 1));
    assert!(device.flush().is_err());
    let _ = device.flush().unwrap();
    assert_eq!(device.faults_fired(), 1);
    let found = all_heads(&device.cut(), &Policy::default(), 2);
    assert_eq!(found.len(), 4);
    // Written again and flushed, a sector is certain, and the old write can not come back.
    device.write(0, &[2; 512]).unwrap();
    let _ = device.flush().unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 2);
    assert_eq!(found, HashSet::from([vec![2, 0], vec![2, 1]]));
}

#[test]
fn discarded_sectors_read_as_junk_or_as_before() {
    let device = SimDevice::new(&base());
    device.write(0, &[1; 1536]).unwrap();
    let _ = device.flush().unwrap();
    device.discard(100, 1436).unwrap();
    let mut all = [0; 1536];
    device.read(0, &mut all).unwrap();
    assert_eq!(all[..512], [1; 512]);
    assert!(all[512..].iter().any(|&byte| byte != 0 && byte != 1));
    let whole = Policy { torn: 0, ..Policy::default() };
    let cut = device.cut();
    let images: Vec<Vec<u8>> = cut.images(&whole).map(|image| image.device().to_image()).collect();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0][..1536], [1; 1536]);
    assert_eq!(images[1][..1536], all);
}

#[test]
fn fingerprints_tell_images_apart_across_cuts() {
    let seed = entropy();
    println!("seed {seed}");
    let mut prng = holdfast_base::prng::Prng::seeded(seed);
    let device = SimDevice::new(&base());
    for _ in 0..60 {
        match prng.one_in(5) {
            true => drop(device.flush().unwrap()),
            false => {
                let bytes = vec![prng.below(3) as u8 + 1; 512 * (prng.below(3) as usize + 1)];
                device.write(prng.below(4) * 512, &bytes).unwrap();
            }
        }
    }
    let recording = device.recording();
    let mut cut = recording.start();
    let mut known: std::collections::HashMap<u64, Vec<u8>> = Default::default();
    let mut images = 0;
    for event in &recording.events {
        cut.advance(event);
        for image in cut.images(&Policy::default()) {
            images += 1;
            let bytes = image.device().to_image()[..4096].to_vec();
            let before = known.entry(image.fingerprint()).or_insert_with(|| bytes.clone());
            assert!(*before == bytes, "{}", image.describe());
        }
    }
    assert!(images > known.len() && known.len() > 20);
    assert!(
        device.image().to_image() == {
            let all = cut.images(&Policy::whole_only()).last().unwrap();
            all.device().to_image()
        }
    );
}

#[test]
fn the_same_policy_gives_the_same_images() {
    let device = SimDevice::new(&base());
    for sector in 0..20u64 {
        device.write(sector * 4096, &[1; 4096]).unwrap();
    }
    let prints = |policy: &Policy| -> Vec<u64> {
        device.cut().images(policy).map(|image| image.fingerprint()).collect()
    };
    let policy = Policy::default();
    assert_eq!(prints(&policy), prints(&policy));
    assert_ne!(prints(&policy), prints(&Policy { seed: 2, ..policy }));
}

#[test]
fn calls_fail_when_told_once_or_for_ever() {
    let device = SimDevice::with_faults(&base(), Faults::fail_once(Call::Write, 2));
    let results = [0; 3].map(|_| device.write(0, &[1; 512]).is_ok());
    assert_eq!(results, [true, false, true]);
    device.set_faults(Faults::fail_from(Call::Read, 2));
    let results = [0; 3].map(|_| device.read(0, &mut [0; 1]).is_ok());
    assert_eq!(results, [true, false, false]);
    device.set_faults(Faults::fail_from(Call::Discard, 1));
    assert!(device.discard(0, 512).is_err());
    assert_eq!(device.faults_fired(), 1);
}

#[test]
fn calls_fail_where_told() {
    let inside = When::Inside { start: 1024, end: 2048, skip: 1, times: 2 };
    let faults = Faults::none().with(Call::Write, inside, Action::Fail);
    let device = SimDevice::with_faults(&base(), faults);
    let write = |at: u64, len: usize| device.write(at, &vec![1; len]).is_ok();
    let outside = [write(0, 1024), write(2048, 512)];
    let within = [write(1536, 512), write(0, 1536), write(1536, 4096), write(1024, 512)];
    assert_eq!((outside, within), ([true, true], [true, false, false, true]));
}

#[test]
fn a_failed_write_may_keep_some_sectors() {
    let mut found = HashSet::new();
    for seed in 0..40 {
        let faults = Faults::seeded(seed).with(Call::Write, When::Nth(1), Action::Fail);
        let device = SimDevice::with_faults(&base(), faults);
        assert!(device.write(0, &[1; 2048]).is_err());
        found.insert(heads(&device.image(), 4));
    }
    assert!(found.contains(&vec![0, 0, 0, 0]) && found.contains(&vec![1, 1, 0, 0]));
}

#[test]
fn writes_vanish_rot_and_go_astray() {
    let faulty = |action| {
        let faults = Faults::seeded(3).with(Call::Write, When::Nth(1), action);
        let device = SimDevice::with_faults(&base(), faults);
        device.write(0, &[0xff; 512]).unwrap();
        device.image().to_image()
    };
    let ones = |image: &[u8]| image.iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(ones(&faulty(Action::Ignore)), 0);
    assert_eq!(faulty(Action::FlipBit(Some(9)))[1], 0xfd);
    assert_eq!(ones(&faulty(Action::FlipBit(None))), 512 * 8 - 1);
    assert_eq!(faulty(Action::Misdirect(Some(1024)))[1024..1536], [0xff; 512]);
    let astray = faulty(Action::Misdirect(None));
    assert_eq!((ones(&astray), astray[0]), (512 * 8, 0));
}

#[test]
fn a_lying_flush_makes_nothing_certain() {
    let faults = Faults::none().with(Call::Flush, When::From(1), Action::Ignore);
    let device = SimDevice::with_faults(&base(), faults);
    device.write(0, &[1; 512]).unwrap();
    let _ = device.flush().unwrap();
    let found = all_heads(&device.cut(), &Policy::default(), 1);
    assert_eq!(found, HashSet::from([vec![0], vec![1]]));
    assert!(device.recording().trace().contains("flush 0+0 ignored"));
}

#[test]
fn many_threads_make_one_list() {
    let device = SimDevice::new(&base());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..50u64 {
                    let at = (thread * 50 + round) * 512;
                    device.write(at, &[thread as u8 + 1; 512]).unwrap();
                    if round % 10 == 9 {
                        let _ = device.flush().unwrap();
                        device.mark(thread * 100 + round);
                    }
                }
            });
        }
    });
    let recording = device.recording();
    assert_eq!(recording.events.len(), 4 * (50 + 5 + 5));
    // Whatever a thread had written before its mark is certain at the mark.
    let mut cut = recording.start();
    for event in &recording.events {
        cut.advance(event);
        if let Event::Mark(mark) = event {
            let (thread, round) = (mark / 100, mark % 100);
            let image = cut.images(&Policy::whole_only()).next().unwrap();
            let heads = heads(&image.device(), 200);
            let from = (thread * 50) as usize;
            assert!(heads[from..=from + round as usize].iter().all(|&b| b == thread as u8 + 1));
        }
    }
}
