//! Where an axis begins and ends, and which values are written at it.

use crate::result::{Axis, Unit};

/// Nearer to each other, as shares of the axis, numbers touch.
const APART: f64 = 0.085;

/// An axis with numbers on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    /// The value at its beginning.
    pub(super) low: f64,
    /// The value at its end.
    pub(super) high: f64,
    /// The values that are written, upwards.
    pub(super) values: Vec<f64>,
    log: bool,
}

impl Ticks {
    /// An axis on which all of `values` lie.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Ticks {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        if axis.log {
            // Zero and less have no place on it.
            let least = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            if least.is_finite() && most > 0.0 {
                return Ticks::log(axis.unit, least, most);
            }
        }
        Ticks::linear(axis.unit, least.min(0.0), most)
    }

    /// The same for an axis on which few values were chosen: on one of powers they are what is written.
    pub(super) fn across(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Ticks {
        let mut ticks = Ticks::new(axis, values.clone());
        let mut chosen: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        chosen.sort_by(f64::total_cmp);
        chosen.dedup();
        if !ticks.log || chosen.len() < 2 {
            return ticks;
        }
        ticks.low = chosen[0];
        ticks.high = chosen[chosen.len() - 1];
        // From the largest down, what does not touch its neighbour.
        ticks.values.clear();
        let mut last = f64::INFINITY;
        for value in chosen.into_iter().rev() {
            let place = ticks.place(value).unwrap_or(0.0);
            if last - place >= APART && (place == 0.0 || place >= APART) {
                ticks.values.insert(0, value);
                last = place;
            }
        }
        ticks
    }

    /// Where `value` lies, from 0 at the beginning to 1 at the end. `None` for what has no place.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let of = |value: f64| if self.log { value.ln() } else { value };
        let place = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        place.is_finite().then_some(place)
    }

    fn linear(unit: Unit, least: f64, most: f64) -> Ticks {
        let (least, most) =
            if least.is_finite() && most > least { (least, most) } else { (0.0, 1.0) };
        let rough = (most - least) / 5.0;
        let step = match unit {
            Unit::Bytes => 2f64.powf(rough.max(1.0).log2().ceil()),
            Unit::Count | Unit::None => nice(rough).max(1.0),
            _ => nice(rough),
        };
        let first = (least / step).floor() as i64;
        let last = (most / step).ceil() as i64;
        let values: Vec<f64> = (first..=last).map(|number| number as f64 * step).collect();
        Ticks { low: first as f64 * step, high: last as f64 * step, values, log: false }
    }

    fn log(unit: Unit, least: f64, most: f64) -> Ticks {
        let steps = if unit == Unit::Bytes { twos(least, most) } else { tens(least, most) };
        let low = steps.first().copied().unwrap_or(least);
        let high = steps.last().copied().unwrap_or(most);
        // One value is a point in the middle.
        let (low, high) = if high > low { (low, high) } else { (low / 2.0, high * 2.0) };
        Ticks { low, high, values: steps, log: true }
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `rough`.
fn nice(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let of = [1.0, 2.0, 5.0, 10.0].into_iter().find(|of| of * power >= rough * (1.0 - 1e-9));
    of.unwrap_or(10.0) * power
}

/// Powers of two around the range, so many that they can be read.
fn twos(least: f64, most: f64) -> Vec<f64> {
    let first = (least.log2() + 1e-9).floor() as i32;
    let last = (most.log2() - 1e-9).ceil() as i32;
    let step = (last - first).div_ceil_by(8).max(1);
    // The end lies on a step, too.
    let last = first + (last - first).div_ceil_by(step) * step;
    (first..=last).step_by(step as usize).map(|power| 2f64.powi(power)).collect()
}

/// Powers of ten around the range, with steps between them where there are few.
fn tens(least: f64, most: f64) -> Vec<f64> {
    let decades = (most / least).log10();
    let between: &[f64] = match decades {
        decades if decades <= 2.2 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let first = least.log10().floor() as i32;
    let last = most.log10().ceil() as i32;
    let all: Vec<f64> = (first..=last)
        .flat_map(|power| between.iter().map(move |of| of * 10f64.powi(power)))
        .collect();
    let from = all.iter().rposition(|value| *value <= least * (1.0 + 1e-9)).unwrap_or(0);
    let to = all.iter().position(|value| *value >= most * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
    let all = &all[from..=to.max(from)];
    // More than nine would overlap.
    let step = all.len().div_ceil(9).max(1);
    let mut some: Vec<f64> = all.iter().step_by(step).copied().collect();
    if let (Some(last), Some(end)) = (some.last_mut(), all.last())
        && *last < *end
    {
        *last = *end;
    }
    some
}

trait DivCeil {
    fn div_ceil_by(self, other: Self) -> Self;
}

impl DivCeil for i32 {
    /// Of numbers that are not negative.
    fn div_ceil_by(self, other: i32) -> i32 {
        (self + other - 1) / other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: Axis, values: &[f64]) -> Ticks {
        Ticks::new(&axis, values.iter().copied())
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_steps() {
        let axis = Axis::linear("rate", Unit::PerSecond);
        let found = ticks(axis, &[150_000.0, 310_000.0]);
        assert_eq!(found.values, [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0]);
        assert_eq!((found.place(0.0), found.place(200_000.0)), (Some(0.0), Some(0.5)));
        let bytes = ticks(Axis::linear("size", Unit::Bytes), &[10_000.0]);
        assert_eq!(bytes.values[1], 2048.0);
    }

    #[test]
    fn axes_of_powers_reach_around_their_values() {
        let found = ticks(Axis::log("files", Unit::Count), &[1_000.0, 100_000.0]);
        assert_eq!((found.low, found.high), (1_000.0, 100_000.0));
        assert_eq!(found.values.len(), 7);
        assert!((found.place(10_000.0).unwrap() - 0.5).abs() < 1e-9);
        let jobs = ticks(Axis::log("jobs", Unit::Count), &[1.0, 64.0]);
        assert_eq!(jobs.values, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let nodes = ticks(Axis::log("nodes", Unit::Bytes), &[4096.0, 65536.0]);
        assert_eq!(nodes.values, [4096.0, 8192.0, 16384.0, 32768.0, 65536.0]);
    }

    #[test]
    fn chosen_values_are_written_where_there_is_room() {
        let axis = Axis::log("jobs", Unit::Count);
        let jobs = [64.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 2.0];
        let found = Ticks::across(&axis, jobs.into_iter());
        assert_eq!(found.values, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        let many = Ticks::across(&axis, (1..=64).map(f64::from));
        assert!(many.values.len() <= 12 && many.values[0] == 1.0, "{many:?}");
        assert_eq!(Ticks::across(&axis, [5.0].into_iter()), ticks(axis, &[5.0]));
    }

    #[test]
    fn nothing_and_little_have_an_axis() {
        for values in [&[][..], &[0.0], &[5.0], &[-1.0, 0.0]] {
            for axis in [Axis::log("x", Unit::Bytes), Axis::linear("x", Unit::Share)] {
                let found = ticks(axis, values);
                assert!(found.high > found.low && !found.values.is_empty(), "{values:?} {found:?}");
            }
        }
        assert_eq!(ticks(Axis::log("x", Unit::Count), &[1.0, 10.0]).place(0.0), None);
    }

    #[test]
    fn wide_ranges_have_few_ticks() {
        let found = ticks(Axis::log("x", Unit::Count), &[1.0, 1e14]);
        assert!(found.values.len() <= 9 && found.high >= 1e14, "{found:?}");
        let found = ticks(Axis::log("x", Unit::Bytes), &[1.0, 2f64.powi(40)]);
        assert!(found.values.len() <= 9 && found.high >= 2f64.powi(40), "{found:?}");
    }
}
