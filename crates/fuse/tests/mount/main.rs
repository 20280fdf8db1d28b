//! The whole way: kernel, transport, server, filesystem, device in memory.
//!
//! Needs root and /dev/fuse; says so and passes where they are missing.

#![allow(clippy::unwrap_used)] // helpers of tests, too

mod attrs;
mod common;
mod data;
mod flags;
mod fsync;
mod full;
mod killed;
mod lost;
mod names;
mod opens;
mod programs;
mod promote;
mod reserved;
mod rollback;
mod session;
mod snapdir;
mod supervised;
mod transports;
