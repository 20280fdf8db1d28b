//! A volume that becomes larger.

use std::fmt;

use holdfast::{NewSize, Volume};
use holdfast_base::show;
use serde::{Deserialize, Serialize};

use super::{Ends, told};
use crate::outcome::{Context, Outcome};

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

/// How large a volume has become.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Resized<'a> {
    /// What it is called.
    #[serde(skip)]
    pub volume: &'a str,
    /// Bytes that it has now.
    pub volume_bytes: u64,
    /// Bytes that it had.
    pub volume_bytes_before: u64,
}

impl fmt::Display for Resized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (volume, now) = (self.volume, show::bytes(self.volume_bytes));
        match self.volume_bytes == self.volume_bytes_before {
            true => write!(f, "{volume} has {now} already"),
            false => {
                write!(f, "{volume} has {now}, before {}", show::bytes(self.volume_bytes_before))
            }
        }
    }
}

pub(super) fn run(door: &Volume, volume: &str, to: To, json: bool, ends: &dyn Ends) -> Outcome {
    let to = match to {
        To::Bytes(bytes) => NewSize::Bytes(bytes),
        To::More(bytes) => NewSize::More(bytes),
        To::Max => NewSize::Device,
    };
    let volume_bytes_before = door.info().context(volume)?.size;
    let volume_bytes = door.resize(to).context(volume)?;
    told(&Resized { volume, volume_bytes, volume_bytes_before }, json, ends)
}
