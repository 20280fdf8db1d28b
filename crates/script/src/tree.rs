//! The normal form of a whole tree: what is where, one line a path.
//!
//! Two filesystems hold the same if their trees have no differences. Names of
//! one file form a group that is written as "same as" its first path.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::bytes::Digest;
use crate::op::Path;
use crate::stat::Stat;
use crate::words::{Quoted, Word};

/// One path of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Attributes. The inode number is 0.
    pub stat: Stat,
    /// Digest of the content of a regular file.
    pub digest: Option<Digest>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path (in byte order) of the same file, if it is another one.
    pub same_as: Option<Path>,
}

/// Everything there is, by path; the root included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree(pub BTreeMap<Path, Node>);

impl Node {
    /// Whether `other` is the same file, as far as filesystems agree.
    pub fn agrees(&self, other: &Node) -> bool {
        self.stat.agrees(&other.stat)
            && self.digest == other.digest
            && self.target == other.target
            && self.xattrs == other.xattrs
            && self.same_as == other.same_as
    }
}

impl Tree {
    /// One line for each path that differs: what `self` holds with `-`, what `other` holds with `+`.
    pub fn differences(&self, other: &Tree) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, node) in &self.0 {
            match other.0.get(path) {
                Some(twin) if node.agrees(twin) => {}
                Some(twin) => lines.push(format!("- {path} {node}\n+ {path} {twin}")),
                None => lines.push(format!("- {path} {node}")),
            }
        }
        for (path, node) in &other.0 {
            if !self.0.contains_key(path) {
                lines.push(format!("+ {path} {node}"));
            }
        }
        lines
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.same_as {
            return write!(f, "same as {path}");
        }
        self.stat.fmt(f)?;
        if let Some(digest) = self.digest {
            write!(f, " sum {digest}")?;
        }
        if let Some(target) = &self.target {
            write!(f, " to {}", Word(target))?;
        }
        self.xattrs.iter().try_for_each(|(name, value)| {
            write!(f, " {}=", Word(name))?;
            match value.len() {
                0..=32 => Quoted(value).fmt(f),
                len => write!(f, "{len}:{}", Digest::of(value)),
            }
        })
    }
}

impl Display for Tree {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, (path, node)) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{path} {node}")?;
        }
        Ok(())
    }
}
