//! Something that carries operations out.

use std::collections::BTreeMap;

use crate::branch::{BranchOp, TreeName};
use crate::errno::Errno;
use crate::op::{FileRef, Handle, Op, Path};
use crate::outcome::{Answer, Outcome};
use crate::stat::FileKind;
use crate::tree::{Node, Tree};
use crate::trees::{TreeRef, Trees};

/// A filesystem under a script.
///
/// An implementation answers every [`Op`] from its own means, but [`Op::Tree`] by
/// [`Target::everything`] and [`Op::Branch`] by [`Target::branch`].
pub trait Target {
    /// Carries one operation out.
    fn apply(&mut self, op: &Op) -> Outcome;

    /// Carries out an operation on branches and snapshots. A target that has one tree refuses.
    fn branch(&mut self, op: &BranchOp) -> Outcome {
        let _ = op;
        Outcome::Err(Errno::EOPNOTSUPP)
    }

    /// The trees of all branches and snapshots. The script is in the same branch afterwards.
    fn walk_all(&mut self) -> Result<Trees, String> {
        let (current, all) = match self.branch(&BranchOp::Branches) {
            Outcome::Ok(Answer::Branches { current, all }) => (current, all),
            Outcome::Err(Errno::EOPNOTSUPP) => return self.walk().map(Trees::main),
            other => return Err(format!("branches answered {other}")),
        };
        let mut trees = Trees::default();
        for branch in &all {
            switch(self, branch)?;
            let named = |why: String| format!("{branch}: {why}");
            trees.0.insert(TreeRef::branch(branch), self.walk().map_err(named)?);
            let names = match self.branch(&BranchOp::Snapshots) {
                Outcome::Ok(Answer::Snapshots(names)) => names,
                other => return Err(named(format!("snapshots answered {other}"))),
            };
            for name in names {
                let tree = match self.branch(&BranchOp::Look { name: name.clone() }) {
                    Outcome::Ok(Answer::Tree(tree)) => *tree,
                    other => return Err(named(format!("look {name} answered {other}"))),
                };
                trees.0.insert(TreeRef::snapshot(branch, &name), tree);
            }
        }
        switch(self, &current)?;
        Ok(trees)
    }

    /// What [`Op::Tree`] answers.
    fn everything(&mut self) -> Result<Answer, Errno> {
        self.walk().map(|tree| Answer::Tree(Box::new(tree))).map_err(|_| Errno::EIO)
    }

    /// Everything there is in the branch, seen through the operations themselves: ls, stat, sum, readlink and
    /// the attribute calls. An error says which operation was refused, and how.
    fn walk(&mut self) -> Result<Tree, String> {
        let mut tree = Tree::default();
        let mut first: BTreeMap<u64, Path> = BTreeMap::new();
        let mut pending = vec![Path::root()];
        while let Some(path) = pending.pop() {
            let mut node = look(self, &path, &mut pending)?;
            if node.stat.kind != FileKind::Dir && node.stat.nlink > 1 {
                // Paths do not come in order; the smallest is made canonical below.
                let known = first.entry(node.stat.inode).or_insert_with(|| path.clone());
                if path < *known {
                    *known = path.clone();
                }
            }
            node.same_as = None;
            tree.0.insert(path, node);
        }
        for (path, node) in &mut tree.0 {
            node.same_as = first
                .get(&node.stat.inode)
                .filter(|first| node.stat.nlink > 1 && *first != path)
                .cloned();
            node.stat.inode = 0;
        }
        Ok(tree)
    }
}

fn switch(target: &mut (impl Target + ?Sized), branch: &TreeName) -> Result<(), String> {
    match target.branch(&BranchOp::Switch { branch: branch.clone() }) {
        Outcome::Ok(_) => Ok(()),
        Outcome::Err(errno) => Err(format!("switch {branch}: {errno}")),
    }
}

/// One path of a walk; the entries of a directory are added to `pending`.
fn look(
    target: &mut (impl Target + ?Sized),
    path: &Path,
    pending: &mut Vec<Path>,
) -> Result<Node, String> {
    let mut ask = |op: Op| match target.apply(&op) {
        Outcome::Ok(answer) => Ok(answer),
        Outcome::Err(errno) => Err(format!("{op}: {errno}")),
    };
    let place = FileRef::Path(path.clone());
    let odd = |op: &str, answer: &Answer| Err(format!("{op} {path} answered {answer}"));
    let stat = match ask(Op::Stat { place: place.clone() })? {
        Answer::Stat(stat) => stat,
        other => return odd("stat", &other),
    };
    let mut node =
        Node { stat, digest: None, target: None, xattrs: BTreeMap::new(), same_as: None };
    match stat.kind {
        FileKind::File => match ask(Op::Sum { place: place.clone() })? {
            Answer::Sum(size, digest) if size == stat.size => node.digest = Some(digest),
            other => return odd("sum", &other),
        },
        FileKind::Symlink => match ask(Op::Readlink { path: path.clone() })? {
            Answer::Target(link) => node.target = Some(link),
            other => return odd("readlink", &other),
        },
        FileKind::Dir => match ask(Op::Ls { path: path.clone() })? {
            Answer::Names(names) => {
                pending.extend(names.iter().map(|(name, _)| path.join(name)));
            }
            other => return odd("ls", &other),
        },
        _ => {}
    }
    let names = match ask(Op::Listxattr { place: place.clone() })? {
        Answer::Attributes(names) => names,
        other => return odd("listxattr", &other),
    };
    for name in names {
        match ask(Op::Getxattr { place: place.clone(), name: name.clone() })? {
            Answer::Bytes(value) => node.xattrs.insert(name, value),
            other => return odd("getxattr", &other),
        };
    }
    Ok(node)
}

/// The open files of a target by name. A name is in use until it is closed.
#[derive(Clone, Debug)]
pub struct Handles<T>(BTreeMap<Handle, T>);

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles(BTreeMap::new())
    }
}

impl<T> Handles<T> {
    /// EBUSY if the name is in use. Asked before anything is opened.
    pub fn check_free(&self, handle: &Handle) -> Result<(), Errno> {
        if self.0.contains_key(handle) { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Gives an open file its name.
    pub fn insert(&mut self, handle: &Handle, file: T) {
        self.0.insert(handle.clone(), file);
    }

    /// The open file; EBADF if there is none.
    pub fn get(&self, handle: &Handle) -> Result<&T, Errno> {
        self.0.get(handle).ok_or(Errno::EBADF)
    }

    /// Takes the open file out; EBADF if there is none.
    pub fn remove(&mut self, handle: &Handle) -> Result<T, Errno> {
        self.0.remove(handle).ok_or(Errno::EBADF)
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names that are in use, sorted.
    pub fn names(&self) -> Vec<Handle> {
        self.0.keys().cloned().collect()
    }

    /// Takes all out.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.0).into_values()
    }
}
