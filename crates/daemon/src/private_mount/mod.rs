//! A mount of a branch that one command alone sees, with all that it starts.
//!
//! ```text
//! holdfast ──starts──▶ holdfast private: waits ──▶ joins the daemon, own namespaces, mounts ─ waits ─exec─▶ COMMAND
//!    │   ▲                 ▲     │ failed: why           │ mounted: its root, opened         ▲           │ exit code
//!    │   └─────────────────│─────┴───────────────────────┘◀──────────────────────────────────│───────────┘
//!    └─ what to mount ─────┘──── begin ──────────────────────────────────────────────────────┘
//!                              (through a socket that is its standard input; the real one comes through it)
//! ```
//! This program is run again for it, and becomes COMMAND: what COMMAND's caller has opened reaches it, its exit code and
//! signals are those of a child, and it is killed with the `holdfast` that waits for it. The one that waits stays in its
//! caller's namespaces, where it finds daemon and branch.

mod inside;
mod message;
mod namespaces;
mod running;
mod signals;

use holdfast_service::outcome::Failure;

pub use inside::become_command;
#[cfg(test)]
pub(crate) use message::MountAnswer;
pub use message::WantedMount;
pub use running::{Ended, Prepared};
pub use signals::Signals;

/// The exit code where `holdfast` itself has failed, and not the command that it runs.
pub const FAILED: u8 = 125;
/// The exit codes for a command that cannot be run, and for one that is not there, as of env(1).
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Plus a signal: the exit code of a command that it has ended.
const SIGNAL: u8 = 128;

/// A failure as the caller of a command is told it: by no code that means something else than that `holdfast` has failed, or
/// that the command cannot be run.
pub fn told(failure: Failure) -> Failure {
    match failure.code {
        NOT_RUN | NOT_FOUND => failure,
        _ => failure.with_code(FAILED),
    }
}
