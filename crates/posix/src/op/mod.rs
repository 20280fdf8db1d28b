//! One file for each family of calls.

pub mod attr;
pub mod create;
pub mod delete;
pub mod fallocate;
pub mod flags;
pub mod link;
pub mod lookup;
pub mod open;
pub mod promote;
pub mod read;
pub mod readdir;
pub mod rename;
pub mod seek;
pub mod statfs;
pub mod sync;
pub mod truncate;
pub mod unlink;
pub mod volume;
pub mod open_branch;
pub mod branches;
pub(crate) mod settle;
pub mod view;
pub mod write;
pub mod xattr;
