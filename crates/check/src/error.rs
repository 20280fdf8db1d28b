//! Why a volume could not be checked at all.

use holdfast_device::DeviceError;

/// Why nothing could be said about a volume.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The device could not even read a superblock.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no Holdfast volume.
    #[error("not a Holdfast volume{}", .found.map(|found| format!(", but {found}")).unwrap_or_default())]
    NotHoldfast {
        /// What it looks like instead.
        found: Option<&'static str>,
    },
    /// The volume was made by a newer program.
    #[error("the volume needs a newer program: {0}")]
    Newer(String),
    /// The volume has an older format.
    #[error("{0}")]
    Older(String),
    /// No superblock is valid, so there is nothing to look at.
    #[error("no superblock is valid: {}", .first.and(.second))]
    NoSuperblock {
        /// What is wrong with slot 0.
        first: holdfast_format::Malformed,
        /// What is wrong with slot 1.
        second: holdfast_format::Malformed,
    },
    /// What was asked for is not there or cannot be read.
    #[error("{0}")]
    Missing(String),
    /// The output could not be written.
    #[error("writing the output: {0}")]
    Output(#[from] std::io::Error),
}
