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

/// Writes an operation, if there is something to aim it at.
type Verb<'a> = fn(&mut Generator<'a>) -> Option<Op>;

fn is_file(kind: FileKind) -> bool {
    kind == FileKind::File
}

fn is_dir(kind: FileKind) -> bool {
    kind == FileKind::Dir
}

impl<'a> Generator<'a> {
    /// What can come next, with its weight.
    fn verbs(&self) -> [(u32, Verb<'a>); 36] {
        let p = self.profile;
        let on = |set: bool, weight| if set { weight } else { 0 };
        [
            (6, Generator::mkdir),
            (8, Generator::mkfile),
            (on(p.specials, 1), Generator::mknod),
            (2, Generator::symlink),
            (1, |my| Some(Op::Readlink { path: my.existing(|kind| kind == FileKind::Symlink)? })),
            (4, Generator::link),
            (6, |my| Some(Op::Unlink { path: my.named(|kind| !is_dir(kind))? })),
            (3, |my| Some(Op::Rmdir { path: my.named(is_dir)? })),
            (10, Generator::rename),
            (on(p.handles, 4), Generator::open),
            (on(p.handles && p.tmpfile, 1), Generator::tmpfile),
            (on(p.handles, 3), |my| Some(Op::Close { handle: my.handle()? })),
            (14, Generator::write),
            (3, |my| Some(Op::Append { path: my.existing(is_file)?, data: my.data() })),
            (4, Generator::read),
            (3, |my| Some(Op::Sum { place: my.bytes()? })),
            (4, |my| Some(Op::Truncate { place: my.bytes()?, size: my.offset() })),
            (2, |my| my.fallocate(Fallocate::Allocate, Fallocate::Keep)),
            (2, |my| my.fallocate(Fallocate::Punch, Fallocate::Punch)),
            (on(p.zero, 2), |my| my.fallocate(Fallocate::Zero, Fallocate::ZeroKeep)),
            (3, Generator::seek),
            (4, |my| Some(Op::Stat { place: my.place()? })),
            (2, Generator::chmod),
            (2, Generator::chown),
            (2, Generator::utimes),
            (3, Generator::setxattr),
            (1, |my| Some(Op::Getxattr { place: my.place()?, name: my.attribute() })),
            (1, |my| Some(Op::Removexattr { place: my.place()?, name: my.attribute() })),
            (1, |my| Some(Op::Listxattr { place: my.place()? })),
            (2, |my| Some(Op::Ls { path: my.existing(is_dir)? })),
            (p.syncs, Generator::sync),
            (p.remounts, |_| Some(Op::Remount)),
            (p.crashes, |_| Some(Op::Crash)),
            (p.evicts, |_| Some(Op::Evict)),
            (p.branches, Generator::branch),
            // Last: without them a seed means what it meant before there were any.
            (p.shifts, Generator::shift),
        ]
    }

    fn op(&mut self) -> Option<Op> {
        if let Some(op) = self.queued.pop_front() {
            return Some(op);
        }
        let verb = self.prng.weighted(&self.verbs())?;
        verb(self)
    }

    fn mkdir(&mut self) -> Option<Op> {
        let path = self.vacant()?;
        Some(Op::Mkdir { path, mode: *self.prng.pick(&[0o755, 0o755, 0o700, 0o1777]) })
    }

    fn mkfile(&mut self) -> Option<Op> {
        let path = self.vacant()?;
        Some(Op::Mkfile { path, mode: *self.prng.pick(&[0o644, 0o600, 0o4755]) })
    }

    fn link(&mut self) -> Option<Op> {
        let from = self.place_or(15, |kind| !is_dir(kind))?;
        Some(Op::Link { from, to: self.vacant()? })
    }

    fn tmpfile(&mut self) -> Option<Op> {
        let handle = self.new_handle();
        Some(Op::Tmpfile { handle, dir: self.existing(is_dir)?, mode: 0o600 })
    }

    fn write(&mut self) -> Option<Op> {
        Some(Op::Write { place: self.bytes()?, offset: self.offset(), data: self.data() })
    }

    fn read(&mut self) -> Option<Op> {
        let (place, offset) = (self.bytes()?, self.offset());
        Some(Op::Read { place, offset, len: self.prng.below(self.profile.write_max * 2) })
    }

    fn seek(&mut self) -> Option<Op> {
        let place = self.bytes()?;
        let whence = *self.prng.pick(&[Whence::Data, Whence::Hole]);
        Some(Op::Seek { place, whence, offset: self.offset() })
    }

    fn chmod(&mut self) -> Option<Op> {
        let modes = [0o644, 0o600, 0o755, 0o2775, 0o2640, 0o4711, 0o6755, 0];
        Some(Op::Chmod { place: self.place()?, mode: *self.prng.pick(&modes) })
    }

    fn utimes(&mut self) -> Option<Op> {
        Some(Op::Utimes { atime: self.time(), mtime: self.time(), place: self.place()? })
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

    fn fallocate(&mut self, plain: Fallocate, keep: Fallocate) -> Option<Op> {
        let how = if self.prng.chance(30) { keep } else { plain };
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
        Some(Op::Chown { place: self.place()?, uid, gid })
    }

    fn setxattr(&mut self) -> Option<Op> {
        let kinds = [XattrHow::Any, XattrHow::Any, XattrHow::Create, XattrHow::Replace];
        Some(Op::Setxattr {
            place: self.place()?,
            name: self.attribute(),
            value: self.value(),
            how: *self.prng.pick(&kinds),
        })
    }

    fn sync(&mut self) -> Option<Op> {
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
        let path = if create { self.vacant()? } else { self.existing(is_file)? };
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
