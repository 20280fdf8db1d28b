//! Power fails while a stream is received: the snapshot is there whole or not at all (P12), and the next receive works.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{
    Listing, device, expect_clean, expect_same, listing, listing_of, open, receive, sent,
};
use holdfast::device::{Device, MemoryDevice};
use holdfast::{Volume, VolumeOptions};
use holdfast_device::SimDevice;
use holdfast_device::sim::Policy;
use holdfast_stream::{What, tokens};

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
    receive(&volume, &sent(&source, What::Whole(first.clone())), None).unwrap();
    volume.close().unwrap();
    let wanted = Wanted {
        before: listing_of(&first),
        after: listing_of(&second),
        stream: sent(&source, What::Changes(first, second)),
    };
    (target, source, wanted)
}

fn judge(image: MemoryDevice, wanted: &Wanted, source: &Volume, what: &str) {
    let image = Arc::new(image);
    expect_clean(&image, what);
    let volume = open(&image);
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
    let stream = match tokens(&volume).unwrap().pop() {
        Some((_, _, token)) => sent(source, What::Rest(token)),
        None => wanted.stream.clone(),
    };
    let received =
        receive(&volume, &stream, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(received.was_here, has_second.is_ok(), "{what}");
    expect_same(&wanted.after, &listing(&volume), what);
    volume.close().unwrap();
    expect_clean(&image, what);
}

fn cut_everywhere(bytes: usize) {
    let (target, source, wanted) = prepared();
    let sim = Arc::new(SimDevice::new(&target));
    let any: Arc<dyn Device> = sim.clone();
    let volume = VolumeOptions::new().commit_secs(0).open_device(any).unwrap();
    let stream = &wanted.stream[..wanted.stream.len().min(bytes)];
    let done = receive(&volume, stream, None);
    assert_eq!(done.is_ok(), stream.len() == wanted.stream.len(), "{done:?}");
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
            let what =
                format!("{bytes} bytes, cut after event {}: {}", cut.index(), image.describe());
            judge(image.device(), &wanted, &source, &what);
            images += 1;
        }
    }
    println!("{} events, {images} images", recording.events.len());
    assert!(images > 20);
}

#[test]
fn a_power_cut_leaves_all_of_a_snapshot_or_nothing() {
    cut_everywhere(usize::MAX);
}

#[test]
fn a_power_cut_while_a_cut_stream_is_kept_leaves_what_can_go_on() {
    cut_everywhere(9000);
}
