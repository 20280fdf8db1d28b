//! Data that waits for a flush, and one that came before the batch.

use holdfast_base::Lsn;
use holdfast_device::Flushed;
use holdfast_format::journal::DataExtent;

use super::Pending;

/// Data that was pending at a moment: how much of each generation, which its first operation names.
#[derive(Debug)]
pub(crate) struct Sent(Vec<(Lsn, usize)>);

impl Pending {
    /// The data that is pending now. All of it was written before it was published.
    pub(crate) fn sent(&self) -> Sent {
        let generations = self.generations.iter().filter(|generation| !generation.is_empty());
        Sent(generations.map(|generation| (generation.after, generation.taken.len())).collect())
    }

    /// A flush that began after `sent` was asked for has made that data durable (R3): what of it is pending still needs
    /// none any more. Returns it, for a commit need not name it either.
    pub(crate) fn flushed(&mut self, sent: &Sent, _flushed: &Flushed) -> Vec<DataExtent> {
        let mut durable = Vec::new();
        for generation in &mut self.generations {
            let known = sent.0.iter().find(|(after, _)| *after == generation.after);
            let count = known.map_or(0, |(_, count)| *count);
            generation.flushed(count, |extent| durable.push(extent));
        }
        durable
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{BlockNo, BlockRange};
    use holdfast_device::{Device, MemoryDevice};
    use holdfast_format::log::LogMark;

    use super::*;
    use crate::dropped_extents::{Counts, DroppedExtents};
    use crate::log::LogPosition;
    use crate::log::arrivals::Arrival;
    use crate::transaction::{Changes, Taken, TakenContent};
    use holdfast_format::item::lineage::MAIN;

    fn publish(pending: &mut Pending, lsn: u64, content: TakenContent) {
        let taken = vec![Taken { blocks: BlockRange::new(BlockNo(lsn * 10), 4), content }];
        pending.arrive(
            Lsn(lsn),
            Counts { branch: MAIN, inodes: 1, main: 1 },
            &Changes::default(),
            taken,
            DroppedExtents::default(),
        );
    }

    fn blocks(of: &[DataExtent]) -> Vec<u64> {
        of.iter().map(|extent| extent.block).collect()
    }

    #[test]
    fn a_flush_makes_durable_what_was_published_before_it_and_nothing_else() {
        let flushed = MemoryDevice::new(1 << 16).flush().expect("the device works");
        let mut pending = Pending::new(Lsn(0), LogPosition::at(LogMark::START));
        publish(&mut pending, 1, TakenContent::Written(7));
        pending.add(Arrival::Freeze(LogPosition::at(LogMark::START)));
        publish(&mut pending, 2, TakenContent::Written(7));
        publish(&mut pending, 3, TakenContent::Durable);
        let sent = pending.sent();
        publish(&mut pending, 4, TakenContent::Written(7));
        assert_eq!(pending.unflushed_blocks(), 12);
        assert_eq!(blocks(&pending.flushed(&sent, &flushed)), [10, 20]);
        assert_eq!(pending.unflushed_blocks(), 4);
        // A commit and a batch have taken everything meanwhile: what follows is of other generations.
        let sent = pending.sent();
        pending.thaw();
        pending.take();
        publish(&mut pending, 5, TakenContent::Written(7));
        assert_eq!(blocks(&pending.flushed(&sent, &flushed)), [0; 0]);
        assert_eq!(pending.unflushed_blocks(), 4);
    }
}
