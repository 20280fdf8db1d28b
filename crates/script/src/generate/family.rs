//! Random scripts about what has made filesystems lose things: one family for each way.
//!
//! A script is a few motifs, one behind the other: short runs of operations
//! with holes in them, which are filled with few names. Behind most operations
//! something is made durable: what was touched, or a stranger, because the bug
//! is hardly ever in the fsync of the file itself. Most motifs are the family's
//! own, some are another's.
//!
//! The same seed and family give the same script for ever.

mod motifs;

use std::fmt;
use std::str::FromStr;

use motifs::*;

use crate::model::VolumeModel;
use crate::op::*;
use crate::outcome::Outcome;
use crate::prng::Prng;
use crate::stat::FileKind;
use crate::target::Target;

/// A way to lose things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A name is taken away from one file and given to another.
    Replace,
    /// Something else is made durable: a neighbour, a former name, a directory.
    ThirdParty,
    /// Files and directories leave their directory, which is then made durable.
    MoveOut,
    /// A lesser change behind a stronger one must not undo what the stronger one logged.
    Weaken,
    /// Memory of what was logged is lost: many inodes, caches of one entry, remounts.
    Forget,
    /// What is made durable lies in directories that are new, moved or renamed.
    NewAncestors,
    /// A file becomes a directory of the same name, or a link, and a file again.
    TypeChange,
    /// One file, names in many directories.
    HardLinks,
    /// Blocks and inodes are freed and taken again at once.
    Reuse,
    /// Space is allocated, punched and zeroed, in files of more extents than one step changes.
    Holes,
    /// What was reserved is written, made zeros, and written again.
    Reserved,
    /// Snapshots are taken and removed, branches fork and go back.
    Branches,
    /// Ranges are taken out of files and put in, also of files that snapshots have.
    Shifts,
}

/// Extents of `$s`.
const SCATTERED: u64 = 70;

impl Family {
    /// All that need no branches, and that every target can do.
    pub const ALL: [Family; 11] = [
        Family::Replace,
        Family::ThirdParty,
        Family::MoveOut,
        Family::Weaken,
        Family::Forget,
        Family::NewAncestors,
        Family::TypeChange,
        Family::HardLinks,
        Family::Reuse,
        Family::Holes,
        Family::Reserved,
    ];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        self.parts().0
    }

    /// Its name and its motifs.
    fn parts(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Family::Replace => ("replace", &REPLACE),
            Family::ThirdParty => ("third-party", &THIRD_PARTY),
            Family::MoveOut => ("move-out", &MOVE_OUT),
            Family::Weaken => ("weaken", &WEAKEN),
            Family::Forget => ("forget", &FORGET),
            Family::NewAncestors => ("new-ancestors", &NEW_ANCESTORS),
            Family::TypeChange => ("type-change", &TYPE_CHANGE),
            Family::HardLinks => ("hard-links", &HARD_LINKS),
            Family::Reuse => ("reuse", &REUSE),
            Family::Holes => ("holes", &HOLES),
            Family::Reserved => ("reserved", &RESERVED),
            Family::Branches => ("branches", &BRANCHES),
            Family::Shifts => ("shifts", &SHIFTS),
        }
    }

    /// The script that `seed` means: about so many motifs of this family.
    pub fn generate(self, seed: u64, motifs: usize) -> Script {
        let mut story = Story::new(seed ^ (self as u64) << 56, 0);
        for op in BEGINNING.parse::<Script>().expect("it is well formed").ops() {
            // Now and then something is missing.
            if story.prng.chance(85) {
                story.add(op.clone());
            }
        }
        self.motifs_of(&mut story, motifs);
        story.ops.into_iter().collect()
    }

    /// As [`Family::generate`], for a volume that [`full`] has prepared. First all that is free is taken.
    pub fn generate_full(self, seed: u64, motifs: usize) -> Script {
        let mut story = Story::new(seed ^ (self as u64) << 56, 100);
        for op in FULL.parse::<Script>().expect("it is well formed").ops() {
            story.add(op.clone());
        }
        story.ops = FILL.parse::<Script>().expect("it is well formed").ops().cloned().collect();
        self.motifs_of(&mut story, motifs);
        story.ops.into_iter().collect()
    }

    fn motifs_of(self, story: &mut Story, motifs: usize) {
        for _ in 0..motifs {
            let family = match story.prng.chance(75) {
                true => self,
                false => *story.prng.pick(&Family::ALL),
            };
            let motif = *story.prng.pick(family.parts().1);
            story.tell(motif);
        }
    }
}

/// What prepares a volume of 8 MiB for [`Family::generate_full`]: files that have reserved space, and no other room.
/// What fills it belongs to a file that no motif knows. Most of it is reserved: what is written would be read, and its
/// sums compared, after each power cut.
pub fn full() -> Script {
    let reserved: String =
        ["0 2M", "2M 2M", "4M 1M", "5M 512k", "5632k 256k", "5888k 128k", "6016k 64k"]
            .map(|range| format!("fallocate /fill {range}; "))
            .concat();
    let text = format!(
        "{FULL}; mkfile /fill; {reserved}sync; append /fill 8M 91; sync; append /fill 8M 92; sync; {FILL}; sync"
    );
    text.parse().expect("it is well formed")
}

/// What most scripts begin with.
const BEGINNING: &str =
    "mkdir /A; mkfile /A/a; write /A/a 0 5000 1; mkdir /B; mkfile /B/a 600; mkfile /b; sync";

const FULL: &str = "mkdir /A; mkfile /A/a; fallocate /A/a 0 200k; mkdir /B; mkfile /B/a 600; write /B/a 0 60k 1; mkfile /b; \
    fallocate /b 0 160k keep; sync";
/// More than there is.
const FILL: &str = "append /fill 1M 93";

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(word: &str) -> Result<Family, String> {
        let all = || Family::ALL.into_iter().chain([Family::Branches, Family::Shifts]);
        all().find(|family| family.word() == word).ok_or_else(|| {
            let words: Vec<&str> = all().map(Family::word).collect();
            format!("{word} is not one of {}", words.join(", "))
        })
    }
}

/// A script that is being written, with what exists so far.
struct Story {
    prng: Prng,
    model: VolumeModel,
    ops: Vec<Op>,
    pattern: u32,
}

impl Story {
    fn new(seed: u64, pattern: u32) -> Story {
        let (prng, model) = (Prng::seeded(seed), VolumeModel::new());
        Story { prng, model, ops: Vec::new(), pattern }
    }

    /// Adds an operation if the model takes it.
    fn add(&mut self, op: Op) -> bool {
        let mut model = self.model.clone();
        let works = matches!(model.apply(&op), Outcome::Ok(_));
        if works {
            self.model = model;
            self.ops.push(op);
        }
        works
    }

    fn tell(&mut self, motif: &str) {
        let Some(text) = self.fill(motif) else {
            return;
        };
        let script: Script = text.parse().expect("motifs are well formed");
        for op in script.ops() {
            // One byte is one extent of many, and nothing is made durable between these.
            let is_one_byte = matches!(op, Op::Write { data, .. } if data.len() == 1);
            if self.add(op.clone()) && !is_one_byte && self.prng.chance(35) {
                self.make_durable(op);
            }
        }
    }

    /// A motif without holes; `None` if there is nothing to fill one with.
    fn fill(&mut self, motif: &str) -> Option<String> {
        let paths = self.paths();
        let motif = match motif.strip_prefix("$s; ") {
            Some(rest) => self.scattered() + rest,
            None => motif.to_owned(),
        };
        let mut filled: Vec<(char, String)> = Vec::new();
        let mut text = String::new();
        let mut rest = motif.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            text += before;
            let hole = after.chars().next()?;
            rest = &after[1..];
            if let Some((_, known)) = filled.iter().find(|(known, _)| *known == hole) {
                text += known;
                continue;
            }
            let taken = |path: &Path| filled.iter().any(|(_, known)| *known == path.to_string());
            let fits = |kinds: fn(FileKind) -> bool| -> Vec<Path> {
                let named = paths.iter().filter(|(path, _)| !path.is_root());
                let fitting = named.filter(|(path, kind)| kinds(*kind) && !taken(path));
                fitting.map(|(path, _)| path.clone()).collect()
            };
            let word = match hole {
                'f' | 'g' => self.one(fits(|kind| kind == FileKind::File))?.to_string(),
                'd' | 'e' => self.one(fits(|kind| kind == FileKind::Dir))?.to_string(),
                'p' | 'q' => self.one(fits(|_| true))?.to_string(),
                'S' | 'T' | 'U' => self.tree_name('s', &filled),
                'B' | 'C' => self.tree_name('b', &filled),
                'v' | 'w' => self.free(&paths, &filled)?.to_string(),
                // Lengths and offsets are never repeated.
                'n' => {
                    self.pattern += 1;
                    let len = *self.prng.pick(&[10, 100, 3000, 4096, 9000, 40_000]);
                    text += &format!("{len} {}", self.pattern);
                    continue;
                }
                'o' => {
                    text += &self.prng.pick(&[0, 50, 4090, 4096, 8000]).to_string();
                    continue;
                }
                'm' => format!("{:o}", self.prng.pick(&[0o600, 0o640, 0o4711])),
                _ => return None,
            };
            text += &word;
            filled.push((hole, word));
        }
        Some(text + rest)
    }

    /// One byte in every second block.
    fn scattered(&mut self) -> String {
        let mut text = String::new();
        for extent in 0..SCATTERED {
            self.pattern += 1;
            text += &format!("write $f {} 1 {}; ", extent * 8192 + 77, self.pattern);
        }
        text
    }

    /// A name of a snapshot or branch that is not in the motif yet.
    fn tree_name(&mut self, letter: char, filled: &[(char, String)]) -> String {
        loop {
            let name = format!("{letter}{}", self.prng.below(6));
            if filled.iter().all(|(_, known)| *known != name) {
                return name;
            }
        }
    }

    fn one(&mut self, paths: Vec<Path>) -> Option<Path> {
        (!paths.is_empty()).then(|| self.prng.pick(&paths).clone())
    }

    /// A name that is free, unless none is found soon.
    fn free(&mut self, paths: &[(Path, FileKind)], filled: &[(char, String)]) -> Option<Path> {
        let dirs: Vec<&Path> = paths
            .iter()
            .filter(|(path, kind)| *kind == FileKind::Dir && path.depth() < 3)
            .map(|(path, _)| path)
            .collect();
        let mut found = None;
        for _ in 0..6 {
            let dir = *self.prng.pick(&dirs);
            let path = dir.join(self.prng.pick(&[b"a", b"b", b"A", b"B"]).as_slice());
            if filled.iter().any(|(_, known)| *known == path.to_string()) {
                continue;
            }
            let is_free = paths.iter().all(|(taken, _)| *taken != path);
            found = Some(path);
            if is_free {
                break;
            }
        }
        found
    }

    /// Everything there is, with its type.
    fn paths(&mut self) -> Vec<(Path, FileKind)> {
        let tree = self.model.walk().unwrap_or_default();
        tree.0.into_iter().map(|(path, node)| (path, node.stat.kind)).collect()
    }

    /// Makes something durable behind `op`: mostly what it touched or what lies near.
    fn make_durable(&mut self, op: &Op) {
        let words = op.to_string();
        let near: Vec<&str> = words.split(' ').filter(|word| word.starts_with('/')).collect();
        let mut paths = self.paths();
        if self.prng.chance(60) {
            paths.retain(|(path, _)| {
                let path = path.to_string();
                near.iter().any(|near| near.starts_with(&path) || path.starts_with(near))
            });
        }
        paths.retain(|(_, kind)| matches!(kind, FileKind::File | FileKind::Dir));
        let Some((path, kind)) = (!paths.is_empty()).then(|| self.prng.pick(&paths).clone()) else {
            return;
        };
        let place = FileRef::Path(path.clone());
        let op = match (kind, self.prng.below(10)) {
            (_, 0) => Op::Sync,
            (FileKind::Dir, _) => Op::Fsyncdir { path },
            (_, 1..=3) => Op::Fdatasync { place },
            _ => Op::Fsync { place },
        };
        self.add(op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_motif_can_be_told() {
        for family in Family::ALL.into_iter().chain([Family::Branches, Family::Shifts]) {
            for motif in family.parts().1 {
                let told = (0..200).any(|seed| {
                    let mut story = Story::new(seed, 0);
                    let beginning: Script = BEGINNING.parse().unwrap();
                    beginning.ops().for_each(|op| assert!(story.add(op.clone())));
                    let Some(text) = story.fill(motif) else {
                        return false;
                    };
                    let script: Script = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
                    script.ops().all(|op| story.add(op.clone()))
                });
                assert!(told, "{family}: {motif}");
            }
        }
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        for family in Family::ALL.into_iter().chain([Family::Branches, Family::Shifts]) {
            let script = family.generate(3, 4);
            assert_eq!(script, family.generate(3, 4));
            assert_ne!(script, family.generate(4, 4));
            assert_eq!(family.word().parse(), Ok(family));
            assert!(script.steps.len() > 8, "{script}");
        }
    }
}
