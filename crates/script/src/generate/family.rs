//! Random scripts about what has made filesystems lose things: one family for each way.
//!
//! A script is a few motifs, one behind the other: short runs of operations
//! with holes in them, which are filled with few names. Behind most operations
//! something is made durable: what was touched, or a stranger, because the bug
//! is hardly ever in the fsync of the file itself. Most motifs are the family's
//! own, some are another's.
//!
//! The same seed and family give the same script for ever.

use std::fmt;
use std::str::FromStr;

use crate::model::Model;
use crate::op::*;
use crate::outcome::Outcome;
use crate::prng::Prng;
use crate::stat::Kind;
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
}

/// `$s` many extents in `$f`, `$f $g` different files, `$d $e` directories, `$p $q` anything that has a name, `$v $w` names that are
/// probably free, `$n` a length and a seed, `$o` an offset, `$m` a mode.
const REPLACE: [&str; 8] = [
    "unlink $f; mkfile $f; write $f 0 $n",
    "mkfile $v; write $v 0 $n; rename $v $f",
    "rename $f $v; mkfile $f; append $f $n",
    "rename $f $g; mkfile $f",
    "rename $f $g exchange; write $f $o $n",
    "unlink $f; link $g $f",
    "rename $f $v; rename $g $f; rename $v $g",
    "open h $f read,write; mkfile $v; rename $v $f; write @h $o $n; fsync @h; close h",
];
const THIRD_PARTY: [&str; 6] = [
    "write $f $o $n; fsync $g",
    "rename $f $v; fsync $g",
    "unlink $f; mkfile $v; fsync $v",
    "write $f $o $n; truncate $f 3000; fsyncdir $d",
    "setxattr $f user.a $n; chmod $g $m; fsync $g",
    "append $f $n; append $g $n; fdatasync $g",
];
const MOVE_OUT: [&str; 6] = [
    "rename $f $v; fsyncdir $d",
    "mkdir $v; rename $f $v/a; fsyncdir $v",
    "rename $d $v; mkdir $d; fsyncdir $d",
    "rename $d $v; mkfile $w; fsync $w",
    "rename $p $v; rename $q $p",
    "rename $d $e exchange; fsyncdir $d",
];
const WEAKEN: [&str; 8] = [
    "write $f $o $n; fsync $f; link $f $v; fsyncdir /",
    "truncate $f 0; fsync $f; link $f $v; fsync $v",
    "chmod $f $m; fsync $f; link $f $v; fsyncdir /",
    "write $f $o $n; fsync $f; rename $f $v; fsyncdir /",
    "setxattr $f user.a $n; fsync $f; removexattr $f user.a; fdatasync $f",
    "append $f $n; fsync $f; append $f $n; fdatasync $g",
    "truncate $f 9000; fsync $f; truncate $f 100; write $f 5000 $n; chmod $f $m; fsync $g",
    "write $f 0 $n; fdatasync $f; utimes $f 5 6; chown $f 5 6; fsyncdir $d",
];
const FORGET: [&str; 6] = [
    "stat $f; stat $g; unlink $f; fsyncdir $d",
    "fsync $f; evict; stat $g; rename $f $v; fsync $g",
    "fsync $f; ls $d; ls $e; sum $g; unlink $f; mkfile $f; fsync $f",
    "write $f $o $n; evict; sum $g; fsync $f",
    "remount; rename $f $v; fsyncdir /",
    "link $f $v; fsync $f; evict; ls $d; unlink $v; fsync $f",
];
const NEW_ANCESTORS: [&str; 6] = [
    "mkdir $v; mkdir $v/a; mkfile $v/a/b; fsync $v/a/b",
    "mkdir $v; mkfile $v/a; rename $v $w; fsync $w/a",
    "mkdir $v; rename $f $v/a; fsync $v/a",
    "mkdir $v; rename $d $v/a; fsyncdir $v/a",
    "mkdir $v; link $f $v/a; fsync $f",
    "mkdir $v; mkdir $w; mkfile $v/a; link $v/a $w/a; fsync $w/a",
];
const TYPE_CHANGE: [&str; 6] = [
    "unlink $f; mkdir $f; fsyncdir $f",
    "unlink $f; mkdir $f; mkfile $f/a; fsync $f/a; unlink $f/a; rmdir $f; mkfile $f; fsync $f",
    "unlink $f; symlink $g $f; fsyncdir /",
    "rename $f $v; mkdir $f; rename $v $f/a; fsync $f/a",
    "rename $d $v; mkfile $d; write $d 0 $n; fsync $d",
    "mkdir $v; rmdir $v; mkfile $v; append $v $n; fsync $v",
];
const HARD_LINKS: [&str; 8] = [
    "link $f $v; unlink $f; fsync $v",
    "link $f $v; link $f $w; unlink $v; fsync $w",
    "link $f $v; rename $v $f; fsync $f",
    "link $f $v; write $f $o $n; fsync $v",
    "tmpfile t $d; write @t 0 $n; link @t $v; fsync @t; close t",
    "open h $f read,write; unlink $f; write @h $o $n; fsync @h; close h",
    "link $f $v; unlink $f; mkfile $f; fsync $f",
    "link $f $v; rename $f $w; fsyncdir /; rename $v $w",
];
const REUSE: [&str; 6] = [
    "write $f 0 $n; fsync $f; unlink $f; mkfile $v; write $v 0 $n; fsync $v",
    "truncate $f 0; fsync $f; write $g $o $n; fsync $g",
    "punch $f 0 16k; fsync $f; append $g $n; fsync $g",
    "write $f $o $n; sync; write $f $o $n; fsync $f",
    "write $f 0 $n; write $f 0 $n; fsync $f; write $f 0 $n; fsync $f",
    "zero $f $o 5000; fallocate $g 0 20k; write $g 4096 $n; fsync $g",
];

const HOLES: [&str; 8] = [
    "$s; fsync $f; punch $f 100 600k; fsync $g",
    "$s; fsync $f; zero $f 5000 600k; fsync $g; append $f $n; fsync $f",
    "$s; fsync $g; zero $f 3000 300k keep; fsync $g; punch $f 0 700k; fsync $g",
    "$s; punch $f 8192 600k; truncate $f 9000; fsync $g",
    "fallocate $f 0 80k; punch $f 4096 8192; zero $f 20k 9000; fsync $f",
    "fallocate $f 4096 40k keep; write $f $o $n; fsync $g; punch $f $o 9000; fsync $f",
    "write $f 0 $n; fsync $f; zero $f $o 9000; write $f $o $n; fsync $g",
    "write $f $o $n; zero $f 50 30000 keep; fsync $f; rename $f $v; fsync $v",
];
const RESERVED: [&str; 9] = [
    "fallocate $f 0 100k; write $f $o $n; fsync $f; write $f 50k $n; fsync $g",
    "write $f 20k $n; fsync $f; write $f 24k $n; fdatasync $f",
    "write $f 60k $n; write $g 60k $n; fsync $f; fsync $g",
    "zero $f 0 40k keep; write $f $o $n; fsync $f",
    "write $f 8192 $n; zero $f 0 30k keep; write $f 8192 $n; fsync $g; fsync $f",
    "write $f 100k $n; fsync $f; zero $f 90k 50k; fsync $f; write $f 100k $n; fsync $f",
    "write $f 64k $n; punch $f 60k 30k; fallocate $f 60k 30k; write $f 70k $n; fsync $f",
    "write $f 30k $n; truncate $f 35k; fallocate $f 0 80k keep; write $f 40k $n; fsync $f",
    "open h $f read,write; write @h 70k $n; unlink $g; sync; write @h 120k $n; fsync @h; close h",
];
/// Extents of `$s`.
const SCATTERED: u64 = 70;

impl Family {
    /// All of them.
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
        match self {
            Family::Replace => "replace",
            Family::ThirdParty => "third-party",
            Family::MoveOut => "move-out",
            Family::Weaken => "weaken",
            Family::Forget => "forget",
            Family::NewAncestors => "new-ancestors",
            Family::TypeChange => "type-change",
            Family::HardLinks => "hard-links",
            Family::Reuse => "reuse",
            Family::Holes => "holes",
            Family::Reserved => "reserved",
        }
    }

    fn motifs(self) -> &'static [&'static str] {
        match self {
            Family::Replace => &REPLACE,
            Family::ThirdParty => &THIRD_PARTY,
            Family::MoveOut => &MOVE_OUT,
            Family::Weaken => &WEAKEN,
            Family::Forget => &FORGET,
            Family::NewAncestors => &NEW_ANCESTORS,
            Family::TypeChange => &TYPE_CHANGE,
            Family::HardLinks => &HARD_LINKS,
            Family::Reuse => &REUSE,
            Family::Holes => &HOLES,
            Family::Reserved => &RESERVED,
        }
    }

    /// The script that `seed` means: about so many motifs of this family.
    pub fn generate(self, seed: u64, motifs: usize) -> Script {
        let mut story = Story {
            prng: Prng::seeded(seed ^ (self as u64) << 56),
            model: Model::new(),
            ops: Vec::new(),
            pattern: 0,
        };
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
        let mut story = Story {
            prng: Prng::seeded(seed ^ (self as u64) << 56),
            model: Model::new(),
            ops: Vec::new(),
            pattern: 100,
        };
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
            let motif = *story.prng.pick(family.motifs());
            story.tell(motif);
        }
    }
}

/// What prepares a volume of 8 MiB for [`Family::generate_full`]: files that have reserved space, and no other room.
/// What fills it belongs to a file that no motif knows.
pub fn full() -> Script {
    let text = format!(
        "{FULL}; mkfile /fill; write /fill 0 8M 91; sync; append /fill 8M 92; sync; {FILL}; sync"
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
        Family::ALL.into_iter().find(|family| family.word() == word).ok_or_else(|| {
            let words: Vec<&str> = Family::ALL.iter().map(|family| family.word()).collect();
            format!("{word} is not one of {}", words.join(", "))
        })
    }
}

/// A script that is being written, with what exists so far.
struct Story {
    prng: Prng,
    model: Model,
    ops: Vec<Op>,
    pattern: u32,
}

impl Story {
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
            let fits = |kinds: fn(Kind) -> bool| -> Vec<Path> {
                let named = paths.iter().filter(|(path, _)| !path.is_root());
                let fitting = named.filter(|(path, kind)| kinds(*kind) && !taken(path));
                fitting.map(|(path, _)| path.clone()).collect()
            };
            let word = match hole {
                'f' | 'g' => self.one(fits(|kind| kind == Kind::File))?.to_string(),
                'd' | 'e' => self.one(fits(|kind| kind == Kind::Dir))?.to_string(),
                'p' | 'q' => self.one(fits(|_| true))?.to_string(),
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

    fn one(&mut self, paths: Vec<Path>) -> Option<Path> {
        (!paths.is_empty()).then(|| self.prng.pick(&paths).clone())
    }

    /// A name that is free, unless none is found soon.
    fn free(&mut self, paths: &[(Path, Kind)], filled: &[(char, String)]) -> Option<Path> {
        let dirs: Vec<&Path> = paths
            .iter()
            .filter(|(path, kind)| *kind == Kind::Dir && path.depth() < 3)
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
    fn paths(&mut self) -> Vec<(Path, Kind)> {
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
        paths.retain(|(_, kind)| matches!(kind, Kind::File | Kind::Dir));
        let Some((path, kind)) = (!paths.is_empty()).then(|| self.prng.pick(&paths).clone()) else {
            return;
        };
        let place = FileRef::Path(path.clone());
        let op = match (kind, self.prng.below(10)) {
            (_, 0) => Op::Sync,
            (Kind::Dir, _) => Op::Fsyncdir { path },
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
        for family in Family::ALL {
            for motif in family.motifs() {
                let told = (0..200).any(|seed| {
                    let mut story = Story {
                        prng: Prng::seeded(seed),
                        model: Model::new(),
                        ops: Vec::new(),
                        pattern: 0,
                    };
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
        for family in Family::ALL {
            let script = family.generate(3, 4);
            assert_eq!(script, family.generate(3, 4));
            assert_ne!(script, family.generate(4, 4));
            assert_eq!(family.word().parse(), Ok(family));
            assert!(script.steps.len() > 8, "{script}");
        }
    }
}
