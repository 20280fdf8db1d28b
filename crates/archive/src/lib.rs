//! Floor 5: trees of a volume as tar archives and as layers of container images, in both directions and in one pass.
//!
//! ```
//! use holdfast::Volume;
//! use holdfast_archive::{Form, export, import};
//!
//! # fn main() -> Result<(), holdfast_archive::Error> {
//! let volume = Volume::in_memory(64 << 20).expect("there is memory");
//! volume.write("/notes", b"as they are").expect("there is space");
//! let mut archive = Vec::new();
//! export(&volume, Form::Tar, usize::MAX, &mut archive)?;
//!
//! let copy = Volume::in_memory(64 << 20).expect("there is memory");
//! import(&copy, Form::Tar, "importing", &archive[..])?;
//! assert_eq!(copy.read("/notes").expect("it is there"), b"as they are");
//! # Ok(())
//! # }
//! ```
//!
//! Members follow POSIX's pax format: a ustar header, and records before it for what that cannot say (long or odd names,
//! nanoseconds, large numbers, extended attributes with access control lists among them, holes as GNU tar's sparse
//! files of version 1.0). Always true: the same tree gives the same bytes, whenever and wherever it was made; bytes of an
//! archive lead to an error that names the member and its place, and never to a panic or to memory without bounds.
//!
//! Headers are laid out by the crate `tar`. The stream is read and written here: `tar` keeps what it needs of a member
//! in memory without a limit, and cannot read sparse files of version 1.0.

mod acl;
mod apply;
mod difference;
mod error;
mod export;
mod header;
mod import;
mod listing;
mod number;
pub mod oci;
mod pax;
mod read;
mod source;
mod sparse;
mod stream;
mod whiteout;
mod write;

pub use apply::{Imported, LeftOut};
pub use difference::export_difference;
pub use error::Error;
pub use export::export;
pub use import::{import, import_all};
pub use write::Exported;

/// What names in an archive mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nothing but themselves.
    Tar,
    /// A layer of an OCI image: `.wh.NAME` removes NAME of the layers below, `.wh..wh..opq` everything in its directory.
    Layer,
}
