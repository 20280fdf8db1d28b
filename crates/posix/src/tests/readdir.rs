//! Cookies stay valid, whatever happens to other entries.

use std::collections::HashMap;

use holdfast_base::prng::Prng;

use super::*;

#[test]
fn a_listing_can_stop_and_go_on_anywhere() {
    let v = Volume::new();
    for i in 0..300 {
        v.file(ROOT, &format!("f{i}"));
    }
    let mut whole = Vec::new();
    v.fs.readdir(ROOT, 0, &mut |e| {
        whole.push((e.name.to_vec(), e.cookie));
        true
    })
    .unwrap();
    assert_eq!(whole.len(), 302);
    assert_eq!((&whole[0].0[..], &whole[1].0[..]), (&b"."[..], &b".."[..]));
    for (index, (_, cookie)) in whole.iter().enumerate() {
        let mut next = None;
        v.fs.readdir(ROOT, *cookie, &mut |e| {
            next = Some(e.name.to_vec());
            false
        })
        .unwrap();
        assert_eq!(next.as_ref(), whole.get(index + 1).map(|(name, _)| name));
    }
    assert_eq!(errno(v.fs.readdir(v.find(ROOT, "f1").unwrap(), 0, &mut |_| true)), libc::ENOTDIR);
}

#[test]
fn what_stays_is_seen_once_while_others_come_and_go() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut chance = Prng::seeded(seed);
        let v = Volume::new();
        if seed % 2 == 1 {
            // Few hashes, so that entries share slots.
            let mask = !0x7fff_ffff_ffff_0000 & !0xff;
            v.fs.core.hash_mask.store(mask, std::sync::atomic::Ordering::Relaxed);
        }
        for i in 0..400 {
            v.file(ROOT, &format!("stays{i}"));
        }
        let mut guests: Vec<String> = Vec::new();
        let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut made = 0;
        v.fs.readdir(ROOT, 0, &mut |e| {
            *seen.entry(e.name.to_vec()).or_default() += 1;
            if guests.is_empty() || chance.one_in(2) {
                let name = format!("guest{made}");
                made += 1;
                v.file(ROOT, &name);
                guests.push(name);
            } else {
                let at = chance.below(guests.len() as u64) as usize;
                v.unlink(ROOT, &guests.swap_remove(at)).unwrap();
            }
            made < 2000
        })
        .unwrap();
        for i in 0..400 {
            assert_eq!(seen.get(format!("stays{i}").as_bytes()), Some(&1), "stays{i}");
        }
        v.check();
    }
}

#[test]
fn a_directory_can_be_emptied_while_it_is_read() {
    let v = Volume::new();
    for i in 0..1000 {
        v.file(ROOT, &format!("f{i}"));
    }
    v.fs.readdir(ROOT, 2, &mut |e| {
        v.fs.unlink(&root(), ROOT, e.name).unwrap();
        true
    })
    .unwrap();
    assert_eq!(v.in_tree(), (1, 0));
    v.check();
}
