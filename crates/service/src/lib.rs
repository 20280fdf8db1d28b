//! Floor 6: what is asked of an open volume, the rights that it takes ([`rights`]), and what carries it out: work on whole trees ([`work`]), and answers about
//! branches and snapshots ([`branches`]).
//!
//! ```text
//! command ── Job ──▶ at rest: the volume is opened in its process ────────▶ carry_out ──▶ library
//!                └─▶ in use: control socket ──▶ a thread of the daemon ───▶ carry_out ──▶ library
//!                                 ◀── bytes, notes, progress, the end ──┘
//! library, and a command without a way to the socket
//!         ── Ask ──▶ ioctl on the mount ──▶ a thread of the mount ────────▶ answer ─────▶ library
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
pub mod owner;
pub mod rights;
pub mod size;
pub mod work;
