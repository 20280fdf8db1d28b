//! A volume that becomes larger.

use holdfast::{NewSize, Volume};
use holdfast_base::show;
use serde::{Deserialize, Serialize};

use super::{Ends, Out};
use crate::outcome::{Context, Outcome, printed};

/// How large it is to be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// So many bytes.
    Bytes(u64),
    /// So many bytes more.
    More(u64),
    /// All that the file or device has.
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
        true => format!("{volume} has {} already", show::bytes(now)),
        false => format!("{volume} has {}, before {}", show::bytes(now), show::bytes(before)),
    };
    printed(writeln!(Out(ends), "{words}"))?;
    Ok(0)
}
