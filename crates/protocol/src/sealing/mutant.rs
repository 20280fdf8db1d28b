//! Deliberate mutants of the way in which branches become durable: with each of them the checker must find a
//! counterexample.

use crate::mutant::mutants;

mutants! {
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
    CursorWithoutFrees "S4" "A commit has the cursor of a walk, and not what the walk has freed."
    FreesWithoutCursor "S4" "A commit has what a walk has freed, and not the cursor."
    BirthComparedOrEqual "S1" "A branch frees what was born in the epoch of its parent, as if it were its own."
    EpochNotMoved "S2" "A snapshot of a tree that has changed in this epoch does not end the epoch."
    EpochNotAboveTheLog "S7" "A recovery goes on in the epoch of the commit, although the log has younger births."
    ChildKeepsParent "S4" "What grew out of a deleted snapshot keeps it as its parent."
    NewSnapshotNotFollowed "S4" "A walk goes on against the branch although a snapshot of it was taken meanwhile."
    NodeBeforeItsItems "S4" "A deletion frees a node before what lies below it."
    WalkIgnoresParent "S4" "A deletion frees what the parent reaches, too."
    WalkIgnoresChild "S4" "A deletion frees what the child reaches, too."
    ChildFreesBehindCursor "S4" "A branch frees what it drops behind the cursor of its parent's deletion."
    ChildLeavesBeforeCursor "S4" "A branch leaves what it drops before the cursor to a walk that has been there."
    RollbackKeepsParent "S6" "What a branch drops behind a rollback is judged by its old parent."
    WalkedReusedAtOnce "R2" "What a walk or a branch has freed is given away before a commit is durable."
}
