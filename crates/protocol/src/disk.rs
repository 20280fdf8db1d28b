//! The device of the model: what each location holds for certain, and what was written since.
//!
//! A write that has returned may be lost, torn, or overtaken until a flush. So a
//! power cut leaves at each location what was durable there, any one of the later
//! writes, or a torn one. A flush is one step: what other threads write while a
//! real one runs may or may not be covered by it, and both orders are explored.
//!
//! Knows nothing of what the contents mean to one another.

use crate::shared::Shared;

/// Files of the model.
pub const FILES: usize = 2;
/// Blocks for data and nodes together: whatever is freed too early is soon used by the other kind.
pub const POOL: usize = 7;
/// Most batches, and most commits, that a ring holds.
pub const RING_MAX: usize = 4;

/// The shape of the rings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rings {
    /// Batches that the log's ring holds.
    pub log: u8,
    /// Commits that the journal's ring holds.
    pub journal: u8,
    /// Whether what is in them stands twice.
    pub twice: bool,
}

/// One of the places at which a batch or a commit may stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RingPlace {
    /// There always is this one.
    First,
    /// Where rings stand twice.
    Second,
}

impl Rings {
    /// The places of each batch and each commit.
    pub fn places(self) -> &'static [RingPlace] {
        match self.twice {
            true => &[RingPlace::First, RingPlace::Second],
            false => &[RingPlace::First],
        }
    }
}

/// Names bytes that were written once: a block with them has them from that write.
pub type Version = u8;
/// Of a block that a file has reserved: it reads as zeros, whatever the device holds there.
pub const ZEROS: Version = 0;
/// A block of the pool.
pub type Block = u8;
/// A moment of history.
pub type Lsn = u8;

/// Where the content of a file lies, and what its checksum says it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// Its block.
    pub block: Block,
    /// Its content.
    pub version: Version,
}

/// What all files are at one moment.
pub type Tree = [Option<Extent>; FILES];

/// Where the log goes on: the last batch, and its sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LogMark {
    /// Its number.
    pub batch: u8,
    /// Bytes from the start of the ring, in batches: where the next one goes.
    pub next: u8,
    /// What the next one must name as the one before it.
    pub sum: u64,
}

/// Where the journal goes on: the last commit, and its sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct JournalMark {
    /// Its number.
    pub commit: u8,
    /// What the next one must name as the one before it.
    pub sum: u64,
}

/// A superblock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Superblock {
    /// Its checkpoint; the slot is this modulo two.
    pub epoch: u8,
    /// The node of the tree, and the epoch that it was born in.
    pub location: (Block, u8),
    /// The last operation it contains.
    pub lsn: Lsn,
    /// The journal behind it.
    pub journal: JournalMark,
    /// The log behind it.
    pub log: LogMark,
}

/// What a commit says a node was before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Base {
    /// The node at the same location, as commits before left it.
    Changed,
    /// The node at another location, born in this epoch.
    Copied(Block, u8),
}

/// A commit of the journal: what changed in the node, and what a superblock would say.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Commit {
    /// Its number.
    pub number: u8,
    /// Sum of the one before.
    pub prior: u64,
    /// The last commit that was durable when it was written.
    pub durable: u8,
    /// Of the changers whose work it holds.
    pub epoch: u8,
    /// Its node, and the epoch that it was born in.
    pub location: (Block, u8),
    /// What the node was.
    pub base: Option<Base>,
    /// What became of files.
    pub changes: Vec<(u8, Option<Extent>)>,
    /// Data that becomes durable with it.
    pub extents: Vec<Extent>,
    /// The last operation it contains.
    pub lsn: Lsn,
    /// Where the log goes on.
    pub log: LogMark,
}

/// Data of a block that a batch takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Content {
    /// Written to its location, and durable with the batch's flush: recovery looks whether it is there.
    Summed,
    /// Durable before the batch was written.
    Durable,
    /// In the batch, as a change of another block that holds this version.
    Inside(Option<Extent>),
}

/// A block that a batch takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Take {
    /// The block, and what it holds afterwards.
    pub extent: Extent,
    /// Where its data is.
    pub content: Content,
}

/// A batch of the log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Batch {
    /// Its number.
    pub number: u8,
    /// Sum of the one before.
    pub prior: u64,
    /// The last batch that was durable when it was written.
    pub durable: u8,
    /// The last operation before it.
    pub after: Lsn,
    /// Its last operation.
    pub last: Lsn,
    /// What became of files.
    pub puts: Vec<(u8, Option<Extent>)>,
    /// Blocks taken.
    pub takes: Vec<Take>,
    /// Blocks freed.
    pub frees: Vec<Block>,
}

impl Commit {
    /// A marker behind `mark`: it follows nothing, and calls nothing durable but what a mutant does.
    pub fn marker(mark: JournalMark, durable: u8) -> Commit {
        Commit {
            number: mark.commit + 1,
            prior: !mark.sum,
            durable,
            epoch: 0,
            location: (0, 0),
            base: None,
            changes: Vec::new(),
            extents: Vec::new(),
            lsn: 0,
            log: LogMark::default(),
        }
    }
}

impl Batch {
    /// A batch without content behind `mark`, which follows nothing: of a recovery, or to call the batch before it durable.
    pub fn marker(mark: LogMark, durable: u8) -> Batch {
        Batch {
            number: mark.batch + 1,
            prior: !mark.sum,
            durable,
            after: 0,
            last: 1,
            puts: Vec::new(),
            takes: Vec::new(),
            frees: Vec::new(),
        }
    }
}

/// What one location holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Held {
    /// Zeros, or half of something.
    Torn,
    /// Data.
    Data(Version),
    /// The node of the tree, with the epoch that it was born in.
    Node(u8, Tree),
    /// A batch of the log.
    Batch(Shared<Batch>),
    /// A commit of the journal.
    Commit(Shared<Commit>),
    /// A superblock.
    Superblock(Shared<Superblock>),
    /// A batch or a commit of this sum, of which one byte has rotted.
    Rotten(u64),
}

/// A location on the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Location {
    /// A slot.
    Superblock(u8),
    /// Of the log's ring.
    Log(RingPlace, u8),
    /// Of the journal's ring.
    Journal(RingPlace, u8),
    /// Of the pool.
    Pool(Block),
}

impl Location {
    fn index(self) -> usize {
        match self {
            Location::Superblock(slot) => slot as usize % 2,
            Location::Log(RingPlace::First, at) => 2 + at as usize,
            Location::Journal(RingPlace::First, at) => 2 + RING_MAX + at as usize,
            Location::Pool(block) => 2 + 2 * RING_MAX + block as usize,
            Location::Log(RingPlace::Second, at) => ONCE + at as usize,
            Location::Journal(RingPlace::Second, at) => ONCE + RING_MAX + at as usize,
        }
    }

    /// Of both rings, in all their places.
    pub fn of_rings(rings: Rings) -> impl Iterator<Item = Location> {
        rings.places().iter().flat_map(move |&place| {
            let log = (0..rings.log).map(move |at| Location::Log(place, at));
            log.chain((0..rings.journal).map(move |at| Location::Journal(place, at)))
        })
    }
}

/// Locations without second places, which come behind them.
const ONCE: usize = 2 + 2 * RING_MAX + POOL;

/// A write that no flush has made durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Write {
    at: usize,
    /// A flush that failed was behind it: it can be read, and no later flush makes it durable.
    is_doomed: bool,
    held: Held,
}

/// What a power cut leaves of a location with unflushed writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Left {
    /// What was durable.
    Durable,
    /// Half of a write.
    Torn,
    /// A write before a flush that failed.
    Doomed,
    /// The write of this number.
    Later(u8),
}

/// The device.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Device {
    durable: Shared<Vec<Held>>,
    /// By location, and in each by time. What is doomed comes first, and is one.
    writes: Vec<Write>,
}

impl Device {
    /// Nothing was ever written.
    pub(crate) fn new(rings: Rings) -> Device {
        let locations = ONCE + if rings.twice { 2 * RING_MAX } else { 0 };
        Device { durable: Shared::new(vec![Held::Torn; locations]), writes: Vec::new() }
    }

    fn last(&self, at: Location) -> Option<&Write> {
        self.writes.iter().rfind(|write| write.at == at.index())
    }

    /// What a read sees: the latest write.
    pub(crate) fn read(&self, at: Location) -> &Held {
        self.last(at).map_or(&self.durable[at.index()], |write| &write.held)
    }

    /// What was durable in this location is gone, or reads as what was never written there.
    pub(crate) fn rot(&mut self, at: Location) {
        self.replace(at, Held::Torn);
    }

    /// One byte of the batch or commit in this location rots.
    pub(crate) fn rot_byte(&mut self, at: Location) {
        let sum = match self.read(at) {
            Held::Batch(batch) => batch.sum(),
            Held::Commit(commit) => commit.sum(),
            _ => return,
        };
        self.replace(at, Held::Rotten(sum));
    }

    fn replace(&mut self, at: Location, held: Held) {
        self.writes.retain(|write| write.at != at.index());
        self.durable.change(|durable| durable[at.index()] = held);
    }

    /// Writes; durable with the next flush.
    pub(crate) fn write(&mut self, location: Location, held: Held) {
        let is_last = |last: &Write| !last.is_doomed && last.held == held;
        let at = location.index();
        if self.last(location).map_or(self.durable[at] == held, is_last) {
            // A write of what is there already leaves nothing that a cut could change.
            return;
        }
        let place = self.writes.partition_point(|write| write.at <= at);
        self.writes.insert(place, Write { at, is_doomed: false, held });
    }

    /// Everything written is durable.
    pub(crate) fn flush(&mut self) {
        let writes = std::mem::take(&mut self.writes);
        if writes.iter().all(|write| write.is_doomed) {
            self.writes = writes;
            return;
        }
        self.durable.change(|durable| {
            for writes in of_locations(&writes) {
                match writes.last() {
                    Some(last) if !last.is_doomed => durable[last.at] = last.held.clone(),
                    last => self.writes.extend(last.cloned()),
                }
            }
        });
    }

    /// A flush fails: what was written can be read as long as power lasts, and is never durable.
    pub(crate) fn fail_flush(&mut self) {
        let doomed = |write: &Write| Write { is_doomed: true, ..write.clone() };
        let last = of_locations(&self.writes).filter_map(|writes| writes.last());
        self.writes = last.map(doomed).collect();
    }

    /// No power cut is to come: only what is read makes a difference.
    pub(crate) fn settle(&mut self) {
        if !self.writes.is_empty() {
            let writes = self.writes.drain(..);
            self.durable.change(|durable| writes.for_each(|write| durable[write.at] = write.held));
        }
    }

    /// Whether a power cut would find anything to lose.
    pub(crate) fn is_flushed(&self) -> bool {
        self.writes.is_empty()
    }

    /// All that a power cut can leave, as choices for the locations with unflushed writes, in their order.
    pub(crate) fn cuts(&self) -> Vec<Vec<Left>> {
        let mut cuts = vec![Vec::new()];
        for writes in of_locations(&self.writes) {
            let mut choices = vec![Left::Durable];
            if self.durable[writes[0].at] != Held::Torn {
                choices.push(Left::Torn);
            }
            choices.extend(writes[0].is_doomed.then_some(Left::Doomed));
            let later = writes.len() - usize::from(writes[0].is_doomed);
            choices.extend((0..later as u8).map(Left::Later));
            let longer = |cut: Vec<Left>| {
                choices.iter().map(move |left| [&cut[..], &[*left]].concat()).collect::<Vec<_>>()
            };
            cuts = cuts.into_iter().flat_map(longer).collect();
        }
        cuts
    }

    /// Power fails and leaves this.
    pub(crate) fn cut(&mut self, choices: &[Left]) {
        let writes = std::mem::take(&mut self.writes);
        self.durable.change(|durable| {
            for (writes, left) in of_locations(&writes).zip(choices) {
                let first = usize::from(writes[0].is_doomed);
                durable[writes[0].at] = match left {
                    Left::Durable => continue,
                    Left::Torn => Held::Torn,
                    Left::Doomed => writes[0].held.clone(),
                    Left::Later(number) => writes[first + *number as usize].held.clone(),
                };
            }
        });
    }

    /// The version of a block, if it holds data.
    pub(crate) fn data(&self, block: Block) -> Option<Version> {
        match self.read(Location::Pool(block)) {
            Held::Data(version) => Some(*version),
            _ => None,
        }
    }
}

/// The writes of each location.
fn of_locations(writes: &[Write]) -> impl Iterator<Item = &[Write]> {
    writes.chunk_by(|one, other| one.at == other.at)
}
