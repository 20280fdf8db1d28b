//! Copies files out of a volume that cannot be mounted any more.
//!
//! [`Scan::read`] looks at every block of a device once, for all that proves itself. [`Scan::open`] chooses a state of a volume
//! and finds out which leaf holds which keys of its trees. [`Salvaged::copy`] copies a tree to a [`Destination`], and says of
//! each file whether it is whole. Nothing is written to the device.
//!
//! What is proven: nodes by their checksums, and that they belong to the state by the nodes and the superblock above them; data by
//! the checksum of each block. Where nodes are lost, the newest leaves that were found fill in, and a file with parts from there
//! is said to be perhaps of an older version: it never was in the state as it is copied only if these parts are. What does not
//! match its checksum is a hole. So of a file that is said to be whole each byte is right, and of every other one each byte was
//! there at some time, or is in a hole.
//!
//! Memory: about 90 bytes for each node that was found, as many for each leaf of the tree that is copied, and what
//! [`VolumeReading`](holdfast_check::reading::VolumeReading) keeps of journal and log. On a hostile device it is never more than a
//! small multiple of its size, and time grows with its size and with what is copied.

mod behind;
mod copying;
mod cover;
mod destination;
mod error;
mod fill;
mod image;
mod index;
mod items;
mod known;
mod list;
mod owners;
mod point;
mod progress;
mod proof;
mod report;
mod roots;
mod salvaged;
mod scan;
mod scramble;
mod redact;
mod state;
mod tolerant;
mod walk;

pub use destination::{Attributes, Destination};
pub use error::SalvageError;
pub use image::{HowMuch, Imaged, WriteBlocks, image};
pub use list::{EpochFound, RootFound, VolumeFound, tag};
pub use progress::Progress;
pub use report::{Counts, FileNote, Holes, Missing, Version};
pub use salvaged::{CopyOptions, Salvaged, TreeFound};
pub use scan::{Scan, Tag};
pub use state::Choice;
pub use tolerant::Tolerant;
