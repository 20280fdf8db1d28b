//! Floor 0: the numbers and names that every other floor speaks with.
//!
//! Units and ids are distinct types, so that a block number cannot be handed
//! where an inode number is wanted. Statistics are named here once, so that no
//! part imports a neighbour in order to count. Time and randomness enter the
//! program through [`clock`] and [`prng`] and nowhere else.
//!
//! Knows nothing of disks, files or formats.

pub mod applied;
pub mod attribute;
mod changed;
pub mod clock;
pub mod counters;
pub mod hex;
#[macro_use]
pub mod ids;
pub mod parallel;
pub mod prng;
pub mod proc;
pub mod receipt;
pub mod recover;
pub mod show;
pub mod skip;
pub mod stop;
pub mod switch;
pub mod mutants;
pub mod units;
pub mod user_namespace;
pub mod wait;

pub use changed::Changed;
pub use clock::Timestamp;
pub use ids::{BatchNo, CommitNo, Epoch, InodeNo, Lsn, TreeId};
pub use receipt::{LogFallback, Receipt};
pub use units::{BLOCK_SIZE, BlockNo, BlockRange};
