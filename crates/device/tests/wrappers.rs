//! A device in front of another hides nothing of what a host or another machine means for it. A wrapper that forgets
//! one of these calls would silently lose P8 in a sparse image, or the guard on a shared disk.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::clock::SimulatedClock;
use holdfast_device::sim::{HostedDevice, TimedDevice};
use holdfast_device::{Device, MemoryDevice, Sticky};

type Wrap = fn(Arc<dyn Device>) -> Arc<dyn Device>;

/// Wrappers of this crate, over a host with 64 KiB left.
#[test]
fn a_wrapper_asks_the_host() {
    let wrap: [Wrap; 2] = [
        |under| Arc::new(Sticky::new(under, Arc::default())),
        |under| {
            Arc::new(TimedDevice::new(under, SimulatedClock::new(), Duration::from_millis(1), 4096))
        },
    ];
    for wrap in wrap {
        let hosted = Arc::new(HostedDevice::new(&MemoryDevice::new(1 << 20), 64 << 10));
        let device = wrap(hosted);
        let what = format!("{device:?}");
        assert_eq!((device.room(), device.given()), (Some(64 << 10), 0), "{what}");
        device.take_room(0, 16 << 10).unwrap();
        assert_eq!((device.room(), device.given()), (Some(48 << 10), 16 << 10), "{what}");
        assert!(device.take_room(0, 1 << 20).unwrap_err().is_no_space(), "{what}");
    }
}

/// All wrappers of the workspace, by their text: what they do not pass on as it is stands in this list.
#[test]
fn every_wrapper_passes_on_what_a_host_and_other_machines_mean() {
    /// Wrapper, call, and why its body is its own.
    const OWN: [(&str, &str, &str); 22] = [
        ("Slow", "take_room", "a test counts what it is asked"),
        ("Sticky", "take_room", "nothing is taken behind the stop of the volume"),
        ("Guarded", "take_room", "nothing is taken once another program has the volume"),
        ("HostedDevice", "room", "it is the host"),
        ("HostedDevice", "take_room", "it is the host"),
        ("SharedDevice", "reach", "it says who else has the device"),
        ("CutDevice", "take_room", "nothing is taken once the power is cut"),
        ("Slow", "room", "a test counts what it is asked"),
        ("Sticky", "discard", "nothing is discarded behind the stop of the volume"),
        ("Guarded", "discard", "nothing is discarded once another program has the volume"),
        ("HostedDevice", "discard", "the host has the space then"),
        ("Watched", "discard", "a test says where"),
        ("Asking", "discard", "a test says when"),
        ("Front", "take_room", "what lies behind its end is not its own"),
        ("OnHost", "room", "it is the host"),
        ("Host", "room", "it is the host"),
        ("Host", "take_room", "it is the host"),
        ("Host", "discard", "another takes what goes back"),
        ("Tolerant", "room", "it takes no write, and asks no host"),
        ("Tolerant", "take_room", "it takes no write"),
        ("Tolerant", "discard", "it takes no write"),
        ("Front", "discard", "what lies behind its end is not its own"),
    ];
    let mut wrappers = 0;
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        for (name, body) in devices(&text) {
            let Some(list) = body.split("forward!(").nth(1) else { continue };
            let (list, _) = list.split_once(')').unwrap();
            let passed: Vec<&str> = list.split([':', ',']).map(str::trim).collect();
            for call in ["room", "take_room", "reach", "discard"] {
                let is_own = OWN.iter().any(|own| (own.0, own.1) == (name, call));
                assert!(
                    passed.contains(&call) || is_own,
                    "{}: {name} does not pass `{call}` on",
                    file.display()
                );
            }
            wrappers += 1;
        }
    }
    assert!(wrappers > 15, "{wrappers} wrappers were found");
}

/// Each `impl Device for NAME` of a file: the name and the text of the block.
fn devices(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\nimpl").flat_map(|part| part.split("\n    impl")).filter_map(|part| {
        let (head, body) = part.split_once('{')?;
        let name = head.split_once("Device for ")?.1.split(['<', ' ']).next()?;
        Some((name, body))
    })
}

fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut found, mut open) = (Vec::new(), vec![crates.to_path_buf()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found
}
