//! Random trees into archives and back, and layers onto what they were made from.

use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{CreateOptions, Moment, Volume, VolumeOptions};
use holdfast_archive::{Form, export, export_difference, import};

use crate::common::{assert_same, random_volume, snapshots};

fn empty() -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(96 << 20));
    CreateOptions::new().format(&device).unwrap();
    VolumeOptions::new().open_device(device).unwrap()
}

fn archive(of: &Volume, form: Form) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(of, form, usize::MAX, &mut bytes).unwrap();
    bytes
}

/// `HOLDFAST_SEEDS=20` runs twenty times as many.
fn seeds(most: u64) -> std::ops::Range<u64> {
    let times = std::env::var("HOLDFAST_SEEDS").ok().and_then(|times| times.parse().ok());
    0..most * times.unwrap_or(1)
}

#[test]
fn a_tree_comes_back_as_it_was_and_gives_the_same_bytes() {
    for seed in seeds(20) {
        println!("seed {seed}");
        let volume = random_volume(seed, 150);
        let snapshot = volume.branch("main").unwrap().snapshot("now").unwrap().open().unwrap();
        let bytes = archive(&snapshot, Form::Tar);
        assert!(archive(&snapshot, Form::Tar) == bytes, "seed {seed}");
        let copy = empty();
        let imported = import(&copy, Form::Tar, "importing", &bytes[..]).unwrap();
        assert_eq!(imported.xattrs_left_out, 0);
        assert_same(&copy, &snapshot, true, &format!("seed {seed}"));
        assert!(archive(&copy, Form::Tar) == bytes, "seed {seed}");
        assert!(copy.branch("main").unwrap().snapshots().unwrap().is_empty());
        // Over itself nothing changes.
        import(&copy, Form::Tar, "importing", &bytes[..]).unwrap();
        assert_same(&copy, &snapshot, true, &format!("seed {seed}"));
        snapshot.close().unwrap();
    }
}

#[test]
fn a_layer_makes_of_one_tree_the_other() {
    for seed in seeds(20) {
        let volume = random_volume(seed, 200);
        let names = snapshots(&volume);
        let main = volume.branch("main").unwrap();
        for (old, new) in names.iter().zip(&names[1..]) {
            let what = format!("seed {seed}: {old} to {new}");
            let open = |name: &str| main.snapshot_named(name).unwrap().open().unwrap();
            let (before, after) = (open(old), open(new));
            let of = |name: &String| name.clone().into_bytes();
            let (old, new) = (of(old), of(new));
            let at = |name| Moment { branch: b"main", snapshot: Some(name) };
            let changes = volume.diff(at(&old), at(&new), false).unwrap();
            let mut layer = Vec::new();
            export_difference(&before, &after, changes, usize::MAX, &mut layer).unwrap();
            let copy = empty();
            let base = archive(&before, Form::Layer);
            import(&copy, Form::Layer, "importing", &base[..]).unwrap();
            assert_same(&copy, &before, true, &what);
            import(&copy, Form::Layer, "importing", &layer[..]).unwrap();
            assert_same(&copy, &after, false, &what);
            before.close().unwrap();
            after.close().unwrap();
        }
    }
}
