//! Floor 5: snapshots as streams, from one volume to another.
//!
//! ```text
//!  send: a tree, or the difference of two ─▶ records ─▶ frames ─▶ bytes
//!  merge:    ... of two ─▶ records ─▶ a fork of another branch
//!  receive:      bytes ─▶ frames ─▶ records ─▶ a fork of the base ─▶ a snapshot of the branch
//! ```
//!
//! docs/STREAM.md has the bytes. The stream speaks of files by the sender's inode numbers, and says of those that the receiver
//! has by which way of names they are found there. A receiver changes a fork that no other call knows. When all of the stream has
//! come and fits together, the fork's snapshot becomes one of the branch, in one step (P12).
//!
//! Always true: what a stream says is checked before it is obeyed, and nothing is allocated for bytes that have not come (P10).

mod apply;
mod error;
mod files;
mod flags;
mod frame;
mod merge;
mod origin;
mod partial;
mod receive;
mod record;
mod send;
mod token;

pub use error::StreamError;
pub use frame::repaired;
pub use merge::{Merge, Merged};
pub use receive::{Received, Receiving, tokens};
pub use record::Begin;
pub use send::{Sending, send};
pub use token::Token;

/// The result of sending or receiving.
pub type Result<T> = std::result::Result<T, StreamError>;

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Files that were made.
    pub files: u64,
    /// Files in the snapshot.
    pub files_in_all: u64,
}
