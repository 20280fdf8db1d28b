//! The protocol of log, journal, checkpoints and reuse as a small model that is explored exhaustively.
//!
//! Two files, seven blocks, rings of three: small enough to visit every state,
//! large enough for everything that went wrong in such protocols so far. Each
//! power cut leaves any subset of the unflushed writes, whole or torn. Checked are
//! P1, P3, P5 and P6 after every recovery, and by them R1, R2, R5, R7 and R11.
//!
//! [`lineage`] is a second model, of the rules of branches and of how they become durable.
//!
//! The model stands beside the engine and uses none of it: a change of an
//! order in `store` is made here too, and shows whether the promises still hold.

pub mod mutant;
pub mod disk;
mod files;
pub mod lineage;
mod memory;
pub mod model;
mod places;
mod recovery;
mod replay;
mod shared;
mod steps;

pub use disk::Rings;
pub use model::{Action, Bounds, FILLED, HOLDS, MachineState, Protocol, ROTTEN, Thread, UNWRITTEN};
pub use mutant::Mutant;
