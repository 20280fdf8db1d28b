//! What one place of a ring does not hold.

/// A part of a ring that one place of it does not hold, as bytes of the device: a frame of the journal, or a batch of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRingPart {
    /// Where it begins in the bad place.
    pub bad: u64,
    /// Where it begins in the other one, which holds it.
    pub sound: u64,
    /// How long it is, padding included.
    pub bytes: u64,
}
