//! All short sequences over few names, with every durability call behind each operation.
//!
//! The volume holds `/A/a` and `/B/a`. A sequence of length n is n operations
//! of the alphabet that the model accepts, each followed by nothing or by one
//! call that makes something durable: an fsync, fdatasync or fsyncdir of
//! everything that the operation touched, of one stranger, of the root, or a
//! sync. Behind the last operation there is always such a call: without it the
//! sequence is the beginning of others.
//!
//! Sequences of branches have an alphabet of their own, on a volume with a snapshot and a second branch, which are of
//! another moment than the first. There the calls that make something durable are those of the branch in which a sequence is.
//!
//! Enumeration is depth first, so neighbours begin alike and share what was
//! found in their images. Knows only the language and its model.

use std::collections::BTreeSet;

use holdfast_script::prng::Prng;
use holdfast_script::{Answer, FileKind, FileRef, Op, Outcome, Path, Script, Target, VolumeModel};

/// What the volume holds when a sequence begins. Sizes and numbers distinguish the files.
pub const BEFORE: &str = "mkdir /A; mkfile /A/a; write /A/a 0 9000 1; setxattr /A/a user.x \"old\"; \
                          mkdir /B; mkfile /B/a 600; write /B/a 0 100 2";

/// One operation each, or a few that make sense only together.
const ALPHABET: [&str; 54] = [
    // New names.
    "mkfile /A/b",
    "mkfile /A/a",
    "mkdir /A/b",
    "mkdir /A/a",
    "mkdir /C",
    "symlink target /A/b",
    "symlink target /A/a",
    "mkfile /C/a",
    "mkfile /A/b/a",
    // Bytes.
    "append /A/a 3000 3",
    "write /A/a 100 200 4",
    "write /A/a 4096 8192 5",
    "write /A/b 0 3000 6",
    "write /A/b 5000 9000 7",
    "truncate /A/a 0",
    "truncate /A/a 5000",
    "truncate /A/a 20000",
    "punch /A/a 0 4096",
    "punch /A/a 4000 2000",
    "zero /A/a 100 9500",
    "zero /A/a 5000 9000 keep",
    "fallocate /A/a 9000 8000",
    "fallocate /A/a 4096 16384 keep",
    // Attributes.
    "setxattr /A/a user.x \"new\"",
    "setxattr /A/a user.y 600 8",
    "removexattr /A/a user.x",
    "chmod /A/a 640",
    "chmod /A 700",
    "chown /B/a 5 6",
    "utimes /A/a 5 1000.5",
    // More names and fewer.
    "link /A/a /A/b",
    "link /A/a /B/b",
    "link /B/a /A/b",
    "unlink /A/a",
    "unlink /A/b",
    "unlink /B/a",
    "rmdir /B",
    "rmdir /A/b",
    // Other names.
    "rename /A/a /A/b",
    "rename /A/b /A/a",
    "rename /A/a /B/a",
    "rename /B/a /A/a",
    "rename /A/a /B/b",
    "rename /B/b /A/a",
    "rename /A /C",
    "rename /C /A",
    "rename /A /B/b",
    "rename /B /A/b",
    "rename /A /B",
    "rename /A/a /B/a exchange",
    "rename /A /B exchange",
    // Without a name first; kept open without one; durable by themselves.
    "tmpfile t /A 600; write @t 0 3000 9; link @t /A/b; close t",
    "open o /A/a read,write; unlink /A/a; write @o 50 5000 10; fsync @o; close o",
    "open s /A/a write,sync; write @s 50 100 11; close s",
];

/// What the volume holds when a sequence of branches begins.
pub const BEFORE_BRANCHES: &str = "mkdir /A; mkfile /A/a; write /A/a 0 9000 1; mkdir /B; mkfile /B/a; write /B/a 0 20k 2; \
                                   snapshot s; fork b s; write /A/a 4096 100 3; switch b; truncate /B/a 5000; switch main";

/// One operation each, and what goes to another branch and works there.
const BRANCHES: [&str; 30] = [
    "snapshot s",
    "snapshot t",
    "fork c",
    "fork c s",
    "fork c t",
    "newbranch c",
    "newbranch c; switch c; mkfile /a; write /a 0 9000 8",
    "rollback s",
    "rollback s t",
    "rollback t",
    "promote b",
    "promote c t",
    "rmsnapshot s",
    "rmsnapshot t",
    "rmbranch b",
    "rmbranch c",
    "mvsnapshot s t",
    "mvbranch b c",
    "switch main",
    "switch b",
    "switch c",
    "switch b; snapshot t; switch main",
    "write /A/a 100 5000 4",
    "write /B/a 0 9000 5",
    "append /B/a 3000 6",
    "truncate /A/a 100",
    "punch /B/a 0 8192",
    "unlink /A/a",
    "mkfile /A/b; write /A/b 0 3000 7; rename /A/b /B/a",
    "rename /A /C",
];

/// A letter as operations.
#[derive(Debug)]
struct Letter {
    ops: Vec<Op>,
    /// Every path that is spoken of.
    paths: Vec<Path>,
}

/// All sequences of one length.
#[derive(Debug)]
pub struct Exhaustive {
    letters: Vec<Letter>,
    before: Script,
    length: usize,
    /// The choices that lead to where the enumeration is, outermost first.
    stack: Vec<Choices>,
}

/// What can be appended to a beginning.
#[derive(Debug)]
struct Choices {
    /// The beginning's operations.
    ops: Vec<Op>,
    model: VolumeModel,
    /// Letter, and the call behind it.
    next: std::vec::IntoIter<(usize, Option<Op>)>,
}

impl Exhaustive {
    /// Sequences of `length` operations, in their order.
    pub fn new(length: usize) -> Exhaustive {
        Exhaustive::over(letters(&ALPHABET), before(), length)
    }

    /// As [`Exhaustive::new`], of what is done with branches and in them.
    pub fn of_branches(length: usize) -> Exhaustive {
        Exhaustive::over(letters(&BRANCHES), before_branches(), length)
    }

    fn over(letters: Vec<Letter>, before: Script, length: usize) -> Exhaustive {
        let mut all = Exhaustive { letters, before, length, stack: Vec::new() };
        let model = all.beginning();
        let choices = all.choices(Vec::new(), model);
        all.stack.push(choices);
        all
    }

    /// One random sequence: the same for the same seed.
    pub fn sample(&self, seed: u64) -> Script {
        let mut prng = Prng::seeded(seed);
        let mut model = self.beginning();
        let mut ops = Vec::new();
        for step in 0..self.length {
            let letters = self.accepted(&model);
            let letter = *prng.pick(&letters);
            let (after, syncs) = self.behind(letter, &model, step + 1 == self.length);
            ops.extend(self.letters[letter].ops.iter().cloned());
            ops.extend(prng.pick(&syncs).clone());
            model = after;
        }
        ops.into_iter().collect()
    }

    fn beginning(&self) -> VolumeModel {
        let mut model = VolumeModel::new();
        self.before.ops().for_each(|op| drop(model.apply(op)));
        model
    }

    /// The letters that the model does not refuse.
    fn accepted(&self, model: &VolumeModel) -> Vec<usize> {
        let works = |letter: &Letter| {
            let mut model = model.clone();
            letter.ops.iter().all(|op| matches!(model.apply(op), Outcome::Ok(_)))
        };
        (0..self.letters.len()).filter(|&letter| works(&self.letters[letter])).collect()
    }

    /// The model after a letter, and the calls that may follow it.
    fn behind(
        &self,
        letter: usize,
        model: &VolumeModel,
        last: bool,
    ) -> (VolumeModel, Vec<Option<Op>>) {
        let mut model = model.clone();
        let letter = &self.letters[letter];
        letter.ops.iter().for_each(|op| drop(model.apply(op)));
        let mut touched: BTreeSet<Path> = letter.paths.iter().cloned().collect();
        touched.extend(letter.paths.iter().filter_map(|path| Some(path.split()?.0)));
        // What was moved is touched under its new name, its other names, and what it holds.
        for path in all_paths(&mut model) {
            if touched.iter().any(|touched| same(&mut model, touched, &path))
                || path.split().is_some_and(|(parent, _)| {
                    letter.paths.contains(&parent) && letter.ops.len() == 1
                })
            {
                touched.insert(path);
            }
        }
        // A stranger, whatever the operation was.
        touched.insert(Path::new("/B/a").expect("it is well formed"));
        let mut syncs = Vec::new();
        if !last {
            syncs.push(None);
        }
        let is_bytes = letter.ops.iter().any(|op| {
            matches!(op, Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. })
                || matches!(op, Op::Fallocate { .. })
        });
        for path in touched {
            match model.tree().kind(&path) {
                Ok(FileKind::File) => {
                    let place = FileRef::Path(path);
                    if is_bytes {
                        syncs.push(Some(Op::Fdatasync { place: place.clone() }));
                    }
                    syncs.push(Some(Op::Fsync { place }));
                }
                Ok(FileKind::Dir) => syncs.push(Some(Op::Fsyncdir { path })),
                _ => {}
            }
        }
        syncs.push(Some(Op::Sync));
        (model, syncs)
    }

    fn choices(&self, ops: Vec<Op>, model: VolumeModel) -> Choices {
        let last = ops_depth(&self.stack) + 1 == self.length;
        let next: Vec<(usize, Option<Op>)> = self
            .accepted(&model)
            .into_iter()
            .flat_map(|letter| {
                let (_, syncs) = self.behind(letter, &model, last);
                syncs.into_iter().map(move |sync| (letter, sync))
            })
            .collect();
        Choices { ops, model, next: next.into_iter() }
    }
}

/// How many operations the innermost beginning has.
fn ops_depth(stack: &[Choices]) -> usize {
    stack.len()
}

impl Iterator for Exhaustive {
    type Item = Script;

    fn next(&mut self) -> Option<Script> {
        loop {
            let top = self.stack.last_mut()?;
            let Some((letter, sync)) = top.next.next() else {
                self.stack.pop();
                continue;
            };
            let mut ops = top.ops.clone();
            let model = top.model.clone();
            ops.extend(self.letters[letter].ops.iter().cloned());
            ops.extend(sync);
            if self.stack.len() == self.length {
                return Some(ops.into_iter().collect());
            }
            let (model, _) = self.behind(letter, &model, false);
            let choices = self.choices(ops, model);
            self.stack.push(choices);
        }
    }
}

/// [`BEFORE`].
pub fn before() -> Script {
    BEFORE.parse().expect("it is well formed")
}

/// [`BEFORE_BRANCHES`].
pub fn before_branches() -> Script {
    BEFORE_BRANCHES.parse().expect("it is well formed")
}

fn letters(alphabet: &[&str]) -> Vec<Letter> {
    let letter = |text: &&str| {
        let script: Script = text.parse().expect("the alphabet is well formed");
        let ops: Vec<Op> = script.ops().cloned().collect();
        let words = text.split([' ', ';']).filter(|word| word.starts_with('/'));
        Letter { ops, paths: words.filter_map(Path::new).collect() }
    };
    alphabet.iter().map(letter).collect()
}

/// Everything that has a name, the root included.
fn all_paths(model: &mut VolumeModel) -> Vec<Path> {
    model.walk().map(|tree| tree.0.into_keys().collect()).unwrap_or_default()
}

/// Whether two paths name one inode.
fn same(model: &mut VolumeModel, one: &Path, other: &Path) -> bool {
    let mut inode =
        |path: &Path| match model.apply(&Op::Stat { place: FileRef::Path(path.clone()) }) {
            Outcome::Ok(Answer::Stat(stat)) => Some(stat.inode),
            _ => None,
        };
    inode(one).is_some_and(|number| inode(other) == Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_different_and_every_letter_is_used() {
        let first: Vec<String> = Exhaustive::new(1).map(|script| script.to_string()).collect();
        assert!(first.iter().collect::<BTreeSet<_>>().len() == first.len(), "twice the same");
        let second: Vec<Script> = Exhaustive::new(2).collect();
        println!("{} of length 1, {} of length 2", first.len(), second.len());
        for letter in letters(&ALPHABET) {
            let ops = &letter.ops;
            let used = |script: &Script| {
                let found: Vec<&Op> = script.ops().collect();
                found.windows(ops.len()).any(|window| window.iter().copied().eq(ops))
            };
            assert!(second.iter().any(used), "{ops:?}");
        }
        assert!(first.len() > 100 && second.len() > 10_000);
    }

    #[test]
    fn every_letter_of_branches_is_used_and_works() {
        let first = Exhaustive::of_branches(1).count();
        let second: Vec<Script> = Exhaustive::of_branches(2).collect();
        println!("{first} of length 1, {} of length 2", second.len());
        let mut start = VolumeModel::new();
        before_branches().ops().for_each(|op| assert!(matches!(start.apply(op), Outcome::Ok(_))));
        for letter in letters(&BRANCHES) {
            let ops = &letter.ops;
            let used = |script: &&Script| {
                let found: Vec<&Op> = script.ops().collect();
                found.windows(ops.len()).any(|window| window.iter().copied().eq(ops))
            };
            assert!(second.iter().any(|script| used(&script)), "{ops:?}");
        }
        for script in second.iter().step_by(17) {
            let mut model = start.clone();
            script.ops().for_each(|op| assert!(matches!(model.apply(op), Outcome::Ok(_)), "{op}"));
        }
    }

    #[test]
    fn a_sample_is_one_of_them_and_the_same_again() {
        let all: BTreeSet<String> = Exhaustive::new(2).map(|script| script.to_string()).collect();
        let space = Exhaustive::new(2);
        for seed in 0..50 {
            let sample = space.sample(seed).to_string();
            assert!(all.contains(&sample), "seed {seed}: {sample}");
            assert_eq!(sample, space.sample(seed).to_string());
        }
    }
}
