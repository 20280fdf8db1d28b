//! The whole way: kernel, transport, server, filesystem, device in memory.
//!
//! Needs root and /dev/fuse; says so and passes where they are missing.

mod attrs;
mod common;
mod data;
mod names;
mod session;
