//! A ring as a chain of parts, each of which may be read in each place of the ring: frames of the journal, batches of the log.
//!
//! Knows nothing of which of them are needed: a scrub asks that.

use crate::Result;

/// Which of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingName {
    /// That of the frames of commits.
    Journal,
    /// That of the batches of fsyncs.
    Log,
}

/// What comes next in a ring, read in one of its places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPart<M> {
    /// The commit or batch.
    pub(crate) number: u64,
    /// The last one that was durable when it was written.
    pub(crate) durable: u64,
    /// Its length, padding included.
    pub(crate) bytes: u64,
    pub(crate) sum: u64,
    /// Behind it.
    pub(crate) after: M,
}

/// A ring that is read part by part.
pub(crate) trait RingParts {
    /// Behind a part, with what the next one has to follow.
    type Mark: Copy;
    const NAME: RingName;
    /// Bytes in which a part says how long it is.
    const UNIT: u64;
    /// Where the ring stands in memory is counted in so many bytes.
    const COUNTED: u64;

    /// One or two.
    fn places(&self) -> usize;

    /// Byte of the device at which what comes at `mark` begins in a place.
    fn on_device(&self, mark: &Self::Mark, place: usize) -> u64;

    /// The last commit or batch that is complete before `mark`.
    fn number(mark: &Self::Mark) -> u64;

    /// The part that follows `mark`, if this place has it whole.
    fn read(&self, mark: &Self::Mark, place: usize) -> Result<Option<RingPart<Self::Mark>>>;

    /// Why what should follow `mark` was durable once, if anything in the ring says so. `proven` is the last one that the parts before it
    /// call durable.
    fn hole(&self, mark: &Self::Mark, proven: u64) -> Result<Option<String>>;
}
