//! One large file: written from end to end, read cold and warm, and read and written at random offsets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use holdfast_base::prng::Prng;

use super::flat::expect;
use super::run::{Run, Unit};
use crate::undo::interrupted;
use crate::work::pattern;

/// Bytes of a call, in order.
const CHUNK: usize = 1 << 20;
/// Bytes of a call, at random offsets.
const BLOCK: usize = 4096;
/// Calls at random offsets in each MiB of the file.
const CALLS_PER_MIB: u64 = 32;

/// All of it.
pub(super) fn stream(run: &mut Run<'_>) -> io::Result<()> {
    let path = run.place().join("stream");
    let scale = run.scale();
    let chunks = scale.stream_bytes.div_ceil(CHUNK as u64);
    let bytes = chunks * CHUNK as u64;
    let syncer = run.syncer();
    run.once("write 1 MiB after the other, fsync", Unit::Bytes, |laps| {
        let mut file = File::create_new(&path)?;
        let chunk = pattern(CHUNK);
        for _ in 0..chunks {
            interrupted()?;
            laps.lap(|| file.write_all(&chunk))?;
        }
        syncer.file(&file)?;
        Ok(bytes)
    })?;
    for warmth in ["cold", "warm"] {
        let name = format!("read 1 MiB after the other, {warmth}");
        if warmth == "warm" || run.cool(&name)? {
            run.once(&name, Unit::Bytes, |laps| {
                let (mut file, mut chunk) = (File::open(&path)?, vec![0; CHUNK]);
                let mut read = 0;
                loop {
                    let len = laps.lap(|| file.read(&mut chunk))?;
                    if len == 0 {
                        break;
                    }
                    read += len as u64;
                }
                expect(read, bytes, &path)?;
                Ok(read)
            })?;
        }
    }
    let calls = chunks * CALLS_PER_MIB;
    let places = bytes / BLOCK as u64;
    let mut prng = Prng::seeded(scale.seed);
    let name = "read 4 KiB at random, cold";
    if run.cool(name)? {
        run.once(name, Unit::Operations, |laps| {
            let (file, mut block) = (File::open(&path)?, vec![0; BLOCK]);
            for _ in 0..calls {
                let at = prng.below(places) * BLOCK as u64;
                laps.lap(|| file.read_exact_at(&mut block, at))?;
            }
            Ok(calls)
        })?;
    }
    run.once("write 4 KiB at random, one fsync", Unit::Operations, |laps| {
        let file = File::options().write(true).open(&path)?;
        let block = pattern(BLOCK);
        for _ in 0..calls {
            let at = prng.below(places) * BLOCK as u64;
            laps.lap(|| file.write_all_at(&block, at))?;
        }
        syncer.file(&file)?;
        Ok(calls)
    })
}
