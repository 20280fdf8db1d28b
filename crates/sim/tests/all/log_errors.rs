//! The device refuses around the fsync log (P7, P9): a batch or its flush fails, file data fails, the
//! writes of log-resident data to its location fail, recoveries fail. What was acknowledged is there when the
//! device is healed, and no caller gets success for what did not work.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Barrier};

use holdfast_base::InodeNo;
use holdfast_base::prng::Prng;
use holdfast_device::sim::{Action, Call, Faults, Policy, When};
use holdfast_device::{Device, MemoryDevice, SimDevice};
use holdfast_format::Geometry;
use holdfast_posix::{Caller, FileSystem, FsError, MountOptions, OpenFile, OpenFlags, WriteHow};
use holdfast_script::{Data, Script, Target, Tree};
use holdfast_sim::{Engine, Setup, Verdict, agree_on_log, judge};

const VOLUME: u64 = 16 << 20;

fn bytes(len: u64, seed: u64) -> Vec<u8> {
    Data::Pattern { len, seed: seed as u32 + 1 }.bytes()
}

fn setup() -> Setup {
    Setup::new(4096, 16)
}

/// An empty volume on a device that records.
fn formatted() -> Arc<SimDevice> {
    let base = Arc::new(MemoryDevice::new(VOLUME));
    FileSystem::mkfs(&(base.clone() as Arc<dyn Device>), &setup().mkfs).unwrap();
    Arc::new(SimDevice::new(&base))
}

fn mount(device: Arc<dyn Device>) -> Result<FileSystem, FsError> {
    FileSystem::mount(device, setup().mount)
}

fn create(fs: &FileSystem, name: &str) -> Arc<OpenFile> {
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let root = Caller::root();
    fs.create(&root, InodeNo::ROOT, name.as_bytes(), 0o644, flags, false).unwrap().1
}

fn write(fs: &FileSystem, file: &OpenFile, at: u64, bytes: &[u8]) -> Result<(), FsError> {
    fs.write(&Caller::root(), file, at, bytes, WriteHow::default()).map(drop)
}

fn read(fs: &FileSystem, name: &str) -> Result<Vec<u8>, FsError> {
    let found = fs.lookup(&Caller::root(), InodeNo::ROOT, name.as_bytes())?;
    let file = fs.open(&Caller::root(), found.inode, OpenFlags::READ)?;
    let mut bytes = vec![0; found.size as usize];
    fs.read(&file, 0, &mut bytes)?;
    Ok(bytes)
}

/// Byte ranges of the zones.
fn zones(fs: &FileSystem) -> (Range<u64>, Range<u64>, Range<u64>) {
    let geometry: Geometry = fs.superblock().geometry;
    let (log, journal) = (geometry.log(), geometry.journal());
    let bytes = |start: u64, end: u64| start * 4096..end * 4096;
    (
        bytes(log.start.0, log.start.0 + log.count),
        bytes(journal.start.0, journal.start.0 + journal.count),
        bytes(geometry.first_data_block().0, geometry.volume_blocks),
    )
}

/// Of the writes into a zone, some fail.
fn refuse(zone: &Range<u64>, skip: u64, times: u64) -> Faults {
    let inside = When::Inside { start: zone.start, end: zone.end, skip, times };
    Faults::none().with(Call::Write, inside, Action::Fail)
}

/// Every image that power may leave now, and what reading the device itself gives, is whole and holds
/// what `holds` says.
fn all_hold(device: &SimDevice, holds: impl Fn(&FileSystem) -> Result<(), String>) {
    let cut = device.cut();
    let policy = Policy { each: 4, samples: 6, torn: 6, ..Policy::default() };
    let images = cut.images(&policy).map(|image| (image.describe(), image.device()));
    for (lost, image) in images.chain([("killed".into(), device.image())]) {
        match agree_on_log(&image) {
            Ok(Verdict::Whole(_)) => {}
            other => panic!("{lost}: {other:?}"),
        }
        let image = Arc::new(image);
        judge(&*image).unwrap_or_else(|found| panic!("{lost}: {found}"));
        let fs = mount(image.clone()).unwrap_or_else(|error| panic!("{lost}: {error}"));
        holds(&fs).unwrap_or_else(|why| panic!("{lost}: {why}"));
        fs.unmount().unwrap();
        judge(&*image).unwrap_or_else(|found| panic!("{lost}, after a mount: {found}"));
    }
}

/// Eight threads append to their files and fsync, until one of the calls of the log fails: all of
/// them hear of it, and what was acknowledged to each is there.
fn threads_until(faults: impl FnOnce(&FileSystem) -> Faults, what: &str) {
    const THREADS: u64 = 8;
    let device = formatted();
    let fs = mount(device.clone()).unwrap();
    let files: Vec<_> = (0..THREADS).map(|thread| create(&fs, &format!("f{thread}"))).collect();
    fs.sync().unwrap();
    device.set_faults(faults(&fs));
    let at_once = Barrier::new(THREADS as usize);
    let mut outcomes: Vec<(u64, bool)> = std::thread::scope(|scope| {
        let workers: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(thread, file)| {
                let (fs, at_once) = (&fs, &at_once);
                scope.spawn(move || {
                    at_once.wait();
                    for round in 0..200 {
                        let part = bytes(500, thread as u64 * 1000 + round);
                        if let Err(error) = write(fs, file, round * 500, &part) {
                            assert_eq!(error.errno(), 5, "{error}");
                            return (round, false);
                        }
                        if let Err(error) = fs.fsync(file, false) {
                            assert_eq!(error.errno(), 5, "{error}");
                            return (round, true);
                        }
                    }
                    panic!("nothing failed");
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(device.faults_fired(), 1, "{what}: it was not tried again");
    assert!(fs.stop_reason().is_some(), "{what}");
    // It can still be read, and nothing can be written.
    for ((thread, file), (acked, _)) in files.iter().enumerate().zip(&mut outcomes) {
        let found = read(&fs, &format!("f{thread}")).unwrap();
        assert!(found.len() as u64 >= *acked * 500, "{what}");
        match fs.fsync(file, false) {
            Err(error) => assert_eq!(error.errno(), 5, "{what}: it stays stopped"),
            // Nothing was undurable when its next write was refused, or a commit that was under way made durable
            // what the log could not. Either way this says that all of it is there.
            Ok(receipt) => {
                assert!(receipt.is_clean(), "{what}: {receipt:?}");
                *acked = found.len() as u64 / 500;
            }
        }
    }
    assert!(outcomes.iter().any(|(_, by_fsync)| *by_fsync), "{what}");
    // A commit that was under way may have made everything durable that the log could not.
    let asked = [fs.sync().is_err(), fs.commit().is_err()];
    assert!(asked == [true; 2] || fs.is_durable(), "{what}: {asked:?}");
    assert!(fs.checkpoint().is_err(), "{what}");
    drop(files);
    drop(fs);
    device.set_faults(Faults::none());
    all_hold(&device, |fs| {
        for (thread, &(acked, _)) in outcomes.iter().enumerate() {
            let found = read(fs, &format!("f{thread}")).map_err(|error| error.to_string())?;
            let told = (0..acked).flat_map(|round| bytes(500, thread as u64 * 1000 + round));
            let told: Vec<u8> = told.collect();
            if !found.starts_with(&told) {
                return Err(format!("thread {thread} was told of {acked} rounds"));
            }
        }
        Ok(())
    });
}

#[test]
fn a_log_write_that_fails_stops_everybody() {
    let seed = 77;
    println!("seed {seed}");
    let mut prng = Prng::seeded(seed);
    for _ in 0..6 {
        let nth = 1 + prng.below(40);
        threads_until(|fs| refuse(&zones(fs).0, nth, 1), &format!("write {nth} of the log"));
    }
}

#[test]
fn a_log_flush_that_fails_stops_everybody() {
    let seed = 78;
    println!("seed {seed}");
    let mut prng = Prng::seeded(seed);
    for _ in 0..6 {
        let nth = 1 + prng.below(40);
        threads_until(|_| Faults::fail_once(Call::Flush, nth), &format!("flush {nth}"));
    }
}

#[test]
fn data_that_is_refused_is_reported_to_each_handle_until_it_is_written_again_and_stops_no_other_file()
 {
    let device = formatted();
    let fs = mount(device.clone()).unwrap();
    let (_, _, data) = zones(&fs);
    let (a, stranger) = (create(&fs, "a"), create(&fs, "stranger"));
    write(&fs, &a, 0, &bytes(30_000, 1)).unwrap();
    fs.fsync(&a, false).unwrap();
    let b = fs.open(&Caller::root(), a.inode(), OpenFlags::READ | OpenFlags::WRITE).unwrap();
    device.set_faults(refuse(&data, 0, u64::MAX));
    write(&fs, &a, 4096, &bytes(20_000, 2)).unwrap();
    assert_eq!(fs.fsync(&a, false).unwrap_err().errno(), 5);
    // Small data does not need the data zone now, and neither do names.
    write(&fs, &stranger, 0, &bytes(3000, 3)).unwrap();
    fs.fsync(&stranger, false).unwrap();
    assert_eq!(fs.fsync(&b, false).unwrap_err().errno(), 5, "each handle hears of it");
    let c = fs.open(&Caller::root(), a.inode(), OpenFlags::READ | OpenFlags::WRITE).unwrap();
    for handle in [&a, &b, &c] {
        assert_eq!(fs.fsync(handle, false).unwrap_err().errno(), 5, "it is still lost");
    }
    assert_eq!(fs.stop_reason(), None);
    assert_eq!(read(&fs, "a").unwrap(), bytes(30_000, 1), "what is lost is not shown");
    let holds = |fs: &FileSystem| {
        let found = [read(fs, "a"), read(fs, "stranger")].map(|read| read.unwrap());
        let whole = found == [bytes(30_000, 1), bytes(3000, 3)];
        whole.then_some(()).ok_or_else(|| "something else is there".into())
    };
    all_hold(&device, holds);
    device.set_faults(Faults::none());
    write(&fs, &c, 4096, &bytes(20_000, 4)).unwrap();
    fs.fsync(&c, false).unwrap();
    all_hold(&device, |fs| {
        let expected = [&bytes(30_000, 1)[..4096], &bytes(20_000, 4), &bytes(30_000, 1)[24_096..]];
        let whole = read(fs, "a").unwrap() == expected.concat();
        whole.then_some(()).ok_or_else(|| "the write after the failure is missing".into())
    });
}

#[test]
fn data_that_is_refused_once_goes_elsewhere() {
    let device = formatted();
    let fs = mount(device.clone()).unwrap();
    let (_, _, data) = zones(&fs);
    let file = create(&fs, "a");
    fs.sync().unwrap();
    device.set_faults(refuse(&data, 0, 1));
    write(&fs, &file, 0, &bytes(30_000, 1)).unwrap();
    fs.fsync(&file, false).unwrap();
    assert_eq!((device.faults_fired(), fs.stop_reason()), (1, None));
    all_hold(&device, |fs| {
        let whole = read(fs, "a").unwrap() == bytes(30_000, 1);
        whole.then_some(()).ok_or_else(|| "it is not there".into())
    });
}

/// A volume with data that only the log holds: small writes with fsyncs, over one another and over data at
/// its location.
fn with_logged_data() -> (Arc<SimDevice>, FileSystem, BTreeMap<String, Vec<u8>>) {
    let device = formatted();
    let fs = mount(device.clone()).unwrap();
    let mut told = BTreeMap::new();
    for number in 0..5 {
        let name = format!("f{number}");
        let file = create(&fs, &name);
        let mut content = bytes(10_000, number);
        write(&fs, &file, 0, &content).unwrap();
        fs.fsync(&file, false).unwrap();
        for round in 0..3 {
            let (at, part) = (3000 + round * 700, bytes(1000, 100 + number * 10 + round));
            write(&fs, &file, at, &part).unwrap();
            fs.fsync(&file, false).unwrap();
            content[at as usize..][..part.len()].copy_from_slice(&part);
        }
        told.insert(name, content);
    }
    (device, fs, told)
}

fn all_told(fs: &FileSystem, told: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (name, content) in told {
        let found = read(fs, name).map_err(|error| format!("{name}: {error}"))?;
        if found != *content {
            return Err(format!("{name} has another content"));
        }
    }
    Ok(())
}

/// The device refuses the locations of log-resident data, and goes on doing so: a commit cannot
/// be made, and the log must be kept. So nothing is written any more. All of it can be read, also by a
/// read-only opening on the device as it is, and is there again on one that is healed.
#[test]
fn logged_data_whose_place_is_refused_stays_in_the_log() {
    for way in ["commit", "checkpoint", "unmount"] {
        let (device, fs, told) = with_logged_data();
        let (_, _, data) = zones(&fs);
        device.set_faults(refuse(&data, 0, u64::MAX));
        let failed = match way {
            "commit" => fs.commit().is_err() && fs.stop_reason().is_some(),
            "checkpoint" => fs.checkpoint().is_err() && fs.stop_reason().is_some(),
            _ => {
                let failed = fs.unmount().is_err();
                let fs = mount_read_only(&device);
                all_told(&fs, &told).unwrap();
                all_hold(&device, |fs| all_told(fs, &told));
                assert!(failed);
                continue;
            }
        };
        assert!(failed, "{way}");
        all_told(&fs, &told).unwrap_or_else(|why| panic!("{way}, still mounted: {why}"));
        drop(fs);
        all_told(&mount_read_only(&device), &told).unwrap_or_else(|why| panic!("{way}: {why}"));
        mount(device.clone()).expect_err("a recovery could not put the data to its place");
        all_told(&mount_read_only(&device), &told).unwrap_or_else(|why| panic!("{way}: {why}"));
        device.set_faults(Faults::none());
        all_hold(&device, |fs| all_told(fs, &told));
    }
}

fn mount_read_only(device: &Arc<SimDevice>) -> FileSystem {
    let options = MountOptions { read_only: true, ..setup().mount };
    FileSystem::mount(device.clone(), options).unwrap()
}

/// One refusal is not the end: the bytes are in memory, and nothing relies on what is at their location.
#[test]
fn logged_data_whose_place_is_refused_once_is_written_again() {
    for skip in 0..3 {
        let (device, fs, told) = with_logged_data();
        let (_, _, data) = zones(&fs);
        device.set_faults(refuse(&data, skip, 1));
        fs.commit().unwrap();
        assert_eq!(device.faults_fired(), 1);
        assert_eq!(fs.stop_reason(), None);
        all_told(&fs, &told).unwrap();
        all_hold(&device, |fs| all_told(fs, &told));
        fs.unmount().unwrap();
        judge(&device.image()).unwrap();
    }
}

const CRASHED: [&str; 3] = [
    "mkfile /a; write /a 0 10000 1; fsync /a; write /a 4000 200 2; fsync /a; mkdir /d; rename /a /d/a; fsyncdir /d",
    "mkfile /a; write /a 0 3000 1; fsync /a; sync; mkfile /b; write /b 0 60k 2; fsync /b; write /a 10 10 3; fsync /a; \
     unlink /b; fsyncdir /",
    "mkfile /a; setxattr /a user.a 9000 1; fsync /a; tmpfile t / 600; write @t 0 9000 2; fsync @t; mkfile /b; \
     write /b 0 5000 3; fsync /b; truncate /b 100; fsync /b",
];

/// The tree that an opening shows.
fn tree(device: Arc<dyn Device>) -> Result<Tree, String> {
    let mut engine = Engine::open(device, setup()).map_err(|error| error.to_string())?;
    engine.walk()
}

/// Each call of a recovery fails once, or from then on: it answers with an error or does all of its work,
/// and on a healed device everything is there. A read that fails may cost the recovery, never the data.
#[test]
fn every_call_of_a_recovery_fails() {
    let mut failed = BTreeMap::new();
    for text in CRASHED {
        let script: Script = text.parse().unwrap();
        let device = formatted();
        let mut engine = Engine::open(device.clone(), setup()).unwrap();
        script.ops().for_each(|op| drop(engine.apply(op)));
        engine.kill();
        let image = device.image();
        let told = tree(Arc::new(image.snapshot())).unwrap();
        for call in [Call::Read, Call::Write, Call::Flush] {
            for forever in [false, true] {
                for nth in 1.. {
                    let faults = match forever {
                        true => Faults::fail_from(call, nth),
                        false => Faults::fail_once(call, nth),
                    };
                    let what = format!("{text}: {} {nth}, for ever: {forever}", call.name());
                    let sim = Arc::new(SimDevice::with_faults(&image, faults));
                    let mounted = mount(sim.clone());
                    if sim.faults_fired() == 0 {
                        mounted.unwrap_or_else(|error| panic!("{what}: {error}"));
                        break;
                    }
                    *failed.entry((call.name(), mounted.is_err())).or_insert(0) += 1;
                    // A write may be tried again, a read may be of no use.
                    assert!(call != Call::Flush || mounted.is_err(), "{what}: nobody said so");
                    drop(mounted);
                    sim.set_faults(Faults::none());
                    let few = Policy { each: 2, samples: 3, torn: 2, ..Policy::default() };
                    let cut = sim.cut();
                    let left = cut.images(&few).map(|image| image.device()).chain([sim.image()]);
                    for image in left {
                        let found =
                            tree(Arc::new(image)).unwrap_or_else(|why| panic!("{what}: {why}"));
                        let different = told.differences(&found);
                        assert!(different.is_empty(), "{what}:\n{}", different.join("\n"));
                    }
                }
            }
        }
    }
    println!("{failed:?}");
    assert!(failed[&("write", true)] > 15 && failed[&("flush", true)] > 10, "{failed:?}");
}
