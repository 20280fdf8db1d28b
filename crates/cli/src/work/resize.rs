//! A volume that becomes larger.

use holdfast::{NewSize, Volume};
use serde::{Deserialize, Serialize};

use super::{Ends, Out};
use crate::outcome::{Context, Outcome, printed};
use crate::size;

/// How large it is to be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum To {
    Bytes(u64),
    More(u64),
    Max,
}

pub(super) fn run(door: &Volume, volume: &str, to: To, ends: &dyn Ends) -> Outcome {
    use std::io::Write;
    let to = match to {
        To::Bytes(bytes) => NewSize::Bytes(bytes),
        To::More(bytes) => NewSize::More(bytes),
        To::Max => NewSize::Device,
    };
    let before = door.info().context(volume)?.size;
    let now = door.resize(to).context(volume)?;
    let words = match now == before {
        true => format!("{volume} has {} already", size::show(now)),
        false => format!("{volume} has {}, before {}", size::show(now), size::show(before)),
    };
    printed(writeln!(Out(ends), "{words}"))?;
    Ok(0)
}
