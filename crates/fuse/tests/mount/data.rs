//! Bytes, and what survives, through the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{HeldFlush, Mount, can_mount, mkfs, open_to_write};
use holdfast_device::Device;
use holdfast_fuse::{Opens, RequestKind};
use rustix::fs::{FallocateFlags, fallocate};

#[test]
fn large_and_scattered_writes_read_back_and_survive_a_remount() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let big: Vec<u8> = (0..9_000_017u32).map(|n| ((n * 31) >> 3) as u8).collect();
    fs::write(mount.path("big"), &big).unwrap();
    let sparse = File::create(mount.path("sparse")).unwrap();
    for n in 0..50u64 {
        sparse.write_all_at(&[n as u8 + 1; 300], n * 100_000).unwrap();
    }
    drop(sparse);
    let check = |mount: &Mount| {
        assert!(fs::read(mount.path("big")).unwrap() == big);
        let bytes = fs::read(mount.path("sparse")).unwrap();
        assert_eq!(bytes.len(), 4_900_300);
        for (at, byte) in bytes.iter().enumerate() {
            let expected = match at % 100_000 < 300 {
                true => (at / 100_000) as u8 + 1,
                false => 0,
            };
            assert_eq!(*byte, expected, "at {at}");
        }
    };
    check(&mount);
    let mount = mount.remount();
    check(&mount);
    // Cut and extend: what was cut off is zeros, not old bytes.
    let file = OpenOptions::new().write(true).open(mount.path("big")).unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(10_000).unwrap();
    let bytes = fs::read(mount.path("big")).unwrap();
    assert!(bytes[..5_000] == big[..5_000]);
    assert!(bytes.len() == 10_000 && bytes[5_000..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_opening_that_truncates_truncates() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    fs::write(mount.path("f"), vec![1; 50_000]).unwrap();
    fs::write(mount.path("f"), b"short").unwrap();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"short");
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 5);
    // Also when it opens for reading only, and every reader sees it.
    let open = || OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(mount.path("f"));
    let mut file = open().unwrap();
    assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(file.write_all(b"no").is_err());
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"");
    let mount = mount.remount();
    assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), 0);
}

/// The kernel refuses it, and nothing has happened before that.
#[test]
fn a_program_that_runs_is_not_emptied() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let program = mount.path("sleep");
    // By another process: a descriptor of this one is for a moment also that of what another test starts.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
    let size = fs::metadata(&program).unwrap().len();
    let _running = Running(Command::new(&program).arg("600").spawn().unwrap());
    for write in [false, true] {
        let mut how = OpenOptions::new();
        let refused =
            how.read(true).write(write).custom_flags(libc::O_TRUNC).open(&program).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ETXTBSY));
        assert_eq!(fs::metadata(&program).unwrap().len(), size);
    }
}

/// A program that runs until the test is over, however that ends: a mount ends only without it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn appends_of_two_processes_do_not_overwrite_each_other() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let file = mount.path("log");
    let script = "for i in $(seq 500); do echo \"$1 $i\"; done >> \"$2\"";
    let mut children: Vec<_> = ["a", "b"]
        .iter()
        .map(|who| Command::new("sh").args(["-c", script, "sh", who]).arg(&file).spawn().unwrap())
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let text = fs::read_to_string(&file).unwrap();
    for who in ["a", "b"] {
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(who)).collect();
        let expected: Vec<_> = (1..=500).map(|n| format!("{who} {n}")).collect();
        assert_eq!(lines, expected);
    }
    assert_eq!(text.lines().count(), 1000);
    // Pages written back through a handle that appends go where they belong.
    let mut handle = OpenOptions::new().append(true).open(&file).unwrap();
    let size = handle.metadata().unwrap().len();
    handle.write_all(b"end").unwrap();
    assert_eq!(handle.metadata().unwrap().len(), size + 3);
}

#[test]
fn direct_and_cached_handles_see_each_other() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let cached = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mount.path("f"))
        .unwrap();
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(mount.path("f"))
        .unwrap();
    cached.write_all_at(&[1; 8192], 0).unwrap();
    let mut bytes = [0; 8192];
    direct.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [1; 8192]);
    cached.read_exact_at(&mut bytes, 0).unwrap();
    direct.write_all_at(&[2; 4096], 4096).unwrap();
    cached.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[4095], bytes[4096]), (1, 2));
    // Side by side, beyond each other's end.
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            let direct = &direct;
            scope.spawn(move || {
                direct.write_all_at(&[n; 65536], u64::from(n) * 65536).unwrap();
            });
        }
    });
    let all = fs::read(mount.path("f")).unwrap();
    assert_eq!(all.len(), 8 * 65536);
    for (at, byte) in all.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / 65536, "at {at}");
    }
}

#[test]
fn mapped_pages_reach_the_file() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let file = mount.path("mapped");
    fs::write(&file, vec![b'.'; 20_000]).unwrap();
    let program = "import mmap, os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND)\n\
        m = mmap.mmap(f, 20000)\n\
        assert m[19999:] == b'.'\n\
        m[5000:5004] = b'here'\n\
        m.flush()\n\
        os.fsync(f)\n\
        m[9000:9005] = b'there'\n\
        m.close()\n\
        os.close(f)\n";
    let status = match Command::new("python3").args(["-c", program]).arg(&file).status() {
        Ok(status) => status,
        Err(error) => return holdfast_base::skip::skipped(format_args!("python3: {error}")),
    };
    assert!(status.success());
    let mount = mount.remount();
    let bytes = fs::read(mount.path("mapped")).unwrap();
    assert_eq!(bytes.len(), 20_000);
    assert_eq!(&bytes[4999..5005], b".here.");
    assert_eq!(&bytes[8999..9006], b".there.");
}

#[test]
fn holes_are_found_made_and_filled() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mount.path("f"))
        .unwrap();
    file.write_all_at(&[1; 65536], 131_072).unwrap();
    file.set_len(1 << 20).unwrap();
    file.sync_all().unwrap();
    let seek = |from: rustix::fs::SeekFrom| rustix::fs::seek(&file, from);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(131_072));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(131_072)), Ok(196_608));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(196_608)), Err(rustix::io::Errno::NXIO));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 131_072, 8192).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(139_264));
    fallocate(&file, FallocateFlags::ZERO_RANGE, 147_456, 4096).unwrap();
    let mut bytes = vec![9; 65536];
    file.read_exact_at(&mut bytes, 131_072).unwrap();
    let zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
    assert!(zero(0..8192) && zero(16384..20480));
    assert!(bytes[8192..16384].iter().all(|byte| *byte == 1));
    assert!(bytes[20480..].iter().all(|byte| *byte == 1));

    fallocate(&file, FallocateFlags::KEEP_SIZE, 2 << 20, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    fallocate(&file, FallocateFlags::empty(), 0, 3 << 20).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 3 << 20);
    assert!(meta.blocks() * 512 >= 3 << 20, "{} blocks", meta.blocks());
    assert_eq!(
        fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096),
        Err(rustix::io::Errno::OPNOTSUPP)
    );
    file.seek(SeekFrom::Start(3 << 20)).unwrap();
    assert_eq!(file.read(&mut bytes).unwrap(), 0);
}

#[test]
fn ranges_are_copied_inside_of_the_server() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n >> 5) as u8).collect();
    fs::write(mount.path("from"), &bytes).unwrap();
    let from = File::open(mount.path("from")).unwrap();
    let to = File::create(mount.path("to")).unwrap();
    let (mut offset_in, mut offset_out) = (1000, 50);
    while rustix::fs::copy_file_range(
        &from,
        Some(&mut offset_in),
        &to,
        Some(&mut offset_out),
        10 << 20,
    )
    .unwrap()
        > 0
    {}
    assert!(mount.count(RequestKind::CopyRange) > 0);
    assert_eq!(mount.count(RequestKind::Read), 0);
    let copy = fs::read(mount.path("to")).unwrap();
    assert!(copy[..50].iter().all(|byte| *byte == 0) && copy[50..] == bytes[1000..]);
}

/// DURABILITY says so: the kernel does not load the page that a write begins in the middle of, sends that part as a
/// request of its own, and the rest behind it. Each request is a step of history.
#[test]
fn a_write_that_begins_within_a_page_that_is_not_in_memory_is_two_requests() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    let file = File::options().read(true).write(true).create_new(true).open(mount.path("f"));
    let file = file.unwrap();
    file.set_len(100_000).unwrap();
    let requests = |at: u64, len: usize| {
        let before = mount.count(RequestKind::Write);
        assert_eq!(file.write_at(&vec![1; len], at).unwrap(), len, "one call");
        mount.count(RequestKind::Write) - before
    };
    assert_eq!(requests(100, 10_000), 2, "its first page is not in memory");
    assert_eq!(requests(40_960, 10_000), 1, "it begins with a page");
    assert_eq!(requests(60_000, 50), 1, "it ends in the page");
    let mut bytes = vec![0; 100_000];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(requests(80_100, 10_000), 1, "all pages are in memory");
    assert!(bytes[..100].iter().chain(&bytes[10_100..40_960]).all(|byte| *byte == 0));
    assert!(bytes[100..10_100].iter().all(|byte| *byte == 1));
}

#[test]
fn synchronous_writes_survive_a_crash_and_others_do_not() {
    if !can_mount() {
        return;
    }
    let mount = Mount::opened_by(Opens::Server);
    let open = |name: &str, flags| open_to_write(&mount.path(name), flags);
    let files = [
        ("sync", libc::O_SYNC),
        ("dsync", libc::O_DSYNC),
        ("direct-sync", libc::O_SYNC | libc::O_DIRECT),
        ("direct-dsync", libc::O_DSYNC | libc::O_DIRECT),
    ];
    // Written before: the kernel cuts a write short at a page that it would have to load first.
    let (three, one) = (vec![5; 12288], vec![6; 4096]);
    for (name, flags) in files {
        let before = (mount.count(RequestKind::Write), mount.count(RequestKind::Fsync));
        let file = open(name, flags);
        file.write_all_at(&three, 0).unwrap();
        file.write_all_at(&one, 12288).unwrap();
        let writes = mount.count(RequestKind::Write) - before.0;
        let fsyncs = mount.count(RequestKind::Fsync) - before.1;
        // Without page cache the write says it all; with it, the kernel adds an fsync.
        let expected = match flags & libc::O_DIRECT {
            0 => (2, 2),
            _ => (2, 0),
        };
        assert_eq!((writes, fsyncs), expected, "{name}");
    }
    let late = open("direct-not-sync", libc::O_DIRECT);
    late.write_all_at(&[7; 4096], 0).unwrap();
    let mount = mount.crash();
    for (name, _) in files {
        let bytes = fs::read(mount.path(name)).unwrap();
        assert_eq!(bytes.len(), 16384, "{name}");
        assert!(bytes[..12288].iter().all(|byte| *byte == 5), "{name}");
        assert!(bytes[12288..].iter().all(|byte| *byte == 6), "{name}");
    }
    // The proof that the crash was one. (Its name may have become durable with the others'.)
    let bytes = fs::read(mount.path("direct-not-sync")).unwrap_or_default();
    assert!(bytes.is_empty(), "{} bytes", bytes.len());
}

#[test]
fn what_fsync_promised_survives_a_crash() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    fs::create_dir(mount.path("d")).unwrap();
    let mut file = File::create(mount.path("d/f")).unwrap();
    file.write_all(b"promised").unwrap();
    file.sync_all().unwrap();
    fs::write(mount.path("d/g"), b"renamed").unwrap();
    File::open(mount.path("d/g")).unwrap().sync_data().unwrap();
    fs::rename(mount.path("d/g"), mount.path("d/h")).unwrap();
    File::open(mount.path("d")).unwrap().sync_all().unwrap();
    fs::remove_file(mount.path("d/f")).unwrap();
    let mount = mount.crash();
    // P1, P2; the removal was not promised.
    assert_eq!(fs::read(mount.path("d/f")).unwrap(), b"promised");
    assert_eq!(fs::read(mount.path("d/h")).unwrap(), b"renamed");
    assert!(!mount.path("d/g").exists());

    // The attribute that stands for sync(2).
    fs::write(mount.path("all"), vec![3; 200_000]).unwrap();
    rustix::fs::getxattr(mount.dir.path(), "system.holdfast.sync", &mut [0; 0][..]).unwrap();
    let mount = mount.crash();
    assert_eq!(fs::read(mount.path("all")).unwrap(), vec![3; 200_000]);
}

#[test]
fn an_fsync_that_waits_for_the_device_blocks_no_other_request() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(HeldFlush::new(128 << 20));
    let shared: Arc<dyn Device> = device.clone();
    mkfs(&shared);
    let mount = Mount::of(shared);
    let files: Vec<File> = (0..12)
        .map(|n| {
            let mut file = File::create(mount.path(&format!("f{n}"))).unwrap();
            file.write_all(b"dirty").unwrap();
            file
        })
        .collect();
    fs::write(mount.path("other"), b"x").unwrap();
    device.hold();
    std::thread::scope(|scope| {
        let syncs: Vec<_> =
            files.iter().map(|file| scope.spawn(|| file.sync_all().unwrap())).collect();
        device.wait();
        let (tell, told) = std::sync::mpsc::channel();
        let (absent, other) = (mount.path("absent"), mount.path("other"));
        scope.spawn(move || tell.send((absent.exists(), fs::read(other).unwrap())));
        let answer = told.recv_timeout(Duration::from_secs(60));
        let has_returned = syncs.iter().any(|sync| sync.is_finished());
        let until = Instant::now() + Duration::from_secs(60);
        while mount.count(RequestKind::Fsync) < 12 && Instant::now() < until {
            std::thread::yield_now();
        }
        device.let_go();
        assert_eq!(answer, Ok((false, b"x".to_vec())), "it waits for the device");
        assert!(!has_returned, "an fsync has returned before its flush");
    });
    assert!(device.flushes() <= 6, "twelve share few flushes: {}", device.flushes());
}

#[test]
fn a_full_volume_says_so_and_recovers() {
    if !can_mount() {
        return;
    }
    let mount = Mount::of(crate::common::volume(64));
    let mut file = File::create(mount.path("fill")).unwrap();
    let piece = vec![1; 1 << 20];
    let error = loop {
        if let Err(error) = file.write_all(&piece) {
            break error;
        }
        assert!(file.metadata().unwrap().len() < 64 << 20);
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(mount.path("fill")).unwrap();
    // The blocks are freed when the kernel forgets the file, and come back when that is durable (R2).
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        File::open(mount.dir.path()).unwrap().sync_all().unwrap();
        match fs::write(mount.path("again"), &piece) {
            Ok(()) => break,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                assert!(Instant::now() < until, "the space does not come back");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    assert!(fs::read(mount.path("again")).unwrap() == piece);
}
