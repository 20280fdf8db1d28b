//! Any requests to the FUSE server: it answers, and the volume stays clean.
//!
//! A program is a series of requests with arguments that no kernel would send:
//! inodes and handles that do not exist, names of any bytes, offsets and lengths at
//! the ends of what fits, unknown flags. What must hold: no panic (a transport
//! would turn it into EIO for ever), no EIO and no error that is not an errno, as
//! nothing is wrong with the volume; and when all is over, it unmounts and check
//! finds nothing.

mod draw;

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::InodeNo;
use holdfast_check::Options;
use holdfast_device::{Device, MemoryDevice};
use holdfast_fuse::interface::{Answer, CopyRange, DirSink, Entry, Opened, Request, Write};
use holdfast_fuse::server::Server;
use holdfast_fuse::{FuseOptions, SnapDir};
use holdfast_posix::{Attr, DirEntry, FileSystem, MountOptions, SetAttr};

use crate::golden::{COUNT, golden, pinned};
use crate::program::Program;

/// Requests of one program at most.
const REQUESTS_MAX: usize = 100;
/// Bytes of one read at most: what is negotiated with the kernel.
const READ_MAX: u64 = 1 << 20;
/// Largest errno.
const ERRNO_MAX: i32 = 4095;

/// Takes so many entries.
struct Sink {
    room: usize,
    taken: Vec<InodeNo>,
}

impl DirSink for Sink {
    fn add(&mut self, entry: &DirEntry<'_>, attr: Option<(&Attr, Duration)>) -> bool {
        let fits = self.taken.len() < self.room;
        if fits && attr.is_some() {
            self.taken.push(entry.inode);
        }
        fits
    }

    fn clear(&mut self) {
        self.taken.clear();
    }
}

struct Client<'a> {
    server: &'a Server,
    program: Program<'a>,
    inodes: Vec<u64>,
    handles: Vec<u64>,
    story: Vec<String>,
}

/// Sends a program of requests.
pub fn requests(data: &[u8]) {
    let _pinned = pinned();
    let mut program = Program::new(data);
    let volume = program.below(COUNT);
    let how = program.byte();
    let memory = Arc::new(golden(volume).snapshot());
    let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
    let options = MountOptions {
        read_only: how & 2 != 0 && volume == 0,
        commit_secs: 0,
        cache_bytes: 4 << 20,
        dirty_bytes: 4 << 20,
        inode_cache: 4,
        ..MountOptions::default()
    };
    let filesystem =
        Arc::new(FileSystem::mount(device, options).expect("a golden volume is honest"));
    let options = FuseOptions {
        default_permissions: how & 1 == 0,
        ttl: Duration::ZERO,
        slow_fsync: None,
        snapdir: SnapDir::Off,
        ..FuseOptions::default()
    };
    let server = Server::new(Arc::clone(&filesystem), options);
    // Half of the servers that trust the kernel's checks have it open files, too.
    if how & 9 == 8 {
        server.set_kernel_opens();
    }
    let mut client = Client {
        server: &server,
        program,
        inodes: vec![InodeNo::ROOT.0],
        handles: Vec::new(),
        story: vec![format!("volume {:?}, {how:#x}", golden(volume).name)],
    };
    for _ in 0..REQUESTS_MAX {
        if client.program.is_over() {
            break;
        }
        client.request();
    }
    let story = client.story;
    server.close();
    drop(server);
    let filesystem = Arc::into_inner(filesystem).expect("the server has let go");
    match how & 4 {
        // Without an unmount, as by SIGKILL: what was not durable is gone.
        0 => drop(filesystem),
        _ => filesystem.unmount().unwrap_or_else(|error| fail(&story, &error.to_string())),
    }
    judge(&memory, &story);
}

fn fail(story: &[String], why: &str) -> ! {
    panic!("{why}\n  {}", story.join("\n  "))
}

fn judge(memory: &MemoryDevice, story: &[String]) {
    let options = Options { data: true, ..Options::default() };
    let report = match holdfast_check::check(memory, &options) {
        Ok(report) => report,
        Err(error) => fail(story, &error.to_string()),
    };
    if !report.is_clean() {
        fail(story, &format!("the volume is not clean: {}", report.findings[0]));
    }
}

impl Client<'_> {
    /// Notes an answer: an error is a number that a system call may return, and never EIO.
    fn answered<T>(&mut self, what: String, answer: Answer<T>) -> Option<T> {
        let said = answer.as_ref().err().map(|error| error.0);
        self.story.push(format!("{what}: {}", said.unwrap_or(0)));
        if said == Some(libc::EIO) || said.is_some_and(|number| !(1..=ERRNO_MAX).contains(&number))
        {
            fail(&self.story, "an honest volume answers with what is no answer");
        }
        answer.ok()
    }

    fn entry(&mut self, what: String, answer: Answer<Entry>) {
        if let Some(attr) = self.answered(what, answer).and_then(|entry| entry.attr) {
            self.inodes.push(attr.inode.0);
        }
    }

    fn opened(&mut self, opened: Option<Opened>) {
        self.handles.extend(opened.map(|opened| opened.fh));
    }

    fn request(&mut self) {
        let server = self.server;
        let (uid, gid) = [(0, 0), (1000, 1000), (u32::MAX, u32::MAX)][self.program.below(3)];
        let request = &Request { uid, gid, pid: 0 };
        match self.program.byte() % 34 {
            0 | 1 => self.lookup(request),
            2 => self.forget(),
            3 => {
                let inode = self.inode();
                self.answered(format!("getattr {inode}"), server.getattr(inode));
            }
            4 | 5 => self.setattr(request),
            6 => {
                let inode = self.inode();
                self.answered(format!("readlink {inode}"), server.readlink(inode));
            }
            7 => self.mknod(request),
            8 | 9 => self.mkdir(request),
            10 => self.unlink(request),
            11 => self.rmdir(request),
            12 => self.symlink(request),
            13 | 14 => self.rename(request),
            15 => self.link(request),
            16 => self.open(request),
            17 | 18 => self.create(request),
            19 => self.read(),
            20..=22 => self.write(request),
            23 => self.release(),
            24 => self.fsync(),
            25 => {
                let inode = self.inode();
                self.answered(format!("fsyncdir {inode}"), server.fsyncdir(inode));
            }
            26 => self.readdir(),
            27 | 28 => self.xattr(request),
            29 => self.access(request),
            30 | 31 => self.fallocate(request),
            32 => self.seek(),
            _ => self.copy_range(request),
        }
    }

    fn mknod(&mut self, request: &Request) {
        let (dir, name, mode, rdev) =
            (self.inode(), self.name(), self.mode(), self.number() as u32);
        let answer = self.server.mknod(request, dir, &name, mode, rdev);
        self.entry(format!("mknod {dir} {name:?} {mode:?} {rdev}"), answer);
    }

    fn mkdir(&mut self, request: &Request) {
        let (dir, name, mode) = (self.inode(), self.name(), self.mode());
        let answer = self.server.mkdir(request, dir, &name, mode);
        self.entry(format!("mkdir {dir} {name:?} {mode:?}"), answer);
    }

    fn unlink(&mut self, request: &Request) {
        let (dir, name) = (self.inode(), self.name());
        let answer = self.server.unlink(request, dir, &name);
        self.answered(format!("unlink {dir} {name:?}"), answer);
    }

    fn rmdir(&mut self, request: &Request) {
        let (dir, name) = (self.inode(), self.name());
        let answer = self.server.rmdir(request, dir, &name);
        self.answered(format!("rmdir {dir} {name:?}"), answer);
    }

    fn symlink(&mut self, request: &Request) {
        let (dir, name) = (self.inode(), self.name());
        let target = vec![b't'; self.number() as usize % 5000];
        let answer = self.server.symlink(request, dir, &name, &target);
        self.entry(format!("symlink {dir} {name:?} {}", target.len()), answer);
    }

    fn rename(&mut self, request: &Request) {
        let (from, name) = (self.inode(), self.name());
        let (to, new) = (self.inode(), self.name());
        let flags = [0, 1, 2, 4, 3, 6, 5, u32::MAX][self.program.below(8)];
        let answer = self.server.rename(request, (from, &name), (to, &new), flags);
        self.answered(format!("rename {from} {name:?} {to} {new:?} {flags}"), answer);
    }

    fn link(&mut self, request: &Request) {
        let (inode, dir, name) = (self.inode(), self.inode(), self.name());
        let answer = self.server.link(request, inode, dir, &name);
        self.entry(format!("link {inode} {dir} {name:?}"), answer);
    }

    fn open(&mut self, request: &Request) {
        let (inode, flags) = (self.inode(), self.flags());
        let kill = inode.0.is_multiple_of(2);
        let answer = self.server.open(request, inode, flags, kill);
        let opened = self.answered(format!("open {inode} {flags:#x}"), answer);
        self.opened(opened);
    }

    fn create(&mut self, request: &Request) {
        let (dir, name, mode) = (self.inode(), self.name(), self.mode());
        let flags = self.flags();
        let kill = dir.0.is_multiple_of(2);
        let answer = self.server.create(request, dir, &name, mode, flags, kill);
        let text = format!("create {dir} {name:?} {mode:?} {flags:#x}");
        if let Some((entry, opened)) = self.answered(text, answer) {
            self.inodes.extend(entry.attr.map(|attr| attr.inode.0));
            self.opened(Some(opened));
        }
    }

    fn read(&mut self) {
        let (file, offset) = (self.file(), self.number());
        let mut into = vec![0; (self.number() % (READ_MAX + 1)) as usize];
        let answer = self.server.read(file, offset, &mut into);
        self.answered(format!("read {file:?} {offset} {}", into.len()), answer);
    }

    fn release(&mut self) {
        let fh = self.handle();
        self.server.release(fh);
        self.story.push(format!("release {fh}"));
    }

    fn fsync(&mut self) {
        let (file, data_only) = (self.file(), self.program.byte() & 1 == 0);
        let answer = self.server.fsync(file, data_only);
        self.answered(format!("fsync {file:?} {data_only}"), answer);
    }

    fn readdir(&mut self) {
        let (dir, cookie, attrs) = (self.inode(), self.number(), self.program.byte() & 1 == 0);
        let room = self.program.byte().into();
        let mut sink = Sink { room, taken: Vec::new() };
        let answer = self.server.readdir(dir, cookie, attrs, &mut sink);
        self.inodes.extend(sink.taken.iter().map(|inode| inode.0).take(20));
        self.answered(format!("readdir {dir} {cookie} {attrs}"), answer);
    }

    fn access(&mut self, request: &Request) {
        let (inode, mask) = (self.inode(), self.number() as i32);
        let answer = self.server.access(request, inode, mask);
        self.answered(format!("access {inode} {mask:#x}"), answer);
    }

    fn fallocate(&mut self, request: &Request) {
        let (file, offset, len) = (self.file(), self.number(), self.number());
        let mode = [0, 1, 3, 16, 17, 2, 8, 32, -1][self.program.below(9)];
        let answer = self.server.fallocate(request, file, mode, offset, len);
        self.answered(format!("fallocate {file:?} {mode:#x} {offset} {len}"), answer);
    }

    fn seek(&mut self) {
        let (file, offset) = (self.file(), self.number() as i64);
        let whence = self.program.byte() as i32 % 6;
        let answer = self.server.seek(file, offset, whence);
        self.answered(format!("seek {file:?} {offset} {whence}"), answer);
    }

    fn copy_range(&mut self, request: &Request) {
        let copy = CopyRange {
            from: self.file(),
            offset_in: self.number(),
            to: self.file(),
            offset_out: self.number(),
            len: self.number(),
        };
        let answer = self.server.copy_range(request, &copy);
        self.answered(format!("{copy:?}"), answer);
        self.answered("statfs".into(), self.server.statfs());
    }

    fn lookup(&mut self, request: &Request) {
        let (dir, name) = (self.inode(), self.name());
        self.entry(format!("lookup {dir} {name:?}"), self.server.lookup(request, dir, &name));
    }

    fn forget(&mut self) {
        let (inode, count) = (self.inode(), self.number());
        self.server.forget(inode, count);
        self.story.push(format!("forget {inode} {count}"));
    }

    fn setattr(&mut self, request: &Request) {
        let inode = self.inode();
        let which = self.program.byte();
        let mut optional = |bit: u8| (which & 1 << bit != 0).then(|| self.number());
        let (perm, uid, gid, size) = (optional(0), optional(1), optional(2), optional(3));
        let change = SetAttr {
            // The transport keeps the bits that there are.
            perm: perm.map(|perm| perm as u32 & 0o7777),
            uid: uid.map(|uid| uid as u32),
            gid: gid.map(|gid| gid as u32),
            size,
            atime: self.time(),
            mtime: self.time(),
            ..SetAttr::default()
        };
        let fh = (which & 128 != 0).then(|| self.handle());
        let answer = self.server.setattr(request, inode, fh, change);
        self.answered(format!("setattr {inode} {fh:?} {change:?}"), answer);
    }

    fn write(&mut self, request: &Request) {
        let (mut file, offset) = (self.file(), self.number());
        let bytes = vec![self.program.byte(); self.number() as usize % 70_000];
        file.flags = self.flags();
        let how = self.program.byte();
        let (kill_suid_sgid, is_cached) = (how & 1 == 0, how & 2 != 0);
        let write = Write { file, offset, bytes: &bytes, kill_suid_sgid, is_cached };
        let answer = self.server.write(request, &write);
        self.answered(format!("write {file:?} {offset} {}", bytes.len()), answer);
    }

    fn xattr(&mut self, request: &Request) {
        let (inode, name) = (self.inode(), self.attribute());
        let server = self.server;
        match self.program.byte() % 6 {
            0 => {
                let size = self.number() as u32;
                let answer = server.getxattr(request, inode, &name, size);
                self.answered(format!("getxattr {inode} {name:?} {size}"), answer);
            }
            1 => {
                let size = self.number() as u32;
                let answer = server.listxattr(request, inode, size);
                self.answered(format!("listxattr {inode} {size}"), answer);
            }
            2 => {
                let answer = server.removexattr(request, inode, &name);
                self.answered(format!("removexattr {inode} {name:?}"), answer);
            }
            _ => {
                let value = self.value();
                let flags = [0, 1, 2, 3, -1][self.program.below(5)];
                let kill_sgid = flags == 0 && value.len().is_multiple_of(2);
                let answer = server.setxattr(request, inode, &name, &value, flags, kill_sgid);
                self.answered(format!("setxattr {inode} {name:?} {} {flags}", value.len()), answer);
            }
        }
    }
}

/// One request of each kind, and a few in a row, on each volume.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for volume in 0..COUNT as u8 {
        for kind in 0..34 {
            seeds.push(vec![volume, 4, 0, kind, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
        // Create, write, fsync, link, rename, truncate.
        let create = [0, 17, 0, 0, 0, 0xa4, 1, 0, 0, 2, 0, 0, 0];
        let write = [0, 20, 0, 0, 0, 7, 1, 0, 80, 0, 0, 0, 0, 0];
        let rename = [0, 13, 0, 0, 0, 1, 0];
        let row = [&[volume, 0][..], &create, &write, &[0, 24, 0, 0], &rename, &write].concat();
        seeds.push(row);
    }
    seeds
}
