//! Threads that append to files of their own and fsync, beside commits and a writer of much data.
//!
//! Whatever is found, each file is the beginning of what its thread wrote, and no shorter than what an
//! fsync has promised (P1, P5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_check::Options;
use holdfast_device::sim::{Event, Policy};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_posix::{Caller, FileSystem, OpenFlags, WriteHow};
use holdfast_script::Data;
use holdfast_sim::{Setup, Verdict, agree_on_log};

const THREADS: u64 = 4;
const ROUNDS: u64 = 8;
/// Bytes of the file of the thread that writes much: more than one round of a writeback.
const MUCH: u64 = 10 << 20;

/// What the file of a thread holds when it has done all its rounds.
fn stream(thread: u64) -> Vec<u8> {
    let len = if thread == 0 { MUCH } else { (0..ROUNDS).map(len).sum() };
    Data::Pattern { len, seed: thread as u32 + 1 }.bytes()
}

/// Bytes of a round.
fn len(round: u64) -> u64 {
    [700, 5000, 100, 30_000][(round % 4) as usize]
}

pub(crate) fn threads(seed: u64) -> Result<(), String> {
    let mut prng = Prng::seeded(seed);
    let setup = Setup::new(4096, 100);
    let base = Arc::new(MemoryDevice::new(48 << 20));
    FileSystem::mkfs(&(base.clone() as Arc<dyn Device>), &setup.mkfs)
        .map_err(|error| error.to_string())?;
    let device = Arc::new(SimDevice::new(&base));
    let fs = FileSystem::mount(device.clone() as Arc<dyn Device>, setup.mount)
        .map_err(|error| error.to_string())?;
    let (root, flags) = (Caller::root(), OpenFlags::READ | OpenFlags::WRITE);
    let files: Vec<_> = (0..THREADS)
        .map(|thread| {
            fs.create(&root, InodeNo::ROOT, format!("f{thread}").as_bytes(), 0o644, flags, true)
                .unwrap()
                .1
        })
        .collect();
    fs.sync().map_err(|error| error.to_string())?;
    device.mark(u64::MAX);
    let (much, commits) = (seed % 3 == 2, seed % 2 == 1);
    let ended = AtomicBool::new(false);
    let done: Result<(), String> = std::thread::scope(|scope| {
        let (fs, device, root, ended) = (&fs, &device, &root, &ended);
        if commits {
            scope.spawn(move || while !ended.load(Ordering::Acquire) && fs.commit().is_ok() {});
        }
        let workers: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(thread, file)| {
                scope.spawn(move || {
                    let thread = thread as u64;
                    let bytes = stream(thread);
                    let rounds = if thread == 0 { u64::from(much) } else { ROUNDS };
                    let mut at = 0;
                    for round in 0..rounds {
                        let len = if thread == 0 { MUCH } else { len(round) };
                        let part = &bytes[at as usize..(at + len) as usize];
                        fs.write(root, file, at, part, WriteHow::default())
                            .map_err(|error| error.to_string())?;
                        at += len;
                        fs.fsync(file, false).map_err(|error| error.to_string())?;
                        device.mark(thread << 32 | at);
                    }
                    Ok(())
                })
            })
            .collect();
        let done =
            workers.into_iter().try_for_each(|worker| worker.join().expect("a thread panicked"));
        ended.store(true, Ordering::Release);
        done
    });
    done?;
    drop((files, fs));
    let recording = device.recording();
    let policy = Policy { seed, exhaustive: 2, each: 3, samples: 2, torn: 1 };
    let mut promised = None;
    let mut cut = recording.start();
    for event in &recording.events {
        cut.advance(event);
        match event {
            Event::Mark(u64::MAX) => promised = Some([0; THREADS as usize]),
            Event::Mark(mark) => {
                promised.as_mut().unwrap()[(mark >> 32) as usize] = *mark as u32 as u64
            }
            _ => {}
        }
        // Images of much data are costly.
        let one_in = if much { 12 } else { 4 };
        let worth = event.changes_images() && prng.one_in(one_in)
            || matches!(event, Event::Mark(_)) && !much;
        let Some(promised) = promised.filter(|_| worth) else { continue };
        for image in cut.images(&policy) {
            judge(image.device(), &promised)
                .map_err(|why| format!("event {}, {}: {why}", cut.index(), image.describe()))?;
        }
    }
    Ok(())
}

fn judge(image: MemoryDevice, promised: &[u64]) -> Result<(), String> {
    match agree_on_log(&image)? {
        Verdict::Whole(_) => {}
        other => return Err(format!("the log is not whole: {other:?}")),
    }
    let report = holdfast_check::check(&image, &Options { data: true, ..Options::default() })
        .map_err(|error| error.to_string())?;
    if !report.is_clean() {
        return Err(format!("check: {:?}", report.findings));
    }
    let fs = FileSystem::mount(Arc::new(image), Setup::new(4096, 16).mount)
        .map_err(|error| format!("mount: {error}"))?;
    let root = Caller::root();
    for (thread, &promised) in promised.iter().enumerate() {
        let attr = fs
            .lookup(&root, InodeNo::ROOT, format!("f{thread}").as_bytes())
            .map_err(|error| error.to_string())?;
        let mut bytes = vec![0; attr.size as usize];
        let file =
            fs.open(&root, attr.inode, OpenFlags::READ).map_err(|error| error.to_string())?;
        fs.read(&file, 0, &mut bytes).map_err(|error| error.to_string())?;
        if (bytes.len() as u64) < promised {
            return Err(format!(
                "file {thread} has {} bytes, {promised} were promised (P1)",
                bytes.len()
            ));
        }
        if !stream(thread as u64).starts_with(&bytes) {
            return Err(format!(
                "file {thread} of {} bytes holds what was never written (P5)",
                bytes.len()
            ));
        }
    }
    fs.unmount().map_err(|error| format!("unmount: {error}"))
}
