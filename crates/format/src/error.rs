//! What a decoder says of bytes that break a rule of the format.

/// Bytes that are not what the format allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Malformed {
    /// The structure that was being decoded.
    pub what: &'static str,
    /// The rule that is broken.
    pub why: String,
}

impl Malformed {
    /// `what` breaks the rule `why`.
    pub fn new(what: &'static str, why: impl Into<String>) -> Malformed {
        Malformed { what, why: why.into() }
    }
}
