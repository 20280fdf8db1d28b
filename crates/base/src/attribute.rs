//! Extended attributes that the project gives a meaning to.

/// Which snapshot this one is a copy of, at its root. A receive writes it (`docs/STREAM.md`). It means nothing in another volume, so
/// neither a stream nor an archive carries it.
pub const RECEIVED: &[u8] = b"trusted.holdfast.received";
