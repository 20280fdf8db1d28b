//! How far a salvage is.

/// What is being done, and how much of it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Name of the step.
    pub step: &'static str,
    /// Bytes of the device looked at, or files copied.
    pub done: u64,
    /// How many there will be; 0 if that is not known.
    pub total: u64,
}
