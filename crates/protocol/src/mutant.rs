//! Deliberate mutants of the protocol: with each of them the checker must find a counterexample.
//!
//! A rule that can be broken without a counterexample is either not needed or
//! not modelled; both are worth knowing.

macro_rules! mutants {
    ($($name:ident $rule:literal $sentence:literal)*) => {
        /// What is done wrong on purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Mutant {
            $(#[doc = $sentence] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            /// The promise or rule that it breaks.
            pub fn rule(self) -> &'static str {
                match self { $(Mutant::$name => $rule,)* }
            }

            /// What is done wrong.
            pub fn sentence(self) -> &'static str {
                match self { $(Mutant::$name => $sentence,)* }
            }
        }
    };
}

pub(crate) use mutants;

mutants! {
    LogFlushDropped "P1" "A leader answers without the flush behind its batch."
    AppendedAnswered "P1" "A batch that was appended without a flush counts as durable."
    AppendedCalledDurable "P1" "A header names a batch that was appended and not flushed as durable."
    ConfirmedAsHistory "P3" "What confirms a batch follows it."
    CommitFlushDropped "P1" "A commit thaws without the flush behind its frames."
    NodesFlushDropped "R1" "A superblock is published before the nodes that it reaches are flushed."
    PublishFlushDropped "R2" "A checkpoint releases what was before it without the flush behind its superblock."
    DeadLeaderStopsNothing "P1" "A thread dies in the middle of a batch, and the next leader goes on."
    DeadCommitterStopsNothing "P1" "A thread dies in the middle of a commit, and the next commit goes on."
    DeadCheckpointerStopsNothing "R1" "A thread dies in the middle of a checkpoint, and the next checkpoint goes on."
    SlotsDoNotAlternate "R1" "A superblock is written over the one that counts."
    DataReusedAtOnce "R2" "A block of data that an operation freed may be given away at once."
    DataReusedAtFreeze "R2" "A block of data is given away when the commit begins, not when it is durable."
    NodeReusedAtSeal "R2" "The old location of a node is given away when a checkpoint begins, not when it is durable."
    NodeReusedAtThaw "R2" "The old location of a node is given away with a commit, like data."
    BatchOverFreeze "P3" "A batch of the log reaches over the freeze of a commit."
    LogReleasedAtFreeze "R5" "The log is dead when the commit begins, not when it is durable."
    JournalReleasedAtSeal "R1" "The journal is dead when a checkpoint begins, not when it is durable."
    LogResidentNotWritten "R5" "A commit does not write the data that only the log holds."
    LogResidentWrittenLate "R5" "A commit writes the data that only the log holds behind its flush."
    LogResidentNotNamed "R5" "A commit does not name the data that it writes because only the log holds it."
    PendingForgotten "R5" "An operation after the freeze is dropped from what waits when the commit is durable."
    LogDataNotVerified "P3" "A recovery believes the last batch without looking for its data."
    CommitDataNotVerified "P3" "A recovery believes the last commit without looking for its data."
    FreedDataNamed "P1" "A commit names data that was freed before it."
    NotPinned "R7" "A replay copies nodes to blocks that the log names."
    NotMadeDurable "R1" "A recovery does not make the superblock durable that it was opened from."
    FoundDataNotWritten "P1" "A recovery does not write the data again that it found and believed."
    GivenUpBatchKept "P3" "The log goes on in front of a batch that was given up."
    GivenUpEpochKept "P3" "The journal goes on in the epoch of a commit that was given up."
    InPlaceNotFlushed "P5" "Data in a reserved block is published without the flush behind its write."
    UnwrittenEarly "R2" "A block that an operation made unwritten is written before that operation is durable."
    UnwrittenAfterLog "R2" "A block that an operation made unwritten is written when only the log holds that operation."
    UnwrittenNamed "R2" "A commit names data that was made unwritten before it."
    MarkNotRenewed "R12" "The marks of a recovery have sums of nothing that lies in the rings."
    MarkerWrittenLate "R12" "The marker of a recovery is written beside the superblock that has its sum."
    MarkerCallsDurable "P3" "The marker of a recovery calls the batch or commit before it durable."
    MarkerWithoutRoom "R12" "No place in a ring is kept for the marker of a recovery."
    FoundMarkKept "R12" "The journal goes on behind a commit that a recovery has read, without a marker."
    BatchBeforeMarkReused "R12" "Batches are written over the one before the mark while none behind it is durable."
    FrameBeforeMarkReused "R12" "A commit is written over the one before the mark while none behind it is durable."
    EarlierMarkNotLookedAt "R12" "A log counts as wiped by the mark of a commit that may never have been durable."
    WipedNotLookedFor "R12" "A recovery believes a ring in which nothing is left."
    RottenCountsAsWiped "R12" "A recovery takes a ring for wiped because a byte before its mark has rotted."
    BatchPlaceWrittenLate "R11" "The second place of a batch is written behind the flush that answers."
    CommitPlaceWrittenLate "R11" "The second place of a commit is written behind the flush that thaws."
    SecondPlaceNotRead "R11" "A recovery takes nothing from second places."
    OnePlaceForAll "R11" "A recovery takes all batches from the place that has the first of them."
    SecondPlaceNotChained "R11" "A batch in a second place counts by its number, whatever it follows."
}
