//! Floor 0: a small language of file operations, and what they must do.
//!
//! A [`Script`] is a list of operations with a text form that reads like a
//! shell ("mkdir /a; write /a/f 0 4k 7; fsync /a/f; crash; ls /a"). A
//! [`Target`] carries operations out and answers each with an [`Outcome`]. The
//! [`Model`] is a plain filesystem in memory that is obviously right, the
//! [`Host`] target is any directory of the host. So one script runs on the
//! model, a host filesystem, our engine, our mount and under the crash
//! simulator, and the answers can be compared word by word. [`VolumeModel`] is a
//! volume of several branches, each of them a plain filesystem.
//!
//! Knows nothing of how any filesystem works inside.

pub mod errno;
pub mod prng;
pub mod words;
pub mod stat;
pub mod bytes;
pub mod op;
pub mod branch;
pub mod text;
pub mod print;
pub mod outcome;
pub mod tree;
pub mod trees;
pub mod target;
pub mod content;
pub mod model;
pub mod host;
pub mod generate;
pub mod check;
pub mod shrink;

pub use branch::{BranchOp, TreeName};
pub use bytes::{Data, Digest};
pub use check::{Mismatch, compare, compare_trees, transcript, verify};
pub use errno::Errno;
pub use generate::{Family, Profile, full, generate};
pub use host::{Hooks, Host, NoHooks, closing};
pub use model::{Model, VolumeModel};
pub use op::{
    Fallocate, FileRef, Handle, NodeKind, Op, OpenHow, Path, RenameHow, Script, SetTime, Step,
    Whence, XattrHow,
};
pub use outcome::{Answer, Outcome, Rules};
pub use shrink::shrink;
pub use stat::{FileKind, Mtime, Stat};
pub use target::{Handles, Target};
pub use text::ParseError;
pub use tree::{Node, Tree};
pub use trees::{TreeRef, Trees};
