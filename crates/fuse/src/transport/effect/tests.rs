//! Each request for itself, on a volume of its own: what the table says is what it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_device::{Device, MemoryDevice};
use holdfast_posix::{FileSystem, MkfsOptions, MountOptions};

use super::super::answer::Out;
use super::super::dispatch::{call, fill, fills};
use super::super::kind::kind;
use super::*;
use crate::interface::Answer;
use crate::server::{Server, fresh};
use crate::statistics::RequestKind;

/// A volume with a directory `d`, and a file `f` that is open and has data and an attribute. All of it is durable.
struct Prepared {
    memory: Arc<MemoryDevice>,
    fs: Arc<FileSystem>,
    server: Server,
    file: u64,
    fh: u64,
}

fn header(nodeid: u64) -> abi::InHeader {
    abi::InHeader { nodeid, ..Default::default() }
}

const ROOT: u64 = InodeNo::ROOT.0;
const REGULAR: u32 = libc::S_IFREG | 0o644;

impl Prepared {
    fn new() -> Prepared {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        let device: Arc<dyn Device> = memory.clone();
        let options = MkfsOptions { node_size: 4096, ..MkfsOptions::default() };
        FileSystem::mkfs(&device, &options).unwrap();
        let fs = fresh::mount(&device);
        let server = fresh::server(&fs);
        let it = Prepared { memory, fs, server, file: 0, fh: 0 };
        let how = abi::CreateIn { flags: libc::O_RDWR as u32, mode: REGULAR, ..Default::default() };
        let made = it.act(ROOT, &Op::Create { how, name: b"f" });
        let Some(Ok(Out::Created(entry, opened))) = made else { panic!("{made:?}") };
        let it = Prepared { file: entry.attr.unwrap().inode.0, fh: opened.fh, ..it };
        let new = abi::MkdirIn { mode: 0o755, umask: 0 };
        it.act(ROOT, &Op::Mkdir { new, name: b"d" }).unwrap().unwrap();
        let how = abi::WriteIn { fh: it.fh, size: 5000, ..Default::default() };
        it.act(it.file, &Op::Write { how, bytes: &[7; 5000] }).unwrap().unwrap();
        let how = abi::SetxattrIn { size: 1, ..Default::default() };
        let set = Op::Setxattr { how, name: b"user.a", value: b"1" };
        it.act(it.file, &set).unwrap().unwrap();
        it.fs.sync().unwrap();
        it
    }

    fn act(&self, nodeid: u64, op: &Op<'_>) -> Option<Answer<Out>> {
        let header = header(nodeid);
        if fills_a_buffer(op) {
            let filled = fill(&self.server, &header, op, &mut [0; 4096]);
            return Some(filled.map(|_| Out::Nothing));
        }
        call(&self.server, &header, op)
    }

    /// Whether something is there that a power cut would take.
    fn has_changed(&self) -> bool {
        !self.fs.is_durable() || self.fs.dirty_bytes() > 0
    }

    /// Each kind of request, on something that lets it be carried out.
    fn examples(&self) -> Vec<(u64, Op<'static>)> {
        let (file, fh) = (self.file, self.fh);
        let read = abi::ReadIn { fh, size: 4096, ..Default::default() };
        let create = |flags: i32| abi::CreateIn {
            flags: (libc::O_RDWR | flags) as u32,
            mode: REGULAR,
            ..Default::default()
        };
        let open = |flags: i32| abi::OpenIn { flags: flags as u32, open_flags: 0 };
        let mode = abi::SetattrIn { valid: abi::fattr::MODE, mode: 0o600, ..Default::default() };
        let xattr = abi::SetxattrIn { size: 1, ..Default::default() };
        let new = abi::MknodIn { mode: REGULAR, ..Default::default() };
        let how = abi::Rename2In { newdir: ROOT, flags: 0, padding: 0 };
        let write = abi::WriteIn { fh, size: 4, ..Default::default() };
        let space = abi::FallocateIn { fh, length: 1 << 20, ..Default::default() };
        let copy = abi::CopyFileRangeIn {
            fh_in: fh,
            nodeid_out: file,
            fh_out: fh,
            off_out: 8192,
            len: 4096,
            ..Default::default()
        };
        let ioctl = abi::IoctlIn { cmd: 0x8008_6601, out_size: 8, ..Default::default() };
        vec![
            (ROOT, Op::Lookup { name: b"f" }),
            (file, Op::Forget(abi::ForgetIn { nlookup: 0 })),
            (file, Op::BatchForget(&[])),
            (file, Op::Getattr),
            (file, Op::Statx(Default::default())),
            (file, Op::Setattr(mode)),
            (file, Op::Readlink),
            (ROOT, Op::Symlink { name: b"s", target: b"f" }),
            (ROOT, Op::Mknod { new, name: b"n" }),
            (ROOT, Op::Mkdir { new: abi::MkdirIn { mode: 0o755, umask: 0 }, name: b"e" }),
            (ROOT, Op::Unlink { name: b"f" }),
            (ROOT, Op::Rmdir { name: b"d" }),
            (ROOT, Op::Rename { how, name: b"f", new_name: b"g" }),
            (ROOT, Op::Link { old: file, name: b"h" }),
            (file, Op::Open(open(libc::O_RDONLY))),
            (file, Op::Open(open(libc::O_WRONLY | libc::O_TRUNC))),
            (file, Op::Read(read)),
            (file, Op::Write { how: write, bytes: b"abcd" }),
            (ROOT, Op::Statfs),
            (file, Op::Release(abi::ReleaseIn { fh, ..Default::default() })),
            (file, Op::Fsync(abi::FsyncIn { fh, ..Default::default() })),
            (file, Op::Setxattr { how: xattr, name: b"user.b", value: b"2" }),
            (file, Op::Getxattr { size: 100, name: b"user.a" }),
            (file, Op::Listxattr { size: 100 }),
            (file, Op::Removexattr { name: b"user.a" }),
            (file, Op::Flush),
            (ROOT, Op::Opendir),
            (ROOT, Op::Readdir(read)),
            (ROOT, Op::Readdirplus(read)),
            (ROOT, Op::Releasedir),
            (ROOT, Op::Fsyncdir),
            (file, Op::Access { mask: 4 }),
            (ROOT, Op::Create { how: create(0), name: b"c" }),
            (ROOT, Op::Create { how: create(libc::O_TRUNC), name: b"f" }),
            (ROOT, Op::Tmpfile(create(0))),
            (file, Op::Ioctl { how: ioctl, bytes: &[] }),
            (file, Op::Fallocate(space)),
            (file, Op::Lseek(abi::LseekIn { fh, ..Default::default() })),
            (file, Op::CopyFileRange(copy)),
            (ROOT, Op::Interrupt(abi::InterruptIn { unique: 2 })),
            (ROOT, Op::Syncfs),
            (ROOT, Op::Other(4711)),
        ]
    }
}

fn fills_a_buffer(op: &Op<'_>) -> bool {
    matches!(op, Op::Read(_) | Op::Readdir(_) | Op::Readdirplus(_))
}

/// Does `what` with each example, on a volume of its own.
fn each(what: impl Fn(&Prepared, u64, &Op<'static>)) {
    for at in 0..Prepared::new().examples().len() {
        let it = Prepared::new();
        let (nodeid, op) = it.examples().swap_remove(at);
        what(&it, nodeid, &op);
        it.server.close();
    }
}

#[test]
fn each_kind_of_request_has_an_example() {
    let it = Prepared::new();
    let seen: BTreeSet<_> =
        it.examples().iter().filter_map(|(_, op)| kind(op)).map(|kind| kind as usize).collect();
    let missing: Vec<_> =
        RequestKind::ALL.iter().filter(|kind| !seen.contains(&(**kind as usize))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(
        fills(abi::opcode::READ)
            && it.examples().iter().filter(|(_, op)| fills_a_buffer(op)).count() == 3
    );
    it.server.close();
}

#[test]
fn the_table_says_what_changes_something() {
    each(|it, nodeid, op| {
        it.act(nodeid, op);
        let says = matches!(effect(&header(nodeid), op), Effect::Changes(_));
        assert_eq!(it.has_changed(), says, "{op:?}");
    });
}

#[test]
fn with_sync_each_change_is_durable_before_the_answer() {
    each(|it, nodeid, op| {
        it.server.set_synchronous(true, true);
        it.act(nodeid, op);
        assert!(!it.has_changed(), "{op:?}");
    });
}

/// As much as a sync behind the answer would make durable is there when the process is killed behind the answer.
#[test]
fn with_handover_the_next_process_finds_each_change() {
    each(|it, nodeid, op| {
        it.server.set_handover(true);
        let answer = it.act(nodeid, op);
        let recovered = |memory: &MemoryDevice| {
            let options = MountOptions { commit_secs: 0, resumed: 1, ..MountOptions::default() };
            FileSystem::mount(Arc::new(memory.snapshot()), options).unwrap()
        };
        let next = recovered(&it.memory);
        it.fs.sync().unwrap();
        assert_eq!(next.recovered(), recovered(&it.memory).recovered(), "{op:?}");
        if let Some(Ok(Out::Created(entry, _))) = answer {
            // Also where it has no name.
            let made = entry.attr.unwrap().inode;
            next.getattr(made).unwrap();
        }
    });
}
