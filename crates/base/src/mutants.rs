//! Mutants made on purpose, one at a time, so that the alarm can be tested.
//!
//! A [`Mutant`] is a mistake that a change could make: a flush that is left out,
//! a block that is reused too early. The one place that would make it asks
//! [`is`]. The simulator chooses a mutant and must find it out.
//!
//! Always true: without the feature `mutants` the answer is the constant `false`,
//! so a normal build holds no trace of any of this; with it, and nothing
//! chosen, everything works as usual. Most tests are built with it.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

macro_rules! mutants {
    ($($name:ident $breaks:literal $what:literal;)*) => {
        /// One mutant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $what] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Mutant::$name => stringify!($name),)* }
            }

            /// What is wrong, in one sentence.
            pub fn what(self) -> &'static str {
                match self { $(Mutant::$name => $what,)* }
            }

            /// The rules and promises of DURABILITY that it breaks.
            pub fn breaks(self) -> &'static str {
                match self { $(Mutant::$name => $breaks,)* }
            }
        }
    };
}

mutants! {
    // Flushes and their order.
    LogFlush "P1 P3" "an fsync answers without its flush";
    AnswerBeforeWrite "P1 P3" "an fsync answers others before its batch is written";
    LogDataFlush "P5" "much data is called durable in the log without a flush before the batch";
    StrangerDataFlush "P5" "data beside strangers' fsyncs is called durable without a flush";
    CommitFlush "R5 P3" "a commit counts as durable without its flush";
    CommitDataFlush "P5" "data that a commit does not name is not flushed before it";
    CheckpointFlush "R1" "the superblock is written before the flush of what it reaches";
    SuperblockFlush "R2" "what only the old superblock reaches is given away before the new one is flushed";
    SuperblockSlot "R1 P9" "the superblock always goes to the same slot";
    SuperblockNotMadeDurable "R2 P9" "an opening does not make durable the superblock that it found";
    RecoveryFlush "R1 P9" "a recovery of the journal publishes its superblock before the flush";
    // Space.
    DataReusedEarly "R2" "freed data is given away before the commit";
    NodeReusedEarly "R2" "the old location of a node is given away before the checkpoint";
    DiscardedEarly "R2" "freed blocks are discarded before the commit or checkpoint";
    NodeInPlace "R2 P9" "the copy of a node is written over the node it copies";
    NotPinned "R7" "blocks that the log names are not taken out of the free space in a recovery";
    FreedInRecovery "R2 R7" "blocks that the log gives back may be used in the recovery";
    FreedStaysUsed "P3" "blocks that the log gives back stay in use";
    RecordOneField "R6" "a group's record is skipped when only its count of used blocks is unchanged (M1)";
    RecordStale "R6" "the remembered record of a group is the one before the last (M1)";
    NoSpaceHalf "P8" "a write that is refused for lack of space has made its file larger";
    GrownEarly "P3 P9" "the new part of a volume is used although no superblock says that it is there";
    // Data.
    ReservedNotFlushed "P5" "data of reserved blocks is published without the flush before";
    UnwrittenEarly "R2" "blocks that held data are written in place before the commit that makes them reserved";
    UnwrittenNamed "P1 P3" "a commit names data that was made unwritten before it";
    LateWrite "P5" "extents are published before the write of their data has returned";
    SizeAhead "P5" "the size in the tree runs ahead of the published rounds";
    TruncateKeepsPages "P5 P3" "a truncate leaves the pages behind the new end waiting to be written";
    SumUnchecked "P6" "a read does not verify the checksum of data";
    LogResidentNotRead "P3" "data in the log is not shown to readers";
    LogResidentNotCommitted "R5" "data of the log does not go to its place with a commit";
    LogResidentNotRecovered "R5" "data of the log does not go to its place in a recovery";
    ReplaceNotWrittenBack "P4" "a rename over another file leaves its data behind";
    // Nodes, commits and checkpoints.
    RangeShort "M3 P3" "the last range of a changed node is logged one byte short";
    WalkTakesFromParent "P13 S4" "a deletion frees nodes that the snapshot's parent has";
    WalkTakesFromChild "P13 S4" "a deletion frees nodes that what has grown out of the snapshot has";
    BirthOrEqual "P13 S1" "a branch frees what was born in the epoch of its parent as its own";
    WalkForgetsData "S4 S9" "the cursor of a deletion moves and the data that it passed stays in use";
    ChildKeepsParent "S4" "what has grown out of a deleted snapshot keeps it as its parent";
    RollbackKeepsParent "P13 S6" "what a branch drops behind a rollback is judged by its old parent";
    PromotedAsItWas "S6a" "a branch becomes what its fork is although it has changed since the fork was made";
    EpochNotEnded "P13 S2" "a snapshot of a branch that has changed in this epoch does not end it";
    NewRootBeforeLeaf "P12" "the root of a branch out of nothing is named before the commit knows where it is";
    NewBranchNotCounted "P14" "a branch out of nothing does not count the inodes with which it begins";
    RootNotCarried "P3 P14" "a commit forgets where the trees of branches begin";
    BranchNotLogged "P14 S7" "the log does not say to which branch its records belong";
    DropNotLogged "S7 S9" "the log says nothing of what a branch drops that its parent has had";
    SealNotAwaited "P3 P12" "the log holds what comes behind a snapshot before the snapshot is durable";
    SealKeepsNumber "P3" "a change of the lineage does not leave a number of a batch out";
    SealNotCopied "P3 R2" "a checkpoint writes a sealed node with what was changed behind the seal";
    NodeForgotten "R1" "a checkpoint leaves one node unwritten";
    JournalRoom "P9" "a commit overwrites the beginning of the journal when the ring is full";
    JournalUnverified "P5" "a recovery does not verify the data of the last commit";
    JournalDataNotAgain "P9" "data that came with the last commit is not written again by the recovery";
    GivenUpEpochKept "P3 P9" "a commit that a recovery gave up may come back when that recovery is cut";
    JournalHole "P3" "a commit that was durable and is gone is not missed";
    CopyNotWritten "R10" "a node is written without its copy";
    RingCopyNotWritten "R10" "a frame or a batch is written to its first place only";
    // The log.
    MoveLogged "P3 P9" "a batch of the log holds what has moved within a file";
    LogRoom "P9" "the log's ring is free before the commit is durable";
    BatchOverFreeze "R5" "a batch reaches over the freeze of a commit";
    DroppedWithCommit "P1" "what a commit does not contain is dropped from the log with it";
    LoggedAgain "P3" "what a commit contains is logged behind it again";
    FrozenNotLogged "P1" "what is frozen for a commit is not logged";
    FirstValue "P3" "a key keeps its first value in a batch";
    WeakerInode "P1" "an older value of an inode wins in a batch";
    RenameHalf "P4" "the log forgets that names went away";
    XattrsForgotten "P1" "the log forgets extended attributes";
    OrphanForgotten "P3" "the log forgets that a file without a name is to be collected";
    LogUnverified "P1 P5" "a recovery does not verify the data of the last flush";
    LogDataNotAgain "P9" "data that came with the last flush is not written again by the recovery";
    TornReturns "P3" "a batch that a crash has torn may be completed by the next one and come back";
    LogHole "P3" "a batch that was durable and is gone is not missed";
    ChainUnchecked "P3" "batches need not follow one another's sums";
    SharedSector "P9" "a batch begins inside a sector of the one before";
    AppendedIsDurable "P1 P3" "a batch that was appended without a flush is called durable by the next one";
    BaseForgotten "P1" "patches in the log forget what they lie over";
    InodeNextForgotten "P3" "a recovery forgets which inode numbers were given away";
    LogPlaceForgotten "P9" "a recovery leaves the log where it was";
    // What an fsync is asked for.
    AncestorsForgotten "P1" "an fsync forgets the names above";
    DataForgotten "P1" "an fsync forgets the data of its file";
    ErrorSwallowed "P7" "an fsync does not report that data was lost before";
    ErrorToldOnce "P7" "a write error is reported to one handle only";
}

#[cfg(feature = "mutants")]
static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether this mutant is to be made.
#[cfg(feature = "mutants")]
#[inline]
pub fn is(mutant: Mutant) -> bool {
    CHOSEN.load(Ordering::Relaxed) == mutant as usize
}

/// Whether this mutant is to be made: never in a normal build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(mutant: Mutant) -> bool {
    let _ = mutant;
    false
}

// Evaluated by the compiler: what asks is compiled as if it did not.
#[cfg(not(feature = "mutants"))]
const _: () = assert!(!is(Mutant::LogFlush) && !is(Mutant::ErrorToldOnce));

/// From now on this mutant is made, in the whole program, and no other.
#[cfg(feature = "mutants")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.store(mutant.map_or(usize::MAX, |mutant| mutant as usize), Ordering::Relaxed);
}

/// What is done too late ([`Mutant::LateWrite`]).
#[cfg(feature = "mutants")]
mod late {
    use std::sync::Mutex;

    type Act = Box<dyn FnOnce() + Send>;

    static ACTS: Mutex<Vec<Act>> = Mutex::new(Vec::new());

    /// Puts off `act`.
    pub fn later(act: impl FnOnce() + Send + 'static) {
        ACTS.lock().expect("nobody panics with it").push(Box::new(act));
    }

    /// Does everything that was put off.
    pub fn do_late() {
        let acts = std::mem::take(&mut *ACTS.lock().expect("nobody panics with it"));
        acts.into_iter().for_each(|act| act());
    }
}

#[cfg(feature = "mutants")]
pub use late::{do_late, later};

/// Does `act`: nothing is put off in a normal build.
#[cfg(not(feature = "mutants"))]
pub fn later(act: impl FnOnce() + Send + 'static) {
    act();
}

/// Does nothing: nothing was put off.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub fn do_late() {}
