//! Floor 1: every byte on disk and nothing else.
//!
//! ```text
//!  0        64 KiB       192 KiB      1 MiB                                                       the end
//!  | boot   | superblock | superblock | signpost | log ring | journal ring | data and nodes ... | superblock |
//!  | area   | slot 0     | slot 1     |          |          |              | in block groups    | far copy   |
//! ```
//!
//! All numbers are little endian. Every structure is checksummed and carries
//! its own address and epoch, so that misdirected and stale writes are seen.
//! Decoders return [`Malformed`] for anything that breaks a rule of the
//! format; they never panic, and nothing they return is outside its range.
//!
//! Knows nothing of I/O, threads, clocks, caching or policy.

#[macro_use]
mod record;
mod roots;

pub mod checksum;
pub mod codec;
pub mod error;
pub mod feature;
pub mod geometry;
pub mod guard;
pub mod item;
pub mod journal;
pub mod key;
pub mod limits;
pub mod log;
pub mod node;
pub mod rot;
pub mod signpost;
pub mod superblock;

pub use error::Malformed;
pub use feature::Carried;
pub use geometry::{Geometry, Stored};
pub use journal::JournalMark;
pub use key::{ItemKind, Key};
pub use log::LogMark;
pub use node::{NodePointer, NodeView};
pub use record::Field;
pub use signpost::Signpost;
pub use superblock::Superblock;
