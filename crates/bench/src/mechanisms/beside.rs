//! A table of befores and afters, ours beside the published ones.

use super::published::Both;
use crate::counts::{median, ratio};
use crate::result::{Cell, Row, Table, Unit};

/// What rounds gave in both positions of a switch. Empty where it was not measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    pub(super) before: Vec<f64>,
    pub(super) after: Vec<f64>,
}

impl Pair {
    /// The median of before over that of after: the gain of a time.
    pub(super) fn shorter(&self) -> Option<f64> {
        self.both().and_then(|(before, after)| ratio(before, after))
    }

    /// The median of after over that of before: the gain of a rate.
    pub(super) fn faster(&self) -> Option<f64> {
        self.both().and_then(|(before, after)| ratio(after, before))
    }

    fn both(&self) -> Option<(f64, f64)> {
        let measured = !self.before.is_empty() && !self.after.is_empty();
        measured.then(|| (median(self.before.clone()), median(self.after.clone())))
    }
}

/// What the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// Rates.
    More,
    /// Times.
    Less,
}

impl Better {
    pub(super) fn gain(self, pair: &Pair) -> Option<f64> {
        match self {
            Better::More => pair.faster(),
            Better::Less => pair.shorter(),
        }
    }

    pub(super) fn published(self, both: Both) -> f64 {
        match self {
            Better::More => both.after / both.before,
            Better::Less => both.before / both.after,
        }
    }
}

/// A table with columns for both positions, called `words`, before first; `unit` is that of the figures.
pub(super) fn table(label: &str, words: (&str, &str), unit: Unit) -> Table {
    Table::new(label)
        .column("before", format!("before: {}", words.0), unit)
        .column("after", format!("after: {}", words.1), unit)
        .column("gain", "gain", Unit::Ratio)
        .column("published-before", "published before", unit)
        .column("published-after", "after", unit)
        .column("published-gain", "gain", Unit::Ratio)
}

/// A row of such a table. `why` says why a side was not measured.
pub(super) fn row(
    label: String,
    pair: &Pair,
    better: Better,
    published: Option<Both>,
    why: &str,
) -> Row {
    let cell = |rounds: &[f64]| match rounds.is_empty() {
        true => Cell::missing(why),
        false => Cell::of(rounds),
    };
    Row::new(label)
        .cell(cell(&pair.before))
        .cell(cell(&pair.after))
        .cell(Cell::maybe(better.gain(pair)))
        .cell(Cell::maybe(published.map(|both| both.before)))
        .cell(Cell::maybe(published.map(|both| both.after)))
        .cell(Cell::maybe(published.map(|both| better.published(both))))
}

/// Points of the medians that were measured.
pub(super) fn points<'a>(rows: impl Iterator<Item = (u64, &'a [f64])>) -> Vec<(f64, f64)> {
    rows.filter(|(_, rounds)| !rounds.is_empty())
        .map(|(x, rounds)| (x as f64, median(rounds.to_vec())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_above_one_when_it_got_better() {
        let pair = Pair { before: vec![30.0, 31.0, 29.0], after: vec![10.0] };
        assert_eq!((pair.shorter(), pair.faster()), (Some(3.0), Some(1.0 / 3.0)));
        let published = Both { before: 27.0, after: 9.0 };
        assert_eq!(Better::Less.published(published), 3.0);
        let row = row("x".into(), &pair, Better::Less, Some(published), "");
        assert_eq!(row.cells[2], Cell::one(3.0));
        let table = table("files", ("a", "b"), Unit::Nanoseconds).row(row);
        assert_eq!(table.cell("x", "published-gain"), Some(&Cell::one(3.0)));
    }

    #[test]
    fn what_was_left_out_says_why() {
        let pair = Pair { before: Vec::new(), after: vec![1.0] };
        let row = row("x".into(), &pair, Better::More, None, "it would take 90 s");
        assert_eq!(row.cells[0], Cell::missing("it would take 90 s"));
        assert_eq!(row.cells[2], Cell::missing(""));
        let rounds: [&[f64]; 2] = [&[], &[2.0]];
        assert_eq!(points([1, 2].into_iter().zip(rounds)), [(2.0, 2.0)]);
    }
}
