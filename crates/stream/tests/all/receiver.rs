//! What a receive uses for itself, beside what users have: names, numbers, space, and a sender that waits.

use std::io::{self, ErrorKind, Read};

use holdfast::{OpenOptions, Snapshot, Volume, XattrFlags};
use holdfast_base::InodeNo;
use holdfast_posix::{Caller, FileType, FsError, NewNode};
use holdfast_stream::{Receiving, Sending, repaired, tokens};

use crate::common::{
    device, expect_clean, expect_same, listing, listing_of, open, receive, sent, snapshot,
};

/// A volume with two snapshots of these names.
fn source(first: &str, second: &str) -> (Volume, Snapshot, Snapshot) {
    let source = open(&device(48 << 20));
    let main = source.branch("main").unwrap();
    source.write("/file", vec![1; 30_000]).unwrap();
    let first = main.snapshot(first).unwrap();
    source.write("/other", vec![2; 30_000]).unwrap();
    let second = main.snapshot(second).unwrap();
    (source, first, second)
}

fn names(volume: &Volume, branch: &str) -> Vec<String> {
    let all = volume.branch(branch).unwrap().snapshots().unwrap();
    all.iter().map(|of| of.name().to_owned()).collect()
}

/// Receives a stream in two parts.
fn in_two_parts(source: &Volume, volume: &Volume, stream: &[u8]) {
    receive(volume, &stream[..stream.len() / 2], None).unwrap_err();
    let token = tokens(volume).unwrap().remove(0).2;
    receive(volume, &sent(source, Sending::Rest(token)), None).unwrap();
}

#[test]
fn a_snapshot_may_be_called_as_a_resume_point_is() {
    let hex = "0123456789abcdef0123456789abcdef";
    for name in ["resume-5".to_owned(), "resume-".to_owned(), format!(".resume-{hex}-77")] {
        let (source, first, second) = source("first", &name);
        let target = device(48 << 20);
        let volume = open(&target);
        receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
        in_two_parts(&source, &volume, &sent(&source, Sending::Changes(first, second.clone())));
        assert_eq!(names(&volume, "main"), ["first".to_owned(), name.clone()]);
        let received = snapshot(&volume, &format!("main@{name}"));
        expect_same(&listing_of(&second), &listing_of(&received), &name);
        // Nor does another receive take it for one.
        source.write("/third", b"third").unwrap();
        let third = source.branch("main").unwrap().snapshot("third").unwrap();
        receive(&volume, &sent(&source, Sending::Changes(second, third)), None).unwrap();
        assert_eq!(names(&volume, "main"), ["first".to_owned(), name, "third".to_owned()]);
        volume.close().unwrap();
        expect_clean(&target, "in the end");
    }
}

/// A snapshot that was taken of the fork has a state in it, which is that of another moment.
#[test]
fn a_snapshot_of_the_fork_is_no_resume_point() {
    let (source, first, second) = source("first", "second");
    let volume = open(&device(48 << 20));
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
    let stream = sent(&source, Sending::Changes(first, second.clone()));
    receive(&volume, &stream[..stream.len() / 2], None).unwrap_err();
    let (name, _, token) = tokens(&volume).unwrap().remove(0);
    let fork = volume.branch(&name).unwrap();
    let inside = fork.open().unwrap();
    inside.write("/mine", b"mine").unwrap();
    inside.close().unwrap();
    fork.snapshot("mine").unwrap();
    assert_eq!(tokens(&volume).unwrap()[0].2, token);
    receive(&volume, &sent(&source, Sending::Rest(token)), None).unwrap();
    expect_same(&listing_of(&second), &listing(&volume), "second");
    assert_eq!(names(&volume, "main"), ["first", "second"]);
}

/// A branch of a user whose name only begins as those of receives do is one like others.
#[test]
fn branches_of_users_are_no_receives() {
    let (source, first, second) = source("first", "second");
    let volume = open(&device(48 << 20));
    let name = ".receiving-mine";
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), Some(name)).unwrap();
    let received = receive(&volume, &sent(&source, Sending::Changes(first, second)), None).unwrap();
    assert_eq!(received.snapshot, ".receiving-mine@second");
}

/// A whole snapshot shares nothing with another branch: nothing of that is copied, removed or kept.
#[test]
fn a_whole_stream_into_a_new_branch_has_nothing_of_others() {
    let (source, first, _) = source("first", "second");
    let target = device(48 << 20);
    let volume = open(&target);
    volume.write("/large", vec![3; 8 << 20]).unwrap();
    volume.commit().unwrap();
    let before = volume.statfs().unwrap().blocks_free;
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), Some("beside")).unwrap();
    let received = snapshot(&volume, "beside@first");
    expect_same(&listing_of(&first), &listing_of(&received), "beside");
    assert_eq!(volume.read("/large").unwrap().len(), 8 << 20);
    volume.remove_file("/large").unwrap();
    let fs = volume.engine().unwrap();
    fs.finish_deletions().unwrap();
    let all = fs.all_snapshots().unwrap();
    assert_eq!(all.iter().map(|of| of.name.clone()).collect::<Vec<_>>(), [b"first"]);
    assert_eq!(all[0].parent, None, "it has grown out of nothing");
    drop(fs);
    volume.commit().unwrap();
    let after = volume.statfs().unwrap().blocks_free;
    assert!(after > before + 1900, "{before} blocks were free, {after} are: the file is kept");
    volume.close().unwrap();
    expect_clean(&target, "in the end");
}

/// What a snapshot is a copy of stands beside it, is shown, outlives another id of the volume, and goes with it.
#[test]
fn a_received_snapshot_says_what_it_is_a_copy_of() {
    let (source, first, second) = source("first", "second");
    let device = device(48 << 20);
    let volume = open(&device);
    receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
    let received = snapshot(&volume, "main@first");
    let of = received.origins();
    assert_eq!((of.len(), of[0].number, of[0].lsn), (1, first.number(), first.lsn()));
    assert_eq!(of[0].volume, source.info().unwrap().uuid);
    let grown = received.fork("grown").unwrap().snapshot("first").unwrap();
    assert!(grown.origins().is_empty(), "what grows out of it is no copy");
    volume.close().unwrap();
    expect_clean(&device, "with an origin");
    let volume = open(&device);
    receive(&volume, &sent(&source, Sending::Changes(first, second)), None).unwrap();
    let from = snapshot(&volume, "main@second").origins()[0].number;
    assert_eq!(from, snapshot(&source, "main@second").number());
    volume.branch("grown").unwrap().delete().unwrap();
    snapshot(&volume, "main@first").delete().unwrap();
    volume.close().unwrap();
    expect_clean(&device, "and without");
}

/// Frames of a stream: where each begins.
fn frames(stream: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (24, Vec::new());
    while at < stream.len() {
        found.push(at);
        let len = u32::from_le_bytes(stream[at + 4..at + 8].try_into().unwrap());
        at += 16 + len as usize;
    }
    found
}

#[test]
fn the_id_of_a_stream_is_that_of_its_snapshots() {
    let (source, first, _) = source("first", "second");
    let mut stream = sent(&source, Sending::Whole(first));
    // The first field of the first record.
    stream[24 + 16] ^= 1;
    let volume = open(&device(48 << 20));
    let error = receive(&volume, &repaired(&stream), None).unwrap_err().to_string();
    assert!(error.contains("not of the snapshots"), "{error}");
    assert_eq!(volume.branches().unwrap().len(), 1);
}

fn frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, flags, 0, 0];
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&[0; 8]);
    frame.extend_from_slice(body);
    frame
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn a_record_that_may_be_passed_over_may_be_anywhere() {
    let (source, first, _) = source("first", "second");
    let stream = sent(&source, Sending::Whole(first.clone()));
    let frames = frames(&stream);
    let end = *frames.last().unwrap();
    let (records, data) = (number(frames.len() as u64 - 1), number(30_000));
    assert_eq!(stream[end + 16..], [records, data.clone()].concat());
    for (at, flags) in [(frames[1], 1), (frames[3], 1), (end, 1), (end, 0)] {
        let one = frame(200, flags, b"of a later version");
        let last = frame(14, 0, &[number(frames.len() as u64), data.clone()].concat());
        let stream = [&stream[..at], &one, &stream[at..end], &last].concat();
        let volume = open(&device(48 << 20));
        match receive(&volume, &repaired(&stream), None) {
            Ok(_) => assert_eq!(flags, 1, "at {at}"),
            Err(error) => assert!(flags == 0 && error.to_string().contains("200"), "{error}"),
        }
        if flags == 1 {
            expect_same(&listing_of(&first), &listing(&volume), "it arrives");
        }
    }
}

#[test]
fn a_stream_goes_on_when_the_snapshot_has_another_name() {
    for new_name in ["s", "a much longer name than before"] {
        let (source, mut first, mut second) = source("first", "second");
        let volume = open(&device(48 << 20));
        receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
        let stream = sent(&source, Sending::Changes(first.clone(), second.clone()));
        receive(&volume, &stream[..stream.len() / 2], None).unwrap_err();
        second.rename(new_name).unwrap();
        first.rename(&format!("{new_name} and so on")).unwrap();
        // And cut once more, under the new names.
        let token = tokens(&volume).unwrap().remove(0).2;
        let rest = sent(&source, Sending::Rest(token));
        receive(&volume, &rest[..rest.len() - 20], None).unwrap_err();
        second.rename("in the end").unwrap();
        let token = tokens(&volume).unwrap().remove(0).2;
        receive(&volume, &sent(&source, Sending::Rest(token)), None).unwrap();
        expect_same(&listing_of(&second), &listing(&volume), new_name);
        assert_eq!(names(&volume, "main"), ["first", "in the end"]);
    }
}

/// A sender whose pipe breaks tells of an error where there is none.
#[test]
fn what_is_here_is_read_to_its_end() {
    let (source, first, _) = source("first", "second");
    let stream = sent(&source, Sending::Whole(first));
    let volume = open(&device(48 << 20));
    receive(&volume, &stream, None).unwrap();
    let mut rest = &stream[..];
    let received = Receiving::begin(&volume, &mut rest, None).unwrap().run(&mut |_| {}).unwrap();
    assert!(received.was_here && rest.is_empty(), "{} bytes are left", rest.len());
}

#[test]
fn a_branch_that_cannot_be_is_refused_before_anything_is_done() {
    let (source, first, _) = source("first", "second");
    let stream = sent(&source, Sending::Whole(first));
    let volume = open(&device(48 << 20));
    OpenOptions::new().write(true).create(true).open(&volume, "/in-the-way").unwrap();
    let receiving = ".receiving-0123456789abcdef0123456789abcdef";
    for (name, words) in [("a/b", "cannot be"), ("", "cannot be"), (receiving, "not whole")] {
        let mut rest = &stream[..];
        let done = Receiving::begin(&volume, &mut rest, Some(name)).unwrap().run(&mut |_| {});
        let error = done.unwrap_err().to_string();
        assert!(error.contains(words), "{name:?}: {error}");
        assert!(rest.len() > stream.len() - 500, "{name:?}: it has read {} bytes", rest.len());
        assert_eq!(volume.branches().unwrap().len(), 1, "{name:?}");
    }
}

/// A stream in the middle of which something happens to the volume.
struct Meddler<'a, F: FnOnce()> {
    rest: &'a [u8],
    until: usize,
    act: Option<F>,
}

impl<F: FnOnce()> Read for Meddler<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest.len() <= self.until
            && let Some(act) = self.act.take()
        {
            act();
        }
        self.rest.read(into)
    }
}

/// Programs write into a branch while a snapshot comes into it: what they have written is kept.
#[test]
fn what_is_written_while_a_stream_comes_is_kept() {
    let (source, first, second) = source("first", "second");
    let target = device(48 << 20);
    let volume = open(&target);
    volume.set_xattr("/", "user.old", b"of the branch", XattrFlags::empty()).unwrap();
    let whole = sent(&source, Sending::Whole(first.clone()));
    let changes = sent(&source, Sending::Changes(first.clone(), second.clone()));
    let during = |stream: &[u8], file: &str| {
        let act = || volume.write(file, b"mine").unwrap();
        let from = Meddler { rest: stream, until: stream.len() / 2, act: Some(act) };
        let received = Receiving::begin(&volume, from, None).unwrap().run(&mut |_| {}).unwrap();
        let kept = received.kept.expect("somebody has written there");
        assert!(kept.starts_with("before-receive-"), "{kept}");
        let kept = snapshot(&volume, &format!("main@{kept}")).open().unwrap();
        assert_eq!(kept.read(file).unwrap(), b"mine");
        kept.close().unwrap();
        assert!(!volume.exists(file).unwrap());
    };
    during(&whole, "/during-whole");
    expect_same(&listing_of(&first), &listing(&volume), "first");
    during(&changes, "/during-changes");
    expect_same(&listing_of(&second), &listing(&volume), "second");
    volume.close().unwrap();
    expect_clean(&target, "in the end");
    // Nothing is kept without a write.
    let volume = open(&device(48 << 20));
    for stream in [&whole, &changes] {
        assert_eq!(receive(&volume, stream, None).unwrap().kept, None);
    }
}

/// A write comes when the receive has seen that nothing has changed, before the branch becomes what has come.
#[test]
fn what_is_written_before_the_last_step_is_kept() {
    let (source, first, second) = source("first", "second");
    let volume = open(&device(48 << 20));
    let whole = sent(&source, Sending::Whole(first.clone()));
    let changes = sent(&source, Sending::Changes(first, second));
    // Where the snapshot goes is open, as a mounted branch is.
    let door = volume.branch("main").unwrap().view().unwrap();
    let main = volume.engine().unwrap();
    door.promote_by(move |fs, branch, fork, keep, unchanged| {
        let (name, new) = (format!("mine-{fork}"), FileType::Regular);
        let new = NewNode { file_type: new, perm: 0o644, rdev: 0 };
        match main.mknod(&Caller::root(), InodeNo::ROOT, name.as_bytes(), new) {
            Ok(_) | Err(FsError::Exists) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
        fs.promote(branch, fork, keep, unchanged).map_err(|error| match error {
            FsError::Diverged(_) => io::Error::new(ErrorKind::WouldBlock, error),
            error => io::Error::other(error),
        })
    });
    for stream in [&whole, &changes] {
        let received = receive(&door, stream, None).unwrap();
        let kept = received.kept.expect("somebody has written there");
        let kept = snapshot(&volume, &format!("main@{kept}")).open().unwrap();
        let mine = kept.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name().to_owned());
        assert_eq!(mine.filter(|name| name.to_string_lossy().starts_with("mine-")).count(), 1);
        kept.close().unwrap();
    }
    door.close().unwrap();
}

/// What a stream of its own may put where a receive keeps how far it has come: it is taken, and the next receive looks at it.
#[test]
fn what_looks_like_the_state_of_a_receive_harms_no_later_one() {
    let hex = "0123456789abcdef0123456789abcdef";
    type Put = fn(&Volume, &str);
    let kinds: [(&str, Put); 5] = [
        ("endless", |volume, path| volume.create(path).unwrap().set_len(1 << 40).unwrap()),
        ("as long as one may be", |volume, path| {
            volume.create(path).unwrap().set_len(20 << 20).unwrap();
        }),
        ("a directory", |volume, path| volume.create_dir(path).unwrap()),
        ("a link to itself", |volume, path| volume.symlink("state", path).unwrap()),
        ("a pipe", |volume, path| {
            volume.create_node(path, holdfast::FileType::Fifo, 0o600, 0).unwrap();
        }),
    ];
    for (what, put) in kinds {
        let source = open(&device(48 << 20));
        let main = source.branch("main").unwrap();
        let directory = format!("/.holdfast-receiving-{hex}");
        source.create_dir(&directory).unwrap();
        put(&source, &format!("{directory}/state"));
        let first = main.snapshot(&format!(".resume-{hex}-0")).unwrap();
        source.write("/honest", b"honest").unwrap();
        let second = main.snapshot("second").unwrap();
        let volume = open(&device(48 << 20));
        receive(&volume, &sent(&source, Sending::Whole(first.clone())), None).unwrap();
        receive(&volume, &sent(&source, Sending::Changes(first, second)), None)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(volume.read("/honest").unwrap(), b"honest", "{what}");
        assert_eq!(names(&volume, "main").len(), 2, "{what}: it is the user's");
    }
}

/// The stream as it was cut continues a base that is gone; the same base has come once more since.
#[test]
fn a_stream_does_not_go_on_over_another_copy_of_its_base() {
    let (source, first, second) = source("first", "second");
    let volume = open(&device(48 << 20));
    let whole = sent(&source, Sending::Whole(first.clone()));
    receive(&volume, &whole, Some("one")).unwrap();
    let changes = sent(&source, Sending::Changes(first, second.clone()));
    receive(&volume, &changes[..changes.len() / 2], None).unwrap_err();
    let token = tokens(&volume).unwrap().remove(0).2;
    volume.branch("one").unwrap().snapshot_named("first").unwrap().delete().unwrap();
    receive(&volume, &whole, Some("two")).unwrap();
    let rest = sent(&source, Sending::Rest(token));
    let error = receive(&volume, &rest, None).unwrap_err().to_string();
    assert!(error.contains("another copy") && error.contains("anew"), "{error}");
    receive(&volume, &changes, None).unwrap();
    expect_same(&listing_of(&second), &listing_of(&snapshot(&volume, "two@second")), "anew");
}

/// A name is taken while the stream comes: what has come is not lost, and the sentence says where it is.
#[test]
fn what_has_come_and_finds_no_place_is_kept_and_named() {
    let (source, first, _) = source("first", "second");
    let volume = open(&device(48 << 20));
    let stream = sent(&source, Sending::Whole(first.clone()));
    let main = volume.branch("main").unwrap();
    let act = || drop(main.fork("beside").unwrap());
    let from = Meddler { rest: &stream, until: stream.len() / 2, act: Some(act) };
    let receiving = Receiving::begin(&volume, from, Some("beside")).unwrap();
    let error = receiving.run(&mut |_| {}).unwrap_err().to_string();
    let all = volume.branches().unwrap();
    let mut left = all.into_iter().find(|of| of.name().starts_with(".receiving-")).unwrap();
    assert!(error.contains(left.name()) && error.contains("rename that"), "{error}");
    left.rename("elsewhere").unwrap();
    expect_same(&listing_of(&first), &listing_of(&snapshot(&volume, "elsewhere@first")), "kept");
}
