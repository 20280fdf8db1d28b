//! Floor 5: the filesystem under scripts, and in time under power cuts.
//!
//! [`Engine`] lets a script of file operations drive a mounted volume without a
//! kernel, so that its answers can be held against the plain model's.

pub mod engine;

pub use engine::{Engine, Setup};
