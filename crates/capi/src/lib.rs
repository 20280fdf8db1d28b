//! Holdfast for C: `libholdfast`, with the header `include/holdfast.h`, which cbindgen makes from these files.
//!
//! Each function checks its pointers, does what the library of the same name does, and says by errno what was wrong.
//! What can be NULL or is no text is found in `border.rs`, the only file with rules for pointers; a panic ends there too, and stops
//! the volume. Nothing is decided here.

mod border;
mod branches;
mod dir;
mod file;
mod paths;
mod stat;
mod volume;

pub use border::{holdfast_error, holdfast_version};
pub use branches::*;
pub use dir::*;
pub use file::*;
pub use paths::*;
pub use stat::*;
pub use volume::*;
