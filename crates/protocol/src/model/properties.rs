//! What is asked of all states: every promise holds in each of them, and what the model is for happens in some.

use stateright::Property;

use super::{MachineState, Protocol};
use crate::memory::{Checkpointer, Committer, Leader, Memory};

/// A block that was reserved is written in place.
pub const FILLED: &str = "a reserved block is written in place";
/// A block that held data is made unwritten, and written in place.
pub const UNWRITTEN: &str = "a block that held data is made unwritten and written in place";

/// The log is replayed although one of its places, or a part of one, is lost.
pub const ROTTEN: &str = "a log that has rotted in one place is replayed";

/// The property that must hold in every state.
pub const HOLDS: &str = "every promise holds";

/// What is asked of the states of `protocol`.
pub(super) fn of(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties =
        vec![Property::always(HOLDS, |_, state: &MachineState| state.violation.is_none())];
    if protocol.broken.is_none() {
        // A model in which nothing happens would keep every promise.
        properties.extend([
            Property::sometimes("a recovery replays the log", |_, state: &MachineState| {
                state.seen.replayed_log
            }),
            Property::sometimes("a recovery replays the journal", |_, state: &MachineState| {
                state.seen.replayed_journal
            }),
            Property::sometimes("a recovery replays both", |_, state: &MachineState| {
                state.seen.replayed_journal && state.seen.replayed_log
            }),
            Property::sometimes("a thread dies beside a checkpoint", |_, state: &MachineState| {
                state.memory().is_some_and(|memory| {
                    memory.stopped && memory.checkpointer != Checkpointer::Idle
                })
            }),
            Property::sometimes(
                "a volume is refused since a ring was wiped",
                |_, state: &MachineState| state.seen.refused,
            ),
            Property::sometimes("unanswered operations are lost", |_, state: &MachineState| {
                state.seen.lost
            }),
            Property::sometimes("batches wait for a flush", |_, state: &MachineState| {
                state.memory().is_some_and(|memory| memory.appended.is_some())
            }),
            Property::sometimes("a batch is confirmed", |_, state: &MachineState| {
                let is_said = |memory: &Memory| {
                    memory.confirmed == memory.place.mark.batch && memory.confirmed > 0
                };
                state.memory().is_some_and(is_said)
            }),
            Property::sometimes("a batch is written beside a commit", |_, state: &MachineState| {
                state.memory().is_some_and(|memory| {
                    matches!(memory.leader, Leader::Written { .. })
                        && matches!(memory.committer, Committer::Written { .. })
                })
            }),
            Property::sometimes(
                "a commit is written beside a checkpoint",
                |_, state: &MachineState| {
                    state.memory().is_some_and(|memory| {
                        matches!(memory.committer, Committer::Written { .. })
                            && matches!(memory.checkpointer, Checkpointer::Published(_))
                    })
                },
            ),
        ]);
    }
    if protocol.broken.is_none() && protocol.bounds.rings.twice {
        properties.push(Property::sometimes(ROTTEN, |_, state: &MachineState| {
            state.seen.rotten && state.seen.replayed_log && state.answered > 0
        }));
    }
    if protocol.broken.is_none() && protocol.bounds.reserved {
        properties.extend([
            Property::sometimes(FILLED, |_, state: &MachineState| state.filling().is_some()),
            Property::sometimes(UNWRITTEN, |_, state: &MachineState| {
                state.filling().is_some_and(|memory| memory.unwrote > 0)
            }),
        ]);
    }
    properties
}
