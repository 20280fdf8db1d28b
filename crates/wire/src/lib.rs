//! What the kernel and a FUSE server say to each other, and the io_uring way of saying it.
//!
//! [`Op::decode`] reads a request, [`reply`] writes answers, as `linux/fuse.h` defines
//! them at version 7.45; [`ring`] carries both over FUSE-over-io_uring. A request
//! has three parts on either way: the header, the fixed struct of its kind, and
//! the rest (names, bytes). Whatever the kernel sends is checked before it is
//! believed: a malformed request is an error, never a panic.
//!
//! Knows nothing of filesystems, mounting, and threads.

pub mod abi;
pub mod ask;
pub mod connection;
pub mod dirents;
pub mod init;
pub mod mount_number;
mod op;
pub mod reply;
pub mod ring;

pub use op::{Malformed, Op, Request, split};
