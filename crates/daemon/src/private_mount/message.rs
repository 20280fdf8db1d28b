//! What the process that waits for a command and the one that becomes it say to each other.

use holdfast_control::Name;
use serde::{Deserialize, Serialize};

/// What is to be mounted for a command. The standard input of the command comes beside it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WantedMount {
    /// The file or block device, which a daemon serves.
    pub volume: Name,
    /// The branch that is mounted.
    pub branch: Name,
    /// Where it is mounted.
    pub dir: Name,
    /// There is a mount there already, which the command is not to see.
    pub covers: bool,
    /// The list of mount options.
    pub options: String,
    /// The working directory, if it lies in the mount or is another than that of the process.
    pub working_dir: Option<Name>,
    /// The asking process: the command goes with it.
    pub parent: u32,
}

/// The command begins.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Begin;

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MountAnswer {
    /// It is mounted: the opened root comes beside this. The command waits for [`Begin`].
    Mounted,
    /// The command has not begun, and will not.
    Failed { code: u8, why: String },
}
