//! What a supervisor and its daemon say to each other: JSON behind its length, and descriptors beside it, by a pair of sockets that
//! no other process has.

use holdfast_control::Name;
use holdfast_fuse::Agreed;
use serde::{Deserialize, Serialize};

/// What both must speak: they may be of different versions of the program.
pub(crate) const PROTOCOL: u32 = 1;
/// Bytes of a message.
pub(crate) const MESSAGE_MAX: usize = 256 << 10;

/// What the supervisor begins with. Beside it: the file of the volume, which is locked. Behind it: what else holds a lock, one
/// descriptor a message, and then what is kept.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Begin {
    pub(crate) protocol: u32,
    /// The daemon goes on when nothing is mounted.
    pub(crate) linger: bool,
    /// How many daemons have died.
    pub(crate) deaths: u64,
    pub(crate) locks: usize,
    /// How many [`Kept`]; none: the first mount is still to be made.
    pub(crate) mounts: usize,
    /// Why this daemon is the program that was started first, and not the one that is installed. A supervisor of another version
    /// does not say it.
    #[serde(default)]
    pub(crate) falls_back: Option<String>,
}

/// A mount that outlives its daemon. Beside it: the connection to the kernel, which requests were carried out, and what ends
/// the connection, if this user may.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Kept {
    /// By which both know it.
    pub(crate) number: u64,
    pub(crate) dir: Name,
    /// `major:minor`, as the process that mounted says.
    pub(crate) device: Option<String>,
    /// The options, as they came.
    pub(crate) options: String,
    /// The number of the branch or snapshot in the volume.
    pub(crate) tree: u64,
    pub(crate) is_branch: bool,
    pub(crate) read_only: bool,
    pub(crate) user: u32,
    /// What was agreed on with the kernel: offered, and taken.
    pub(crate) agreed: (u64, u64),
}

impl Kept {
    pub(crate) fn agreed(&self) -> Agreed {
        Agreed { offered: self.agreed.0, taken: self.agreed.1 }
    }
}

/// What a daemon tells its supervisor.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Requests are answered.
    Ready,
    /// A mount is there.
    Keep(Kept),
    /// A mount has ended.
    Drop { number: u64 },
    /// The daemon goes on when nothing is mounted.
    Linger { linger: bool },
    /// The daemon is about to die, because `holdfast restart` asks for it.
    Restarting,
    /// Something changes, or has changed, of which the kernel is still to hear: it would go on with what was.
    Changing { is_so: bool },
}
