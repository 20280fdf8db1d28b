//! Everything that a volume holds: the trees of all its branches and snapshots.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::branch::TreeName;
use crate::tree::Tree;

/// Which tree of a volume: `side` as it is now, or `side@before`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeRef {
    /// The branch.
    pub branch: TreeName,
    /// A snapshot of it; `None` for the branch as it is now.
    pub snapshot: Option<TreeName>,
}

impl TreeRef {
    /// A branch as it is now.
    pub fn branch(branch: &TreeName) -> TreeRef {
        TreeRef { branch: branch.clone(), snapshot: None }
    }

    /// A snapshot.
    pub fn snapshot(branch: &TreeName, snapshot: &TreeName) -> TreeRef {
        TreeRef { branch: branch.clone(), snapshot: Some(snapshot.clone()) }
    }
}

impl Display for TreeRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.branch.fmt(f)?;
        self.snapshot.as_ref().map_or(Ok(()), |snapshot| write!(f, "@{snapshot}"))
    }
}

/// The trees of all branches and snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trees(pub BTreeMap<TreeRef, Tree>);

impl Trees {
    /// Of a volume that has one branch and no snapshot.
    pub fn main(tree: Tree) -> Trees {
        Trees(BTreeMap::from([(TreeRef::branch(&TreeName::main()), tree)]))
    }

    /// One line for each path that differs, as [`Tree::differences`], with the name of its tree before it if that is not
    /// `main`; and one for each tree that only one of them has.
    pub fn differences(&self, other: &Trees) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, tree) in &self.0 {
            match other.0.get(name) {
                Some(twin) => lines.extend(of_tree(name, tree.differences(twin))),
                None => lines.push(format!("- {name}")),
            }
        }
        let new = other.0.keys().filter(|name| !self.0.contains_key(name));
        lines.extend(new.map(|name| format!("+ {name}")));
        lines
    }
}

/// Differences of a tree with its name before each.
pub fn of_tree(name: &TreeRef, lines: Vec<String>) -> Vec<String> {
    match *name == TreeRef::branch(&TreeName::main()) {
        true => lines,
        false => lines.into_iter().map(|line| format!("{name}: {line}")).collect(),
    }
}

impl Display for Trees {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, tree)| write!(f, "{name}:\n{tree}\n"))
    }
}
