//! Floor 7: the filesystem under scripts, and in time under power cuts.
//!
//! [`Engine`] lets a script of file operations drive a mounted volume without a
//! kernel, so that its answers can be held against the plain model's.
//! [`power_cut`] runs a script over a simulated device, cuts power at every
//! write and flush, opens every image that the device may have left, and
//! compares what it finds with what the promises allow ([`History`]). The judge
//! shares nothing with the engine: it stands on the model and on `check`, whose
//! replay of journal and log must be the engine's ([`agree()`], [`agree_on_log`]).
//! [`Campaign`] does that with all short sequences and with random scripts, up
//! to its limits, and saves what it finds as a [`Case`].
//! [`fail_each`] makes every single call of the device fail, one run each.

pub mod agree;
pub mod campaign;
pub mod case;
pub mod engine;
pub mod history;
pub mod errors;
mod moments;
mod opened;
mod used_on;
mod visit;
pub mod power;
pub mod terms;
pub mod exhaustive;

pub use agree::{Verdict, agree, agree_on_log};
pub use campaign::{Campaign, Progress, Source, Violation};
pub use case::Case;
pub use engine::{Checkpoints, Engine, Setup, judge};
pub use errors::{FaultKind, Outcomes, count_each, fail_each};
pub use history::History;
pub use power::{Failure, Ground, Policy, Stats, power_cut, power_cut_after};
pub use terms::Terms;
