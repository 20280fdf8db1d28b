//! Floor 6: images and requests that no honest program makes, and what must hold all the same (P10).
//!
//! A [`Target`] is a function of bytes. It does something with them, and panics if
//! a promise is broken; so a fuzzer can steer it by coverage (`fuzz/`), and an
//! ordinary test can call it with what was found before and with seeded random inputs.
//! Bytes that are no image are a *program*: edits of a [`golden`] volume, whose
//! checksums are repaired afterwards, or requests to a server.
//!
//! Always true: a target is a function of its bytes alone; nothing is kept from
//! one call to the next but the golden volumes, and those are the same in each
//! process: the clock of the thread is pinned.

pub mod archives;
pub mod corpus;
pub mod decoders;
pub mod edited;
mod fresh;
pub mod golden;
pub mod image;
pub mod layouts;
pub mod messages;
pub mod program;
pub mod random;
pub mod repairs;
pub mod requests;
pub mod salvage;
pub mod streams;
mod use_on;
pub mod volume;
mod walk;
pub mod walkers;
pub mod watched;

/// Something to attack.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: that of the program in `fuzz/`, and of its file in `corpus/`.
    pub name: &'static str,
    /// What it does, in a few words.
    pub says: &'static str,
    /// What is kept for it ([`corpus`]).
    pub kept: &'static str,
    /// Panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made of golden volumes. The same each time.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What an input may cost.
    pub most: AtMost,
}

/// What any input may cost, in MiB. A test holds it against what was needed.
#[derive(Clone, Copy, Debug)]
pub struct AtMost {
    /// Memory that the process holds while it tries inputs, beyond what it held before.
    pub memory: u64,
    /// Bytes that are read of one device: it stands for the time, which no test asserts. Of bytes in memory, which are gone through once or
    /// in steps of a program, none.
    pub read: u64,
}

/// Of what only looks at some bytes.
const BYTES: AtMost = AtMost { memory: 256, read: 16 };
/// Of work on whole volumes.
const VOLUMES: AtMost = AtMost { memory: 512, read: 1024 };

macro_rules! targets {
    ($($name:literal $run:path, $seeds:path, $most:ident, $says:literal;)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(Target {
            name: $name,
            says: $says,
            kept: include_str!(concat!("../corpus/", $name, ".txt")),
            run: $run,
            seeds: $seeds,
            most: $most,
        }),*];
    };
}

targets! {
    "superblock" decoders::superblock, decoders::superblock_seeds, BYTES,
        "decodes a superblock; what is valid encodes to the same bytes";
    "node" decoders::node, decoders::node_seeds, BYTES,
        "judges a node, then searches it and decodes its items";
    "item" decoders::item, decoders::item_seeds, BYTES,
        "decodes keys and values; what is valid encodes to the same bytes";
    "frame" decoders::frame, decoders::frame_seeds, BYTES,
        "decodes a frame and a commit of the journal, and applies it";
    "batch" decoders::batch, decoders::batch_seeds, BYTES,
        "decodes a batch of the log; its records survive being written again";
    "foreign" decoders::foreign, decoders::foreign_seeds, BYTES,
        "looks at a device with other content";
    "message" messages::message, messages::message_seeds, BYTES,
        "decodes a message of the FUSE protocol";
    "look" volume::look, volume::seeds, VOLUMES,
        "check, dump and a read-only mount of an edited volume agree, and write nothing";
    "recover" volume::recover, volume::seeds, VOLUMES,
        "an edited volume is mounted for writing, used on and left";
    "salvage" salvage::salvage, volume::seeds, VOLUMES,
        "an edited volume is salvaged, whole if check finds nothing, and again with blocks gone";
    "repair" repairs::repair, volume::seeds, VOLUMES,
        "an edited volume is repaired or refused; what is repaired is clean and goes on, and can be undone";
    "requests" requests::requests, requests::seeds, VOLUMES,
        "any requests to the FUSE server leave a clean volume";
    "stream" streams::stream, streams::seeds, VOLUMES,
        "any stream is received or refused, and other branches stay as they are";
    "archive" archives::archive, archives::seeds, VOLUMES,
        "any archive or layer is imported or refused, and then nothing has changed";
    "layout" layouts::layout, layouts::seeds, VOLUMES,
        "any image layout is imported or refused, and then nothing has changed";
    "walkers" walkers::walkers, walkers::seeds, VOLUMES,
        "a walk, an archive, a stream, a difference and a removal of an edited volume end";
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
