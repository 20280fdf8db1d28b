//! One volume, several names: whichever way it was opened for writing, no other way opens it too.

use std::process::Command;

use super::tests::Loop;
use super::*;

const MIB: u64 = 1 << 20;

/// Partitions of a loop device, which are gone before it is detached.
struct Partitions<'l>(&'l Loop, u64);

impl<'l> Partitions<'l> {
    /// So many of 16 MiB each, behind the first MiB.
    fn add(device: &'l Loop, count: u64) -> Result<Partitions<'l>, String> {
        let mut made = Partitions(device, 0);
        for number in 1..=count {
            let start = (1 + (number - 1) * 16) * 2048;
            let ran = Command::new("addpart")
                .args([&device.0, &number.to_string(), &start.to_string(), "32768"])
                .output()
                .map_err(|error| error.to_string())?;
            if !ran.status.success() {
                return Err(String::from_utf8_lossy(&ran.stderr).into_owned());
            }
            made.1 = number;
        }
        Ok(made)
    }

    fn path(&self, number: u64) -> PathBuf {
        format!("{}p{number}", self.0.0).into()
    }
}

impl Drop for Partitions<'_> {
    fn drop(&mut self) {
        for number in 1..=self.1 {
            let gone = Command::new("delpart").args([&self.0.0, &number.to_string()]).status();
            println!("removed partition {number}: {gone:?}");
        }
    }
}

/// A file with two loop devices, or why there are none.
fn two_loops(bytes: u64) -> Result<(tempfile::TempDir, PathBuf, Loop, Loop), String> {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, bytes).unwrap());
    let first = Loop::attach(&image, 512)?;
    let second = Loop::attach(&image, 512)?;
    Ok((dir, image, first, second))
}

/// Refuses for a holder in this process, and says which file it is about.
fn expect_in_use(path: &Path, mode: OpenMode, image: &Path) {
    match FileDevice::open(path, mode) {
        Err(refusal @ DeviceError::InUse { .. }) => {
            let said = refusal.to_string();
            assert!(said.contains(image.to_str().unwrap()), "{said}");
            assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
        }
        Err(other) => panic!("{} {mode:?}: {other}", path.display()),
        Ok(_) => panic!("{} {mode:?}: a second one was let in", path.display()),
    }
}

#[test]
fn a_file_and_the_loop_devices_over_it_are_one_volume() {
    let (_dir, image, first, second) = match two_loops(8 * MIB) {
        Ok(made) => made,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let names = [image.as_path(), Path::new(&first.0), Path::new(&second.0)];
    for holder in names {
        let writer = FileDevice::open(holder, OpenMode::ReadWrite).unwrap();
        for other in names {
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                match other == holder {
                    true => assert!(FileDevice::open(other, mode).is_err()),
                    false => expect_in_use(other, mode, &image),
                }
            }
        }
        drop(writer);
    }
    for holder in names {
        let _reader = FileDevice::open(holder, OpenMode::ReadOnly).unwrap();
        for other in names {
            let _beside = FileDevice::open(other, OpenMode::ReadOnly).unwrap();
        }
        for other in names.into_iter().filter(|other| *other != holder) {
            expect_in_use(other, OpenMode::ReadWrite, &image);
        }
    }
}

#[test]
fn partitions_of_loop_devices_are_locked_part_by_part() {
    let (_dir, image, first, second) = match two_loops(64 * MIB) {
        Ok(made) => made,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let here = match Partitions::add(&first, 2) {
        Ok(made) => made,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let there = Partitions::add(&second, 2).unwrap();
    let one = FileDevice::open(here.path(1), OpenMode::ReadWrite).unwrap();
    // Another part of the same file is another volume.
    let two = FileDevice::open(there.path(2), OpenMode::ReadWrite).unwrap();
    expect_in_use(&there.path(1), OpenMode::ReadWrite, &image);
    expect_in_use(&here.path(2), OpenMode::ReadOnly, &image);
    expect_in_use(&image, OpenMode::ReadWrite, &image);
    drop((one, two));
    let whole = FileDevice::open(&image, OpenMode::ReadWrite).unwrap();
    expect_in_use(&there.path(1), OpenMode::ReadWrite, &image);
    drop(whole);
    FileDevice::open(there.path(1), OpenMode::ReadWrite).unwrap();
}

#[test]
fn a_loop_device_over_a_loop_device_leads_to_the_same_file() {
    let (_dir, image, first, second) = match two_loops(8 * MIB) {
        Ok(made) => made,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let upon = match Loop::attach(Path::new(&first.0), 512) {
        Ok(made) => made,
        Err(why) => return holdfast_base::skip::skipped(why),
    };
    let writer = FileDevice::open(&upon.0, OpenMode::ReadWrite).unwrap();
    expect_in_use(Path::new(&second.0), OpenMode::ReadWrite, &image);
    expect_in_use(&image, OpenMode::ReadOnly, &image);
    assert!(FileDevice::open(&first.0, OpenMode::ReadWrite).is_err(), "it lies between");
    drop(writer);
    let _between = FileDevice::open(&first.0, OpenMode::ReadWrite).unwrap();
    assert!(FileDevice::open(&upon.0, OpenMode::ReadWrite).is_err());
}
