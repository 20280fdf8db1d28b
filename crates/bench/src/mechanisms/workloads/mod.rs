//! What is done through the library for each mechanism: one run in one position, which its caller repeats in turn.

pub(super) mod creates;
pub(super) mod fsyncs;
pub(super) mod group_records;
pub mod logged;
pub(crate) mod pending;
pub(super) mod renames;

use std::io;

/// Runs every position, in rounds that go forwards and backwards in turn, so that none is always the one after the
/// heaviest. What the rounds gave, in the order of `all`.
pub(crate) fn in_rounds<S: Copy, R>(
    all: &[S],
    rounds: u64,
    mut run: impl FnMut(S) -> io::Result<R>,
) -> io::Result<Vec<Vec<R>>> {
    let mut found: Vec<Vec<R>> = all.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for at in 0..all.len() {
            let at = if round % 2 == 0 { at } else { all.len() - 1 - at };
            found[at].push(run(all[at])?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_take_turns() {
        let mut order = String::new();
        let run = |position: char| {
            order.push(position);
            Ok(order.len())
        };
        let found = in_rounds(&['a', 'b'], 3, run).expect("nothing fails");
        assert_eq!(found, [[1, 4, 5], [2, 3, 6]]);
        assert_eq!(order, "abbaab");
    }
}
