//! Broken images: each file in golden/broken says what happened to a golden volume, and exactly what fsck finds.
//!
//! ```text
//! # What happened, in words.
//! volume 3 crashed         as the power cut left it; `clean`: recovered and left in order
//! flip superblock 1 100    turns a bit of byte 100 of the block (of `log`, `journal`: behind the
//!                          place where the superblock says that the ring goes on)
//! flip block 300 7         the same for any block of the volume
//! flip data /dir/big 2 7   for block 2 of a file
//! flip files 0 7           for a node of a tree, counted from the root; `space` likewise
//! zero WHERE               the block is zeros: a write that was lost
//! swap WHERE / WHERE       two blocks change places: misdirected writes
//! find slug: sentence      what is found, in this order
//! ```
//!
//! Whatever is broken, a mount answers with an error or reads what is right (P6, P10); it never panics.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast_base::units::{BLOCK_BYTES, BLOCK_SIZE};
use holdfast_base::{BlockNo, InodeNo};
use holdfast_check::{Options, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::geometry::SUPERBLOCK_SLOTS;
use holdfast_format::{Geometry, Superblock};
use holdfast_posix::{Caller, FileSystem, OpenFlags};
use holdfast_script::{Target, Tree};
use holdfast_sim::{Engine, Setup};

use crate::golden_image::{folder, is_update, load};

/// A volume to be broken.
struct Volume {
    device: Arc<MemoryDevice>,
    superblock: Superblock,
}

fn setup(read_only: bool) -> Setup {
    let mut setup = Setup::new(4096, 64);
    setup.mount.read_only = read_only;
    setup
}

impl Volume {
    fn load(version: &str, state: &str) -> Volume {
        let device = load(&folder().join(format!("volume-{version}/image")));
        if state == "clean" {
            let mut engine = Engine::open(device.clone(), setup(false)).expect("it is recovered");
            engine.unmount().expect("the device works");
        } else {
            assert_eq!(state, "crashed", "there are two states");
        }
        let slots = SUPERBLOCK_SLOTS.into_iter().filter_map(|slot| {
            let mut block = [0; BLOCK_SIZE];
            device.read(slot.0 * BLOCK_BYTES, &mut block).expect("memory reads");
            Superblock::decode(&block, slot).ok()
        });
        let superblock = slots.max_by_key(|superblock| superblock.epoch).expect("one is valid");
        Volume { device, superblock }
    }

    fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    /// The byte on the device that words like `log 12` mean.
    fn place(&self, words: &[&str]) -> u64 {
        let number = |at: usize| -> u64 {
            let word = words.get(at).unwrap_or_else(|| panic!("{words:?} has too few words"));
            word.parse().unwrap_or_else(|_| panic!("{word} in {words:?} is no number"))
        };
        let byte = |at: usize| if at < words.len() { number(at) } else { 0 };
        let start = |block: BlockNo| block.0 * BLOCK_BYTES;
        match words[0] {
            "superblock" => start(SUPERBLOCK_SLOTS[number(1) as usize]) + byte(2),
            "block" => start(BlockNo(number(1))) + byte(2),
            "log" => start(self.geometry().log().start) + self.superblock.log.next + byte(1),
            "journal" => start(self.superblock.journal.next) + byte(1),
            "files" => start(self.superblock.files.block) + byte(1),
            "space" => start(self.superblock.space.block) + byte(1),
            "data" => start(self.data(words[1], number(2))) + byte(3),
            other => panic!("{other} is no place"),
        }
    }

    /// The block of the device that a block of a file lies in.
    fn data(&self, path: &str, block: u64) -> BlockNo {
        let read = Arc::new(self.device.snapshot());
        let mount = setup(true).mount;
        let fs = FileSystem::mount(read, mount).expect("it is whole so far");
        let caller = Caller::root();
        let names = path.split('/').filter(|name| !name.is_empty());
        let inode = names.fold(InodeNo::ROOT, |dir, name| {
            fs.lookup(&caller, dir, name.as_bytes()).expect("the file is there").inode
        });
        let file = fs.open(&caller, inode, OpenFlags::READ).expect("it can be opened");
        let mut bytes = vec![0; BLOCK_SIZE];
        let count = fs.read(&file, block * BLOCK_BYTES, &mut bytes).expect("it can be read");
        bytes[count..].fill(0);
        // Every block of the volume's data differs from the others.
        let image = self.device.to_image();
        let first = self.geometry().first_data_block().0;
        let mut found = (first..).zip(image.chunks(BLOCK_SIZE).skip(first as usize));
        let (at, _) = found.find(|(_, block)| *block == bytes).expect("it lies on the device");
        BlockNo(at)
    }

    fn change(&self, at: u64, change: impl FnOnce(&mut [u8])) {
        let start = at / BLOCK_BYTES * BLOCK_BYTES;
        let mut block = [0; BLOCK_SIZE];
        self.device.read(start, &mut block).expect("memory reads");
        change(&mut block[(at - start) as usize..]);
        self.device.write(start, &block).expect("memory writes");
    }

    /// Does one line of damage.
    fn damage(&self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "flip" => self.change(self.place(&words[1..]), |bytes| bytes[0] ^= 1),
            "zero" => self.change(self.place(&words[1..]), |bytes| bytes.fill(0)),
            "swap" => {
                let (one, other) = line["swap".len()..].split_once(" / ").expect("two places");
                let of = |words: &str| self.place(&words.split_whitespace().collect::<Vec<_>>());
                let (one, other) = (of(one), of(other));
                let mut kept = [0; BLOCK_SIZE];
                self.device.read(one, &mut kept).expect("memory reads");
                let mut moved = [0; BLOCK_SIZE];
                self.device.read(other, &mut moved).expect("memory reads");
                self.device.write(one, &moved).expect("memory writes");
                self.device.write(other, &kept).expect("memory writes");
            }
            other => panic!("{other} is no damage"),
        }
    }
}

/// A mount refuses, or shows no wrong byte (P6). What ends history earlier may show what was there before.
fn mounted(device: MemoryDevice, whole: &Tree, is_earlier: bool) {
    let Ok(mut engine) = Engine::open(Arc::new(device), setup(true)) else { return };
    let Ok(tree) = engine.walk() else { return };
    for (path, node) in &tree.0 {
        let digest = whole.0.get(path).and_then(|node| node.digest);
        assert!(is_earlier || node.digest == digest, "{path} has other bytes");
    }
}

fn run(path: &Path) {
    let name = path.file_name().and_then(|name| name.to_str()).expect("it has a name");
    let text = fs::read_to_string(path).expect("a case is a text");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let (found, told): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("find "));
    let first: Vec<&str> = told.first().expect("a case names its volume").split(' ').collect();
    let ["volume", version, state] = first[..] else {
        panic!("{name}: begin with `volume VERSION STATE`");
    };
    let volume = Volume::load(version, state);
    let whole = Engine::open(Arc::new(volume.device.snapshot()), setup(true))
        .map(|mut engine| engine.walk())
        .expect("it mounts")
        .expect("it can be read");
    // Places are those of the whole volume.
    for line in &told[1..] {
        volume.damage(line);
    }
    let options = Options { data: true, ..Options::default() };
    let findings = match check(&*volume.device, &options) {
        Ok(report) => report.findings.iter().map(|one| format!("find {one}")).collect(),
        Err(error) => vec![format!("find {error}")],
    };
    let ends =
        |line: &&str| ["log", "journal", "superblock"].iter().any(|what| line.contains(what));
    mounted(volume.device.snapshot(), &whole, told.iter().any(ends));
    if is_update() {
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("find ")).collect();
        let all = [kept.join("\n").trim_end(), "\n", findings.join("\n").trim_end()].concat();
        let all = all.trim_end().to_owned() + "\n";
        fs::write(path, all).expect("the case can be written");
        return;
    }
    assert!(found == findings, "{name}: fsck finds\n{}", findings.join("\n"));
}

#[test]
fn each_broken_image_has_exactly_its_findings() {
    let mut cases: Vec<_> = fs::read_dir(folder().join("broken"))
        .expect("the cases are there")
        .map(|entry| entry.expect("an entry can be read").path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 10, "only {} cases", cases.len());
    for case in &cases {
        println!("{}", case.display());
        run(case);
    }
}
