//! What a volume says of itself, and what a branch may refer to.

use holdfast::Volume;
use holdfast_base::show;
use holdfast_base::units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Ends, Out, Tree};
use crate::outcome::{Context, Failure, Outcome, printed};

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

/// Blocks that a branch may refer to, or no limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Limit(pub Option<u64>);

pub(super) fn run(door: &Volume, volume: &str, tree: &Tree, to: &To, ends: &dyn Ends) -> Outcome {
    use std::io::Write;
    if tree.snapshot.is_some() {
        return Err(Failure::plain(format!("{volume}: a snapshot never changes; name a branch")));
    }
    let mut lines = Vec::new();
    if let Some(Limit(blocks)) = to.limit {
        let branch = tree.branch(door, volume)?;
        branch.limit(blocks).context(volume)?;
        let words = blocks.map_or("none".into(), |it| show::bytes(it.saturating_mul(BLOCK_BYTES)));
        lines.push(format!("the limit of {} is {words}", branch.name()));
    }
    if to.uuid.is_some() || to.label.is_some() {
        door.set_identity(to.uuid, to.label.as_deref()).context(volume)?;
        lines.extend(to.uuid.map(|uuid| format!("the id is {}", Uuid::from_bytes(uuid))));
        lines.extend(to.label.as_ref().map(|label| format!("the label is {label:?}")));
    }
    for line in lines {
        printed(writeln!(Out(ends), "{volume}: {line}"))?;
    }
    Ok(0)
}
