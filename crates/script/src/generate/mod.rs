//! Random scripts: the same seed and profile give the same script for ever.
//!
//! Few names are reused deeply, so that most operations meet something. While
//! it writes, the generator runs the script on a model of its own, to know what
//! exists: most operations are aimed at things of the right type, a few at
//! anything at all, so that refusals are tried too.

mod aim;
mod branches;
mod family;
mod profile;

pub use family::{Family, full};
pub use profile::Profile;

use std::collections::{BTreeMap, VecDeque};

use crate::bytes::BLOCK;
use crate::model::VolumeModel;
use crate::op::*;
use crate::outcome::{Answer, Outcome};
use crate::prng::Prng;
use crate::stat::FileKind;
use crate::target::Target;

/// The script that `seed` means with this profile.
pub fn generate(seed: u64, profile: &Profile) -> Script {
    let mut generator = Generator {
        prng: Prng::seeded(seed),
        profile,
        model: VolumeModel::new(),
        open: BTreeMap::new(),
        queued: VecDeque::new(),
        pattern: 0,
    };
    let mut script = Script::default();
    while script.steps.len() < profile.ops {
        if let Some(op) = generator.op() {
            generator.note(&op);
            script.steps.push(op.into());
        }
    }
    script
}

struct Generator<'a> {
    prng: Prng,
    profile: &'a Profile,
    model: VolumeModel,
    /// Handles in the order in which they were opened, by the number of their tree.
    open: BTreeMap<u64, Vec<Handle>>,
    /// What comes next in any case.
    queued: VecDeque<Op>,
    pattern: u32,
}

/// What can come next, with its weight.
#[derive(Clone, Copy)]
enum Verb {
    Mkdir,
    Mkfile,
    Mknod,
    Symlink,
    Readlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Open,
    Tmpfile,
    Close,
    Write,
    Append,
    Read,
    Sum,
    Truncate,
    Fallocate,
    Punch,
    Zero,
    Seek,
    Stat,
    Chmod,
    Chown,
    Utimes,
    Setxattr,
    Getxattr,
    Removexattr,
    Listxattr,
    Ls,
    Sync,
    Remount,
    Crash,
    Evict,
    Branch,
    Shift,
}

impl Generator<'_> {
    fn weights(&self) -> [(Verb, u32); 36] {
        let p = self.profile;
        let on = |set: bool, weight| if set { weight } else { 0 };
        [
            (Verb::Mkdir, 6),
            (Verb::Mkfile, 8),
            (Verb::Mknod, on(p.specials, 1)),
            (Verb::Symlink, 2),
            (Verb::Readlink, 1),
            (Verb::Link, 4),
            (Verb::Unlink, 6),
            (Verb::Rmdir, 3),
            (Verb::Rename, 10),
            (Verb::Open, on(p.handles, 4)),
            (Verb::Tmpfile, on(p.handles && p.tmpfile, 1)),
            (Verb::Close, on(p.handles, 3)),
            (Verb::Write, 14),
            (Verb::Append, 3),
            (Verb::Read, 4),
            (Verb::Sum, 3),
            (Verb::Truncate, 4),
            (Verb::Fallocate, 2),
            (Verb::Punch, 2),
            (Verb::Zero, on(p.zero, 2)),
            (Verb::Seek, 3),
            (Verb::Stat, 4),
            (Verb::Chmod, 2),
            (Verb::Chown, 2),
            (Verb::Utimes, 2),
            (Verb::Setxattr, 3),
            (Verb::Getxattr, 1),
            (Verb::Removexattr, 1),
            (Verb::Listxattr, 1),
            (Verb::Ls, 2),
            (Verb::Sync, p.syncs),
            (Verb::Remount, p.remounts),
            (Verb::Crash, p.crashes),
            (Verb::Evict, p.evicts),
            (Verb::Branch, p.branches),
            // Last: without them a seed means what it meant before there were any.
            (Verb::Shift, p.shifts),
        ]
    }

    /// One of the verbs, each as often as it weighs.
    fn verb(&mut self) -> Option<Verb> {
        let weights = self.weights();
        let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
        let mut ticket = self.prng.below(total.into()) as u32;
        weights.iter().find_map(|&(verb, weight)| {
            let hit = ticket < weight;
            ticket = ticket.wrapping_sub(weight);
            hit.then_some(verb)
        })
    }

    fn op(&mut self) -> Option<Op> {
        if let Some(op) = self.queued.pop_front() {
            return Some(op);
        }
        let verb = self.verb()?;
        let is_file = |kind| kind == FileKind::File;
        let is_dir = |kind| kind == FileKind::Dir;
        Some(match verb {
            Verb::Mkdir => Op::Mkdir {
                path: self.vacant()?,
                mode: *self.prng.pick(&[0o755, 0o755, 0o700, 0o1777]),
            },
            Verb::Mkfile => {
                Op::Mkfile { path: self.vacant()?, mode: *self.prng.pick(&[0o644, 0o600, 0o4755]) }
            }
            Verb::Mknod => self.mknod()?,
            Verb::Symlink => self.symlink()?,
            Verb::Readlink => {
                Op::Readlink { path: self.existing(|kind| kind == FileKind::Symlink)? }
            }
            Verb::Link => Op::Link {
                from: self.place_or(15, |kind| kind != FileKind::Dir)?,
                to: self.vacant()?,
            },
            Verb::Unlink => Op::Unlink { path: self.named(|kind| kind != FileKind::Dir)? },
            Verb::Rmdir => Op::Rmdir { path: self.named(is_dir)? },
            Verb::Rename => self.rename()?,
            Verb::Open => self.open()?,
            Verb::Tmpfile => {
                Op::Tmpfile { handle: self.new_handle(), dir: self.existing(is_dir)?, mode: 0o600 }
            }
            Verb::Close => Op::Close { handle: self.handle()? },
            Verb::Write => {
                Op::Write { place: self.bytes()?, offset: self.offset(), data: self.data() }
            }
            Verb::Append => Op::Append { path: self.existing(is_file)?, data: self.data() },
            Verb::Read => Op::Read {
                place: self.bytes()?,
                offset: self.offset(),
                len: self.prng.below(self.profile.write_max * 2),
            },
            Verb::Sum => Op::Sum { place: self.bytes()? },
            Verb::Truncate => Op::Truncate { place: self.bytes()?, size: self.offset() },
            Verb::Fallocate | Verb::Punch | Verb::Zero => self.fallocate(verb)?,
            Verb::Seek => Op::Seek {
                place: self.bytes()?,
                whence: *self.prng.pick(&[Whence::Data, Whence::Hole]),
                offset: self.offset(),
            },
            Verb::Stat => Op::Stat { place: self.place_or(20, |_| true)? },
            Verb::Chmod => Op::Chmod {
                place: self.place_or(20, |_| true)?,
                mode: *self.prng.pick(&[0o644, 0o600, 0o755, 0o2775, 0o2640, 0o4711, 0o6755, 0]),
            },
            Verb::Chown => self.chown()?,
            Verb::Utimes => Op::Utimes {
                atime: self.time(),
                mtime: self.time(),
                place: self.place_or(20, |_| true)?,
            },
            Verb::Setxattr => self.setxattr()?,
            Verb::Getxattr => {
                Op::Getxattr { place: self.place_or(20, |_| true)?, name: self.attribute() }
            }
            Verb::Removexattr => {
                Op::Removexattr { place: self.place_or(20, |_| true)?, name: self.attribute() }
            }
            Verb::Listxattr => Op::Listxattr { place: self.place_or(20, |_| true)? },
            Verb::Ls => Op::Ls { path: self.existing(is_dir)? },
            Verb::Sync => self.sync()?,
            Verb::Remount => Op::Remount,
            Verb::Crash => Op::Crash,
            Verb::Evict => Op::Evict,
            Verb::Branch => self.branch()?,
            Verb::Shift => self.shift()?,
        })
    }

    fn mknod(&mut self) -> Option<Op> {
        let minor = self.prng.below(300) as u32;
        let kinds = [
            NodeKind::Fifo,
            NodeKind::Socket,
            NodeKind::Char(1, minor),
            NodeKind::Block(259, minor),
        ];
        Some(Op::Mknod { path: self.vacant()?, kind: *self.prng.pick(&kinds), mode: 0o640 })
    }

    fn symlink(&mut self) -> Option<Op> {
        let len = *self.prng.pick(&[1, 20, 59, 60, 200, 2000, 4095]);
        Some(Op::Symlink { target: vec![b't'; len], path: self.vacant()? })
    }

    fn fallocate(&mut self, verb: Verb) -> Option<Op> {
        let keep = self.prng.chance(30);
        let how = match (verb, keep) {
            (Verb::Punch, _) => Fallocate::Punch,
            (Verb::Zero, false) => Fallocate::Zero,
            (Verb::Zero, true) => Fallocate::ZeroKeep,
            (_, true) => Fallocate::Keep,
            (_, false) => Fallocate::Allocate,
        };
        let place = self.bytes()?;
        Some(Op::Fallocate { place, how, offset: self.offset(), len: self.length() })
    }

    fn shift(&mut self) -> Option<Op> {
        let how = *self.prng.pick(&[Fallocate::Collapse, Fallocate::Insert]);
        let place = self.bytes()?;
        // Mostly whole blocks, as they have to be.
        let odd = if self.prng.chance(5) { 1 } else { 0 };
        let offset = self.offset() / BLOCK * BLOCK + odd;
        Some(Op::Fallocate { place, how, offset, len: (1 + self.prng.below(5)) * BLOCK })
    }

    fn chown(&mut self) -> Option<Op> {
        let mut id = || self.prng.chance(70).then(|| 100 + self.prng.below(3) as u32);
        let (uid, gid) = (id(), id());
        // With neither, kernels and FUSE disagree about whether it is an operation at all.
        let gid = if uid.is_none() { gid.or(Some(7)) } else { gid };
        Some(Op::Chown { place: self.place_or(20, |_| true)?, uid, gid })
    }

    fn setxattr(&mut self) -> Option<Op> {
        let kinds = [XattrHow::Any, XattrHow::Any, XattrHow::Create, XattrHow::Replace];
        Some(Op::Setxattr {
            place: self.place_or(20, |_| true)?,
            name: self.attribute(),
            value: self.value(),
            how: *self.prng.pick(&kinds),
        })
    }

    fn sync(&mut self) -> Option<Op> {
        let (is_file, is_dir) = (|kind| kind == FileKind::File, |kind| kind == FileKind::Dir);
        Some(match self.prng.below(10) {
            0 => Op::Sync,
            1 | 2 => Op::Fsyncdir { path: self.existing(is_dir)? },
            3..=5 => Op::Fdatasync { place: self.bytes()? },
            _ => Op::Fsync { place: self.place_or(30, |kind| is_file(kind) || is_dir(kind))? },
        })
    }

    /// Keeps the model and the list of handles in step with the script.
    fn note(&mut self, op: &Op) {
        let tree = self.model.number();
        let outcome = self.model.apply(op);
        if outcome == Outcome::Ok(Answer::Done) {
            match op {
                Op::Open { handle, .. } | Op::Tmpfile { handle, .. } => {
                    self.open.entry(tree).or_default().push(handle.clone());
                }
                Op::Close { handle } => {
                    self.open.entry(tree).or_default().retain(|open| open != handle);
                }
                Op::Remount | Op::Shrink { .. } | Op::Crash => self.open.clear(),
                _ => {}
            }
        }
    }

    fn rename(&mut self) -> Option<Op> {
        let from = self.named(|_| true)?;
        let how = *self.prng.pick(&[
            RenameHow::Replace,
            RenameHow::Replace,
            RenameHow::Replace,
            RenameHow::NoReplace,
            RenameHow::Exchange,
        ]);
        let meets = match how {
            RenameHow::Exchange => 90,
            RenameHow::Replace => 45,
            RenameHow::NoReplace => 20,
        };
        let to = if self.prng.chance(meets) { self.named(|_| true)? } else { self.vacant()? };
        Some(Op::Rename { from, to, how })
    }

    fn open(&mut self) -> Option<Op> {
        let create = self.prng.chance(30);
        let path =
            if create { self.vacant()? } else { self.existing(|kind| kind == FileKind::File)? };
        let write = self.prng.chance(85);
        let how = OpenHow {
            read: !write || self.prng.chance(85),
            write,
            append: write && self.prng.chance(15),
            create,
            exclusive: create && self.prng.chance(30),
            // Also a file that is opened for reading only is emptied.
            truncate: self.prng.chance(10),
            sync: write && self.prng.chance(5),
            dsync: write && self.prng.chance(5),
        };
        Some(Op::Open { handle: self.new_handle(), path, how })
    }
}
