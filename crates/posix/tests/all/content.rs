//! Random changes of a file's content against an array of bytes, with remounts in between.

use holdfast_base::prng::Prng;
use holdfast_device::Device;
use holdfast_posix::{
    FallocateFlags, FileSystem, FsError, MountOptions, OpenFile, OpenFlags, Seek,
};

use crate::common::*;

const BLOCK: u64 = 4096;
/// Files stay below this in the random tests.
const SPAN: u64 = 400 * BLOCK;

/// What the file must hold, and which bytes may be reported as a hole.
#[derive(Clone, Default)]
struct Model {
    bytes: Vec<u8>,
    /// Some write touched the block since it was last a hole.
    data: Vec<bool>,
}

impl Model {
    fn fit(&mut self, len: u64) {
        if self.bytes.len() < len as usize {
            self.bytes.resize(len as usize, 0);
        }
        self.data.resize(self.bytes.len().div_ceil(BLOCK as usize), false);
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.fit(at + bytes.len() as u64);
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        for block in at / BLOCK..(at + bytes.len() as u64).div_ceil(BLOCK) {
            self.data[block as usize] = true;
        }
    }

    fn truncate(&mut self, size: u64) {
        self.bytes.resize(size as usize, 0);
        self.data.resize(self.bytes.len().div_ceil(BLOCK as usize), false);
    }

    fn zero(&mut self, at: u64, end: u64) {
        let end = end.min(self.bytes.len() as u64);
        if at < end {
            self.bytes[at as usize..end as usize].fill(0);
        }
    }

    /// The first block of a small file may be given a page although it is a hole.
    fn may_be_data(&self, block: u64) -> bool {
        block == 0 || self.data[block as usize]
    }

    /// Whether every non-zero byte lies in what the file says is data.
    fn check_seek(&self, fs: &FileSystem, file: &OpenFile, from: u64) {
        let data = fs.seek(file, from, Seek::Data);
        let hole = fs.seek(file, from, Seek::Hole);
        let size = self.bytes.len() as u64;
        if from >= size {
            assert!(matches!(data, Err(FsError::NoSuchPosition)), "{data:?}");
            assert!(matches!(hole, Err(FsError::NoSuchPosition)), "{hole:?}");
            return;
        }
        let passed = match data {
            Ok(at) => {
                assert!(at >= from && at < size);
                assert!(self.may_be_data(at / BLOCK), "{at} was never written");
                at
            }
            Err(FsError::NoSuchPosition) => size,
            Err(error) => panic!("{error}"),
        };
        assert!(self.bytes[from as usize..passed as usize].iter().all(|&b| b == 0));
        let hole = hole.expect("there is a hole at the end");
        assert!(hole >= from && hole <= size);
        for block in from / BLOCK..hole.min(size) / BLOCK {
            assert!(self.may_be_data(block), "the hole at block {block} was passed");
        }
    }
}

fn check(fs: &FileSystem, file: &OpenFile, model: &Model, step: &str) {
    assert_eq!(size(fs, file), model.bytes.len() as u64, "{step}: the size");
    let all = read(fs, file, 0, model.bytes.len() + 100).expect("read");
    if all != model.bytes {
        let at = all.iter().zip(&model.bytes).position(|(a, b)| a != b);
        panic!("{step}: content differs at {at:?} ({} and {} bytes)", all.len(), model.bytes.len());
    }
}

fn random_bytes(random: &mut Prng, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    random.fill(&mut bytes);
    bytes
}

fn random_len(random: &mut Prng) -> u64 {
    match random.below(4) {
        0 => 1 + random.below(300),
        1 => 1 + random.below(3 * BLOCK),
        2 => BLOCK * (1 + random.below(8)),
        _ => 1 + random.below(60 * BLOCK),
    }
}

fn random_offset(random: &mut Prng, model: &Model) -> u64 {
    let size = model.bytes.len() as u64;
    match random.below(5) {
        0 => size,
        1 => random.below(size + 1),
        2 => random.below(size / BLOCK + 1) * BLOCK,
        3 => random.below(3000),
        _ => random.below(SPAN),
    }
}

fn random_run(seed: u64, node_size: usize, steps: usize, options: &MountOptions) {
    let mut random = Prng::seeded(seed);
    let device = new_volume(24 * MIB, node_size);
    let mut fs = mount(&device, options);
    let free_before = fs.statfs().blocks_free;
    let mut file = create(&fs, "f");
    let mut model = Model::default();
    for step in 0..steps {
        let shown = fs.getattr(file.inode()).expect("getattr");
        if random.one_in(3) {
            // What waits becomes extents, or an item.
            fs.commit().expect("commit");
            let written = fs.getattr(file.inode()).expect("getattr");
            assert_eq!(
                written.blocks, shown.blocks,
                "step {step}: a writeback changes what stat shows"
            );
        }
        let has_data = model.data.iter().any(|data| *data);
        assert!(shown.blocks > 0 || !has_data, "step {step}: a file with data has no blocks");
        let at = random_offset(&mut random, &model);
        let len = random_len(&mut random).min(SPAN.saturating_sub(at).max(1));
        let name;
        match random.below(20) {
            0..=7 => {
                name = format!("step {step}: write {at}+{len}");
                let bytes = random_bytes(&mut random, len);
                write_all(&fs, &file, at, &bytes);
                model.write(at, &bytes);
            }
            8 | 9 => {
                let to = if random.one_in(4) { 0 } else { at };
                name = format!("step {step}: truncate {to}");
                set_size(&fs, &file, to).expect("truncate");
                model.truncate(to);
            }
            10 => {
                name = format!("step {step}: punch {at}+{len}");
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs.fallocate(&file, flags, at, len).expect("punch");
                model.zero(at, at + len);
                let size = model.bytes.len() as u64;
                let end = if at + len >= size { size.div_ceil(BLOCK) } else { (at + len) / BLOCK };
                // A whole block is a hole now: without data, if it counts as a block or not. A content that is inline goes on
                // to count as one, and has one when the file grows; a small file that was larger may have none then.
                for block in at.div_ceil(BLOCK)..end {
                    model.data[block as usize] = false;
                }
            }
            11 => {
                let keep = random.one_in(2);
                name = format!("step {step}: zero {at}+{len} keep {keep}");
                let mut flags = FallocateFlags::ZERO_RANGE;
                flags.set(FallocateFlags::KEEP_SIZE, keep);
                fs.fallocate(&file, flags, at, len).expect("zero");
                let size = model.bytes.len() as u64;
                model.zero(at, at + len);
                let reaches_end = at + len >= size;
                if !keep {
                    model.fit(at + len);
                }
                let end = if reaches_end { model.data.len() as u64 } else { (at + len) / BLOCK };
                for block in at.div_ceil(BLOCK)..end {
                    model.data[block as usize] = false;
                }
            }
            12 => {
                let keep = random.one_in(2);
                name = format!("step {step}: allocate {at}+{len} keep {keep}");
                let mut flags = FallocateFlags::empty();
                flags.set(FallocateFlags::KEEP_SIZE, keep);
                fs.fallocate(&file, flags, at, len).expect("allocate");
                if !keep {
                    model.fit(at + len);
                }
            }
            13 | 14 => {
                name = format!("step {step}: fsync");
                fs.fsync(&file, random.one_in(2)).expect("fsync");
            }
            15 => {
                name = format!("step {step}: sync");
                fs.sync().expect("sync");
            }
            16 => {
                name = format!("step {step}: remount");
                drop(file);
                fs.unmount().expect("unmount");
                fs = mount(&device, options);
                file = open(&fs, "f", OpenFlags::READ | OpenFlags::WRITE);
            }
            17 => {
                name = format!("step {step}: crash after fsync");
                fs.fsync(&file, false).expect("fsync");
                drop(file);
                drop(fs);
                fs = mount(&device, options);
                file = open(&fs, "f", OpenFlags::READ | OpenFlags::WRITE);
            }
            18 => {
                name = format!("step {step}: read {at}+{len}");
                let got = read(&fs, &file, at, len as usize).expect("read");
                let from = (at as usize).min(model.bytes.len());
                let to = ((at + len) as usize).min(model.bytes.len());
                assert!(got == model.bytes[from..to], "{name}");
            }
            _ => {
                name = format!("step {step}: seek {at}");
                model.check_seek(&fs, &file, at);
            }
        }
        let makes_durable =
            ["sync", "fsync", "remount", "crash"].iter().any(|what| name.contains(what));
        if makes_durable {
            let now = fs.getattr(file.inode()).expect("getattr");
            assert_eq!((now.blocks, now.size), (shown.blocks, shown.size), "{name}");
            assert_eq!((now.mtime, now.ctime), (shown.mtime, shown.ctime), "{name}");
        }
        check(&fs, &file, &model, &name);
    }
    set_size(&fs, &file, 0).expect("truncate");
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 0, "all blocks went");
    fs.unlink(&holdfast_posix::Caller::root(), holdfast_base::InodeNo::ROOT, b"f").expect("unlink");
    drop(file);
    fs.unmount().expect("unmount");
    let fs = mount(&device, options);
    let free = fs.statfs().blocks_free;
    // The tree itself may have grown by a node or two.
    assert!(free + 64 >= free_before, "{free} of {free_before} blocks came back");
    fs.unmount().expect("unmount");
}

#[test]
fn random_changes_agree_with_an_array_of_bytes() {
    let seed = seed();
    for (i, node_size) in [4096, 16384, 65536, 4096, 16384].into_iter().enumerate() {
        random_run(seed + i as u64, node_size, 2000, &quiet());
    }
}

#[test]
fn random_changes_with_little_memory_and_a_busy_background() {
    let seed = seed();
    let options = MountOptions {
        commit_secs: 1,
        dirty_bytes: 1,
        cache_bytes: 1 << 20,
        inode_cache: 1,
        ..MountOptions::default()
    };
    for i in 0..2 {
        random_run(seed + i, 4096, 1500, &options);
    }
}

#[test]
fn bytes_behind_a_truncate_never_come_back() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "f");
    write_all(&fs, &file, 0, &[7; 10_000]);
    fs.fsync(&file, false).expect("fsync");
    set_size(&fs, &file, 5000).expect("shrink");
    set_size(&fs, &file, 9000).expect("grow");
    let mut want = vec![7; 5000];
    want.resize(9000, 0);
    assert!(read(&fs, &file, 0, 20_000).expect("read") == want);
    set_size(&fs, &file, 4500).expect("shrink");
    write_all(&fs, &file, 20_000, &[9; 10]);
    want.truncate(4500);
    want.resize(20_000, 0);
    want.resize(20_010, 9);
    assert!(read(&fs, &file, 0, 30_000).expect("read") == want);
    // And after a crash right behind each fsync.
    fs.fsync(&file, false).expect("fsync");
    drop((file, fs));
    let fs = mount(&device, &quiet());
    let file = open(&fs, "f", OpenFlags::READ);
    assert!(read(&fs, &file, 0, 30_000).expect("read") == want);
}

#[test]
fn a_file_may_lie_at_eight_tebibytes_and_at_the_very_end() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "f");
    let far = 8u64 << 40;
    write_all(&fs, &file, far, b"far");
    write_all(&fs, &file, 10, b"near");
    let last = holdfast_format::limits::FILE_SIZE_MAX - 1;
    let written = write(&fs, &file, last, b"xyz").expect("the last byte");
    assert_eq!(written, 1, "a short write at the largest size");
    let refused = write(&fs, &file, last + 1, b"x");
    assert!(matches!(refused, Err(FsError::FileTooLarge)), "{refused:?}");
    fs.fsync(&file, false).expect("fsync");
    drop((file, fs));
    let fs = mount(&device, &quiet());
    let file = open(&fs, "f", OpenFlags::READ | OpenFlags::WRITE);
    assert_eq!(size(&fs, &file), last + 1);
    assert_eq!(read(&fs, &file, far, 3).expect("read"), b"far");
    assert_eq!(read(&fs, &file, 10, 5).expect("read"), b"near\0");
    assert_eq!(read(&fs, &file, last, 5).expect("read"), b"x");
    assert_eq!(read(&fs, &file, far - 1000, 100).expect("read"), [0; 100]);
    assert_eq!(fs.seek(&file, 4096, Seek::Data).expect("data"), far);
    assert_eq!(fs.seek(&file, far, Seek::Hole).expect("hole"), far + 4096);
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 3 * 8);
    set_size(&fs, &file, 12).expect("shrink");
    assert_eq!(read(&fs, &file, 0, 100).expect("read"), b"\0\0\0\0\0\0\0\0\0\0ne");
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 8);
}

#[test]
fn small_files_take_no_block_and_an_fsync_of_nothing_no_flush() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "small");
    write_all(&fs, &file, 0, &[5; 1500]);
    let free = fs.statfs().blocks_free;
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 8, "it may become a block");
    fs.fsync(&file, false).expect("fsync");
    // Counted as one, as before, or tar would take it for a hole; none is taken.
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 8);
    assert_eq!(fs.statfs().blocks_free, free);
    let before = holdfast_device::Device::stats(&*device);
    fs.fsync(&file, false).expect("fsync");
    fs.fsync(&file, true).expect("fdatasync");
    assert_eq!(holdfast_device::Device::stats(&*device), before, "nothing to do costs nothing");
    assert_eq!(fs.counters().clean_fsyncs.get(), 2);
    // It grows into blocks and keeps its content.
    write_all(&fs, &file, 100_000, b"end");
    fs.fsync(&file, false).expect("fsync");
    drop((file, fs));
    let fs = mount(&device, &quiet());
    let file = open(&fs, "small", OpenFlags::READ);
    assert_eq!(read(&fs, &file, 0, 1501).expect("read"), [&[5; 1500][..], &[0]].concat());
    assert_eq!(read(&fs, &file, 99_999, 10).expect("read"), b"\0end");
    assert_eq!(fs.getattr(file.inode()).expect("getattr").blocks, 16);
}

/// Caches of attributes need not be told of a writeback: it changes none (tar saves a file of 0 blocks as a hole).
#[test]
fn a_write_into_a_hole_counts_its_blocks_at_once_and_once() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let blocks = |file: &OpenFile| fs.getattr(file.inode()).expect("getattr").blocks;
    let file = create(&fs, "f");
    set_size(&fs, &file, MIB).expect("truncate");
    assert_eq!(blocks(&file), 0, "all of it is a hole");
    let mut counted = 0;
    // Whole blocks, parts of blocks, over one another, behind a piece, and behind what was written back.
    for (at, len, more) in
        [(8192, 4096, 1), (8192, 4096, 0), (9000, 10, 0), (12288, 8192, 2), (100, 5, 1)]
    {
        write_all(&fs, &file, at, &vec![7; len]);
        counted += 8 * more;
        assert_eq!(blocks(&file), counted, "{len} bytes at {at}");
        if at != 8192 {
            fs.fsync(&file, false).expect("fsync");
            assert_eq!(blocks(&file), counted, "{len} bytes at {at}, durable");
        }
    }
    // Blocks that were allocated ahead count already, before the end and behind it.
    fs.fallocate(&file, FallocateFlags::KEEP_SIZE, MIB - 4096, 8192).expect("allocate");
    counted += 16;
    for at in [MIB - 4096, MIB] {
        write_all(&fs, &file, at, &[7; 4096]);
        assert_eq!(blocks(&file), counted, "at {at}");
    }
    fs.fsync(&file, false).expect("fsync");
    assert_eq!(blocks(&file), counted);
    write_all(&fs, &file, MIB + 4096, &[7; 4096]);
    assert_eq!(blocks(&file), counted + 8);
}

#[test]
fn a_hole_before_allocated_blocks_is_not_counted_when_a_file_grows_out_of_an_item() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    for (grows_by_write, size) in [(true, 100), (true, 2000), (false, 100)] {
        let file = create(&fs, &format!("{grows_by_write} {size}"));
        fs.fallocate(&file, FallocateFlags::KEEP_SIZE, 4096, 8192).expect("allocate");
        set_size(&fs, &file, size).expect("truncate");
        match grows_by_write {
            true => write_all(&fs, &file, 4096, &[1; 100]),
            false => set_size(&fs, &file, 9000).expect("truncate"),
        }
        let blocks = || fs.getattr(file.inode()).expect("getattr").blocks;
        assert_eq!(blocks(), 16, "block 0 is a hole");
        fs.fsync(&file, false).expect("fsync");
        assert_eq!(blocks(), 16, "and stays one");
        let first = read(&fs, &file, 0, 4096).expect("read");
        assert_eq!(first, [0; 4096]);
    }
}

#[test]
fn a_file_that_grows_by_pieces_is_not_read_back() {
    let device = new_volume(16 * MIB, 16384);
    let fs = mount(&device, &quiet());
    let file = create(&fs, "f");
    write_all(&fs, &file, 0, &[7; 5000]);
    fs.fsync(&file, false).expect("fsync");
    let reads = device.stats().reads;
    for piece in 0..20 {
        // In the midst of a block that was written, and sent to the device, a moment ago.
        write_all(&fs, &file, 5000 + piece * 1000, &[8; 1000]);
        fs.fsync(&file, true).expect("fsync");
    }
    let expected: Vec<u8> = [vec![7; 5000], vec![8; 20_000]].concat();
    assert!(read(&fs, &file, 0, 25_000).expect("read") == expected);
    assert_eq!(device.stats().reads, reads);
}
