//! Why a volume is not repaired.

use holdfast_check::CheckError;
use holdfast_device::DeviceError;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// There is no volume to repair, or it cannot be looked at.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What is wrong is beyond this program, or needs a decision; what it is, and what to do.
    #[error("{0}")]
    Refused(String),
    /// Nothing is free for what must be written anew.
    #[error(
        "no {0} neighbouring blocks of the volume are free for what must be written anew: nothing is written; copy its files out with `holdfast salvage`"
    )]
    NoSpace(u64),
}

impl RepairError {
    pub(crate) fn refused<T>(why: impl Into<String>) -> Result<T, RepairError> {
        Err(RepairError::Refused(why.into()))
    }
}
