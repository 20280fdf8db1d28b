//! What a random operation is aimed at: paths, handles, offsets, data.

use super::{Generator, is_dir, is_file};
use crate::bytes::Data;
use crate::op::*;
use crate::outcome::{Answer, Outcome};
use crate::stat::FileKind;
use crate::target::Target;

impl Generator<'_> {
    /// A handle that is not in use, or (rarely) one that is.
    pub(super) fn new_handle(&mut self) -> Handle {
        Handle(format!("h{}", self.prng.below(8)))
    }

    pub(super) fn handle(&mut self) -> Option<Handle> {
        let open = self.open.get(&self.model.number()).filter(|open| !open.is_empty())?;
        Some(self.prng.pick(open).clone())
    }

    /// Something with bytes: a file by name, or a handle.
    pub(super) fn bytes(&mut self) -> Option<FileRef> {
        self.place_or(30, is_file)
    }

    /// Anything: by name, or a handle.
    pub(super) fn place(&mut self) -> Option<FileRef> {
        self.place_or(20, |_| true)
    }

    /// A handle with this chance, if one is open; otherwise a path.
    pub(super) fn place_or(
        &mut self,
        percent: u64,
        fits: impl Fn(FileKind) -> bool,
    ) -> Option<FileRef> {
        if self.prng.chance(percent)
            && let Some(handle) = self.handle()
        {
            return Some(FileRef::Handle(handle));
        }
        self.existing(fits).map(FileRef::Path)
    }

    /// All paths of the model, in order, with their types.
    pub(super) fn paths(&mut self) -> Vec<(Path, FileKind)> {
        let mut found = vec![(Path::root(), FileKind::Dir)];
        let mut next = 0;
        while next < found.len() {
            let (path, kind) = found[next].clone();
            if kind == FileKind::Dir
                && let Outcome::Ok(Answer::Names(names)) =
                    self.model.apply(&Op::Ls { path: path.clone() })
            {
                found.extend(names.iter().map(|(name, kind)| (path.join(name), *kind)));
            }
            next += 1;
        }
        found
    }

    /// A path that mostly exists and mostly fits.
    pub(super) fn existing(&mut self, fits: impl Fn(FileKind) -> bool) -> Option<Path> {
        let mut paths = self.paths();
        match self.prng.below(100) {
            0..=1 => return Some(self.stray()),
            2..=5 => {}
            _ => paths.retain(|(_, kind)| fits(*kind)),
        }
        (!paths.is_empty()).then(|| self.prng.pick(&paths).0.clone())
    }

    /// Like [`Generator::existing`], but not the root.
    pub(super) fn named(&mut self, fits: impl Fn(FileKind) -> bool) -> Option<Path> {
        self.existing(fits).filter(|path| !path.is_root())
    }

    /// A place for something new: a name in a directory, now and then taken already.
    pub(super) fn vacant(&mut self) -> Option<Path> {
        let dir = self.existing(is_dir)?;
        let name = self.name();
        (dir.depth() < self.profile.depth).then(|| dir.join(&name))
    }

    /// A path without regard to what exists.
    pub(super) fn stray(&mut self) -> Path {
        let depth = 1 + self.prng.below(self.profile.depth as u64);
        (0..depth).fold(Path::root(), |path, _| {
            let name = self.name();
            path.join(&name)
        })
    }

    pub(super) fn name(&mut self) -> Vec<u8> {
        match self.prng.below(60) {
            0 => vec![b'x'; 255],
            1 => vec![b'x'; 256],
            2 => vec![0xff, b' ', b'%', self.prng.below(3) as u8 + b'0'],
            _ => vec![b'a' + self.prng.below(self.profile.names.min(26)) as u8],
        }
    }

    /// An offset with a liking for the edges of blocks.
    pub(super) fn offset(&mut self) -> u64 {
        let max = self.profile.offset_max.max(1);
        let base = match self.prng.below(24) {
            0 if self.profile.far > 0 => self.profile.far + self.prng.below(1 << 20),
            0..=3 => 0,
            4..=10 => self.prng.below(max) / 4096 * 4096,
            _ => self.prng.below(max),
        };
        match self.prng.below(8) {
            0 => base.saturating_sub(1),
            1 => base + 1,
            _ => base,
        }
    }

    pub(super) fn length(&mut self) -> u64 {
        let max = self.profile.write_max.max(2);
        match self.prng.below(10) {
            0 => 1 + self.prng.below(16),
            1..=4 => (1 + self.prng.below(max)).next_multiple_of(4096),
            _ => 1 + self.prng.below(max),
        }
    }

    pub(super) fn data(&mut self) -> Data {
        self.pattern += 1;
        let seed = if self.prng.chance(4) { 0 } else { self.pattern };
        let len = if self.prng.chance(3) { 0 } else { self.length() };
        Data::Pattern { len, seed }
    }

    pub(super) fn value(&mut self) -> Data {
        self.pattern += 1;
        Data::Pattern { len: self.prng.below(self.profile.xattr_max + 1), seed: self.pattern }
    }

    pub(super) fn attribute(&mut self) -> Vec<u8> {
        let names: [&[u8]; 5] =
            [b"user.a", b"user.b", b"user.long.name.of.an.attribute", b"trusted.t", b"odd.family"];
        self.prng.pick(&names).to_vec()
    }

    pub(super) fn time(&mut self) -> SetTime {
        match self.prng.below(6) {
            0 => SetTime::Omit,
            1 => SetTime::Now,
            2 => SetTime::At { secs: -1_000_000, nanos: 1 },
            _ => SetTime::At {
                secs: self.prng.below(1_400_000_000) as i64,
                nanos: self.prng.below(1_000_000_000) as u32,
            },
        }
    }
}
