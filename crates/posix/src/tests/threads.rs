//! Many threads at once, and caches that hold nothing.

use std::collections::HashSet;
use std::thread;

use holdfast_base::prng::Prng;

use super::*;

/// Threads make, move, link and remove names in a few directories, and errors are only those of lost races.
fn storm(v: &Volume, seed: u64, threads: u64, steps: u64) {
    println!("seed {seed}");
    let dirs: Vec<InodeNo> = (0..4).map(|i| v.dir(ROOT, &format!("d{i}"))).collect();
    let lost = [
        libc::ENOENT,
        libc::EEXIST,
        libc::ENOTEMPTY,
        libc::EISDIR,
        libc::ENOTDIR,
        libc::EINVAL,
        libc::EPERM,
    ];
    thread::scope(|scope| {
        for thread in 0..threads {
            let dirs = &dirs;
            scope.spawn(move || {
                let mut chance = Prng::seeded(seed * 1000 + thread);
                for _ in 0..steps {
                    let mut dir = || match chance.one_in(3) {
                        true => ROOT,
                        false => *chance.pick(dirs),
                    };
                    let (from, to) = (dir(), dir());
                    let name = format!("n{}", chance.below(8));
                    let other = match chance.one_in(4) {
                        true => format!("d{}", chance.below(4)),
                        false => format!("n{}", chance.below(8)),
                    };
                    let flags =
                        [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::NOREPLACE];
                    let result = match chance.below(9) {
                        0 | 1 => {
                            let flags = OpenFlags::READ | OpenFlags::WRITE;
                            v.fs.create(&root(), from, name.as_bytes(), 0o644, flags, false).map(
                                |(attr, file)| {
                                    assert_eq!(file.inode(), attr.inode);
                                },
                            )
                        }
                        2 => v.fs.mkdir(&root(), from, name.as_bytes(), 0o755).map(drop),
                        3 => v.unlink(from, &name),
                        4 => v.fs.rmdir(&root(), from, name.as_bytes()),
                        5 | 6 => v.rename_with((from, &other), (to, &name), *chance.pick(&flags)),
                        7 => v.find(from, &name).and_then(|inode| {
                            v.fs.link(&root(), inode, to, other.as_bytes()).map(drop)
                        }),
                        _ => v.fs.readdir(from, 0, &mut |_| true),
                    };
                    if let Err(error) = result {
                        assert!(lost.contains(&error.errno()), "{error}");
                    }
                }
            });
        }
    });
    v.check();
}

#[test]
fn a_storm_of_names_keeps_every_count() {
    for seed in 0..3 {
        let v = Volume::new();
        storm(&v, seed, 4, 3000);
        let v = v.remount();
        v.check();
    }
}

#[test]
fn a_cache_of_nothing_changes_nothing() {
    for inode_cache in [0, 1] {
        // Access times that wait keep their inodes.
        let set = MountOptions { inode_cache, atime: Atime::Never, ..options() };
        let v = Volume::with(32 << 20, 4096, set.clone());
        storm(&v, 10 + inode_cache as u64, 4, 1500);
        for i in 0..100 {
            v.file(ROOT, &format!("more{i}"));
        }
        assert!(v.fs.core.inodes.len() <= 8, "{} inodes stay", v.fs.core.inodes.len());
        let v = v.remount_with(set);
        v.check();
    }
}

#[test]
fn inodes_that_are_needed_stay_in_a_small_cache() {
    let set = MountOptions { inode_cache: 1, ..options() };
    let v = Volume::with(32 << 20, 4096, set);
    let f = v.file(ROOT, "f");
    let file = v.fs.open(&root(), f, OpenFlags::READ).unwrap();
    v.unlink(ROOT, "f").unwrap();
    let r = v.file(ROOT, "r");
    v.fs.remember(r, 1);
    v.unlink(ROOT, "r").unwrap();
    for i in 0..100 {
        v.file(ROOT, &format!("more{i}"));
    }
    assert_eq!((v.stat(f).nlink, v.stat(r).nlink), (0, 0));
    drop(file);
    v.fs.forget(r, 1);
    assert_eq!(errno(v.fs.getattr(f)), libc::ENOENT);
    v.check();
}

#[test]
fn a_name_that_is_replaced_all_the_time_is_never_missing() {
    let v = Volume::new();
    v.file(ROOT, "always");
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..2000 {
                let name = format!("t{}", i % 2);
                v.file(ROOT, &name);
                v.rename((ROOT, &name), (ROOT, "always")).unwrap();
            }
        });
        let mut seen = HashSet::new();
        while !writer.is_finished() {
            seen.insert(v.find(ROOT, "always").unwrap());
        }
    });
    assert_eq!(v.in_tree(), (2, 0));
    v.check();
}

#[test]
fn opposite_moves_of_directories_make_no_circle() {
    let v = Volume::new();
    let a = v.dir(ROOT, "a");
    let b = v.dir(ROOT, "b");
    thread::scope(|scope| {
        for (name, other, into) in [("a", "b", b), ("b", "a", a)] {
            let v = &v;
            scope.spawn(move || {
                for _ in 0..500 {
                    let _ = v.rename((ROOT, name), (into, name));
                    let _ = v.rename((into, name), (ROOT, name));
                    let _ = v.find(ROOT, other);
                }
            });
        }
    });
    v.check();
}

/// What the background does comes within seconds, and on a busy machine within minutes.
fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let watch = holdfast_base::clock::Stopwatch::start();
    while !is_done() {
        assert!(watch.elapsed().as_secs() < 300, "not {what} after 300 seconds");
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_background_commit_makes_history_durable() {
    let set = MountOptions { commit_secs: 1, ..options() };
    let v = Volume::with(16 << 20, 4096, set);
    v.file(ROOT, "a");
    let done = v.fs.core.store.latest();
    wait_until("durable (P11)", || v.fs.core.store.durable() >= done);
    drop(v.fs);
    let fs = FileSystem::mount(v.device.clone(), options()).unwrap();
    fs.lookup(&root(), ROOT, b"a").unwrap();
}

/// What a program leaves that is killed now.
fn killed(v: &Volume) -> MemoryDevice {
    let mut bytes = vec![0; v.device.len() as usize];
    v.device.read(0, &mut bytes).unwrap();
    MemoryDevice::from_image(&bytes)
}

/// A program that is killed while its volume rests loses nothing, and the device has no flush to do for that.
#[test]
fn what_waits_is_appended_when_the_volume_rests() {
    // The timer has no part in it.
    let set = MountOptions { commit_secs: 3600, ..options() };
    let v = Volume::with(16 << 20, 4096, set);
    let appended = || v.fs.counters().log_batches.get();
    for (round, name) in (1..).zip(["a", "b"]) {
        let (flushes, transactions) = (v.device.stats().flushes, appended());
        let flags = OpenFlags::READ.union(OpenFlags::WRITE);
        let (_, file) = v.fs.create(&root(), ROOT, name.as_bytes(), 0o644, flags, false).unwrap();
        v.fs.write(&root(), &file, 0, &[round; 100_000], WriteHow::default()).unwrap();
        drop(file);
        wait_until("appended", || appended() > transactions && v.fs.dirty_bytes() == 0);
        assert_eq!(v.device.stats().flushes, flushes, "nobody asked for durability");
        assert!(!v.fs.is_durable(), "power may take it");
        // What lies on the device by now is what a killed program leaves.
        wait_until("all there", || {
            let left = Arc::new(killed(&v));
            let fs = FileSystem::mount(left, options()).unwrap();
            fs.lookup(&root(), ROOT, name.as_bytes()).is_ok_and(|found| found.size == 100_000)
        });
    }
}

/// What is durable is confirmed once, and then a volume that rests is left alone.
#[test]
fn what_is_durable_is_confirmed_when_the_volume_rests() {
    let set = MountOptions { commit_secs: 3600, ..options() };
    let v = Volume::with(16 << 20, 4096, set);
    let confirmed = || v.fs.counters().confirmations.get();
    for round in 1..3 {
        v.file(ROOT, &format!("f{round}"));
        v.fs.fsync_inode(ROOT).unwrap();
        wait_until("confirmed", || confirmed() == round);
    }
    let before = v.device.stats();
    thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((v.device.stats(), confirmed()), (before, 2), "nothing changed");
}

#[test]
fn what_only_the_log_holds_is_known() {
    let v = Volume::new();
    let is_logged = || crate::committer::is_logged(&v.fs.core.store);
    v.fs.commit().unwrap();
    assert!(!is_logged(), "all is committed");
    v.file(ROOT, "a");
    assert!(!is_logged(), "nothing has made it durable");
    v.fs.fsync_inode(ROOT).unwrap();
    assert!(is_logged());
    v.fs.commit().unwrap();
    assert!(!is_logged());
}

#[test]
fn what_fsyncs_made_durable_is_committed_in_the_end() {
    let set = MountOptions { commit_secs: 1, ..options() };
    let v = Volume::with(16 << 20, 4096, set);
    v.file(ROOT, "a");
    v.fs.fsync_inode(ROOT).unwrap();
    // Thirty ticks.
    wait_until("committed", || v.fs.core.store.committed() >= v.fs.core.store.latest());
}

#[test]
fn unlink_removes_what_the_name_leads_to_now() {
    for _ in 0..3 {
        let v = Volume::new();
        thread::scope(|scope| {
            for name in ["t0", "t1"] {
                let v = &v;
                scope.spawn(move || {
                    for _ in 0..4000 {
                        v.file(ROOT, name);
                        v.rename((ROOT, name), (ROOT, "x")).unwrap();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..8000 {
                        if let Err(error) = v.unlink(ROOT, "x") {
                            assert_eq!(error.errno(), libc::ENOENT);
                        }
                    }
                });
            }
        });
        v.check();
    }
}
