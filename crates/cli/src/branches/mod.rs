//! Branches and snapshots, as commands speak of them: on a volume at rest and on one that is mounted.
//!
//! ```text
//! command ── Ask ──▶ live: ioctl on the mounted directory ──▶ daemon ──▶ answer ──▶ engine
//!                └─▶ at rest: the volume is opened here ──────────────▶ answer ──▶ engine
//! ```
//! One [`answer`](holdfast_service::branches::answer) for both, so a command means the same wherever it is carried out.

pub(crate) mod arguments;
pub(crate) mod new_head;
pub(crate) mod place;
pub(crate) mod show;
pub(crate) mod temporary;

pub(crate) use holdfast_control::{Ask, Name, Reply, Which};
pub(crate) use place::{Origin, Place};
