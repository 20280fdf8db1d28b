//! Files of the host, with and without direct I/O, on tmpfs and on a loop device.

use super::*;
use crate::buffer::AlignedBuf;
use crate::file::lock::wait_until_free;
use holdfast_base::prng::{Prng, entropy};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Writes and reads at random, aligned and not, from several threads, against vectors.
fn exercise(device: &FileDevice) {
    let seed = entropy();
    println!("seed {seed}, {device:?}");
    let sector = u64::from(device.sector_size());
    let part = device.len() / 4 / sector * sector;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut prng = Prng::seeded(seed + thread);
                let start = thread * part;
                let mut model = AlignedBuf::zeroed(part as usize);
                device.write(start, &model).unwrap();
                for round in 0..40 {
                    let from = prng.below(part / sector) * sector;
                    let len = (prng.below((part - from) / sector) + 1) * sector;
                    // One byte more than wanted, so that every second slice starts at an odd address.
                    let mut bytes = AlignedBuf::zeroed(len as usize + 1);
                    prng.fill(&mut bytes);
                    let bytes = &bytes[round % 2..round % 2 + len as usize];
                    device.write(start + from, bytes).unwrap();
                    model[from as usize..(from + len) as usize].copy_from_slice(bytes);
                    let from = prng.below(part);
                    let mut read = vec![0; (prng.below(part - from) + 1) as usize];
                    device.read(start + from, &mut read).unwrap();
                    assert!(read == model[from as usize..from as usize + read.len()]);
                }
                let _ = device.flush().unwrap();
                let mut all = AlignedBuf::zeroed(part as usize);
                device.read(start, &mut all).unwrap();
                assert!(all[..] == model[..]);
            });
        }
    });
    assert_eq!(device.stats().flushes, 4);
    let end = device.len();
    let beyond = device.write(end, &vec![0; sector as usize]);
    assert!(matches!(beyond, Err(DeviceError::BeyondEnd { .. })));
    assert!(matches!(device.read(end - 1, &mut [0; 2]), Err(DeviceError::BeyondEnd { .. })));
    if sector > 1 {
        assert!(matches!(device.write(1, &vec![0; sector as usize]), Err(DeviceError::Io { .. })));
    }
}

/// Bytes that a block device discards at once, in the kernel's words.
fn discard_limit(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let limit = format!("/sys/block/{name}/queue/discard_max_bytes");
    Some(std::fs::read_to_string(limit).ok()?.trim().to_string())
}

/// What it wrote is there after it is opened again, and discarding keeps the neighbours.
fn reopen_and_discard(path: &Path, direct: bool) {
    let open = || FileDevice::open_existing(path, OpenMode::ReadWrite, direct).unwrap();
    let device = open();
    device.write(0, &[0x5a; 65536]).unwrap();
    let _ = device.flush().unwrap();
    drop(device);
    let limit = discard_limit(path);
    let device = open();
    match device.discard(4096, 8192) {
        // Seen of a loop device over a file that could be punched. What the kernel says of it counts.
        Err(error) if error.is_unsupported() && device.is_block_device() => {
            let limits = [limit, discard_limit(path)];
            assert!(limits.contains(&Some("0".into())), "{error}, and {limits:?} bytes may be");
            assert!(matches!(device.discards(), Discards::Refused));
            println!("{path:?} takes no discards: {limits:?}");
        }
        done => done.unwrap(),
    }
    let mut all = vec![0; 65536];
    device.read(0, &mut all).unwrap();
    assert!(all[..4096].iter().all(|&byte| byte == 0x5a));
    assert!(all[12288..].iter().all(|&byte| byte == 0x5a));
}

#[test]
fn a_file_keeps_bytes_directly_and_through_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, 8 * MIB).unwrap();
    assert_eq!(device.len(), 8 * MIB);
    exercise(&device);
    drop(device);
    reopen_and_discard(&path, true);
    let device = FileDevice::open_buffered(&path, OpenMode::ReadWrite).unwrap();
    assert!(!device.is_direct());
    exercise(&device);
    drop(device);
    reopen_and_discard(&path, false);
}

/// A file becomes longer and never shorter, whichever program has made it longer; what a host refuses changes nothing.
#[test]
fn a_file_becomes_longer_and_never_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = FileDevice::create(&path, MIB).unwrap();
    device.grow(MIB / 2).unwrap();
    assert_eq!((device.len(), std::fs::metadata(&path).unwrap().len()), (MIB, MIB));
    device.grow(3 * MIB + 1).unwrap();
    let sector = u64::from(device.sector_size());
    assert_eq!(device.len(), 3 * MIB + sector);
    device.write(3 * MIB, &vec![7; sector as usize]).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(5 * MIB).unwrap();
    assert_eq!(device.len(), 3 * MIB + sector, "it was not asked");
    device.grow(0).unwrap();
    assert_eq!(device.len(), 5 * MIB);
    assert!(device.grow(1 << 62).is_err());
    assert_eq!((device.len(), std::fs::metadata(&path).unwrap().len()), (5 * MIB, 5 * MIB));
    drop(device);
    let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(reader.grow(6 * MIB).is_err());
    let mut read = [0; 1];
    reader.read(3 * MIB, &mut read).unwrap();
    assert_eq!(read, [7]);
}

#[test]
fn a_host_without_direct_io_is_used_through_its_cache() {
    if !Path::new("/dev/shm").is_dir() {
        return holdfast_base::skip::skipped("no /dev/shm");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image");
    exercise(&FileDevice::create(&path, 4 * MIB + 100).unwrap());
    reopen_and_discard(&path, true);
}

#[test]
fn a_writer_excludes_everybody_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let writer = FileDevice::create(&path, MIB).unwrap();
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        let refusal = FileDevice::open(&path, mode).unwrap_err();
        let DeviceError::InUse { holder, .. } = &refusal else {
            panic!("{refusal}");
        };
        assert!(holder.starts_with(&format!("process {} (", std::process::id())), "{holder}");
    }
    assert!(!wait_until_free(&path, Duration::from_millis(30)));
    let waiter = std::thread::spawn({
        let path = path.clone();
        move || wait_until_free(path, Duration::from_secs(60))
    });
    drop(writer);
    assert!(waiter.join().unwrap());
    let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    let _another = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(matches!(FileDevice::open(&path, OpenMode::ReadWrite), Err(DeviceError::InUse { .. })));
    assert!(reader.write(0, &[0; 4096]).is_err());
    assert!(reader.discard(0, 4096).is_err());
}

#[test]
fn another_process_is_named_with_its_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(FileDevice::create(&path, MIB).unwrap());
    let started = Command::new("flock")
        .args(["--no-fork", "--exclusive"])
        .arg(&path)
        .args(["sleep", "60"])
        .spawn();
    let Ok(mut child) = started else {
        return holdfast_base::skip::skipped("no flock command");
    };
    let mut refusal = None;
    for _ in 0..6000 {
        match FileDevice::open(&path, OpenMode::ReadWrite) {
            Ok(device) => drop(device),
            Err(DeviceError::InUse { holder, .. }) if holder.ends_with("(sleep)") => {
                refusal = Some(holder);
                break;
            }
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refusal, Some(format!("process {pid} (sleep)")));
    FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
}

#[test]
fn refusals_say_what_is_wrong_and_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let say = |path: &Path| {
        let refusal = FileDevice::open(path, OpenMode::ReadWrite).unwrap_err();
        refusal.to_string()
    };
    assert!(say(&dir.path().join("missing")).ends_with("missing: does not exist"));
    assert!(say(dir.path()).contains("is a directory"));
    assert!(say(Path::new("/dev/null")).contains("neither a file nor a block device"));
    let small = dir.path().join("small");
    std::fs::write(&small, [1; 100]).unwrap();
    assert!(say(&small).contains("too small for a volume (100 bytes"));
    let refusal = FileDevice::create(&small, 10).unwrap_err();
    assert!(refusal.to_string().contains("too small"));
    let large = dir.path().join("large");
    std::fs::write(&large, vec![7; 8192]).unwrap();
    let refusal = FileDevice::create(&large, 4096).unwrap_err();
    assert!(refusal.to_string().contains("already has 8192 bytes"), "{refusal}");
    assert_eq!(std::fs::read(&large).unwrap(), vec![7; 8192]);
    // Larger is no harm: the content stays.
    assert_eq!(FileDevice::create(&large, 16384).unwrap().len(), 16384);
    assert_eq!(std::fs::read(&large).unwrap()[..8192], vec![7; 8192]);
    // A size that the host cannot give leaves no file behind.
    let absurd = dir.path().join("absurd");
    assert!(FileDevice::create(&absurd, u64::MAX).is_err());
    assert!(!absurd.exists());
}

/// A loop device that is detached however the test ends.
pub(super) struct Loop(pub(super) String);

impl Loop {
    /// Attaches `image`, or says why not: it needs root and loop devices.
    pub(super) fn attach(image: &Path, sector: u32) -> Result<Loop, String> {
        let ran = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(image)
            .output()
            .map_err(|error| error.to_string())?;
        match ran.status.success() {
            true => Ok(Loop(String::from_utf8_lossy(&ran.stdout).trim().to_string())),
            false => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        println!("detached {}: {detached:?}", self.0);
    }
}

#[test]
fn a_block_device_keeps_bytes_and_is_exclusive() {
    for sector in [512, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        drop(FileDevice::create(&image, 8 * MIB).unwrap());
        let attached = match Loop::attach(&image, sector) {
            Ok(attached) => attached,
            Err(why) => return holdfast_base::skip::skipped(why),
        };
        let path = Path::new(&attached.0);
        let device = FileDevice::open(path, OpenMode::ReadWrite).unwrap();
        assert!(device.is_block_device());
        assert_eq!((device.len(), device.sector_size()), (8 * MIB, sector));
        exercise(&device);
        let refusal = FileDevice::open(path, OpenMode::ReadWrite).unwrap_err();
        assert!(matches!(refusal, DeviceError::InUse { .. }), "{refusal}");
        let refusal = FileDevice::create(path, 8 * MIB).unwrap_err();
        assert!(matches!(refusal, DeviceError::InUse { .. }), "{refusal}");
        drop(device);
        let refusal = FileDevice::create(path, 8 * MIB).unwrap_err();
        assert!(refusal.to_string().contains("is a block device"), "{refusal}");
        reopen_and_discard(path, true);
        reopen_and_discard(path, false);
    }
}

/// The page cache of a block device does not see what is written to the file behind it, as that of a network
/// filesystem does not see what another machine writes.
#[test]
fn what_was_written_behind_the_cache_is_read_once_the_cache_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let attached = match Loop::attach(&image, 512) {
        Ok(attached) => attached,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let device = FileDevice::open_buffered(&attached.0, OpenMode::ReadWrite).unwrap();
    device.write(8192, &[1; 4096]).unwrap();
    let _ = device.flush().unwrap();
    let seen = || {
        let mut bytes = [0; 4096];
        device.read(8192, &mut bytes).unwrap();
        bytes[0]
    };
    assert_eq!(seen(), 1);
    let file = File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[2; 4096], 8192).unwrap();
    file.sync_all().unwrap();
    assert_eq!(seen(), 1, "it is cached, or this test shows nothing");
    device.drop_cache(8192, 4096);
    assert_eq!(seen(), 2);
}

#[test]
fn a_refusal_never_waits_for_a_mount_that_does_not_answer() {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::{MountFlags, UnmountFlags};
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc;

    let dir = tempfile::tempdir().unwrap();
    let (volume, stuck) = (dir.path().join("volume"), dir.path().join("stuck"));
    fs::write(&volume, b"volume").unwrap();
    fs::create_dir(&stuck).unwrap();
    // The server of this mount never answers, not even the first request.
    let Ok(server) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
        return holdfast_base::skip::skipped("no /dev/fuse");
    };
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let (kind, flags) = ("fuse", MountFlags::NOSUID | MountFlags::NODEV);
    if let Err(error) = rustix::mount::mount("stuck", &stuck, kind, flags, data.as_c_str()) {
        return holdfast_base::skip::skipped(format!("cannot mount: {error}"));
    }
    let held = rustix::fs::open(&stuck, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    let (tell, told) = mpsc::channel();
    let asking = std::thread::spawn({
        let volume = volume.clone();
        move || tell.send(super::lock::in_use(&volume).to_string())
    });
    let answer = told.recv_timeout(Duration::from_secs(60));
    // A thread that waits is let go, so that the mount ends with the test.
    drop(server);
    let _ = asking.join();
    let held = held.map(drop);
    rustix::mount::unmount(&stuck, UnmountFlags::DETACH).unwrap();
    held.unwrap();
    assert!(answer.expect("the refusal waits").contains("another program"));

    // A file that a process of this user has open is still found without asking it.
    let _open = File::open(&volume).unwrap();
    let said = super::lock::in_use(&volume).to_string();
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
}

/// What the host says of holes may be less than there are, and never that there are none where bytes are.
#[test]
fn holes_are_known_without_reading_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let device = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    let (first, second) = (512 * MIB, device.len() - MIB);
    for at in [first, second] {
        device.write(at, &AlignedBuf::zeroed(MIB as usize)).unwrap();
        device.write(at, &[1; 4096]).unwrap();
    }
    let mut at = 0;
    for data in [first, second] {
        while at < data {
            let from = device.data_from(at);
            assert!((at..=data).contains(&from), "{at}: {from}");
            // A filesystem that knows no holes says so of each byte.
            at = if from == at { data } else { from };
        }
        assert_eq!(device.data_from(data), data);
        at = data + MIB;
    }
    assert_eq!(device.data_from(device.len()), device.len());
}
