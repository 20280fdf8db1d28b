//! Floor 6: what is asked of an open volume, and what carries it out: work on whole trees ([`work`]), and branches and snapshots ([`branches`]).
//!
//! ```text
//! command ── at rest: the volume is opened in its process ──▶ carry_out ──▶ library
//!         └─ in use: a daemon, which has it open ───────────▶ carry_out ──▶ library
//! ```
//! So a command means the same wherever it is carried out.
//!
//! Knows nothing of FUSE, sockets, signals or processes. Its callers bring the streams of bytes ([`work::Ends`]), open the branches that
//! others may have open ([`work::Heads`]), and tell kernels what changed there ([`work::Remembers`]).

pub mod branches;
pub mod json;
pub mod mode;
pub mod moment;
pub mod outcome;
pub mod rights;
pub mod work;
