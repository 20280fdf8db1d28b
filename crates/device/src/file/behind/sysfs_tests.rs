//! Devices upon devices as /sys tells of them, in a tree of files that a test makes: what lies behind is found and
//! locked, or said to be out of reach.

use std::os::unix::fs::symlink;

use super::*;

/// Bytes of a disk that stand for a file behind a loop device.
const MIB: u64 = 1 << 20;

/// A host whose /sys and /dev are folders.
struct Fake {
    root: tempfile::TempDir,
    sys: PathBuf,
    dev: PathBuf,
    image: PathBuf,
}

/// What a loop device of a [`Fake`] says stands in the file that is its name in /dev: device, inode, offset and limit.
fn ask_fake(file: &File, number: u64) -> Option<LoopStatus> {
    let text = io::read_to_string(file).ok()?;
    let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
    let &[own, device, inode, offset, size_limit] = &words[..] else { return None };
    let (file_name, zeros) = ([0; 64], [0; 14]);
    let status = LoopStatus {
        device,
        inode,
        _rdevice: 0,
        offset,
        size_limit,
        _number_encryption_and_flags: [0; 4],
        file_name,
        _crypt_name_key_and_init: zeros,
    };
    (own == number).then_some(status)
}

impl Fake {
    fn new() -> Fake {
        let root = tempfile::tempdir().unwrap();
        let [sys, dev] = ["sys", "dev"].map(|name| root.path().join(name));
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        fs::create_dir_all(sys.join("devices")).unwrap();
        fs::create_dir_all(&dev).unwrap();
        let image = root.path().join("image");
        File::create(&image).unwrap().set_len(8 * MIB).unwrap();
        Fake { root, sys, dev, image }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.sys.join("devices").join(name)
    }

    /// A device; `name` may be that of a partition below its disk.
    fn device(&self, name: &str, (major, minor): (u32, u32)) -> u64 {
        let place = self.place(name);
        fs::create_dir_all(place.join("slaves")).unwrap();
        fs::write(place.join("dev"), format!("{major}:{minor}\n")).unwrap();
        symlink(&place, self.sys.join(format!("dev/block/{major}:{minor}"))).unwrap();
        makedev(major, minor)
    }

    fn lies_on(&self, upper: &str, lower: &str) {
        let name = Path::new(lower).file_name().unwrap();
        symlink(self.place(lower), self.place(upper).join("slaves").join(name)).unwrap();
    }

    fn partition(&self, disk: &str, name: &str, number: (u32, u32), sectors: [&str; 2]) -> u64 {
        let number = self.device(&format!("{disk}/{name}"), number);
        let place = self.place(disk).join(name);
        for (file, text) in [("partition", "1"), ("start", sectors[0]), ("size", sectors[1])] {
            fs::write(place.join(file), format!("{text}\n")).unwrap();
        }
        number
    }

    /// A loop device over so many bytes of the image (0: all) from `offset` on.
    fn loop_device(&self, name: &str, minor: u32, offset: u64, len: u64) -> u64 {
        let number = self.device(name, (LOOP_MAJOR, minor));
        let place = self.place(name);
        fs::create_dir(place.join("loop")).unwrap();
        fs::write(place.join("loop/backing_file"), format!("{}\n", self.image.display())).unwrap();
        // Names in /dev have slashes where those in /sys have exclamation marks.
        let node = name.replace('!', "/");
        fs::write(place.join("uevent"), format!("MAJOR=7\nDEVNAME={node}\n")).unwrap();
        let node = self.dev.join(node);
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        let found = fs::metadata(&self.image).unwrap();
        let (device, inode) = (huge_encode_dev(found.st_dev()), found.st_ino());
        fs::write(node, format!("{number} {device} {inode} {offset} {len}")).unwrap();
        number
    }

    /// Walks down from a device that is to be written.
    fn walk(&self, number: u64) -> Result<Walk<'_>, DeviceError> {
        let host = Host { sys: &self.sys, dev: &self.dev, ask: ask_fake };
        let (mode, path) = (OpenMode::ReadWrite, self.root.path());
        let mut walk =
            Walk { host, mode, path, locks: Locks::Take, held: Vec::new(), reach: Reach::Alone };
        walk.device(number, None, Part::WHOLE, Share::Alone, 0)?;
        Ok(walk)
    }

    /// How far the walk went: files that it locked, and which others may have what is behind.
    fn found(&self, number: u64) -> (usize, Reach) {
        let walk = self.walk(number).unwrap();
        (walk.held.len(), walk.reach)
    }

    /// Whether another opener gets these bytes of the image.
    fn is_free(&self, start: u64, len: u64, share: Share) -> bool {
        let file = File::options().read(true).write(true).open(&self.image).unwrap();
        let part = Part::WHOLE.within(start, len);
        match lock::take_part(file, &self.image, "the image", part, share) {
            Ok(taken) => taken.is_some(),
            Err(DeviceError::InUse { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    }
}

/// As the kernel writes device numbers in the answer of a loop device.
fn huge_encode_dev(device: u64) -> u64 {
    let (major, minor) = (u64::from(major(device)), u64::from(minor(device)));
    (minor & 0xff) | major << 8 | (minor & !0xff) << 12
}

#[test]
fn a_mapper_over_a_loop_device_leads_to_its_file_and_shares_it() {
    let fake = Fake::new();
    fake.loop_device("loop0", 0, MIB, 4 * MIB);
    let mapper = fake.device("dm-0", (254, 0));
    fake.lies_on("dm-0", "loop0");
    let walk = fake.walk(mapper).unwrap();
    assert_eq!(
        (walk.held.len(), walk.reach),
        (1, Reach::Host),
        "the mapper's other parts are not known"
    );
    assert!(!fake.is_free(MIB, 4 * MIB, Share::Alone));
    assert!(fake.is_free(MIB, 4 * MIB, Share::Beside), "another mapper may have another part");
    assert!(fake.is_free(0, MIB, Share::Alone) && fake.is_free(5 * MIB, MIB, Share::Alone));
    drop(walk);
    assert!(fake.is_free(0, 0, Share::Alone));
    // The other way round: a holder of the file keeps the mapper out.
    let file = File::options().read(true).write(true).open(&fake.image).unwrap();
    let holder = lock::take_part(file, &fake.image, "the image", Part::WHOLE, Share::Alone);
    assert!(matches!(fake.walk(mapper), Err(DeviceError::InUse { .. })));
    drop(holder);
}

#[test]
fn partitions_take_their_part_of_the_file_also_behind_a_name_with_a_slash() {
    for name in ["loop0", "cciss!loop0"] {
        let fake = Fake::new();
        fake.loop_device(name, 0, MIB, 0);
        let second = fake.partition(name, &format!("{name}p2"), (259, 1), ["4096", "2048"]);
        let walk = fake.walk(second).unwrap();
        assert_eq!((walk.held.len(), walk.reach), (1, Reach::Alone), "{name}");
        // Sector 4096 of a device that begins at 1 MiB of its file.
        assert!(!fake.is_free(3 * MIB, MIB, Share::Beside), "{name}");
        assert!(fake.is_free(0, 3 * MIB, Share::Alone), "{name}");
        assert!(fake.is_free(4 * MIB, 0, Share::Alone), "{name}");
    }
}

#[test]
fn two_ways_down_to_one_file_do_not_shut_each_other_out() {
    let fake = Fake::new();
    fake.loop_device("loop0", 0, 0, 0);
    let top = fake.device("dm-0", (254, 0));
    for (minor, lower) in [(1, "dm-1"), (2, "dm-2")] {
        fake.device(lower, (254, minor));
        fake.lies_on("dm-0", lower);
        fake.lies_on(lower, "loop0");
    }
    assert_eq!(fake.found(top), (2, Reach::Host));
}

#[test]
fn a_disk_is_the_end_of_a_walk_and_so_is_a_circle() {
    let fake = Fake::new();
    let disk = fake.device("sda", (8, 0));
    let part = fake.partition("sda", "sda1", (8, 1), ["2048", "2048"]);
    assert_eq!([disk, part].map(|one| fake.found(one)), [(0, Reach::Host); 2]);
    let first = fake.device("dm-0", (254, 0));
    fake.device("dm-1", (254, 1));
    fake.lies_on("dm-0", "dm-1");
    fake.lies_on("dm-1", "dm-0");
    assert_eq!(fake.found(first), (0, Reach::Unknown));
    let own = fake.device("dm-2", (254, 2));
    fake.lies_on("dm-2", "dm-2");
    assert_eq!(fake.found(own), (0, Reach::Unknown));
}

/// What /sys does not tell may be anything: the guard has to keep others out.
#[test]
fn what_is_missing_or_makes_no_sense_is_out_of_reach() {
    let fake = Fake::new();
    assert_eq!(fake.found(makedev(254, 9)), (0, Reach::Unknown), "/sys knows of no such device");
    let partitions = [["x", "2048"], ["2048", ""], ["18446744073709551615", "1"]];
    for (minor, sectors) in (0..).zip(partitions) {
        let disk = format!("sd{minor}");
        fake.device(&disk, (8, 16 * minor));
        let part = fake.partition(&disk, "part", (8, 16 * minor + 1), sectors);
        assert_eq!(fake.found(part), (0, Reach::Unknown), "{sectors:?}");
    }
    for (minor, number) in (10..).zip(["", "8", "8:x", "-1:0"]) {
        let (upper, lower) = (format!("dm-{minor}"), format!("sdx{minor}"));
        let mapper = fake.device(&upper, (254, minor));
        fake.device(&lower, (65, minor));
        fake.lies_on(&upper, &lower);
        assert_eq!(fake.found(mapper), (0, Reach::Host));
        fs::write(fake.place(&lower).join("dev"), number).unwrap();
        assert_eq!(fake.found(mapper), (0, Reach::Unknown), "{number:?}");
    }
}

#[test]
fn a_loop_device_whose_file_cannot_be_had_is_out_of_reach() {
    let fake = Fake::new();
    let one = fake.loop_device("loop0", 0, 0, 0);
    assert_eq!(fake.found(one), (1, Reach::Alone));
    // Another file at its path.
    let kept = fake.root.path().join("kept");
    fs::rename(&fake.image, &kept).unwrap();
    fs::copy(&kept, &fake.image).unwrap();
    assert_eq!(fake.found(one), (0, Reach::Unknown));
    fs::remove_file(&fake.image).unwrap();
    assert_eq!(fake.found(one), (0, Reach::Unknown));
    fs::rename(&kept, &fake.image).unwrap();
    assert_eq!(fake.found(one), (1, Reach::Alone));
    // Its name in /dev is that of another device, or is missing.
    let answer = fs::read_to_string(fake.dev.join("loop0")).unwrap();
    fs::write(fake.dev.join("loop0"), answer.replacen(&one.to_string(), "1", 1)).unwrap();
    assert_eq!(fake.found(one), (0, Reach::Unknown));
    fs::remove_file(fake.dev.join("loop0")).unwrap();
    assert_eq!(fake.found(one), (0, Reach::Unknown));
}
