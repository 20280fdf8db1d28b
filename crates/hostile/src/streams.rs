//! Streams between volumes: received whole, or refused, and then nothing has changed (P10).
//!
//! A stream is received as it is, and once more with all checksums put right, so that what stands behind them is judged as well.

use std::io::ErrorKind;
use std::sync::LazyLock;

use holdfast::{Volume, XattrFlags};
use holdfast_stream::{Receiving, Sending, StreamError, repaired, send};

use crate::fresh::{copy_of, empty, ends_clean, open};
use crate::golden::pinned;

/// A volume that has received a snapshot, and streams for it.
struct Golden {
    target: Vec<u8>,
    streams: Vec<Vec<u8>>,
    /// One of another volume.
    honest: Vec<u8>,
}

static GOLDEN: LazyLock<Golden> = LazyLock::new(|| golden().expect("honest streams are received"));

fn sent(volume: &Volume, what: Sending) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    send(volume, what, &mut bytes, &mut |_| {}).map_err(std::io::Error::other)?;
    Ok(bytes)
}

fn golden() -> std::io::Result<Golden> {
    let _pinned = pinned();
    let source = open(&empty(1)?)?;
    let main = source.branch("main")?;
    source.create_dir_all("/dir/below")?;
    source.write("/dir/file", vec![1; 9000])?;
    source.write("/dir/below/other", b"other")?;
    source.write("/name", b"name")?;
    source.hard_link("/name", "/dir/link")?;
    source.symlink("name", "/symlink")?;
    source.set_xattr("/dir", "user.name", b"value", XattrFlags::empty())?;
    let first = main.snapshot("first")?;
    source.rename("/dir", "/moved")?;
    source.create_dir("/dir")?;
    source.rename("/moved/below", "/dir/below")?;
    source.remove_file("/name")?;
    source.write("/moved/file", vec![2; 5000])?;
    source.write("/dir/new", b"new")?;
    source.hard_link("/dir/new", "/new-too")?;
    let second = main.snapshot("second")?;
    let whole = sent(&source, Sending::Whole(first.clone()))?;
    let changes = sent(&source, Sending::Changes(first, second.clone()))?;
    let other = sent(&source, Sending::Whole(second))?;
    source.close()?;
    let target = empty(2)?;
    let volume = open(&target)?;
    let receive = Receiving::begin(&volume, &whole[..], None);
    receive.and_then(|of| of.run(&mut |_| {})).map_err(std::io::Error::other)?;
    volume.close()?;
    let source = open(&empty(3)?)?;
    source.write("/honest", b"honest")?;
    let honest = sent(&source, Sending::Whole(source.branch("main")?.snapshot("honest")?))?;
    source.close()?;
    Ok(Golden { target: target.to_image(), streams: vec![changes, whole, other], honest })
}

/// Streams as they are sent.
pub fn seeds() -> Vec<Vec<u8>> {
    GOLDEN.streams.clone()
}

/// Receives a stream, and the same with its checksums put right.
pub fn stream(data: &[u8]) {
    receive(data);
    let repaired = repaired(data);
    if repaired != data {
        receive(&repaired);
    }
}

/// Whatever was accepted, the next receive works.
fn receive_honest(volume: &Volume, stream: &[u8]) {
    let names = |name: &String| volume.branch(name).is_err();
    let name = (0..).map(|n| format!("honest-{n}")).find(names).expect("some name is free");
    let received = Receiving::begin(volume, stream, Some(&name)).and_then(|of| of.run(&mut |_| {}));
    match received {
        // It is here already, as the other stream says.
        Ok(received) if received.was_here => {}
        Ok(_) => {
            let opened = volume.branch(&name).and_then(|branch| branch.open());
            let opened = opened.expect("it was received");
            assert_eq!(opened.read("/honest").expect("it was sent"), b"honest");
            opened.close().expect("the volume is whole");
        }
        Err(StreamError::Volume { source, .. }) if source.kind() == ErrorKind::StorageFull => {}
        Err(error) => panic!("an honest stream behind one that was accepted: {error}"),
    }
}

fn receive(bytes: &[u8]) {
    let golden = &*GOLDEN;
    let _pinned = pinned();
    let (device, volume) = copy_of(&golden.target);
    let done = Receiving::begin(&volume, bytes, None).and_then(|of| of.run(&mut |_| {}));
    let names = || -> std::io::Result<Vec<String>> {
        let snapshots = volume.branch("main")?.snapshots()?;
        Ok(snapshots.iter().map(|of| of.name().to_owned()).collect())
    };
    let names = names().expect("the volume is whole");
    assert!(names.iter().any(|name| name == "first"), "P13: {names:?} after {done:?}");
    if let Err(error) = &done {
        assert_eq!(names, ["first"], "P12: {error}");
        let file = volume.read("/dir/file").expect("it was there");
        assert_eq!(file, [1; 9000], "P14: {error}");
    }
    if done.is_ok() {
        receive_honest(&volume, &golden.honest);
    }
    ends_clean(volume, &device, &done);
}
