//! What a volume says of itself, and what a branch may refer to.

use std::fmt;

use holdfast::Volume;
use holdfast_base::show;
use holdfast_base::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Ends, Tree, told};
use crate::outcome::{Context, Failure, Outcome};

/// What is changed; `None` stays as it is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct To {
    /// Bytes of a UUID.
    pub uuid: Option<[u8; 16]>,
    /// The label.
    pub label: Option<String>,
    /// What the branch may refer to.
    pub limit: Option<Limit>,
}

/// Blocks that a branch may refer to, or no limit. In a message that is 0: null there means that nothing is changed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(from = "u64", into = "u64")]
pub struct Limit(pub Option<u64>);

impl From<u64> for Limit {
    fn from(blocks: u64) -> Limit {
        Limit(Some(blocks).filter(|blocks| *blocks > 0))
    }
}

impl From<Limit> for u64 {
    fn from(Limit(blocks): Limit) -> u64 {
        blocks.unwrap_or(0)
    }
}

/// What was changed.
#[derive(Serialize)]
struct Changed<'a> {
    #[serde(skip)]
    volume: &'a str,
    #[serde(flatten)]
    limit: Option<Limited>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
}

/// The branch, and what it may refer to.
#[derive(Serialize)]
struct Limited {
    branch: String,
    limit_bytes: Option<u64>,
}

impl fmt::Display for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit.as_ref().map(|Limited { branch, limit_bytes }| {
            let words = limit_bytes.map_or("none".into(), show::bytes);
            format!("the limit of {branch} is {words}")
        });
        let uuid = self.uuid.as_ref().map(|uuid| format!("the id is {uuid}"));
        let label = self.label.map(|label| format!("the label is {label:?}"));
        let lines = [limit, uuid, label].into_iter().flatten();
        let lines = lines.map(|line| format!("{}: {line}", self.volume)).collect::<Vec<_>>();
        f.write_str(&lines.join("\n"))
    }
}

pub(super) fn run(
    door: &Volume,
    volume: &str,
    (tree, to): (&Tree, &To),
    json: bool,
    ends: &dyn Ends,
) -> Outcome {
    if tree.snapshot.is_some() {
        return Err(Failure::plain(format!("{volume}: a snapshot never changes; name a branch")));
    }
    let mut limit = None;
    if let Some(Limit(blocks)) = to.limit {
        let branch = tree.branch(door, volume)?;
        branch.limit(blocks).context(volume)?;
        let limit_bytes = blocks.map(|it| it.saturating_mul(BLOCK_BYTES));
        limit = Some(Limited { branch: branch.name().to_owned(), limit_bytes });
    }
    if to.uuid.is_some() || to.label.is_some() {
        door.set_identity(to.uuid, to.label.as_deref()).context(volume)?;
    }
    let uuid = to.uuid.map(|uuid| Uuid::from_bytes(uuid).to_string());
    told(&Changed { volume, limit, uuid, label: to.label.as_deref() }, json, ends)
}
