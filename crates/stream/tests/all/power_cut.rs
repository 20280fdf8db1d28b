//! Power fails while a stream is received: the snapshot is there whole or not at all (P12), and the next receive works.

use std::cell::OnceCell;
use std::sync::Arc;

use holdfast::device::{Device, MemoryDevice};
use holdfast::{Volume, VolumeOptions};
use holdfast_device::SimDevice;
use holdfast_device::sim::Policy;
use holdfast_stream::{Merge, Merged, Sending, tokens};

use crate::common::{
    Listing, device, expect_clean, expect_same, listing, listing_of, open, receive, sent,
};

struct Wanted {
    before: Listing,
    after: Listing,
    stream: Vec<u8>,
}

/// A volume with the base, what it is and is to be, and the stream.
fn prepared() -> (Arc<MemoryDevice>, Volume, Wanted) {
    let source = open(&device(24 << 20));
    let main = source.branch("main").unwrap();
    source.create_dir("/dir").unwrap();
    source.write("/dir/file", vec![1; 6000]).unwrap();
    let first = main.snapshot("first").unwrap();
    source.rename("/dir", "/moved").unwrap();
    source.write("/new", vec![2; 9000]).unwrap();
    let second = main.snapshot("second").unwrap();
    let target = device(24 << 20);
    let volume = open(&target);
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
    volume.close().unwrap();
    let wanted = Wanted {
        before: listing_of(&first),
        after: listing_of(&second),
        stream: sent(&source, Sending::Changes(first, second)),
    };
    (target, source, wanted)
}

fn judge(image: &Arc<MemoryDevice>, wanted: &Wanted, source: &Volume, may_lose: bool, what: &str) {
    let volume = open(image);
    let has_second = volume.branch("main").unwrap().snapshot_named("second");
    let now = listing(&volume);
    match &has_second {
        Ok(second) => {
            expect_same(&wanted.after, &listing_of(second), what);
            expect_same(&wanted.after, &now, what);
        }
        Err(_) => expect_same(&wanted.before, &now, what),
    }
    // What was kept of it goes on; otherwise all of it comes again.
    let token = tokens(&volume).unwrap().pop();
    assert!(may_lose || has_second.is_ok() || token.is_some(), "{what}: what was kept is lost");
    let stream = match token {
        Some((_, _, token)) => sent(source, Sending::Rest(token)),
        None => wanted.stream.clone(),
    };
    let received =
        receive(&volume, &stream, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(received.was_here, has_second.is_ok(), "{what}");
    expect_same(&wanted.after, &listing(&volume), what);
    // Nothing of a receive is left.
    let main = volume.branch("main").unwrap();
    let names: Vec<_> = main.snapshots().unwrap().iter().map(|of| of.name().to_owned()).collect();
    assert_eq!(names, ["first", "second"], "{what}");
    volume.close().unwrap();
}

/// Records what `run` does to a volume, and looks at what power cuts may leave: at each write, clean in itself.
fn cut_everywhere(
    target: &MemoryDevice,
    run: impl FnOnce(&Volume),
    mut look: impl FnMut(&Arc<MemoryDevice>, &str),
) -> usize {
    let sim = Arc::new(SimDevice::new(target));
    let any: Arc<dyn Device> = sim.clone();
    let volume = VolumeOptions::new().commit_secs(0).open_device(any).unwrap();
    run(&volume);
    volume.close().unwrap();
    let recording = sim.recording();
    let mut cut = recording.start();
    let mut images = 0;
    for event in &recording.events {
        cut.advance(event);
        if !event.changes_images() {
            continue;
        }
        let policy = Policy { torn: 1, samples: 1, ..Policy::whole_only() };
        for image in cut.images(&policy) {
            let what = format!("cut after event {}: {}", cut.index(), image.describe());
            let image = Arc::new(image.device());
            expect_clean(&image, &what);
            look(&image, &what);
            expect_clean(&image, &what);
            images += 1;
        }
    }
    println!("{} events, {images} images", recording.events.len());
    images
}

/// Cuts power at each write while the first `bytes` of a stream are received. If `kept`, most of it was received before, and
/// is kept.
fn cut_a_receive(bytes: usize, kept: bool) {
    let (target, source, wanted) = prepared();
    let mut stream = wanted.stream[..wanted.stream.len().min(bytes)].to_vec();
    let is_whole = stream.len() == wanted.stream.len();
    if kept {
        let volume = open(&target);
        receive(&volume, &stream[..stream.len() - 100], None).unwrap_err();
        stream = sent(&source, Sending::Rest(tokens(&volume).unwrap().remove(0).2));
        volume.close().unwrap();
    }
    let run = |volume: &Volume| {
        let done = receive(volume, &stream, None);
        assert_eq!(done.is_ok(), is_whole, "{done:?}");
    };
    let images = cut_everywhere(&target, run, |image, what| {
        judge(image, &wanted, &source, !kept, &format!("{bytes} bytes, {what}"));
    });
    assert!(images > 20);
}

#[test]
fn a_power_cut_leaves_all_of_a_snapshot_or_nothing() {
    cut_a_receive(usize::MAX, false);
}

#[test]
fn a_power_cut_while_a_cut_stream_is_kept_leaves_what_can_go_on() {
    cut_a_receive(9000, false);
}

#[test]
fn a_power_cut_in_the_last_steps_loses_neither_what_was_kept_nor_the_snapshot() {
    cut_a_receive(usize::MAX, true);
}

/// A whole snapshot goes to a branch that has grown out of nothing: it is there, or it is not.
#[test]
fn a_power_cut_while_a_branch_is_made_leaves_it_or_none() {
    let (target, source, _) = prepared();
    let first = source.branch("main").unwrap().snapshot_named("first").unwrap();
    let stream = sent(&source, Sending::Whole(first.clone()));
    let target = {
        let volume = open(&target);
        volume.branch("main").unwrap().snapshot_named("first").unwrap().delete().unwrap();
        volume.close().unwrap();
        target
    };
    let before = OnceCell::new();
    let run = |volume: &Volume| {
        before.set(listing(volume)).unwrap();
        receive(volume, &stream, Some("beside")).unwrap();
    };
    cut_everywhere(&target, run, |image, what| {
        let volume = open(image);
        expect_same(before.get().unwrap(), &listing(&volume), what);
        receive(&volume, &stream, Some("beside")).unwrap();
        let received = volume.branch("beside").unwrap().snapshot_named("first").unwrap();
        expect_same(&listing_of(&first), &listing_of(&received), what);
        assert_eq!(volume.branches().unwrap().len(), 2, "{what}");
        volume.close().unwrap();
    });
}

/// What a fork and the branch have come to is put together: after a cut the branch is what it was, or has both.
#[test]
fn a_power_cut_in_a_merge_leaves_the_branch_as_it_was_or_with_both() {
    let target = device(24 << 20);
    let volume = open(&target);
    volume.create_dir("/dir").unwrap();
    volume.write("/dir/file", vec![1; 6000]).unwrap();
    volume.write("/gone", b"gone").unwrap();
    let main = volume.branch("main").unwrap();
    let fork = main.snapshot("base").unwrap().fork("fork").unwrap();
    let opened = fork.open().unwrap();
    opened.rename("/dir", "/moved").unwrap();
    opened.remove_file("/gone").unwrap();
    opened.write("/mine", vec![2; 9000]).unwrap();
    opened.close().unwrap();
    volume.write("/theirs", vec![3; 9000]).unwrap();
    main.snapshot("now").unwrap().fork("into").unwrap();
    let before = listing(&volume);
    volume.close().unwrap();
    let run = |volume: &Volume| {
        let branch = |name| volume.branch(name).unwrap();
        let snapshot = |name| branch("main").snapshot_named(name).unwrap();
        let merge = Merge {
            base: snapshot("base").view().unwrap(),
            mine: branch("fork").view().unwrap(),
            theirs: snapshot("now").view().unwrap(),
            into: branch("into").open().unwrap(),
        };
        assert_eq!(merge.run(100, &|| Ok(())).unwrap(), Merged::Done);
        branch("main").promote(branch("into"), None).unwrap();
    };
    let after = OnceCell::new();
    let record = |volume: &Volume| {
        run(volume);
        after.set(listing(volume)).unwrap();
        assert_ne!(&before, after.get().unwrap());
    };
    let mut seen = [0, 0];
    cut_everywhere(&target, record, |image, what| {
        let volume = open(image);
        let is_done = volume.branch("into").is_err();
        let wanted = if is_done { after.get().unwrap() } else { &before };
        expect_same(wanted, &listing(&volume), what);
        seen[usize::from(is_done)] += 1;
        if !is_done {
            // What is left of it is thrown away, and it is done anew.
            volume.branch("into").unwrap().delete().unwrap();
            let now = volume.branch("main").unwrap().snapshot_named("now").unwrap();
            now.fork("into").unwrap();
            run(&volume);
        }
        volume.close().unwrap();
    });
    assert!(seen.iter().all(|count| *count > 3), "{seen:?}");
}
