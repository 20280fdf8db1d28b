//! Views: a branch at one moment, or a snapshot, read while everything becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast::{Volume, VolumeOptions};

fn free(volume: &Volume) -> u64 {
    volume.engine().unwrap().finish_deletions().unwrap();
    volume.commit().unwrap();
    volume.commit().unwrap();
    volume.statfs().unwrap().blocks_free
}

#[test]
fn a_view_shows_what_was_and_is_in_nobodys_way() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    volume.write("/f", vec![1; 4 << 20]).unwrap();
    let work = volume.create_branch("work").unwrap();
    let opened = work.open().unwrap();
    opened.write("/f", vec![2; 4 << 20]).unwrap();
    let snapshot = work.snapshot("s").unwrap();
    opened.write("/f", vec![3; 4 << 20]).unwrap();
    let views = [work.view().unwrap(), snapshot.view().unwrap(), work.view().unwrap()];
    opened.write("/g", b"later").unwrap();
    let is = |view: &Volume, byte: u8| {
        assert!(view.read("/f").unwrap().iter().all(|it| *it == byte));
        assert!(view.read("/g").is_err() && view.write("/h", b"x").is_err());
    };
    let all = || [3, 2, 3].iter().zip(&views).for_each(|(byte, view)| is(view, *byte));
    all();
    // Open, rolled back, closed, opened anew, deleted.
    work.rollback_to(&snapshot, None).unwrap();
    all();
    opened.close().unwrap();
    let opened = work.open().unwrap();
    opened.remove_file("/f").unwrap();
    all();
    opened.close().unwrap();
    snapshot.delete().unwrap();
    work.delete().unwrap();
    let before = free(&volume);
    all();
    let changed: Vec<_> =
        views[0].diff_from(&views[1], true).unwrap().map(Result::unwrap).collect();
    assert_eq!((changed.len(), changed[0].ranges.len()), (1, 1));
    assert_eq!(changed[0].ranges[0], 0..4 << 20);
    assert_eq!(views[2].diff_from(&views[0], false).unwrap().count(), 0);
    views.into_iter().for_each(|view| view.close().unwrap());
    assert!(free(&volume) >= before + 2 * 1024, "the space of both comes back");
    assert!(volume.read("/f").unwrap().iter().all(|it| *it == 1));
    volume.close().unwrap();
}

#[test]
fn a_volume_that_is_kept_is_viewed_without_a_branch_and_one_that_is_only_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let volume = Volume::create_new(&image, 64 << 20).unwrap();
    volume.write("/f", b"one").unwrap();
    volume.branch("main").unwrap().snapshot("s").unwrap();
    volume.write("/f", b"two").unwrap();
    let kept = volume.keep().unwrap();
    volume.close().unwrap();
    let options = VolumeOptions::new();
    let read = |options: &VolumeOptions| {
        let view = kept.view(kept.find(options).unwrap(), options).unwrap();
        assert_eq!(view.first_branch().unwrap().name(), "main");
        let text = view.read("/f").unwrap();
        view.close().unwrap();
        text
    };
    assert_eq!(
        (read(&options), read(&options.clone().snapshot("s"))),
        (b"two".into(), b"one".into())
    );
    assert!(kept.view((u64::MAX, None), &options).is_err());
    kept.close().unwrap();

    let volume = options.read_only(true).open(&image).unwrap();
    let main = volume.branch("main").unwrap();
    let (now, was) = (main.view().unwrap(), main.snapshot_named("s").unwrap().view().unwrap());
    assert_eq!(now.read("/f").unwrap(), b"two");
    assert_eq!(now.diff_from(&was, false).unwrap().count(), 1);
    assert_eq!(volume.diff_from(&now, false).unwrap().count(), 0);
}

/// A server has its own way to promote, which gets numbers and gives the answer.
#[test]
fn promotions_are_led_to_who_asks_for_them() {
    let volume = Volume::in_memory(64 << 20).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let door = volume.branch("main").unwrap().view().unwrap();
    door.promote_by(move |fs, branch, fork, keep, unchanged| {
        assert!(unchanged);
        match counts.fetch_add(1, Ordering::Relaxed) {
            0 => Err(std::io::Error::other("not now")),
            _ => fs.promote(branch, fork, keep, unchanged).map_err(std::io::Error::other),
        }
    });
    let main = door.first_branch().unwrap();
    let fork = main.fork("fork").unwrap();
    fork.open().unwrap().write("/f", b"by the fork").unwrap();
    let error = main.promote(fork.clone(), Some("kept")).unwrap_err();
    assert_eq!(error.to_string(), "not now");
    assert!(volume.read("/f").is_err());
    main.promote(fork, Some("kept")).unwrap();
    assert_eq!(volume.read("/f").unwrap(), b"by the fork");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    // Another handle is not asked.
    let fork = volume.branch("main").unwrap().fork("other").unwrap();
    volume.write("/mine", b"written meanwhile").unwrap();
    let error = volume.branch("main").unwrap().promote(fork.clone(), None).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    volume.branch("main").unwrap().replace_by(fork, None).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    door.close().unwrap();
    volume.close().unwrap();
}
