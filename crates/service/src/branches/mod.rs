//! Branches and snapshots: what is asked of them, and the names that are made for them.

pub mod answer;
pub mod by_time;
mod new_head;
pub mod temporary;

pub use holdfast_control::{Ask, Name, Reply, Which};
pub use new_head::not_forgotten;
