//! Deliberate mutants of the rules of branches: with each of them the checker must find a counterexample.

use crate::mutant::mutants;

mutants! {
    BirthComparedOrEqual "S1" "A branch frees what was born in the epoch of its parent, as if it were its own."
    ParentNotAsked "S1" "A branch frees whatever it drops."
    EpochNotMoved "S2" "A snapshot of a tree that has changed in this epoch does not end the epoch."
    ForkBesideItsSnapshot "S3" "The parent of a fork is the parent of the snapshot that it was made from."
    NewLeafNotTaken "S3" "The leaf of a branch that grows out of nothing lies in a block that is not in use."
    NewBranchOutOfAnother "S3" "A branch that grows out of nothing begins with the tree of another one, and no parent."
    WalkIgnoresParent "S4" "A deletion frees what the parent reaches, too."
    WalkIgnoresChild "S4" "A deletion frees what the child reaches, too."
    CursorBeforeFree "S4" "The cursor moves in a transaction before the one that frees."
    FreeBeforeCursor "S4" "The cursor moves in a transaction behind the one that frees."
    CursorKeptInMemory "S4" "The cursor is no part of any transaction."
    CursorWithoutFrees "S4" "A commit has the cursor of a walk, and not what the walk has freed."
    FreesWithoutCursor "S4" "A commit has what a walk has freed, and not the cursor."
    NodeBeforeItsItems "S4" "A deletion frees a node before what lies below it."
    ChildKeepsParent "S4" "What grew out of a deleted snapshot keeps it as its parent."
    ChildFreesBehindCursor "S4" "A branch frees what it drops behind the cursor of its parent's deletion, which the walk will meet."
    ChildLeavesBeforeCursor "S4" "A branch leaves what it drops before the cursor to a walk that has been there."
    NewSnapshotNotFollowed "S4" "A walk goes on against the branch although a snapshot of it was taken meanwhile."
    NeighboursDoNotWait "S4" "Two snapshots are deleted at once of which one is the parent of the other."
    DeletedWithTwoChildren "S4" "A snapshot is deleted although two trees grew out of it."
    BranchDeletedWhole "S5" "A branch that is deleted takes what its parent reaches with it."
    RollbackKeepsParent "S6" "A branch that is rolled back keeps its parent."
    PromotedAsItWas "S6a" "A branch becomes what its fork is although it has changed since the fork was made."
    PromotedBesideItsFork "S6a" "A branch has the tree of its fork, and grows out of what it was itself."
    FreedReusedAtOnce "R2" "A block may be given away before the commit that frees it is durable."
    ReservedFilledInPlace "S2" "Reserved blocks that a snapshot has as well are written in place."
    SharedUnwritten "S2" "A branch makes blocks unwritten that a snapshot has as well."
    FilledBeforeDurable "R2" "A block is written in place before the transaction is durable that made it unwritten."
    BarrierMissing "S7" "The log holds what comes behind a snapshot before the snapshot is durable."
    DropLoggedAsFree "S7" "The log says of all that a branch gives up that it is free, whatever a replay finds."
    DropNotLogged "S7" "The log says nothing of what a branch gives up that is not surely its own."
    ReplayFreesAll "S7" "A replay frees all that the log says was dropped."
    ReplayFreesNothing "S7" "A replay frees nothing that the log says was dropped."
    JudgedFromForgotten "S7" "The log says free of what a snapshot has had whose deletion has ended, but not in a durable commit."
    JudgedFromEndsEarly "S7" "A deletion counts as durable with the commit that is durable next, which may have begun before its end."
    ParentFromLog "S7" "A replay gives a branch that is there the parent that the log names."
    ParentOfNewFromItem "S7" "A replay gives a branch that is new the parent that its item has, not the snapshot that it was put beside."
    NewBranchLogged "S7" "The log tells of a branch that grows out of nothing, and no commit waits for it."
    EpochNotAboveTheLog "S7" "A recovery goes on in the epoch of the commit, although the log has younger births."
}

impl Mutant {
    /// Whether it is found where each commit is one step (`false`), and where commits take time and there is a log.
    pub fn found_with_log(self) -> &'static [bool] {
        use Mutant::*;
        match self {
            BirthComparedOrEqual
            | EpochNotMoved
            | WalkIgnoresParent
            | WalkIgnoresChild
            | NodeBeforeItsItems
            | ChildKeepsParent
            | ChildFreesBehindCursor
            | ChildLeavesBeforeCursor
            | NewSnapshotNotFollowed
            | RollbackKeepsParent
            | FreedReusedAtOnce => &[false, true],
            CursorWithoutFrees | FreesWithoutCursor => &[true],
            _ if self.rule() == "S7" => &[true],
            _ => &[false],
        }
    }
}
