//! Branches and snapshots, as commands speak of them: on a volume at rest and on one that is mounted.
//!
//! ```text
//! command ── Ask ──▶ live: ioctl on the mounted directory ──▶ daemon ──▶ carry_out ──▶ engine
//!                └─▶ at rest: the volume is opened here ──────────────▶ carry_out ──▶ engine
//! ```
//! One [`carry_out`](holdfast_service::branches::carry_out) for both, so a command means the same wherever it is carried out.

pub(crate) mod arguments;
pub(crate) mod new_head;
pub(crate) mod place;
pub(crate) mod show;
pub(crate) mod temporary;

pub(crate) use holdfast_control::{Ask, Name, Reply, Which};
pub(crate) use place::Place;
