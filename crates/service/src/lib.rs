//! Floor 5: what is asked of an open volume, and what carries it out: work on whole trees ([`work`]), and branches and snapshots ([`branches`]).
//!
//! ```text
//! command ── at rest: the volume is opened in its process ──▶ carry_out ──▶ library
//!         └─ in use: a daemon, which has it open ───────────▶ carry_out ──▶ library
//! ```
//! So a command means the same wherever it is carried out.
//!
//! Knows nothing of FUSE, sockets, signals or processes. Where bytes come from and go to ([`work::Ends`]), who else has a branch open
//! ([`work::Branches`]), and who must hear of what changed there ([`work::Remembers`]) its callers say.

pub mod branches;
pub mod json;
pub mod mode;
pub mod outcome;
pub mod work;
