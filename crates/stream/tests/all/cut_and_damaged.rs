//! Streams that are cut anywhere go on; streams that are damaged or fit nowhere change nothing.

use std::io::{self, Read};
use std::sync::Arc;

use holdfast::device::MemoryDevice;
use holdfast::{Snapshot, Volume, XattrFlags};
use holdfast_stream::{Receiving, Sending, StreamError, Token, repaired, tokens};

use crate::common::{
    Listing, device, expect_clean, expect_same, listing, listing_of, open, receive, sent, snapshot,
};

/// A volume with two snapshots, and one that has received the first.
struct Pair {
    source: Volume,
    first: Snapshot,
    second: Snapshot,
    target: Arc<MemoryDevice>,
    before: Listing,
}

fn pair(bytes: usize) -> Pair {
    let source = open(&device(48 << 20));
    let main = source.branch("main").unwrap();
    source.create_dir("/dir").unwrap();
    source.write("/dir/file", vec![1; bytes]).unwrap();
    source.write("/gone", b"gone").unwrap();
    source.write("/linked", b"linked").unwrap();
    let first = main.snapshot("first").unwrap();
    source.rename("/dir", "/renamed").unwrap();
    source.create_dir_all("/new/below").unwrap();
    source.rename("/renamed/file", "/new/below/file").unwrap();
    source.write("/new/data", vec![2; bytes]).unwrap();
    source.write("/new/one", b"one").unwrap();
    source.hard_link("/new/one", "/new/below/another").unwrap();
    source.hard_link("/linked", "/new/linked").unwrap();
    source.remove_file("/gone").unwrap();
    source.set_xattr("/new", "user.name", b"value", XattrFlags::empty()).unwrap();
    let second = main.snapshot("second").unwrap();
    let target = device(48 << 20);
    let volume = open(&target);
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
    let before = listing(&volume);
    volume.close().unwrap();
    Pair { source, first, second, target, before }
}

impl Pair {
    fn stream(&self) -> Vec<u8> {
        sent(&self.source, Sending::Changes(self.first.clone(), self.second.clone()))
    }
}

/// A copy of what a device holds.
fn copy(of: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    Arc::new(of.snapshot())
}

#[test]
fn a_stream_that_is_cut_goes_on_where_it_was_cut() {
    let pair = pair(20_000);
    let wanted = listing_of(&pair.second);
    let stream = pair.stream();
    let mut cuts: Vec<usize> = (0..stream.len()).step_by(4096).collect();
    cuts.extend((0..stream.len().min(2048)).step_by(61));
    cuts.extend([23, 24, 25, 39, 40, stream.len() - 1, stream.len() - 16, stream.len() - 17]);
    for cut in cuts {
        let what = format!("cut at {cut} of {}", stream.len());
        let target = copy(&pair.target);
        let volume = open(&target);
        let error = receive(&volume, &stream[..cut], None).unwrap_err();
        assert!(
            matches!(error, StreamError::Cut { position } if position == cut as u64),
            "{what}: {error}"
        );
        expect_same(&pair.before, &listing(&volume), &what);
        // Another program goes on, after this one was killed.
        volume.abandon();
        let volume = open(&target);
        let found = tokens(&volume).unwrap();
        let Some((_, begin, token)) = found.first() else {
            // Nothing had come that says what it is.
            assert!(receive(&volume, &stream[..cut], None).is_err() && cut < 400, "{what}");
            continue;
        };
        assert_eq!(begin.snapshot(), "main@second");
        let token: Token = token.to_string().parse().unwrap();
        let rest = sent(&pair.source, Sending::Rest(token));
        assert!(rest.len() <= stream.len() + 100, "{what}: {} bytes more", rest.len());
        // Cut once more, and behind that all of it.
        if cut % 3 == 0 {
            assert!(receive(&volume, &rest[..rest.len() - 20], None).is_err(), "{what}");
            let token = tokens(&volume).unwrap().remove(0).2;
            let rest = sent(&pair.source, Sending::Rest(token));
            receive(&volume, &rest, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        } else {
            receive(&volume, &rest, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        expect_same(&wanted, &listing(&volume), &what);
        assert_eq!(volume.branches().unwrap().len(), 1, "{what}");
        volume.close().unwrap();
        expect_clean(&target, &what);
    }
}

#[test]
fn a_cut_stream_begins_anew_without_a_token() {
    let pair = pair(20_000);
    let stream = pair.stream();
    let volume = open(&pair.target);
    receive(&volume, &stream[..stream.len() / 2], None).unwrap_err();
    assert_eq!(volume.branches().unwrap().len(), 2);
    receive(&volume, &stream, None).unwrap();
    expect_same(&listing_of(&pair.second), &listing(&volume), "anew");
    assert_eq!(volume.branches().unwrap().len(), 1);
}

#[test]
fn each_bit_that_is_turned_over_is_noticed() {
    let pair = pair(300);
    let stream = pair.stream();
    assert!(stream.len() < 4000, "{} bytes take too long", stream.len());
    let volume = open(&pair.target);
    for at in 0..stream.len() {
        let mut damaged = stream.clone();
        damaged[at] ^= 1 << (at % 8);
        let what = format!("bit {} of byte {at}", at % 8);
        let error = receive(&volume, &damaged, None).expect_err(&what);
        assert!(!matches!(error, StreamError::Volume { .. }), "{what}: {error}");
        if at % 64 == 0 {
            expect_same(&pair.before, &listing(&volume), &what);
        }
        let branches = volume.branches().unwrap();
        let snapshots = volume.branch("main").unwrap().snapshots().unwrap();
        assert!(branches.len() <= 2 && snapshots.len() == 1, "{what}");
    }
    receive(&volume, &stream, None).unwrap();
    expect_same(&listing_of(&pair.second), &listing(&volume), "in the end");
    volume.close().unwrap();
    expect_clean(&pair.target, "after damaged streams");
}

fn refused(volume: &Volume, stream: &[u8], branch: Option<&str>) -> String {
    let error = receive(volume, stream, branch).unwrap_err();
    assert!(matches!(error, StreamError::Refused(_) | StreamError::Malformed { .. }), "{error}");
    assert_eq!(volume.branches().unwrap().len(), 1, "{error}");
    error.to_string()
}

#[test]
fn what_fits_nowhere_is_refused_by_name() {
    let pair = pair(300);
    let stream = pair.stream();
    let empty = open(&device(48 << 20));
    let said = refused(&empty, &stream, None);
    assert!(said.contains("continues main@first") && said.contains("no copy"), "{said}");
    // A snapshot of the same name and content is not the same.
    empty.write("/dir", b"").unwrap();
    empty.branch("main").unwrap().snapshot("first").unwrap();
    assert!(refused(&empty, &stream, None).contains("no copy"));
    let whole = sent(&pair.source, Sending::Whole(pair.first.clone()));
    assert!(refused(&empty, &whole, None).contains("main@first is there"));
    let second = sent(&pair.source, Sending::Whole(pair.second.clone()));
    assert!(refused(&empty, &second, None).contains("branch main, and"));
    // Beside it there is room.
    receive(&empty, &whole, Some("beside")).unwrap();
    expect_same(&listing_of(&pair.first), &listing_of(&snapshot(&empty, "beside@first")), "beside");
    let volume = open(&pair.target);
    // A snapshot that grew out of the copy has its mark, and is another one.
    volume.write("/mine", b"mine").unwrap();
    volume.branch("main").unwrap().snapshot("mine").unwrap();
    volume.branch("main").unwrap().snapshot_named("first").unwrap().delete().unwrap();
    assert!(refused(&volume, &stream, None).contains("no copy"));
    assert!(matches!(receive(&volume, b"", None), Err(StreamError::Cut { position: 0 })));
    assert!(refused(&volume, b"something else entirely, not a stream", None).contains("no stream"));
    let mut more = sent(&pair.source, Sending::Whole(pair.second.clone()));
    more.push(0);
    let error = receive(&volume, &more, Some("other")).unwrap_err().to_string();
    assert!(error.contains("behind its end"), "{error}");
    assert!(volume.branch("other").is_err());
}

/// A stream whose bytes end in an error.
struct Breaking<'a>(&'a [u8]);

impl Read for Breaking<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 if !into.is_empty() => Err(io::Error::other("the pipe broke")),
            len => Ok(len),
        }
    }
}

/// What goes wrong behind the last record, or with that, leaves what can go on; a stream that was whole before is received.
#[test]
fn a_stream_that_fails_at_its_end_goes_on_there() {
    let pair = pair(20_000);
    let (stream, wanted) = (pair.stream(), listing_of(&pair.second));
    let volume = open(&copy(&pair.target));
    let receiving = Receiving::begin(&volume, Breaking(&stream), None).unwrap();
    receiving.run(&mut |_| {}).unwrap();
    expect_same(&wanted, &listing(&volume), "it was whole");
    let more = [&stream[..], b"x"].concat();
    // The count of the data in its last record.
    let mut other = stream.clone();
    *other.last_mut().unwrap() ^= 1;
    for (what, stream) in [("bytes behind its end", more), ("other counts", repaired(&other))] {
        let volume = open(&copy(&pair.target));
        let error = receive(&volume, &stream, None).unwrap_err();
        assert!(matches!(error, StreamError::Malformed { .. }), "{what}: {error}");
        let token = tokens(&volume).unwrap().remove(0).2;
        let rest = sent(&pair.source, Sending::Rest(token));
        assert!(rest.len() < 1000, "{what}: only the end is missing");
        receive(&volume, &rest, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        expect_same(&wanted, &listing(&volume), what);
    }
}
