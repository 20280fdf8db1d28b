//! Which inodes were fsynced lately, and how long a batch takes: guides callers that write much data.

use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::{InodeNo, Receipt};

/// Longer ago than this is not lately.
const LATELY: Duration = Duration::from_millis(100);

/// The latest batch, and the latest that was made for another inode.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    last: Option<(InodeNo, Stopwatch)>,
    other: Option<Stopwatch>,
    took: Duration,
}

impl Rhythm {
    /// A batch was made for an fsync of `about`.
    pub(super) fn batch(&mut self, about: InodeNo, receipt: &Receipt) {
        if let Some((inode, time)) = self.last.replace((about, Stopwatch::start()))
            && inode != about
        {
            self.other = Some(time);
        }
        self.took = Duration::from_nanos(receipt.write_ns + receipt.flush_ns);
    }

    /// How long the last batch took.
    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// How long a batch takes, if anything but `of` was fsynced lately.
    pub(super) fn beside(&self, of: Option<InodeNo>) -> Option<Duration> {
        let time = match self.last {
            Some((inode, _)) if Some(inode) == of => self.other,
            last => last.map(|(_, time)| time),
        };
        time.filter(|time| time.elapsed() < LATELY).map(|_| self.took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_no_stranger_to_itself() {
        let (one, other) = (InodeNo(20), InodeNo(21));
        let receipt = Receipt { write_ns: 2, flush_ns: 3, ..Receipt::default() };
        let took = Some(Duration::from_nanos(5));
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.beside(None), None);
        rhythm.batch(one, &receipt);
        rhythm.batch(one, &receipt);
        assert_eq!([rhythm.beside(Some(one)), rhythm.beside(Some(other))], [None, took]);
        rhythm.batch(other, &receipt);
        rhythm.batch(other, &receipt);
        assert_eq!([rhythm.beside(Some(one)), rhythm.beside(Some(other))], [took, took]);
        assert_eq!(rhythm.beside(None), took);
    }
}
