//! What a repair does, in words: one line for each thing, and what is lost by it.

use std::fmt;

use holdfast_check::Issue;
use holdfast_check::report::write_place;
use serde::{Serialize, Serializer};

/// One thing that a repair does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The finding that it answers.
    #[serde(rename = "id", serialize_with = "number")]
    pub issue: Issue,
    /// The branch or snapshot concerned, if it is another than `main`.
    pub tree: Option<String>,
    /// The file or name concerned, as an absolute path in that tree, if one leads there.
    pub path: Option<String>,
    /// What is done, in a sentence.
    pub what: String,
    /// Something that could be read before, or was there before the damage, cannot be had afterwards.
    pub loses: bool,
}

fn number<S: Serializer>(issue: &Issue, to: S) -> Result<S::Ok, S::Error> {
    issue.number().serialize(to)
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.loses { "loss" } else { "repair" };
        write!(f, "{word} {} {}: ", self.issue.number(), self.issue.slug())?;
        write_place(f, self.tree.as_deref(), self.path.as_deref())?;
        f.write_str(&self.what)
    }
}
